"""Goal table of a host: it should be up. Its steps are all taken by messages, so every cell rests.

The table is total, and names what each state waits for.

No step may be taken here that only a message can justify: nobody but the backend knows what runs.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from peloton.actors.host.state import Host, HostStates
from peloton.runtime.vocabulary import SETTLED, WAITING, At, Decision, Rest


class HostGoals(enum.Enum):
    """What should be."""

    UP = "up"


TABLE: Mapping[HostStates, Mapping[HostGoals, Rest]] = {
    HostStates.UNSURE: {HostGoals.UP: WAITING},  # for the backend's list of runs
    HostStates.UP: {HostGoals.UP: SETTLED},
    HostStates.UNREACHABLE: {HostGoals.UP: WAITING},  # for the backend, or the time limit
    HostStates.LOST: {HostGoals.UP: WAITING},  # for the machine to come back
}


def pursue(host: Host, at: At) -> Decision | Rest:
    """The next step towards the goal."""
    return TABLE[host.state][HostGoals.UP]


def deadline(host: Host) -> tuple[str, float] | None:
    """How long the backend may be silent before the machine is taken for lost."""
    if host.state == HostStates.UNREACHABLE:
        return "unreachable", host.unreachable_timeout_s
    return None
