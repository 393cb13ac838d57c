"""How a host is held for tasks: others get no room there until the tasks came, or a time is over.

A hold ends by the launch of its task here, by an order, by its time, and when the host is no longer
ready for work. Code that grants room uses `alive`, which leaves out holds whose time is over.
"""

from __future__ import annotations

from collections.abc import Iterable

from peloton.actors.host import facts as f
from peloton.actors.host.holds import hold_messages as hm
from peloton.actors.host.ledger import NO_SETS
from peloton.actors.host.maintenance import no_host
from peloton.actors.host.stages import OCCUPYING
from peloton.actors.host.state import Host
from peloton.actors.resources import Resources
from peloton.placement.filters import NOT_READY, TOO_SMALL
from peloton.runtime.vocabulary import At, Bits, Decision, Key, Refused

TASK_LAUNCHED, TASK_RELEASED, TASK_EXPIRED = "launched", "released", "expired"


def hold_for_task(host: Host, message: hm.HoldForTask, at: At) -> Decision:
    """Keep others away until the task has come."""
    if host.removed:
        return no_host(message, at)
    problem = _problem(host, message)
    if problem is not None:
        return Decision(reply=problem, because=problem.text)
    need = message.need
    if need == Resources():
        need = _runs_of(host, message.crowd, member=message.member)
    until = message.until or at.now + message.seconds
    if message.until and (until <= at.now or _is_held(host, message.task, until=until)):
        return Decision(because="it is held for so long, or that is over")
    taken = hm.TaskHold(
        message.task, message.crowd, message.member, message.holder, need, until, message.reserve
    )
    reply = hm.HeldForTask(message.task, until, host.summary(at.key))
    return Decision(facts=(f.TaskHeld(taken),), reply=reply, because="held for a task")


def _is_held(host: Host, task: str, *, until: float) -> bool:
    return any(one.task == task and one.until >= until for one in host.task_holds)


def _problem(host: Host, message: hm.HoldForTask) -> Refused | None:
    others = [one for one in host.task_holds if one.task != message.task]
    if not host.grants:
        return Refused(NOT_READY, "the host is not ready", again=True)
    if message.reserve and (others or host.hold is not None):
        return Refused(NOT_READY, "the host is held for others", again=True)
    if len(others) >= hm.TASK_HOLDS_MAX:
        text = f"the host is held for {hm.TASK_HOLDS_MAX} tasks already"
        return Refused(NOT_READY, text, again=True)
    if not message.need.within(host.capacity):
        short = ", ".join(message.need.short_of(host.capacity))
        return Refused(TOO_SMALL, f"the host is too small: {short}", again=True)
    return None


def _runs_of(host: Host, crowd: Key, *, member: int) -> Resources:
    """Return what the runs of this task hold here."""
    found = Resources()
    for some in host.runs.grouped.get(crowd, NO_SETS):
        if some.phase in OCCUPYING and member in some.members:
            found = found + some.resources
    return found


def release_task_holds(host: Host, message: hm.ReleaseTaskHolds, at: At) -> Decision:
    """End the holds for these tasks, as far as there are any."""
    wanted = frozenset(message.tasks)
    known = tuple(one.task for one in host.task_holds if one.task in wanted)
    reply = hm.TaskHoldsReleased(known)
    return Decision(facts=ended_holds(known, TASK_RELEASED), reply=reply)


def no_task_holds(message: hm.ReleaseTaskHolds, at: At) -> Decision:
    """Answer a release at a host that does not exist: no holds were released."""
    return Decision(reply=hm.TaskHoldsReleased(()), because="no such host")


def ended_holds(tasks: Iterable[str], reason: str) -> tuple[f.TaskHoldsEnded, ...]:
    """Return the fact that the host is not held for these tasks any more; nothing for no tasks."""
    some = tuple(tasks)
    return (f.TaskHoldsEnded(some, reason),) if some else ()


def alive(host: Host, now: float) -> tuple[hm.TaskHold, ...]:
    """Return the holds whose time is not over."""
    return tuple(one for one in host.task_holds if not hm.is_over(one, now))


def end_task_holds(host: Host, at: At) -> Decision | None:
    """End the holds whose time is over."""
    if not host.task_holds:
        return None
    gone = [one.task for one in host.task_holds if hm.is_over(one, at.now)]
    because = "holds for tasks expired"
    return Decision(ended_holds(gone, TASK_EXPIRED), because=because) if gone else None


def next_over(host: Host) -> float:
    """Return when the first hold is over; 0.0 without any."""
    return min((one.until for one in host.task_holds), default=0.0)


def members_held(holds: Iterable[hm.TaskHold], crowd: Key) -> Bits:
    """Return the members of this crowd for which the host is held."""
    return Bits.of(*sorted(one.member for one in holds if one.crowd == crowd))


def room_beside(host: Host, holds: Iterable[hm.TaskHold]) -> Resources:
    """Return what runs leave free, less the needs of held-for tasks that have no run here."""
    room = host.unused
    for one in holds:
        if _runs_of(host, one.crowd, member=one.member) == Resources():
            room = room - one.need
    return room
