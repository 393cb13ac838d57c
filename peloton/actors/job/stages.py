"""States, goals and version of a job."""

from __future__ import annotations

import enum

from peloton.runtime.vocabulary import Value


class JobStates(enum.IntEnum):
    """The states that clients see; the numbers are those of the wire."""

    INITIALIZED = 1
    PENDING = 2
    RUNNING = 3
    SUCCEEDED = 4
    FAILED = 5
    KILLED = 6
    KILLING = 7
    DELETED = 9


ENDED_NAMES = ("SUCCEEDED", "FAILED", "LOST", "KILLED")
TERMINAL_JOB_STATES = frozenset(
    (JobStates.SUCCEEDED, JobStates.FAILED, JobStates.KILLED, JobStates.DELETED)
)


class JobGoals(enum.IntEnum):
    """What should become of a job."""

    SUCCEEDED = 1
    RUNNING = 2
    KILLED = 3
    DELETED = 4


class EntityVersion(Value, frozen=True, gc=False, array_like=True):
    """How often config, goal and workflows of a service have changed, each counted from 1."""

    config: int
    goal: int
    workflow: int

    def __str__(self) -> str:
        return f"{self.config}-{self.goal}-{self.workflow}"
