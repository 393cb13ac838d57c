"""How a slice carries out a rollout: which row each member is to have, and which are next.

An order of the job becomes rows of the table and members that wait for leave; leave becomes orders
to the tasks. Members whose config does not change keep their run, and only learn the new version.
Only the job gives leave, as it counts the members under way in all slices.
"""

from __future__ import annotations

from typing import NamedTuple

from peloton.actors.host.holds.hold_messages import TASK_HOLD_S, HoldForTask
from peloton.actors.job.slice import facts as f
from peloton.actors.job.slice.availability import (
    available_of,
    members_of_runs,
    spare_of,
    spared,
)
from peloton.actors.job.slice.home_wishes import host_is_down
from peloton.actors.job.slice.messages import SliceOpening
from peloton.actors.job.slice.rollout_messages import RolloutOrder, SparedFor
from peloton.actors.job.slice.rollout_rows import RowChoices, rows_in_use
from peloton.actors.job.slice.rollouts import Rollout
from peloton.actors.job.slice.state import NO_MEMBERS, Slice
from peloton.actors.task.messages import (
    SLICE_SIZE,
    WANTED,
    Policy,
    Renew,
    Renewal,
    SetTaskGoal,
    TaskGoals,
)
from peloton.actors.task.state import ENDED, Admission, Task, TaskStates, is_well
from peloton.runtime.vocabulary import At, Bits, Decision, Due, Fact, Key, Send, counted

REMOVED_TEXT = "Task Count reduced via API"
STEADY = "steady"


def begun_rollout(
    slice_: Slice, order: RolloutOrder, *, opening: SliceOpening, stopped: Bits, at: At
) -> f.RolloutBegun:
    """Return the fact that this rollout begins; `stopped`: members that are not to run.

    A rollout that is over before it began only defines new members.
    """
    existing, wanted, last = slice_.members, Bits.span(0, opening.count), slice_.rollout
    here = Bits(at.index.present) if at.index is not None else NO_MEMBERS
    unborn, added = existing - here, wanted - existing
    leaving = last.leaving & existing if last is not None else NO_MEMBERS
    beyond = NO_MEMBERS if order.over else existing - wanted
    # Members that are under way already go on as part of this one: they are down, or were.
    current = NO_MEMBERS
    if last is not None and not order.over:
        current = (leaving if last.order.over else leaving | last.current) & here - beyond
        if at.index is not None:
            # But for those that are through, and would go down anew.
            current = current - _through(last, at).done
    asleep = NO_MEMBERS
    if order.starts:
        asleep = here & Bits(at.index.where(lambda task: task.goal == TaskGoals.KILLED)) - stopped
        asleep = asleep - beyond if order.members is None else asleep & order.members
    forced = current | asleep
    if order.members is not None and not order.quiet:
        forced = forced | order.members
    later = last.unadded & existing - beyond if last is not None else NO_MEMBERS
    # Only another update adds what an aborted one had still to add.
    kept = NO_MEMBERS if order.members is None else later
    added = added | (later - kept)
    choices = RowChoices(slice_, order, opening=opening, forced=forced, at=at)
    if at.index is not None and not order.over:
        for spec, raw in at.index.columns.groups("spec", here.raw):
            choices.choose(spec or 0, Bits(raw), beyond=beyond)
    choices.choose_new(unborn - beyond - kept | added if not order.over else added - existing)
    dropped = beyond & slice_.waiting
    removing = beyond - dropped - leaving if order.members is None else NO_MEMBERS
    return f.RolloutBegun(
        order=order,
        opening=opening,
        rows=choices.rows(rows_in_use(slice_, at, coming=unborn - slice_.waiting)),
        added=added,
        asleep=asleep,
        current=current,
        before=choices.before if order.keeps else (),
        removing=removing,
        leaving=leaving - wanted,
        dropped=dropped,
        kept=kept,
    )


def told_at_once(slice_: Slice, fact: f.RolloutBegun) -> list[Send]:
    """Return orders to members that need no leave: they do not change, or are under way."""
    sends: list[Send] = []
    for row in fact.rows:
        some = row.members & fact.current if row.runs else row.members
        if some:
            sends.append(_renew(slice_, row.place, members=some, runs=row.runs))
    return sends


