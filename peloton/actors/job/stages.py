"""States and goals of a job."""

from __future__ import annotations

import enum


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


class JobGoals(enum.IntEnum):
    """What should become of a job."""

    SUCCEEDED = 1
    RUNNING = 2
    KILLED = 3
    DELETED = 4
