"""Which members are taken down because a host goes down, or a client restarts one instance.

Such orders become orders to tasks, as far as the job can spare their members: a member that is down
already gives way at once. A host's order waits and is journaled; a client's is refused. Workflows
and preemption ask the same question in `renewing` and `evicting`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from peloton.actors.job.slice import facts as f
from peloton.actors.job.slice import rollout_messages as b
from peloton.actors.job.slice.availability import (
    MemberRuns,
    asking_for,
    available_of,
    is_on,
    members_of_runs,
    spare_of,
    spared,
    told,
)
from peloton.actors.job.slice.evicting import disruption_over, spared_step, wanting_disruption
from peloton.actors.job.slice.state import NO_MEMBERS, Slice, WishNotes
from peloton.actors.task.messages import (
    HOST_MAINTENANCE,
    GiveWay,
    KillCause,
    TaskGoals,
)
from peloton.actors.task.state import ON_HOST, Task, TaskStates
from peloton.runtime.vocabulary import (
    SELF,
    At,
    Bits,
    Decision,
    Fact,
    Key,
    Refused,
    Send,
    counted,
)

RESTART_TEXT = "restarted on request"


def ends_asked(slice_: Slice, message: b.AskToEnd, at: At) -> Decision:
    """End the runs of a host that goes down if they can be spared, and record the others."""
    host = at.sender
    assert host is not None
    done = _end(_Availability(slice_, at.index), host, runs=message.runs)
    first = spared(slice_, done.taken, by=b.SparedFor.MAINTENANCE, index=at.index)
    known = next((each.runs for each in slice_.ends if each.host == host), ())
    noted = (f.EndsAsked(host, done.left),) if done.left != known else ()
    sends = (*done.sends, *(asking_for(slice_, *noted) if noted else ()))
    return Decision(facts=(*first, *noted), sends=sends, because=done.because)


def ends_step(slice_: Slice, at: At) -> Decision | None:
    """End runs that hosts asked to end, as soon as they can be spared."""
    facts: list[Fact] = []
    sends: list[Send] = []
    because, taken, now = "", NO_MEMBERS, _Availability(slice_, at.index)
    for each in slice_.ends:
        done = _end(now, each.host, runs=each.runs)
        if done.left == each.runs:
            continue
        facts.append(f.EndsAsked(each.host, done.left))
        sends += done.sends
        taken, because = taken | done.taken, done.because or because
    if not facts:
        return None
    first = spared(slice_, taken, by=b.SparedFor.MAINTENANCE, index=at.index)
    return Decision(facts=(*first, *facts), sends=tuple(sends), because=because)


class _Ended:
    """What is done for one host: the members that are told, those that were available, and those
    that have to wait."""

    def __init__(self, sends: tuple[Send, ...], *, taken: Bits, left: MemberRuns) -> None:
        self.sends, self.taken, self.left = sends, taken, left
        self.because = ""


class _Availability:
    """The members that are available in a turn, and how many more can be spared: found once for
    all hosts."""

    def __init__(self, slice_: Slice, index: Any) -> None:
        self.crowd, self.index = slice_.crowd, index
        self.up = available_of(slice_, index)
        self.learning = members_of_runs(told(slice_, index))
        self.room = spare_of(slice_, index)


def _end(now: _Availability, host: Key, *, runs: MemberRuns) -> _Ended:
    """Return what is done for one host, and reduce `now` by the members that are taken down."""
    sends: list[Send] = []
    left: list[tuple[int, Bits]] = []
    taken = NO_MEMBERS
    for run, members in runs:
        some = members & _on(run, now.index) - now.learning
        may = (some & now.up).lowest(max(now.room, 0))
        now.room -= len(may)
        waits = some & now.up - may
        taken = taken | may
        going = some - waits
        if going:
            order = GiveWay(KillCause.MAINTENANCE, HOST_MAINTENANCE, run)
            sends.append(Send(now.crowd, order, going))
        if waits:
            left.append((run, waits))
    done = _Ended(tuple(sends), taken=taken, left=tuple(left))
    if sends:
        count = sum(len(each.members or ()) for each in sends)
        done.because = f"{counted(count, 'run gives', many='runs give')} way: {host} goes down"
    return done


def _on(run: int, index: Any) -> Bits:
    """Return members whose run of this number is on a host, and is not ending."""
    if index is None:
        return NO_MEMBERS

    def ends_here(task: Task) -> bool:
        return is_on(task, run) and task.state in ON_HOST and task.state != TaskStates.KILLING

    return Bits(index.where(ends_here))


def restart(slice_: Slice, message: b.RestartIfSpared, at: At) -> Decision:
    """Begin a new run of one member, unless its job would have fewer instances left than it has
    to."""
    member = Bits.of(message.member)
    task = at.index.state_of(message.member) if at.index is not None else None
    wanted = task is not None and task.goal == TaskGoals.RUNNING
    if task is None or not wanted or member & slice_.stopped:
        return Decision(reply=b.MemberRestarted(wanted=False), because="it is not to run")
    up = available_of(slice_, at.index)
    if member & up and not spare_of(slice_, at.index):
        return _refused(slice_)
    order = GiveWay(KillCause.SPARED_RESTART, RESTART_TEXT, task.run)
    first = spared(slice_, member, by=b.SparedFor.RESTART, index=at.index)
    used = disruption_over(slice_, at)
    return Decision(
        facts=(*first, f.RestartGiven(message.member), *used),
        sends=(Send(slice_.crowd, order, member),),
        reply=b.MemberRestarted(wanted=True),
        because=RESTART_TEXT,
        notes=_without_disruption(at) if used else None,
    )


def _without_disruption(at: At) -> WishNotes | None:
    notes: WishNotes | None = at.notes
    return msgspec.structs.replace(notes, disruption_until=0.0) if notes is not None else None


def _refused(slice_: Slice) -> Decision:
    budget = slice_.budget
    if budget is None or budget.allowance >= budget.most:
        refusal = Refused(b.VIOLATES_SLA, b.VIOLATES_TEXT, again=True)
        return Decision(reply=refusal, because=b.VIOLATES_TEXT)
    # By a message of its own: an answer that comes with a fact would be kept for repeats.
    want = (Send(SELF, b.WantDisruption(1)),)
    refusal = Refused(b.ASKED_JOB, b.VIOLATES_TEXT, again=True)
    return Decision(sends=want, reply=refusal, because="the job is asked whether it can spare it")


def want_disruption(slice_: Slice, message: b.WantDisruption, at: At) -> Decision:
    """Ask the job for a higher allowance, until it is used or the time is over."""
    if slice_.disruption_wanted >= message.count:
        return Decision(because="the job is asked already")
    fact, because = f.DisruptionWanted(message.count), "asks its job for more"
    after = wanting_disruption(at)
    return Decision(facts=(fact,), sends=asking_for(slice_, fact), because=because, notes=after)


def disruption_step(slice_: Slice, at: At) -> Decision | None:
    """Give back what was not used in time: the job may give it to other slices."""
    if not slice_.disruption_wanted:
        return None
    notes: WishNotes = at.notes if at.notes is not None else WishNotes()
    if not notes.disruption_until:
        return Decision(notes=wanting_disruption(at))  # a recovery does not know since when
    if at.now < notes.disruption_until:
        return None
    done = spared_step(slice_, at, last=True)
    if done is not None:
        return done
    after = msgspec.structs.replace(notes, disruption_until=0.0)
    return Decision(facts=(f.DisruptionWanted(0),), because="nobody asked again", notes=after)


def no_member(message: b.RestartIfSpared, at: At) -> Decision:
    """Answer that there is no such slice."""
    return Decision(reply=b.MemberRestarted(wanted=False), because="no such slice")