def rollout_step(slice_: Slice, at: At) -> Decision | None:
    """Return the next decision of the rollout: settle members that are through, and begin the
    next ones."""
    rollout = slice_.rollout
    if rollout is None:
        return None
    if rollout.leaving:
        removed = _remove(slice_, rollout.leaving, at)
        if removed is not None:
            return removed
    if rollout.order.over or (at.index is None and not rollout.removing):
        return None
    order = rollout.order
    watched = rollout.watched
    if not rollout.current and not (order.leave and rollout.waiting) and not watched:
        return None
    done, failed, fallen = _through(rollout, at) if rollout.current or watched else NOBODY
    under_way = rollout.current | rollout.leaving | rollout.fallen | fallen | rollout.failed
    room = order.leave - len(under_way - done)
    some = _next(slice_, rollout, at=at, room=room) if room > 0 else NO_MEMBERS
    going = _going_down(slice_, some, at)
    if not (done or failed or fallen or some):
        return _steady_at_once(rollout, at)
    facts: list[Fact] = [*going]
    if done or failed or fallen:
        facts.append(f.MembersSettled(done, failed, at.now, fallen))
    if some:
        facts.append(f.MembersTaken(some, at.now))
    sends: list[Send] = []
    for place, members in rollout.targets:
        if members & some:
            sends.append(_renew(slice_, place, members=members & some, runs=True))
    sends += woken(slice_, rollout.asleep & some)
    if order.in_place:
        sends += _held_hosts(slice_, some - rollout.added - rollout.removing, at)
    if some and order.stops:
        stop = SetTaskGoal(slice_.version, TaskGoals.KILLED, Policy(), 0, Key(""), order.because)
        sends.append(Send(slice_.crowd, stop, some))
    if some & rollout.removing:
        end = SetTaskGoal(slice_.version, TaskGoals.KILLED, Policy(), 0, Key(""), REMOVED_TEXT)
        sends.append(Send(slice_.crowd, end, some & rollout.removing))
    because = counted(len(some), "instance", many="instances")
    because = f"{because} may be changed: {order.because}" if some else ""
    return Decision(facts=tuple(facts), sends=tuple(sends), because=because)


def _going_down(slice_: Slice, members: Bits, at: At) -> tuple[f.MembersSpared, ...]:
    """Return the fact that members are taken down which are to run again; others do not count as
    down."""
    rollout = slice_.rollout
    if rollout is None or rollout.order.stops:
        return ()
    return spared(slice_, members - rollout.removing, by=SparedFor.WORKFLOW, index=at.index)


def _held_hosts(slice_: Slice, members: Bits, at: At) -> list[Send]:
    """Return orders to the hosts of members to wait for their next runs: sent before the runs end.

    No answer is awaited: a host that does not wait is as any other, and one that waits in vain
    stops.
    """
    up = members & Bits(at.index.where(lambda task: task.state == TaskStates.RUNNING))
    job_id, first = slice_.job.partition("/")[2], slice_.number * SLICE_SIZE
    sends = []
    for member in up:
        host = at.index.columns.read("host", member)
        name = f"{job_id}-{first + member}"
        hold = HoldForTask(name, slice_.crowd, member, slice_.job, TASK_HOLD_S)
        sends += [Send(Key(host), hold)] if host else []
    return sends


def _remove(slice_: Slice, leaving: Bits, at: At) -> Decision | None:
    """Remove members that have ended and hold no ticket: no run or ticket of theirs has a higher
    number."""
    members, past = _resting(leaving, at), slice_.past + 1
    if not members:
        return None
    here = Bits(at.index.present) if at.index is not None else NO_MEMBERS
    for task, _ in at.index.split((members & here).raw) if members & here else ():
        past = max(past, task.run, task.ticket)
    goal = SetTaskGoal(slice_.version, TaskGoals.DELETED, Policy(), 0, Key(""), REMOVED_TEXT)
    because = counted(len(members), "instance is", many="instances are") + " removed"
    return Decision(
        facts=(f.MembersRemoved(members, past, at.now),),
        sends=(Send(slice_.crowd, goal, members),),
        because=f"{because}: {REMOVED_TEXT}",
    )


def _resting(members: Bits, at: At) -> Bits:
    """Return the members that can be removed now: they do not exist, or have ended and hold no
    ticket."""
    if at.index is None:
        return members
    rest = at.index.where(
        lambda task: (
            task.goal == TaskGoals.KILLED
            and task.state in ENDED
            and task.admission == Admission.NONE
        )
    )
    return members - Bits(at.index.present) | members & Bits(rest)


def woken(slice_: Slice, members: Bits) -> list[Send]:
    """Return orders to members that were stopped, to run; none while the slice is not to run."""
    members = members - slice_.stopped
    if slice_.homes is not None:
        members = members & slice_.homes.staying  # a host may have left meanwhile
    if not members or slice_.goal not in WANTED:
        return []
    version = slice_.version
    goal = SetTaskGoal(version, slice_.goal, Policy(), 0, Key(""), "", version)
    return [Send(slice_.crowd, goal, members)]


