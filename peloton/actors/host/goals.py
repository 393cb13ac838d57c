"""Goal table of a host: it should be up or, from the start of a maintenance on, down.

The table is total, and names what each state waits for. Messages take the steps towards UP; those
towards DOWN are taken when runs have ended.

No step may be taken here that needs a report of the backend, which alone knows what runs. Such a
report may be lost, and the backend does not repeat it; so a host that waits for one, or holds runs
whose ends it waits for, polls its backend at an interval. The time of the next poll is not
journaled: after a recovery the backend is polled at once.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import TypeAlias

from peloton.actors.host.holds.holding import expired, hold_deadline
from peloton.actors.host.holds.task_holds import next_over, over
from peloton.actors.host.maintenance import drain, end_daemons
from peloton.actors.host.messages import PingBackend
from peloton.actors.host.moving import down_or_moved
from peloton.actors.host.orders import list_runs
from peloton.actors.host.quarantine import QUARANTINE, QUARANTINE_OVER, is_quarantine_over
from peloton.actors.host.slack import slack_short, take_slack_back
from peloton.actors.host.state import Host, HostStates, Maintenance
from peloton.actors.host.use import put_out_of_use, use_again
from peloton.actors.host.volumes import is_removing
from peloton.runtime.vocabulary import SETTLED, WAITING, At, Decision, Rest, Send, Value


class HostGoals(enum.StrEnum):
    """What should be."""

    UP = "up"
    DOWN = "down"


HostStep: TypeAlias = Callable[[Host], Decision | Rest]


def wait(host: Host) -> Rest:
    """Wait for the backend, or the time limit of an unreachable machine."""
    return WAITING


def settle(host: Host) -> Rest:
    """There is nothing to do."""
    return SETTLED


TABLE: Mapping[HostStates, Mapping[HostGoals, HostStep]] = {
    HostStates.RECONCILING: {HostGoals.UP: wait, HostGoals.DOWN: wait},  # for a list of runs
    HostStates.UP: {HostGoals.UP: settle, HostGoals.DOWN: drain},
    HostStates.UNREACHABLE: {HostGoals.UP: wait, HostGoals.DOWN: wait},
    HostStates.LOST: {HostGoals.UP: wait, HostGoals.DOWN: drain},
}


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


def poll_every_s(host: Host) -> float:
    """Seconds between polls of the backend."""
    every_s = POLL_EVERY_S[host.state]
    if host.use.open or (host.state == HostStates.UP and host.maintenance == Maintenance.DRAINING):
        return min(every_s, DRAIN_POLL_EVERY_S)
    return every_s


class HostNotes(Value, frozen=True, gc=False, array_like=True):
    """When to poll the backend next, while the host is in this state; 0.0: no poll is needed.
    `polls`: how often that was done since the host was removed."""

    state: HostStates
    poll_at: float
    polls: int = 0


def recall_s(notes: HostNotes) -> float | None:
    """When the runtime should wake the host."""
    return notes.poll_at or None


def pursue(host: Host, at: At) -> Decision | Rest:
    """The next step towards the goal; without one, a poll of the backend when it is due."""
    if host.hold is not None and at.now >= host.hold.until:
        return expired(host.hold)  # the deadline of an unreachable host had taken its place
    gone = over(host, at.now) if host.task_holds else None
    if gone is not None:
        return gone
    if is_quarantine_over(host, now=at.now):
        return QUARANTINE_OVER  # likewise, or that of a hold
    if slack_short(host) and host.state == HostStates.UP:
        taken = take_slack_back(host, at)
        if taken is not None:
            return taken
    if host.maintenance == Maintenance.DRAINING and host.state == HostStates.UP:
        last = end_daemons(host, at)
        if last is not None:
            return last
    step: Decision | Rest = SETTLED  # as the table says of a host that is up, without its calls
    if host.state != HostStates.UP or host.maintenance != Maintenance.NONE:
        step = down_or_moved(host, put_out_of_use(host, TABLE[host.state][goal_of(host)](host), at))
        if isinstance(step, Decision):
            return step
    notes: HostNotes | None = at.notes
    polls = notes.polls if notes is not None and host.removed else 0
    told = not (is_removing(host) or (host.use.open and polls < REMOVED_POLLS_MAX))
    silent = host.removed and told
    idle = silent or (told and host.state == HostStates.UP and not (host.runs or host.task_holds))
    next_s = 0.0 if idle else at.now + poll_every_s(host)
    if host.task_holds:
        next_s = min(next_s, next_over(host))  # a deadline may be another's
    known = notes is not None and notes.state == host.state and notes.poll_at
    if notes is None or not known or notes.poll_at > next_s > 0.0:
        if not idle:
            return Decision(notes=HostNotes(host.state, next_s, polls))
    elif at.now >= notes.poll_at and not silent:
        # Once more after it has become idle: a `ForgetRuns` to the backend may have been lost.
        sends = (_poll(host, at), *use_again(host, at))
        count = polls + 1 if host.removed else 0
        next_s = 0.0 if count == REMOVED_POLLS_MAX else next_s
        return Decision(sends=sends, notes=HostNotes(host.state, next_s, count))
    return step


def goal_of(host: Host) -> HostGoals:
    """What should be: down from the start of a maintenance to its completion."""
    return HostGoals.UP if host.maintenance == Maintenance.NONE else HostGoals.DOWN


def _poll(host: Host, at: At) -> Send:
    if host.state in (HostStates.RECONCILING, HostStates.UP):
        return list_runs(host, at)
    return Send(host.backend, PingBackend(at.key))


def deadline(host: Host) -> tuple[str, float] | None:
    """Seconds for which the backend may be unavailable before the machine is considered lost; of
    any other host, those for which it is held, or else for which placers leave it out, which begin
    anew once that was the case."""
    if host.state == HostStates.UNREACHABLE:
        return "unreachable", host.unreachable_timeout_s
    if host.hold is not None:
        return hold_deadline(host.hold)
    if host.quarantine is not None:
        return QUARANTINE, host.quarantine.seconds
    return None
