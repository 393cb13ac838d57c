"""Goal table of a slice: its instances by the goal its job gave.

For each state and goal it has the steps in their order, of which the first that has something to do
is taken, and how the slice rests where none has. A slice wishes for hosts for members that its pool
admitted, and is forgotten once its goal is deletion and no task is left. A rollout, and what hosts
ask for, go on whatever the state is. It must do nothing else: its tasks pursue their own goals.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from peloton.actors.job.slice.availability import reviving, unborn
from peloton.actors.job.slice.configs import SpecRow
from peloton.actors.job.slice.evicting import spared_step
from peloton.actors.job.slice.facts import MembersBegun, SliceForgotten
from peloton.actors.job.slice.following import home_step
from peloton.actors.job.slice.gang import gang_step, recall_at
from peloton.actors.job.slice.looks import (
    KEPT_REPEAT_S,
    WISH_TIMEOUT_S,
    by_shape,
    looks_for_host,
)
from peloton.actors.job.slice.messages import SliceGone
from peloton.actors.job.slice.renewing import rollout_step
from peloton.actors.job.slice.sparing import disruption_step, ends_step
from peloton.actors.job.slice.state import Slice, WishNotes
from peloton.actors.job.slice.volume_homes import wishes_by_home
from peloton.actors.task.messages import WANTED, Policy, SetTaskGoal, TaskGoals
from peloton.actors.task.state import ENDED, Admission, Task, waits_for_gang
from peloton.placement.messages import PLACER_ANY, Shape, Wish
from peloton.runtime.vocabulary import (
    SETTLED,
    WAITING,
    At,
    Bits,
    Decision,
    Key,
    Rest,
    Send,
    counted,
)


class SliceStates(enum.StrEnum):
    """How far the instances are, as derived from the crowd."""

    ACTIVE = "active"  # some instance has not ended, or holds a ticket
    ENDED = "ended"  # all have ended, and hold no ticket
    EMPTY = "empty"  # no instance exists


def slice_state_of(slice_: Slice, crowd: Any) -> SliceStates:
    """Return the state of the slice."""
    under_way = slice_.rollout is not None and bool(slice_.rollout.current)
    if (slice_.closed or slice_.awaiting_restart.raw or under_way) and slice_.goal in WANTED:
        return SliceStates.ACTIVE
    if crowd is None or not crowd.present:
        return SliceStates.EMPTY
    return SliceStates.ACTIVE if crowd.any(_acts) else SliceStates.ENDED


def _acts(task: Task) -> bool:
    if task.state not in ENDED or task.admission != Admission.NONE:
        return True
    return task.policy.together and waits_for_gang(task)


def _is_alive(task: Task) -> bool:
    return task.state not in ENDED or (task.policy.together and waits_for_gang(task))


def wish(slice_: Slice, at: At) -> Decision | None:
    """Ask a placer for hosts, for members for which no wish is pending."""
    notes: WishNotes = at.notes if at.notes is not None else WishNotes()
    ready: int = at.index.where(looks_for_host)
    if slice_.homes is not None:
        ready &= slice_.homes.placed.raw
    if slice_.gang_open:
        ready &= ~slice_.forming.raw  # a gang wishes as one
    if not (ready or notes.wished.raw or notes.kept.raw or notes.resting.raw):
        return None
    waiting = ready & notes.wished.raw if at.now < notes.wished_at + WISH_TIMEOUT_S else 0
    kept = ready & notes.kept.raw if at.now < notes.kept_at + KEPT_REPEAT_S else 0
    resting = ready & notes.resting.raw if at.now < notes.retry_at else 0
    fresh_raw = ready & ~(waiting | kept | resting)
    noted = notes.wished.raw, notes.kept.raw, notes.resting.raw
    if not fresh_raw and noted == (waiting, kept, resting):
        return None
    # Members that launched leave `wished`, or their next run would wait for the old wish's timeout.
    # An expired time is cleared too, or it would hide the next one (`recall_s`).
    launched = notes.wished.raw & ~ready
    after = msgspec.structs.replace(
        notes,
        wished=Bits(waiting),
        kept=Bits(kept),
        resting=Bits(resting),
        refused=() if launched else notes.refused,
    )
    if not fresh_raw:
        return Decision(notes=after)
    fresh = Bits(fresh_raw)
    sends = _wishes(slice_, fresh, at=at, notes=notes)
    after = msgspec.structs.replace(
        after,
        wished=after.wished | fresh,
        # The oldest wish sets the time, or a stream of new ones would keep a lost one pending.
        wished_at=notes.wished_at if after.wished.raw else at.now,
        number=notes.number + len(sends),
    )
    because = counted(len(fresh), "instance waits for a host", many="instances wait for a host")
    return Decision(sends=tuple(sends), because=because, notes=after)


def _wishes(slice_: Slice, fresh: Bits, *, at: At, notes: WishNotes) -> list[Send]:
    """Return one wish for the members of each shape."""
    avoid = tuple(host for host, until in notes.avoid if until > at.now)
    sends: list[Send] = []
    for row, shape, members, hosts in _groups(slice_, fresh, at):
        number, priority = notes.number + len(sends) + 1, row.lot_shape.priority
        wish_ = Wish(at.key, number, members, shape, notes.refused, priority, avoid=avoid)
        if hosts:
            wish_ = msgspec.structs.replace(wish_, avoid=(), hosts=hosts)
        sends.append(Send(PLACER_ANY, wish_))
    return sends


def _groups(
    slice_: Slice, fresh: Bits, at: At
) -> Iterable[tuple[SpecRow, Shape, Bits, tuple[Key, ...]]]:
    """Return members that may be wished for together; with the host of each, if it has only one."""
    if slice_.volumes is not None:
        return wishes_by_home(slice_.volumes, fresh, specs=slice_.specs, at=at)
    homes = slice_.homes.hosts if slice_.homes is not None else None
    return [
        (row, row.shape, some, tuple(homes[one] for one in some) if homes is not None else ())
        for row, some in by_shape(slice_, fresh, at)
    ]


def unended(slice_: Slice, index: Any) -> Bits:
    """Return members that have begun, or begin in this very frame, and have not ended."""
    alive = Bits(index.where(_is_alive)) if index is not None else Bits()
    coming = unborn(slice_, index) - slice_.stopped  # stopped members never run
    return coming | alive | reviving(slice_, index)


def active_of(slice_: Slice, index: Any) -> int:
    """Return how many members count against the grant.

    A member is active from its creation, or its restart, until it has ended and its ticket is
    released: through all its attempts, so that a retry never waits behind a member that has not
    begun.
    """
    acting = Bits(index.where(_acts)) if index is not None else Bits()
    return len(unended(slice_, index) | acting)


def begin(slice_: Slice, at: At) -> Decision | None:
    """Begin or restart members that waited, the lowest first, up to grant and throttle; those that
    have a host each begin with their hosts."""
    if slice_.homes is not None:
        return home_step(slice_, at)
    if not (slice_.closed or slice_.awaiting_restart.raw):
        return None
    waiting = slice_.waiting | slice_.awaiting_restart
    if slice_.rollout is not None:
        waiting = waiting - slice_.rollout.unadded  # these begin with their leave
    active = active_of(slice_, at.index)
    grant = slice_.grant if slice_.grant is not None else slice_.count
    throttled = slice_.begins is not None
    left = slice_.begins - slice_.begun if slice_.begins is not None else slice_.count
    some = waiting.lowest(max(min(grant - active, left), 0))
    if not some:
        return None
    sends = create(slice_, slice_.version, goal=slice_.goal, some=some - slice_.awaiting_restart)
    sends += restart(slice_, slice_.version, goal=slice_.goal, some=some & slice_.awaiting_restart)
    because = counted(len(some), "instance may begin", many="instances may begin")
    because += f": {active} of at most {grant} are active"
    begun = MembersBegun(some, at.now if throttled else None)
    return Decision(facts=(begun,), sends=tuple(sends), because=because)


def roll_out(slice_: Slice, at: At) -> Decision | None:
    """The part that the slice has in a workflow of its job."""
    if slice_.rollout is None:
        return None
    return rollout_step(slice_, at) or _add_stopped(slice_, at)


def _add_stopped(slice_: Slice, at: At) -> Decision | None:
    """Create members that a workflow has come to and that are not to run: they end at once."""
    if not slice_.closed or slice_.homes is not None:
        return None
    some = slice_.waiting - slice_.unadded
    if slice_.goal in WANTED:
        some = some & slice_.stopped
    if not some:
        return None
    sends = create(slice_, slice_.version, goal=TaskGoals.KILLED, some=some)
    return Decision(facts=(MembersBegun(some),), sends=tuple(sends), because="added, and stopped")


def create(slice_: Slice, version: int, *, goal: TaskGoals, some: Bits) -> list[Send]:
    """Return the messages that create the tasks of members that do not exist yet."""
    if not some:
        return []
    crowd = slice_.crowd
    sends = []
    for spec, (row, group) in enumerate(zip(slice_.specs, slice_.closed, strict=True)):
        if group & some:
            numbered = row.config_version if row.run.asks else 0  # else it is the row's for good
            first = version, goal, row.policy, spec, row.lot
            task = SetTaskGoal(*first, past=slice_.past, config_version=numbered)
            sends.append(Send(crowd, task, group & some))
    return sends


def restart(slice_: Slice, version: int, *, goal: TaskGoals, some: Bits) -> list[Send]:
    """Return the messages that restart members.

    The version numbers the restart: it rises with each order.
    """
    if not some:
        return []
    order = SetTaskGoal(version, goal, Policy(), 0, Key(""), "", version)
    return [Send(slice_.crowd, order, some)]


def spare(slice_: Slice, at: At) -> Decision | None:
    """End whom somebody waits for, as soon as the job can spare them."""
    if not (slice_.ends or slice_.disruption_wanted):
        return None
    return ends_step(slice_, at) or spared_step(slice_, at) or disruption_step(slice_, at)


def forget(slice_: Slice, at: At) -> Decision | None:
    """Report to the job that no task is left, and forget the slice."""
    gone = Send(slice_.job, SliceGone(slice_.number))
    return Decision(facts=(SliceForgotten(),), sends=(gone,), because="deleted")


SliceSteps = tuple[tuple[Callable[[Slice, At], Decision | None], ...], Rest]
_GROWS: SliceSteps = (roll_out, spare, begin, gang_step, wish), WAITING
_ROLLS: SliceSteps = (roll_out, spare), WAITING
_IS_THERE: SliceSteps = (roll_out, spare), SETTLED
_LEAVES: SliceSteps = (spare,), WAITING

TABLE: Mapping[SliceStates, Mapping[TaskGoals, SliceSteps]] = {
    SliceStates.ACTIVE: {
        TaskGoals.SUCCEEDED: _GROWS,
        TaskGoals.RUNNING: _GROWS,
        TaskGoals.KILLED: _ROLLS,
        TaskGoals.DELETED: _LEAVES,
    },
    SliceStates.ENDED: {
        TaskGoals.SUCCEEDED: _IS_THERE,
        TaskGoals.RUNNING: _IS_THERE,
        TaskGoals.KILLED: _IS_THERE,
        TaskGoals.DELETED: _LEAVES,
    },
    SliceStates.EMPTY: {
        TaskGoals.SUCCEEDED: _ROLLS,
        TaskGoals.RUNNING: _ROLLS,
        TaskGoals.KILLED: _ROLLS,
        TaskGoals.DELETED: ((spare, forget), WAITING),
    },
}


def pursue(slice_: Slice, at: At) -> Decision | Rest:
    """Take the next step towards the goal."""
    steps, rest = TABLE[slice_state_of(slice_, at.index)][slice_.goal]
    for step in steps:
        taken = step(slice_, at)
        if taken is not None:
            return taken
    return rest


def recall_s(notes: WishNotes) -> float | None:
    """Return when to wake the slice without a message: a wish timed out, or a delay is over."""
    times: list[float] = []
    if notes.wished.raw:
        times.append(notes.wished_at + WISH_TIMEOUT_S)
    if notes.kept.raw:
        times.append(notes.kept_at + KEPT_REPEAT_S)
    if notes.resting.raw:
        times.append(notes.retry_at)
    if notes.disruption_until:
        times.append(notes.disruption_until)
    return min([*times, *recall_at(notes.gang)], default=None)
