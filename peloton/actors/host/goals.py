"""Goal table of a host: it should be up or, from the start of a maintenance on, down.

The table is total: for each state and phase of a maintenance (NONE: there is none), the steps in
their order, of which the first that has something to do is taken, and how the host rests where none
has. Messages take the steps towards UP; those towards DOWN are taken when runs have ended. Times
that are over are ended here too, because the deadline of an unreachable host, or of something else,
may have taken the place of theirs. A host that is lost or in maintenance has no holds, and comes
back from a maintenance without a quarantine.

No step here may depend on a report of the backend, which alone knows what runs. Such a report may
be lost, and the backend does not repeat it; so a host that waits for one, or holds runs whose ends
it waits for, polls its backend at an interval. The time of the next poll is not journaled: after a
recovery the backend is polled at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from peloton.actors.host.holds.holding import end_hold
from peloton.actors.host.holds.task_holds import end_task_holds, next_over
from peloton.actors.host.maintenance import drain, end_daemons
from peloton.actors.host.messages import PingBackend
from peloton.actors.host.moving import take_down
from peloton.actors.host.orders import list_runs
from peloton.actors.host.quarantine import end_quarantine
from peloton.actors.host.slack import take_slack_back
from peloton.actors.host.stages import HostStates, Maintenance
from peloton.actors.host.state import Host
from peloton.actors.host.use import use_again
from peloton.actors.host.volumes import is_removing
from peloton.runtime.vocabulary import SETTLED, WAITING, At, Decision, Rest, Send, Value

POLL_EVERY_S: Mapping[HostStates, float] = {
    HostStates.RECONCILING: 5.0,
    HostStates.UP: 300.0,  # 50,000 hosts then make 170 lists per second
    HostStates.UNREACHABLE: 10.0,
    HostStates.LOST: 60.0,
}


DRAIN_POLL_EVERY_S = 10.0
"""While runs are ending, or the backend has not answered what the host is for: an order that was
lost is repeated."""


REMOVED_POLLS_MAX = 360
"""An hour of them: so often a removed host tells its backend that it is in use, which may be away
for good. After a recovery it begins anew."""


class HostNotes(Value, frozen=True, gc=False, array_like=True):
    """When to poll the backend next, while the host is in this state; 0.0: no poll is needed.

    `polls`: how often it was polled since the host was removed.
    """

    state: HostStates
    poll_at: float
    polls: int = 0


def recall_s(notes: HostNotes) -> float | None:
    """Return when the runtime should wake the host."""
    return notes.poll_at or None


def poll(host: Host, at: At) -> Decision | None:
    """Ask the backend when that is due, and note when it will be."""
    notes: HostNotes | None = at.notes
    polls = notes.polls if notes is not None and host.removed else 0
    is_up, is_open, every_s = host.state == HostStates.UP, host.use.open, POLL_EVERY_S[host.state]
    told = not (is_removing(host) or (is_open and polls < REMOVED_POLLS_MAX))
    silent = host.removed and told
    idle = silent or (told and is_up and not (host.runs or host.task_holds))
    if is_open or (is_up and host.maintenance == Maintenance.DRAINING):
        every_s = min(every_s, DRAIN_POLL_EVERY_S)
    next_s = 0.0 if idle else at.now + every_s
    if host.task_holds:
        next_s = min(next_s, next_over(host))  # a deadline may be another's
    known = notes is not None and notes.state == host.state and notes.poll_at
    if notes is None or not known or notes.poll_at > next_s > 0.0:
        return None if idle else Decision(notes=HostNotes(host.state, next_s, polls))
    if at.now < notes.poll_at or silent:
        return None
    # Once more after it has become idle: a `ForgetRuns` to the backend may have been lost.
    sends = (_question(host, at), *use_again(host, at))
    count = polls + 1 if host.removed else 0
    next_s = 0.0 if count == REMOVED_POLLS_MAX else next_s
    return Decision(sends=sends, notes=HostNotes(host.state, next_s, count))


def _question(host: Host, at: At) -> Send:
    if host.state in (HostStates.RECONCILING, HostStates.UP):
        return list_runs(host, at)
    return Send(host.backend, PingBackend(at.key))


HostSteps: TypeAlias = tuple[tuple[Callable[[Host, At], Decision | None], ...], Rest]
_OVER = end_hold, end_task_holds, end_quarantine
_POLLS: HostSteps = (poll,), WAITING  # for a list of runs, or any word of the backend
_IN_DOUBT: Mapping[Maintenance, HostSteps] = {
    Maintenance.NONE: ((*_OVER, poll), WAITING),
    Maintenance.DRAINING: _POLLS,
    Maintenance.DRAINED: _POLLS,
    Maintenance.DOWN: _POLLS,
}

TABLE: Mapping[HostStates, Mapping[Maintenance, HostSteps]] = {
    HostStates.RECONCILING: _IN_DOUBT,
    HostStates.UP: {
        Maintenance.NONE: ((*_OVER, take_slack_back, poll), SETTLED),
        Maintenance.DRAINING: ((take_slack_back, end_daemons, drain, poll), WAITING),
        Maintenance.DRAINED: ((take_down, poll), WAITING),
        Maintenance.DOWN: ((poll,), SETTLED),
    },
    HostStates.UNREACHABLE: _IN_DOUBT,
    HostStates.LOST: {
        Maintenance.NONE: ((end_quarantine, poll), WAITING),
        Maintenance.DRAINING: ((drain, poll), WAITING),
        Maintenance.DRAINED: ((take_down, poll), WAITING),
        Maintenance.DOWN: _POLLS,
    },
}


def pursue(host: Host, at: At) -> Decision | Rest:
    """The next step towards the goal: down from the start of a maintenance to its completion."""
    steps, rest = TABLE[host.state][host.maintenance]
    for step in steps:
        taken = step(host, at)
        if taken is not None:
            return taken
    return rest
