"""Goal table of a host: it should be up. Its steps are all taken by messages, so every cell rests.

The table is total, and names what each state waits for.

No step may be taken here that only a message can justify: nobody but the backend knows what runs.
But a word of the backend may be lost, and nobody would say it again: so a host that waits for one,
or holds runs whose ends it would wait for, looks by itself from time to time. When it looks next is
soft memory: a recovery looks at once.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from peloton.actors.host.messages import PingBackend
from peloton.actors.host.reports import list_runs
from peloton.actors.host.state import Host, HostStates
from peloton.runtime.vocabulary import SETTLED, WAITING, At, Decision, Rest, Send, Value


class HostGoals(enum.Enum):
    """What should be."""

    UP = "up"


TABLE: Mapping[HostStates, Mapping[HostGoals, Rest]] = {
    HostStates.RECONCILING: {HostGoals.UP: WAITING},  # for the backend's list of runs
    HostStates.UP: {HostGoals.UP: SETTLED},
    HostStates.UNREACHABLE: {HostGoals.UP: WAITING},  # for the backend, or the time limit
    HostStates.LOST: {HostGoals.UP: WAITING},  # for the machine to come back
}


INSPECT_EVERY_S: Mapping[HostStates, float] = {
    HostStates.RECONCILING: 5.0,
    HostStates.UP: 300.0,  # fifty thousand hosts are 170 lists a second
    HostStates.UNREACHABLE: 10.0,
    HostStates.LOST: 60.0,
}


class HostNotes(Value, frozen=True, gc=False, array_like=True):
    """When to look next, while the host is in this state; 0.0: there is nothing to look for."""

    state: HostStates
    inspect_at: float


def recall_s(notes: HostNotes) -> float | None:
    """When the runtime should wake the host."""
    return notes.inspect_at or None


def pursue(host: Host, at: At) -> Decision | Rest:
    """The next step towards the goal: a look at the backend, when it is due."""
    idle = host.removed or (host.state == HostStates.UP and not host.runs)
    notes: HostNotes | None = at.notes
    next_s = 0.0 if idle else at.now + INSPECT_EVERY_S[host.state]
    if notes is None or notes.state != host.state or not notes.inspect_at:
        if not idle:
            return Decision(notes=HostNotes(host.state, next_s))
    elif at.now >= notes.inspect_at and not host.removed:
        # Also one that has become idle, once: the backend may keep what it was told to forget.
        return Decision(sends=(_inspect(host, at),), notes=HostNotes(host.state, next_s))
    return TABLE[host.state][HostGoals.UP]


def _inspect(host: Host, at: At) -> Send:
    if host.state in (HostStates.RECONCILING, HostStates.UP):
        return list_runs(host, at)
    return Send(host.backend, PingBackend(at.key))


def deadline(host: Host) -> tuple[str, float] | None:
    """How long the backend may be silent before the machine is taken for lost."""
    if host.state == HostStates.UNREACHABLE:
        return "unreachable", host.unreachable_timeout_s
    return None
