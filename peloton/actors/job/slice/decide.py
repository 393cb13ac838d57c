"""How a slice decides messages of its job, its tasks and placers.

The job's absolute goal becomes goals of its tasks, and a placer's proposal launches of the members
that still wait for a host. Messages address sets of tasks, so that a thousand cost what one does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from peloton.actors.host.inventory.messages import HostsTold, UnfollowHosts
from peloton.actors.job.slice import facts as f
from peloton.actors.job.slice import messages as m
from peloton.actors.job.slice import sparing
from peloton.actors.job.slice.configs import run_limit, spec_rows
from peloton.actors.job.slice.counts import tally
from peloton.actors.job.slice.evicting import (
    evict,
    evict_nobody,
    no_leavers,
    room_found,
    say_leavers,
)
from peloton.actors.job.slice.folds import EVOLVE
from peloton.actors.job.slice.following import hosts_found, not_followed
from peloton.actors.job.slice.gang_answers import (
    gang_placed,
    gang_unknown,
    prove_gang,
    reopened,
    told_lots,
)
from peloton.actors.job.slice.goals import create, restart, unended
from peloton.actors.job.slice.messages import LeaveVolume, Tally
from peloton.actors.job.slice.placing import (
    avoid_host,
    decline_all,
    host_refused,
    keep_wish,
    take_hosts,
)
from peloton.actors.job.slice.renewing import begun_rollout, steady_due, told_at_once
from peloton.actors.job.slice.rollout_messages import (
    AskToEnd,
    RestartIfSpared,
    RunNotStarted,
    WantDisruption,
)
from peloton.actors.job.slice.rollouts import Rollout
from peloton.actors.job.slice.state import NO_MEMBERS, Slice
from peloton.actors.job.slice.volume_homes import leave, left_already
from peloton.actors.task.messages import (
    WANTED,
    DropEvents,
    Policy,
    RunRefused,
    SetRunLimit,
    SetTaskGoal,
    TaskGoals,
)
from peloton.placement.messages import GangPlaced, Placed, RoomFound, Unplaced
from peloton.runtime.vocabulary import At, Bits, Decision, Due, Fact, Key, Send


def open_slice(message: m.SetSliceGoal, at: At) -> Decision:
    """Open the slice with its instances, unless the goal is deletion already."""
    if message.goal == TaskGoals.DELETED:
        gone = Send(message.job, m.SliceGone(message.number))
        return Decision(sends=(gone,), because="deleted before it was opened")
    if message.opening is None:
        return Decision(because="a goal without `opening` opens no slice")
    order = message.rollout
    batched = order is not None
    limited = _metered(message) or order is not None or message.opening.hosts_of is not None
    opened = f.SliceOpened(message.job, message.number, message.opening, limited)
    rows, members = spec_rows(message.number, message.opening)
    unborn = Slice(message.job, message.number, message.opening.count, rows, closed=members)
    new = Bits.span(0, message.opening.count)
    if opened.limited:
        # All others begin when the grant allows it, or a host joins: `goals.begin`.
        adds = batched or message.opening.hosts_of is not None
        new = NO_MEMBERS if adds else _to_end(message, new)
    facts: tuple[Fact, ...] = (opened, _goal_fact(message))
    if order is not None:
        every = Bits.span(0, message.opening.count)
        facts = (*facts, f.RolloutBegun(order, message.opening, (), added=every))
    if opened.limited and new:
        facts = (*facts, f.MembersBegun(new))
    sends: list[Send] = []
    if message.number or message.version > 1 or opened.limited:
        # All its members are about to begin.
        starts = _fold(None, facts).starts if message.begins is not None else None
        exist = message.opening.hosts_of is None and not batched
        first = (("INITIALIZED", message.opening.count),) if exist else ()
        counts = Tally(first, active=len(new), starts=starts)
        counted = counts if message.tallied else None
        sends = [Send(message.job, m.SliceOpen(message.number, message.version, counted))]
    # Else it is the first slice of a job that begins: its first tally says that it is open.
    for goal, some in _by_goal(message, new):
        sends += create(unborn, message.version, goal=goal, some=some)
    if message.opening.hosts_of is not None:
        sends += _asked(None, facts)
    return Decision(facts=facts, sends=tuple(sends))


def goal_set(slice_: Slice, message: m.SetSliceGoal, at: At) -> Decision:
    """Set a newer goal; an older or known one is confirmed once more."""
    if message.version <= slice_.version:
        return Decision(sends=(_confirm(slice_, message, at),), because="goal known")
    if slice_.rollout is not None:
        message = _with_downed(slice_, message)
    facts: list[Fact] = []
    opening = message.opening
    limits = _new_limits(slice_, message, at)
    if opening is not None and limits:
        facts.append(f.RunsLimited(opening.max_running_s))
    rolled = _rollout_facts(slice_, message, at)
    if rolled and slice_.homes is not None:
        downed = _downed(_fold(slice_, rolled).rollout) - _downed(slice_.rollout)
        message = msgspec.structs.replace(message, stopped=message.stopped | downed)
    facts += rolled
    if opening is not None and opening.count > _fold(slice_, rolled).count:
        facts.append(f.SliceGrown(opening, _metered(message)))
    facts.append(_goal_fact(message))
    begun = _begun(slice_, message)
    now, later = _restarts(slice_, message, at=at, begun=begun)
    if (later, now) != (slice_.awaiting_restart, slice_.reviving):
        facts.append(f.RestartsOrdered(later, now))
    gang, joining = reopened(slice_, now | later, at=at, stopped=message.stopped)
    facts += gang
    sends = [*_to_limit(slice_, limits, at), *joining]
    asleep = _asleep(_fold(slice_, rolled).rollout)
    now = now | (_woken(_asleep(slice_.rollout) - asleep, message) & begun)
    sends += restart(slice_, message.version, goal=message.goal, some=now)
    if message.goal not in WANTED:
        asleep = NO_MEMBERS
    for goal, some in _by_goal(message, begun - now - later - asleep - _going(slice_, message)):
        # The tasks exist, so the fields that create them stay empty.
        goals = SetTaskGoal(message.version, goal, Policy(), 0, Key(""), _reason(goal))
        sends.append(Send(slice_.crowd, goals, some))
    folded = _fold(slice_, facts)
    for fact in rolled:
        if isinstance(fact, f.RolloutBegun):
            sends += told_at_once(folded, fact)
    sends = [_confirm(folded, message, at), *sends, *told_lots(slice_, folded)]
    if slice_.homes is not None:
        sends += _asked(slice_, facts)
    waiting = folded.waiting - folded.unadded
    ends = _to_end(message, waiting) if slice_.homes is None else NO_MEMBERS
    if ends:
        # Clients must see them end though they never began: they are created to be withdrawn.
        sends += create(folded, message.version, goal=TaskGoals.KILLED, some=ends)
        facts.append(f.MembersBegun(ends))
    return Decision(facts=tuple(facts), sends=tuple(sends), because=_reason(message.goal))


def _begun(slice_: Slice, message: m.SetSliceGoal) -> Bits:
    """Return the members that the goal is for: those that exist; of a daemon job that is to run,
    those whose host matches."""
    if slice_.homes is not None and message.goal in WANTED:
        return slice_.homes.staying
    return slice_.members - slice_.waiting


def _asked(slice_: Slice | None, facts: Iterable[Fact]) -> tuple[Send, ...]:
    """Return the question which hosts match, or its end, if these facts change it."""
    after = _fold(slice_, facts)
    if after.homes is None:
        return ()
    if after.goal not in WANTED:
        return (Send(after.homes.of.inventory, UnfollowHosts(after.homes.asked)),)
    if after.homes.seen:
        return ()
    before = slice_.homes if slice_ is not None and slice_.goal in WANTED else None
    return () if before is not None and before.asked == after.homes.asked else (after.homes.ask,)


def _rollout_facts(slice_: Slice, message: m.SetSliceGoal, at: At) -> list[Fact]:
    """Return the facts of a rollout order: it is new, or may go further, or no more."""
    order, opening, known = message.rollout, message.opening, slice_.rollout
    if order is None or opening is None:
        return []
    if known is None or order.number > known.order.number:
        if order.over and not _lacks(slice_, opening):
            return []
        stopped = message.stopped
        if slice_.homes is not None:
            # Members without a host are not to be woken by it.
            stopped = stopped | (Bits.span(0, slice_.count) - slice_.homes.staying)
        return [begun_rollout(slice_, order, opening=opening, stopped=stopped, at=at)]
    if order.number < known.order.number or known.order.over:
        return []
    if (order.leave, order.over) == (known.order.leave, False):
        return []
    return [f.LeaveChanged(order.leave, order.over)]


def _with_downed(slice_: Slice, message: m.SetSliceGoal) -> m.SetSliceGoal:
    """Return the goal with the members that a rollout stopped: the job may not know of them yet."""
    rollout, order = slice_.rollout, message.rollout
    if rollout is None or not rollout.downed:
        return message
    downed = rollout.downed
    for version, members in message.restarts:
        downed = downed - members if version > slice_.version else downed
    if order is not None and order.number > rollout.order.number and order.starts:
        downed = NO_MEMBERS if order.members is None else downed - order.members
    return msgspec.structs.replace(message, stopped=message.stopped | downed)


def _lacks(slice_: Slice, opening: m.SliceOpening) -> Bits:
    """Return members that are to be, and do not exist, or end to be removed."""
    leaving = slice_.rollout.leaving if slice_.rollout is not None else NO_MEMBERS
    return Bits.span(0, opening.count) - (slice_.members - leaving)


def _going(slice_: Slice, message: m.SetSliceGoal) -> Bits:
    """Return members that a rollout removes or has left: they go on as they do, unless stopped."""
    if message.opening is None or message.goal not in WANTED:
        return NO_MEMBERS
    return Bits.span(message.opening.count, slice_.count) - message.stopped


def _asleep(rollout: Rollout | None) -> Bits:
    return rollout.asleep if rollout is not None else NO_MEMBERS


def _downed(rollout: Rollout | None) -> Bits:
    return rollout.downed if rollout is not None else NO_MEMBERS


def _woken(members: Bits, message: m.SetSliceGoal) -> Bits:
    """Return those of the members that no rollout starts any more which the job wants to run."""
    return members - message.stopped if message.goal in WANTED else NO_MEMBERS


def _new_limits(slice_: Slice, message: m.SetSliceGoal, at: At) -> Mapping[int, float | None]:
    """Return how long one run may take, by config, if that has changed."""
    opening = message.opening
    if opening is None:
        return {}
    limits = {k: run_limit(row.config, opening.max_running_s) for k, row in enumerate(slice_.specs)}
    return {
        k: limit for k, limit in limits.items() if limit != slice_.specs[k].policy.max_running_s
    }


def _to_limit(slice_: Slice, limits: Mapping[int, float | None], at: At) -> list[Send]:
    if not limits or at.index is None:
        return []
    members: dict[float | None, Bits] = {}
    for spec, raw in at.index.columns.groups("spec", at.index.present):
        if (spec or 0) in limits:
            limit = limits[spec or 0]
            members[limit] = members.get(limit, Bits()) | Bits(raw)
    return [Send(slice_.crowd, SetRunLimit(limit), some) for limit, some in members.items()]


def _restarts(slice_: Slice, message: m.SetSliceGoal, *, at: At, begun: Bits) -> tuple[Bits, Bits]:
    """Return the members to restart now, and those to restart once the grant allows it.

    Restarting a member that has not ended makes no more active, so it never waits for the grant.
    """
    if message.goal not in WANTED:
        return Bits(), Bits()
    some = slice_.awaiting_restart
    for version, members in message.restarts:
        if version > slice_.version:
            some = some | (members & begun)
    some = some - message.stopped
    if not _metered(message):
        return some, Bits()
    active = unended(slice_, at.index)
    return some & active, some - active


def _confirm(slice_: Slice, message: m.SetSliceGoal, at: At) -> Send:
    counts = tally(slice_, at) if message.tallied else None
    return Send(slice_.job, m.SliceOpen(slice_.number, slice_.version, counts))


def _metered(message: m.SetSliceGoal) -> bool:
    return message.grant is not None or message.begins is not None


def _goal_fact(message: m.SetSliceGoal) -> f.SliceGoalSet:
    return f.SliceGoalSet(
        message.version,
        message.goal,
        message.stopped,
        message.grant,
        message.begins,
        message.budget,
    )


def _fold(slice_: Slice | None, facts: Iterable[Fact]) -> Slice:
    for fact in facts:
        slice_ = EVOLVE[type(fact)](slice_, fact)
    assert slice_ is not None
    return slice_


def _by_goal(message: m.SetSliceGoal, members: Bits) -> list[tuple[TaskGoals, Bits]]:
    """Return members by the goal that is sent to them; goals without members are left out."""
    if message.goal in (TaskGoals.KILLED, TaskGoals.DELETED):
        return [(message.goal, members)] if members else []
    stopped = members & message.stopped
    groups = ((message.goal, members - stopped), (TaskGoals.KILLED, stopped))
    return [(goal, some) for goal, some in groups if some]


def _to_end(message: m.SetSliceGoal, members: Bits) -> Bits:
    """Return the members that do not exist yet and are to end as killed; none on deletion."""
    if message.goal == TaskGoals.DELETED:
        return Bits()
    return members if message.goal == TaskGoals.KILLED else members & message.stopped


def _reason(goal: TaskGoals) -> str:
    if goal == TaskGoals.KILLED:
        return "Task stop API request"
    return "deleted" if goal == TaskGoals.DELETED else ""


def drop_events(slice_: Slice, message: m.DropInstanceEvents, at: At) -> Decision:
    """Order a member to forget its events up to a run, or those of one run."""
    member = Bits.of(message.member)
    if not member.raw & at.index.present:
        return Decision(reply=m.InstanceEventsDropped(known=False), because="no such member")
    order = Send(slice_.crowd, DropEvents(message.run, message.alone), member)
    return Decision(sends=(order,), reply=m.InstanceEventsDropped(known=True))


def _no_events(message: m.DropInstanceEvents, at: At) -> Decision:
    return Decision(reply=m.InstanceEventsDropped(known=False), because="no such slice")


DECIDE: Mapping[type, Callable[[Any, Any, At], Decision]] = {
    m.SetSliceGoal: goal_set,
    RunRefused: host_refused,
    RunNotStarted: avoid_host,
    Placed: take_hosts,
    Unplaced: keep_wish,
    m.DropInstanceEvents: drop_events,
    m.Evict: evict,
    m.AskLeavers: say_leavers,
    m.ProveGang: prove_gang,
    RoomFound: room_found,
    GangPlaced: gang_placed,
    AskToEnd: sparing.ends_asked,
    RestartIfSpared: sparing.restart,
    WantDisruption: sparing.want_disruption,
    LeaveVolume: leave,
    HostsTold: hosts_found,
    Due: steady_due,
}


ABSENT: Mapping[type, Callable[[Any, At], Decision]] = {
    m.SetSliceGoal: open_slice,
    Placed: decline_all,
    m.DropInstanceEvents: _no_events,
    m.Evict: evict_nobody,
    m.AskLeavers: no_leavers,
    GangPlaced: gang_unknown,
    RestartIfSpared: sparing.no_member,
    LeaveVolume: left_already,
    HostsTold: not_followed,
}
