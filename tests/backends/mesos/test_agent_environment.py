"""What an agent tells an executor by its environment."""

from __future__ import annotations

import pytest

from peloton.backends.mesos.executor.agent_environment import (
    EDITION,
    EDITION_VARIABLE,
    IDLE_VARIABLE,
    AgentEnvironment,
    seconds,
)
from peloton.backends.mesos.executor.talk import ExecutorConfig

TOLD = {
    "MESOS_FRAMEWORK_ID": "F", "MESOS_EXECUTOR_ID": "E", "MESOS_AGENT_ENDPOINT": "127.0.0.1:5051",
    "MESOS_DIRECTORY": "/work/E", "MESOS_SANDBOX": "/sandbox", "MESOS_CHECKPOINT": "1",
    "MESOS_RECOVERY_TIMEOUT": "15mins", IDLE_VARIABLE: "2.5",
    "MESOS_EXECUTOR_AUTHENTICATION_TOKEN": "t", EDITION_VARIABLE: EDITION,
}  # fmt: skip


def test_all_that_is_told() -> None:
    config = ExecutorConfig("F", "E", recovers=True, recovery_s=900.0, idle_s=2.5)
    found = AgentEnvironment.of(TOLD)
    assert found == AgentEnvironment(config, "127.0.0.1:5051", "/sandbox", "t")


def test_what_need_not_be_told() -> None:
    ids = ("MESOS_FRAMEWORK_ID", "MESOS_EXECUTOR_ID")
    names = (*ids, "MESOS_AGENT_ENDPOINT", "MESOS_DIRECTORY", EDITION_VARIABLE)
    found = AgentEnvironment.of({name: TOLD[name] for name in names})
    assert found == AgentEnvironment(
        ExecutorConfig("F", "E", recovers=False), "127.0.0.1:5051", "/work/E"
    )


def test_it_is_no_agent_that_tells_nothing() -> None:
    with pytest.raises(KeyError):
        AgentEnvironment.of({})


def test_files_of_another_version_start_no_executor_for_the_daemon() -> None:
    """It would take what it is sent for something else."""
    with pytest.raises(ValueError, match="of another version than the daemon"):
        AgentEnvironment.of(TOLD | {EDITION_VARIABLE: "1"})


@pytest.mark.parametrize(
    ("text", "found"),
    [("15mins", 900.0), ("2.5secs", 2.5), ("500ms", 0.5), ("1.5hrs", 5400.0), ("1weeks", 604800.0)],
)
def test_durations(text: str, found: float) -> None:
    assert seconds(text) == found


@pytest.mark.parametrize("text", ["", "15", "15 minutes", "-1secs"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        seconds(text)
