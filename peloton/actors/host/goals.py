"""Goal table of a host: it should be up. Messages take all its steps, so every cell rests.

The table is total, and names what each state waits for.

No step may be taken here that needs a report of the backend, which alone knows what runs. Such a
report may be lost, and the backend does not repeat it; so a host that waits for one, or holds runs
whose ends it waits for, polls its backend at an interval. The time of the next poll is not
journaled: after a recovery the backend is polled at once.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from peloton.actors.host.messages import PingBackend
from peloton.actors.host.reports import list_runs
from peloton.actors.host.state import Host, HostStates
from peloton.runtime.vocabulary import SETTLED, WAITING, At, Decision, Rest, Send, Value


class HostGoals(enum.StrEnum):
    """What should be."""

    UP = "up"


TABLE: Mapping[HostStates, Mapping[HostGoals, Rest]] = {
    HostStates.RECONCILING: {HostGoals.UP: WAITING},  # for the backend's list of runs
    HostStates.UP: {HostGoals.UP: SETTLED},
    HostStates.UNREACHABLE: {HostGoals.UP: WAITING},  # for the backend, or the time limit
    HostStates.LOST: {HostGoals.UP: WAITING},  # for the machine to come back
}


POLL_EVERY_S: Mapping[HostStates, float] = {
    HostStates.RECONCILING: 5.0,
    HostStates.UP: 300.0,  # 50,000 hosts then make 170 lists per second
    HostStates.UNREACHABLE: 10.0,
    HostStates.LOST: 60.0,
}


class HostNotes(Value, frozen=True, gc=False, array_like=True):
    """When to poll the backend next, while the host is in this state; 0.0: no poll is needed."""

    state: HostStates
    poll_at: float


def recall_s(notes: HostNotes) -> float | None:
    """When the runtime should wake the host."""
    return notes.poll_at or None


def pursue(host: Host, at: At) -> Decision | Rest:
    """The next step towards the goal: a poll of the backend, when it is due."""
    idle = host.removed or (host.state == HostStates.UP and not host.runs)
    notes: HostNotes | None = at.notes
    next_s = 0.0 if idle else at.now + POLL_EVERY_S[host.state]
    if notes is None or notes.state != host.state or not notes.poll_at:
        if not idle:
            return Decision(notes=HostNotes(host.state, next_s))
    elif at.now >= notes.poll_at and not host.removed:
        # Once more after it has become idle: a `ForgetRuns` to the backend may have been lost.
        return Decision(sends=(_poll(host, at),), notes=HostNotes(host.state, next_s))
    return TABLE[host.state][HostGoals.UP]


def _poll(host: Host, at: At) -> Send:
    if host.state in (HostStates.RECONCILING, HostStates.UP):
        return list_runs(host, at)
    return Send(host.backend, PingBackend(at.key))


def deadline(host: Host) -> tuple[str, float] | None:
    """Seconds for which the backend may be unavailable before the machine is considered lost."""
    if host.state == HostStates.UNREACHABLE:
        return "unreachable", host.unreachable_timeout_s
    return None