class _Through(NamedTuple):
    """Members that are through: done, or failed; and those that were done, and are so no more."""

    done: Bits
    failed: Bits
    fallen: Bits


NOBODY = _Through(NO_MEMBERS, NO_MEMBERS, NO_MEMBERS)


def _through(rollout: Rollout, at: At) -> _Through:
    """Return members under way, or fallen, that are through now; and those that fell now."""
    number, most, watched = rollout.order.number, rollout.order.max_attempts, rollout.watched
    known = Bits(at.index.where(lambda task: task.renewed >= number and task.renewal is None))
    known = rollout.current & (known | rollout.created)
    judged = known | watched
    well = judged & (Bits(at.index.where(_is_done)) | host_is_down(judged, at))
    failed = NO_MEMBERS
    if most:
        failed = judged - well & Bits(at.index.where(lambda task: task.failures >= most))
    fallen = watched - well - failed - rollout.fallen
    return _Through(well & (known | rollout.fallen), failed, fallen)


def steady_in(slice_: Slice) -> tuple[str, float] | None:
    """Return the deadline until which all members that are done have to do their work.

    It begins when the last one was through.
    """
    rollout = slice_.rollout
    if rollout is None or rollout.proves_until is None:
        return None
    return f"{STEADY} {rollout.settled_at!r}", rollout.order.healthy_s


def steady_due(slice_: Slice, message: Due, at: At) -> Decision:
    """Record that all members have done their work for long enough, if none fell in this very
    frame."""
    rollout, deadline = slice_.rollout, steady_in(slice_)
    if rollout is None or deadline is None or deadline[0] != message.name or at.index is None:
        return Decision(because="it is steady already, or not all are through")
    if any(_through(rollout, at)):
        return Decision(because="one of its members does its work no more")
    because = f"all do their work for {rollout.order.healthy_s:g} s: {rollout.order.because}"
    return Decision(facts=(_steady(at),), because=because)


def _steady(at: At) -> f.MembersSettled:
    return f.MembersSettled(NO_MEMBERS, NO_MEMBERS, at.now, steady=True)


def _steady_at_once(rollout: Rollout, at: At) -> Decision | None:
    """Settle the rollout at once if none of the members that are done is to run."""
    if rollout.proves_until is None:
        return None
    if rollout.watched & Bits(at.index.where(lambda task: task.goal in WANTED)):
        return None
    return Decision(facts=(_steady(at),), because="none of its members is to run")


def _is_done(task: Task) -> bool:
    if task.again or task.renewal is not None:
        return False
    if task.goal in WANTED:
        return is_well(task)
    return task.state in ENDED


def _next(slice_: Slice, rollout: Rollout, *, at: At, room: int) -> Bits:
    """Return the members that begin now.

    New ones come first, then those that are down, then the others; those that are to be removed are
    last. Of these, all that rest go at once, as they are of no use.

    Members that are down already are changed first: no other has to go down for them. Of those that
    are available no more are taken than the job can spare, first those that their hosts ask to end.
    """
    found = rollout.added.lowest(room)
    rest = _resting(rollout.removing, at)
    going = rollout.removing - rest
    if at.index is None:
        return found | rest if len(found) < room else found
    waiting = rollout.waiting - rollout.added - rollout.removing
    stopped = Bits(at.index.where(lambda task: task.goal == TaskGoals.KILLED))
    up = available_of(slice_, at.index)
    for some in (waiting - stopped - up, waiting & stopped - up):
        found = found | some.lowest(max(room - len(found), 0))
    most = room - len(found)
    if not rollout.order.stops:
        most = min(most, spare_of(slice_, at.index))
    found = found | _spared_first(slice_, waiting & up, most=max(most, 0))
    if len(found) == room:
        return found
    for some in (going - up, going & up):
        found = found | _highest(some, room - len(found))
    return found | rest


def _spared_first(slice_: Slice, members: Bits, *, most: int) -> Bits:
    """Return `most` of these members, first those that their hosts ask to end."""
    moving = NO_MEMBERS
    for each in slice_.ends:
        moving = moving | members_of_runs(each.runs)
    moving = (moving & members).lowest(most)
    return moving | (members - moving).lowest(most - len(moving))


def _highest(members: Bits, count: int) -> Bits:
    """Return the `count` highest members, so that those that stay have low numbers."""
    return members - members.lowest(len(members) - max(count, 0))


def _renew(slice_: Slice, place: int, *, members: Bits, runs: bool) -> Send:
    row, rollout = slice_.specs[place], slice_.rollout
    assert rollout is not None
    order = rollout.order
    renewal = Renewal(order.number, row.policy, place, row.lot, order.because, row.config_version)
    return Send(slice_.crowd, Renew(renewal, runs), members)
