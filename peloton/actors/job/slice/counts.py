"""The tally of a slice: its instances by the state that clients see.

Counted are the crowd, the members that have not begun and those that are being restarted. What a
goal has ordered counts from the turn on that took the goal, though the tasks learn of it later in
the same frame: a job must never see instances as ended that are to run again.
"""

from __future__ import annotations

from typing import Any

from peloton.actors.job.slice.availability import down_tally, reviving, unborn
from peloton.actors.job.slice.goals import unended
from peloton.actors.job.slice.messages import BETWEEN_ATTEMPTS, Tally
from peloton.actors.job.slice.rollouts import Rollout
from peloton.actors.job.slice.state import Slice
from peloton.actors.job.slice.usage import times
from peloton.actors.task.messages import TaskGoals
from peloton.actors.task.state import ENDED, Admission, Task, TaskStates, waits_for_gang
from peloton.runtime.vocabulary import At, Bits

INITIALIZED = "INITIALIZED"
_NAMES = {
    TaskStates.LAUNCHING: "LAUNCHED",
    TaskStates.THROTTLED: BETWEEN_ATTEMPTS,
    TaskStates.PREPARING: "PLACING",
    TaskStates.PREPARED: "PLACED",
}


def client_state(task: Task) -> str:
    """Return the name of the state as clients know it; a task between two attempts is FAILED."""
    return "FAILED" if task.state == TaskStates.THROTTLED else counted_state(task)


def counted_state(task: Task) -> str:
    """Return the name of the state in a tally: a waiting task is INITIALIZED, then PENDING."""
    if task.state == TaskStates.WAITING:
        return (
            INITIALIZED
            if task.admission == Admission.NONE and not task.unschedulable
            else "PENDING"
        )
    if task.policy.together and waits_for_gang(task):
        return "PENDING"  # it runs again, with its gang
    return _NAMES.get(task.state, task.state.name)


NO_ROLLOUT = 0, 0, 0, False, 0
Phase = tuple[bool, int, tuple[tuple[str, int], ...], tuple[int, ...]]


def phase(slice_: Slice, index: Any) -> Phase | None:
    """Return what a new report would tell the job; a change of it is reported at once.

    None before any instance runs; then whether all have ended, how many are active if each end
    frees a grant for other slices, and how those ended that will not act any more.

    A slice that has begun all its instances uses no more of its grant than it has active ones: what
    it frees is granted to other slices by its tally, so each end is reported at once. With a
    throttle the job has to release the next start upon each end. A rollout that cannot use its
    leave any more frees it for other slices, and what fails may end it. If slices share how many
    may be down, a member that comes back frees that for the others, who may wait for it.
    """
    rollout: tuple[int, ...] = NO_ROLLOUT
    if slice_.rollout is not None:
        rollout = _rollout_phase(slice_.rollout)
    if slice_.budget is not None and slice_.budget.most:
        rollout = (*rollout, *_down_phase(slice_, index, most=slice_.budget.most))
    begun, active = False, 0
    for task, raw in index.classes.items() if index is not None else ():
        if task.state in ENDED and not (task.policy.together and waits_for_gang(task)):
            begun = True
        else:
            begun = begun or task.state == TaskStates.RUNNING
            active += raw.bit_count()
    if slice_.homes is not None:
        # Hosts come and go, so no end is for good.
        known = ("", len(slice_.homes.placed)), ("RUNNING", int(begun))
        return False, active, known, rollout
    if not begun and not rollout[0]:
        return None
    waiting = bool(slice_.awaiting_restart.raw or (slice_.closed and slice_.waiting.raw))
    if not (active or waiting):
        counts = index.count(counted_state) if index is not None else {}
        return begun, 0, tuple(sorted(counts.items())), rollout
    throttled = slice_.begins is not None
    ends_free_grants = slice_.grant is not None and (throttled or not waiting)
    return False, active if ends_free_grants else 0, (), rollout


def _rollout_phase(rollout: Rollout) -> tuple[int, int, int, bool, int]:
    """Return the part of the phase that concerns the rollout.

    Which rollout, how many are left if that frees leave for other slices, how many have failed,
    whether anything is left to be waited for, and how many do their work no more.
    """
    if rollout.order.over:
        return NO_ROLLOUT
    tally = rollout.tally
    left, failed = tally.left, tally.failed
    most = min(left + failed, rollout.order.leave)
    return tally.number, most, failed, left > 0 or not tally.steady, tally.fallen


