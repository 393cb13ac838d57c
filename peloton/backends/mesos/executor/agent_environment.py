"""The settings of an executor, which an agent passes by the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from .talk import ExecutorConfig

IDLE_VARIABLE = "PELOTON_EXECUTOR_IDLE_S"
EDITION_VARIABLE, EDITION = "PELOTON_EXECUTOR_EDITION", "3"
"""Raised when what is sent to executors means something else: those of another edition, which have
another description, get no more tasks, and files of another edition start none."""
_DURATION = re.compile(r"([0-9.]+(?:[eE][+-]?[0-9]+)?)(ns|us|ms|secs|mins|hrs|days|weeks)")
_UNITS = {
    "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "secs": 1.0,
    "mins": 60.0, "hrs": 3600.0, "days": 86_400.0, "weeks": 604_800.0,
}  # fmt: skip


class AgentEnvironment(NamedTuple):
    """Settings from the environment: the agent's `HOST:PORT`, the sandbox, and more."""

    config: ExecutorConfig
    agent: str
    folder: str
    token: str = ""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> AgentEnvironment:
        """Read the environment.

        Raises KeyError and ValueError if no agent has started us, or one for a daemon of another
        version.
        """
        if environment[EDITION_VARIABLE] != EDITION:
            raise ValueError("these files are of another version than the daemon: replace them")
        config = ExecutorConfig(
            framework=environment["MESOS_FRAMEWORK_ID"],
            executor=environment["MESOS_EXECUTOR_ID"],
            recovers=environment.get("MESOS_CHECKPOINT") == "1",
            recovery_s=seconds(environment.get("MESOS_RECOVERY_TIMEOUT", "15mins")),
            idle_s=float(environment.get(IDLE_VARIABLE, "60")),
        )
        folder = environment.get("MESOS_SANDBOX") or environment["MESOS_DIRECTORY"]
        token = environment.get("MESOS_EXECUTOR_AUTHENTICATION_TOKEN", "")
        return cls(config, environment["MESOS_AGENT_ENDPOINT"], folder, token)


def seconds(text: str) -> float:
    """Return a duration as Mesos writes it: `15mins`, `2.5secs`."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"no duration: {text!r}")
    return float(found[1]) * _UNITS[found[2]]
