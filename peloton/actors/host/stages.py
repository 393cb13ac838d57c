"""States of a host, how far its maintenance is, and how far a run there."""

from __future__ import annotations

import enum


class HostStates(enum.IntEnum):
    """How far the host and its backend agree."""

    RECONCILING = 1  # the backend answers, but the ledger has not been compared yet
    UP = 2
    UNREACHABLE = 3
    LOST = 4


class Maintenance(enum.IntEnum):
    """How far the maintenance of a host is. Beyond NONE the host should be down."""

    NONE = 0
    DRAINING = 1  # its runs are ending
    DRAINED = 2  # they have ended, and tasks have still to journal it
    DOWN = 3


class RunPhase(enum.IntEnum):
    """How far a run has come on its host."""

    ACCEPTED = 1
    STARTED = 2
    KILLING = 3
    ENDED = 4
    REFUSED = 5
    PREPARED = 6  # its room is granted, and its task has not said go


OCCUPYING = frozenset((RunPhase.ACCEPTED, RunPhase.STARTED, RunPhase.KILLING, RunPhase.PREPARED))