def _down_phase(slice_: Slice, index: Any, *, most: int) -> tuple[int, int]:
    """Return how many are down, as long as that leaves anything to others, and how many are
    wished."""
    counted = down_tally(slice_, index)
    return (min(counted.down, most), counted.disruption_wanted) if counted is not None else (0, 0)


def is_final(phase: Phase | None) -> bool:
    """Return whether all have ended.

    The phase has their outcomes, so a tally tells no more than it, except how far a rollout is.
    """
    return phase is not None and phase[0] and not phase[3][3]


def tally(slice_: Slice, at: At) -> Tally:
    """Return instances by state, when they began and ended, and what they used.

    If each end is reported at once, only the last report has times and usage: each is a pass over
    all instances.
    """
    if slice_.homes is not None:
        found, begins = _at_home(slice_.homes.placed, at), 0
    else:
        found = dict(at.index.count(counted_state)) if at.index is not None else {}
        begins = len(slice_.waiting - slice_.unadded) if slice_.closed else 0
    if slice_.goal != TaskGoals.DELETED:
        begins += unborn(slice_, at.index).raw.bit_count()
    again = slice_.awaiting_restart.raw | reviving(slice_, at.index).raw
    for task, raw in at.index.split(again) if again else ():
        if task is not None and task.state in ENDED:
            found[counted_state(task)] -= raw.bit_count()
            begins += raw.bit_count()
    if begins:
        found[INITIALIZED] = found.get(INITIALIZED, 0) + begins
    counts = sorted([(name, count) for name, count in found.items() if count])
    # Without those that have ended and still hold a ticket: they never run again by themselves.
    active = -1 if slice_.grant is None else len(unended(slice_, at.index))
    return Tally(
        counts=tuple(counts),
        controller=_controller(slice_, at),
        times=_times(slice_, at),
        active=active,
        versions=_versions(slice_, at),
        starts=slice_.starts,
        rollout=slice_.rollout.tally if slice_.rollout is not None else None,
        down=down_tally(slice_, at.index) if slice_.budget is not None else None,
    )


def _at_home(placed: Bits, at: At) -> dict[str, int]:
    """Return the members of a daemon job that have hosts, by state; those without are no
    instances."""
    found: dict[str, int] = {}
    for task, raw in at.index.split(placed.raw & at.index.present) if at.index is not None else ():
        name = counted_state(task)
        found[name] = found.get(name, 0) + raw.bit_count()
    return found


def _times(slice_: Slice, at: At) -> tuple[float, ...]:
    if at.index is None:
        return ()
    # Without a grant, single ends are not reported at once.
    known = phase(slice_, at.index) if slice_.grant is not None else None
    each_end = known is not None and not known[0] and known[1] > 0
    return () if each_end else times(slice_, at.index)


def _controller(slice_: Slice, at: At) -> str:
    if slice_.number or at.index is None:
        return ""
    if not slice_.specs[at.index.columns.read("spec", 0) or 0].config.controller:
        return ""
    state = at.index.state_of(0)
    if state is not None and 0 in slice_.awaiting_restart | reviving(slice_, at.index):
        return INITIALIZED
    return client_state(state) if state is not None else ""


def _versions(slice_: Slice, at: At) -> tuple[tuple[int, int], ...]:
    """Return instances by the version of their config; nothing while all have the first."""
    for row in slice_.specs:
        if row.config_version != 1:
            break
    else:
        return ()
    counts: dict[int, int] = {}
    begun: dict[int, int] = {}
    if at.index is not None:
        here = at.index.present
        if slice_.homes is not None:
            here &= slice_.homes.placed.raw
        for spec, raw in at.index.columns.groups("spec", here):
            begun[spec] = raw.bit_count()
    unadded = slice_.unadded
    for spec, row in enumerate(slice_.specs):
        waits = len(slice_.closed[spec] - unadded) if slice_.closed and slice_.homes is None else 0
        number = row.config_version
        counts[number] = counts.get(number, 0) + begun.get(spec, 0) + waits
    return tuple(sorted(counts.items()))
