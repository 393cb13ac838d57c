"""What the config of a job may say and this version does not decide upon yet.

Turns configs into lines for people: for the events of an instance, and for whoever creates a job or
a pool. Takes the messages of the wire by their fields. It must not refuse anything: what would end
differently than its client expects is refused where configs are translated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

PREFIX = "accepted, not decided upon yet: "

_SLA: Mapping[str, str] = {}
_POOL: Mapping[str, str] = {}


def of_job(sla: Any) -> tuple[str, ...]:
    """What a job's SlaConfig says without effect."""
    return tuple(f"sla.{text}" for name, text in _SLA.items() if getattr(sla, name))


def of_task(config: Any, sla: Any) -> tuple[str, ...]:
    """What a TaskConfig says without effect."""
    found = []
    if config.revocable and not sla.revocable:
        found.append("revocable (only that of the job's sla counts)")
    if config.resource.fdLimit:
        found.append("resource.fdLimit (it is not enforced)")
    return tuple(found)


def of_configs(config: Any) -> tuple[str, ...]:
    """What a whole JobConfig says without effect, each thing once."""
    tasks = [config.defaultConfig, *(config.instanceConfig[at] for at in config.instanceConfig)]
    texts = [*of_job(config.sla), *(text for task in tasks for text in of_task(task, config.sla))]
    return tuple(dict.fromkeys(texts))


def of_pool(config: Any) -> tuple[str, ...]:
    """What a ResourcePoolConfig says without effect."""
    return tuple(text for name, text in _POOL.items() if config.HasField(name))


def line(texts: Iterable[str]) -> str:
    """All of it as one line; empty where there is nothing."""
    joined = ", ".join(texts)
    return PREFIX + joined if joined else ""
