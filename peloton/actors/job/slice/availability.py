"""Which members of a service are available, and how many more may be taken down.

A member is down if it is to run and is not available, whatever the reason. Of the others, so many
may be taken down that no more are down than the job allows. What has been ordered counts from the
turn on that orders it, though the tasks learn of it later in the same frame.
"""

from __future__ import annotations

from typing import Any

from peloton.actors.job.slice import facts as f
from peloton.actors.job.slice.folds import EVOLVE
from peloton.actors.job.slice.rollout_messages import DownTally, SpareAsked, SparedFor
from peloton.actors.job.slice.state import NO_MEMBERS, Slice
from peloton.actors.task.messages import TaskGoals
from peloton.actors.task.state import Task, is_available, is_wanted
from peloton.runtime.vocabulary import Bits, Send, counted

MemberRuns = tuple[tuple[int, Bits], ...]
"""Members by the number of their run."""


def unborn(slice_: Slice, index: Any) -> Bits:
    """Return the members that have begun, and whose tasks are created in this very frame."""
    missing = (1 << slice_.count) - 1 & ~slice_.gone.raw
    if index is not None:
        missing &= ~index.present
    if missing and slice_.closed:
        missing &= ~slice_.waiting.raw
    return Bits(missing) if missing else NO_MEMBERS


def reviving(slice_: Slice, index: Any) -> Bits:
    """Return the members whose restart is ordered, and that learn of it in this very frame."""
    if not slice_.reviving.raw or index is None:
        return NO_MEMBERS
    version = slice_.version
    return slice_.reviving & Bits(index.where(lambda task: task.restart < version))


def available_of(slice_: Slice, index: Any) -> Bits:
    """Return the members that are available, and have not been told to go down."""
    if index is None or slice_.goal != TaskGoals.RUNNING:
        return NO_MEMBERS
    up = Bits(index.where(is_available)) - slice_.stopped - reviving(slice_, index)
    return up - members_of_runs(told(slice_, index))


def told(slice_: Slice, index: Any) -> MemberRuns:
    """Return the members that are taken down, and learn of it in this very frame."""
    found = []
    for run, members in slice_.spared:
        some = members & Bits(index.where(_available_in(run)))
        if some:
            found.append((run, some))
    return tuple(found)


def _available_in(run: int) -> Any:
    return lambda task: task.run == run and is_available(task)


def down_of(slice_: Slice, index: Any) -> int:
    """Return how many members are down."""
    if slice_.goal != TaskGoals.RUNNING:
        return 0
    wanted = unborn(slice_, index)
    if index is not None:
        wanted = wanted | Bits(index.where(is_wanted))
    return len(wanted - slice_.stopped - available_of(slice_, index))


def spare_of(slice_: Slice, index: Any) -> int:
    """Return how many members that are available may be taken down now."""
    if slice_.budget is None:
        return slice_.count
    return max(slice_.budget.allowance - down_of(slice_, index), 0)


def spared(
    slice_: Slice, members: Bits, *, by: SparedFor, index: Any
) -> tuple[f.MembersSpared, ...]:
    """Return the fact that the available ones of these members are taken down; empty if nobody
    counts them."""
    some = members & available_of(slice_, index) if slice_.budget is not None else NO_MEMBERS
    if not some:
        return ()
    return (f.MembersSpared(by_run(some, index), by, told(slice_, index)),)


def by_run(members: Bits, index: Any) -> MemberRuns:
    """Return these members by the number of their run."""
    found: dict[int, int] = {}
    for task, raw in index.split(members.raw) if members else ():
        if task is not None:
            found[task.run] = found.get(task.run, 0) | raw
    return tuple((run, Bits(raw)) for run, raw in sorted(found.items()))


def down_tally(slice_: Slice, index: Any) -> DownTally | None:
    """Return what the job has to know, if other slices share the budget."""
    if slice_.budget is None or not slice_.budget.most:
        return None
    up = available_of(slice_, index)
    wanted = slice_.disruption_wanted + _for_rollout(slice_, up)
    wanted += len(members_of_runs(tuple(pair for each in slice_.ends for pair in each.runs)) & up)
    return DownTally(down_of(slice_, index), min(wanted, len(up)))


def asked(slice_: Slice) -> tuple[Send, ...]:
    """Return the question about a wish for a higher allowance, repeated until the job has heard
    it."""
    budget = slice_.budget
    if budget is None or not budget.most or slice_.asks <= budget.heard:
        return ()
    return (Send(slice_.job, SpareAsked(slice_.number, slice_.asks)),)


def asking_for(slice_: Slice, *facts: f.EndsAsked | f.DisruptionWanted) -> tuple[Send, ...]:
    """Return the question about a wish once these facts are journaled."""
    for fact in facts:
        slice_ = EVOLVE[type(fact)](slice_, fact) or slice_
    return asked(slice_)


def why_kept(slice_: Slice, index: Any) -> dict[int, str]:
    """Return why each member that is available and to give way has not been taken down."""
    if slice_.budget is None or spare_of(slice_, index):
        return {}
    most = slice_.budget.most or slice_.budget.allowance
    some = counted(most, "instance of its job", many="instances of its job")
    rule = f"no more than {some} may be down at once"
    up, found = available_of(slice_, index), dict[int, str]()
    if _for_rollout(slice_, up) and slice_.rollout is not None:
        for member in slice_.rollout.waiting & up:
            found[member] = f"is to be changed by its workflow, and cannot be spared yet: {rule}"
    for each in slice_.ends:
        for member in members_of_runs(each.runs) & up:
            found[member] = f"its host goes down, and it cannot be spared yet: {rule}"
    return found


def _for_rollout(slice_: Slice, up: Bits) -> int:
    rollout = slice_.rollout
    if rollout is None or rollout.order.over:
        return 0
    if rollout.order.stops:
        return 0  # nobody is down who is not to run
    room = rollout.order.leave - len(rollout.current) - len(rollout.failed)
    room -= len(rollout.leaving)
    return min(max(room, 0), len((rollout.waiting - rollout.removing) & up))


def members_of_runs(runs: MemberRuns) -> Bits:
    """Return the members of all these runs."""
    raw = 0
    for _, members in runs:
        raw |= members.raw
    return Bits(raw)


def is_on(task: Task, run: int) -> bool:
    """Return whether this is the present run of an instance that is to run, and nothing ends it
    yet."""
    return task.run == run and is_wanted(task) and not task.ends_for_next
