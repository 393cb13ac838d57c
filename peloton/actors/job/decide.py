"""How a job decides commands of clients and reports of its slices.

Turns commands into goals, in order, each answered; and reports of slices into what clients see.
Goals for slices are absolute and carry one version. Must not address a task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import immutables

from peloton.actors.job import facts as f
from peloton.actors.job import messages as m
from peloton.actors.job.grants import count_of, higher, limited
from peloton.actors.job.slice.messages import (
    SetSliceGoal,
    SliceGone,
    SliceOpen,
    SliceOpening,
    SliceTally,
    members_in,
    slice_key,
)
from peloton.actors.job.spec import check_instances, check_spec
from peloton.actors.job.state import EVOLVE, Job
from peloton.actors.job.totals import TERMINAL_JOB_STATES
from peloton.actors.task.messages import SLICE_SIZE, TaskGoals
from peloton.runtime.vocabulary import SELF, At, Bits, Decision, Due, Fact, Refused, Send, counted

EXISTS, NOT_FOUND, NOT_TERMINAL = "ALREADY_EXISTS", "NOT_FOUND", "NOT_TERMINAL"
INCOMPLETE = "INCOMPLETE"
PIECES, PIECES_TIMEOUT_S = "pieces", 600.0


def add_first(message: m.AddOverrides, at: At) -> Decision:
    """The first piece of a large job."""
    fact = f.OverridesGiven(message.slice_number, message.overrides, at.who)
    return Decision(facts=(fact,), reply=m.OverridesAdded(message.slice_number))


def add(job: Job, message: m.AddOverrides, at: At) -> Decision:
    """One more piece; sent again, it replaces the earlier one."""
    if job.spec is not None:
        return Decision(reply=Refused(EXISTS, f"job {_id(at)} already exists", "id"))
    return _foreign(job, at) or add_first(message, at)


def create_first(message: m.CreateJob, at: At) -> Decision:
    """Create a job that fits one message."""
    return _create(None, message, at)


def create(job: Job, message: m.CreateJob, at: At) -> Decision:
    """Create a large job by its last piece; refused if the id is taken."""
    if job.spec is not None:
        return Decision(reply=Refused(EXISTS, f"job {_id(at)} already exists", "id"))
    return _foreign(job, at) or _create(job, message, at)


def _foreign(job: Job, at: At) -> Decision | None:
    """The refusal, where the pieces of an incomplete job are another client's.

    Whoever may submit somewhere may send pieces for any id: those of others are not replaced,
    dropped or completed by that.
    """
    if not job.created_by or _sender(job.created_by) == _sender(at.who):
        return None
    text = f"job {_id(at)} is being created by another client"
    return Decision(reply=Refused(EXISTS, text, "id"), because=text)


def _sender(who: str) -> str:
    """How and under which name a principal is known; a repeat may come from another address."""
    return who.partition("@")[0].partition("/")[0]


def _create(job: Job | None, message: m.CreateJob, at: At) -> Decision:
    received = job.overrides if job is not None else immutables.Map()
    if message.pieces != len(received):
        text = (
            f"{len(received)} of {message.pieces} pieces of the job were received: "
            "send all of them again"
        )
        # The pieces may be of a create that was given up; kept, they would spoil every later one.
        # They are dropped by a message of their own, because an answer that comes with a fact is
        # stored under the client's request key, and every repeat would get the refusal.
        drop = (Send(SELF, m.DropPieces()),) if received else ()
        refusal = Refused(INCOMPLETE, text, "config.instanceConfig", again=True)
        return Decision(sends=drop, reply=refusal, because=text)
    spec = message.spec
    pieces = [*((k, received[k]) for k in sorted(received)), *message.overrides]
    given = [override for _, overrides in pieces for override in overrides]
    refused = check_spec(spec) or check_instances(spec, given, own=len(given))
    if refused is not None:
        return Decision(reply=refused, because=refused.text)
    facts: tuple[Fact, ...] = tuple(
        f.OverridesGiven(number, overrides) for number, overrides in message.overrides
    )
    made = f.JobMade(at.key, spec, message.pool_path, at.now, at.who)
    for fact in facts:
        job = _evolve(job, fact)
    folded = _evolve(job, made)
    return Decision(
        facts=(*facts, made),
        sends=_goals(folded, Bits.span(0, folded.slices)),
        reply=m.JobCreated(at.key),
    )


def stop(job: Job, message: m.StopJob, at: At) -> Decision:
    """End all instances, or some. Those that have ended keep their outcome."""
    if job.spec is None:
        return missing(message, at)
    whole = ((0, job.spec.instances),)
    ranges = _clipped(message.ranges, job.spec.instances) if message.ranges else whole
    reply = m.JobStopped(ranges, message.ended)
    if job.goal in (m.JobGoals.KILLED, m.JobGoals.DELETED):
        return Decision(reply=reply, because="it is being stopped already")
    if ranges == whole:
        if job.state in TERMINAL_JOB_STATES:
            return Decision(reply=reply, because="it has ended")
        facts: tuple[Fact, ...] = (f.StopOrdered(at.now, at.who),)
        touched = Bits.span(0, job.slices)
    else:
        stopped = [(number, _members(job, number, ranges=ranges)) for number in _touched(ranges)]
        facts = tuple(
            f.InstancesStopped(k, members, at.who, at.now) for k, members in stopped if members
        )
        touched = Bits.of(*(k for k, members in stopped if members))
    folded = job
    for fact in facts:
        folded = _evolve(folded, fact)
    return Decision(
        facts=facts,
        sends=_goals(folded, touched),
        reply=reply,
        because="Task stop API request",
    )


def delete(job: Job, message: m.DeleteJob, at: At) -> Decision:
    """Delete the job: clients no longer see it; it is forgotten once its slices are gone."""
    if job.spec is None:
        return missing(message, at)
    if job.goal == m.JobGoals.DELETED:
        return Decision(reply=m.JobDeleted(), because="it is being deleted already")
    if job.state not in TERMINAL_JOB_STATES and not message.force:
        text = f"Job is not in a terminal state: {job.state.name}"
        return Decision(reply=Refused(NOT_TERMINAL, text, "id"), because=text)
    fact = f.DeletionOrdered(at.now)
    folded = _evolve(job, fact)
    return Decision(
        facts=(fact,),
        sends=_goals(folded, Bits.span(0, folded.slices)),
        reply=m.JobDeleted(),
        because="deleted by a client",
    )


def missing(message: Any, at: At) -> Decision:
    """There is no such job."""
    return Decision(reply=Refused(NOT_FOUND, "job not found", "id"))


def slice_open(job: Job, message: SliceOpen, at: At) -> Decision:
    """A slice confirms the goal; a confirmation of an older version is ignored."""
    if message.version < _version(job, message.number) or message.number in job.confirmed:
        return Decision()
    return Decision(facts=(f.SliceConfirmed(message.number, message.version),))


def tally(job: Job, message: SliceTally, at: At) -> Decision:
    """The tally of a slice, unless a newer one is known."""
    known = job.reports.get(message.number)
    if job.goal == m.JobGoals.DELETED or (known is not None and known.version >= message.version):
        return Decision()
    if known is not None and known.tally == message.tally:
        return Decision()
    fact = f.JobTallied(message.number, message.version, message.tally, at.now)
    folded = _evolve(job, fact)
    terminal = folded.state in TERMINAL_JOB_STATES
    ended = f"the job ended as {folded.state.name}" if terminal else ""
    if job.goal != m.JobGoals.SUCCEEDED or job.spec is None or not limited(job.spec):
        return Decision(facts=(fact,), because=ended)
    tallies = {number: folded.reports[number].tally for number in sorted(folded.reports)}
    more = higher(job.spec, folded.grants, tallies=tallies)
    if not more:
        return Decision(facts=(fact,), because=ended)
    raised = f.GrantsRaised(more)
    return Decision(
        facts=(fact, raised),
        sends=_goals(_evolve(folded, raised), Bits.of(*(number for number, _ in more))),
        because=counted(len(more), "slice", many="slices") + " may have more instances under way",
    )


def slice_gone(job: Job, message: SliceGone, at: At) -> Decision:
    """A slice and its tasks are deleted."""
    if message.number in job.gone or job.goal != m.JobGoals.DELETED:
        return Decision()
    return Decision(facts=(f.SliceVanished(message.number),))


def drop(job: Job, message: m.DropPieces, at: At) -> Decision:
    """Forget the pieces, unless the job was created meanwhile."""
    if job.spec is not None:
        return Decision(because="the job is complete")
    return Decision(facts=(f.JobForgotten(),), because="pieces that do not belong together")


def due(job: Job, message: Due, at: At) -> Decision:
    """The client did not send the remaining pieces in time: forget the others."""
    text = f"its client did not send all pieces within {PIECES_TIMEOUT_S:g} s"
    return Decision(facts=(f.JobForgotten(),), because=text)


def deadline(job: Job) -> tuple[str, float] | None:
    """How long pieces of an incomplete job, which take memory, are kept."""
    return (PIECES, PIECES_TIMEOUT_S) if job.spec is None else None


def _nothing(message: Any, at: At) -> Decision:
    return Decision(because="no such job")


DECIDE: Mapping[type, Callable[[Any, Any, At], Decision]] = {
    m.AddOverrides: add,
    m.CreateJob: create,
    m.StopJob: stop,
    m.DeleteJob: delete,
    SliceOpen: slice_open,
    SliceTally: tally,
    SliceGone: slice_gone,
    m.DropPieces: drop,
    Due: due,
}

ABSENT: Mapping[type, Callable[[Any, At], Decision]] = {
    m.AddOverrides: add_first,
    m.CreateJob: create_first,
    m.StopJob: missing,
    m.DeleteJob: missing,
    SliceOpen: _nothing,
    SliceTally: _nothing,
    SliceGone: _nothing,
    m.DropPieces: _nothing,
    Due: _nothing,
}


def owed(job: Job) -> tuple[Send, ...]:
    """Goals are sent until their slice has confirmed them; deletion, until it is gone."""
    if job.spec is None:
        return ()
    done = job.gone if job.goal == m.JobGoals.DELETED else job.confirmed
    return _goals(job, Bits.span(0, job.slices) - done)


def _goals(job: Job, slices: Bits) -> tuple[Send, ...]:
    return tuple(
        Send(slice_key(job.key.partition("/")[2], number), _goal(job, number)) for number in slices
    )


def _goal(job: Job, number: int) -> SetSliceGoal:
    spec = job.spec
    assert spec is not None
    opening = None
    if job.goal != m.JobGoals.DELETED:
        count = count_of(spec, number)
        opening = SliceOpening(
            job=job.key.partition("/")[2],
            name=spec.name,
            pool=spec.pool,
            count=count,
            default=spec.default,
            overrides=job.overrides.get(number, ()),
            labels=spec.labels,
            priority=spec.priority,
            preemptible=spec.preemptible,
            revocable=spec.revocable,
        )
    return SetSliceGoal(
        version=job.version,
        job=job.key,
        number=number,
        goal=TaskGoals(int(job.goal)),
        stopped=job.stopped.get(number, Bits()),
        opening=opening,
        grant=job.grants.get(number, 0) if limited(spec) else None,
    )


def _version(job: Job, number: int) -> int:
    """The lowest version that confirms a slice's goal: the newest, if none was confirmed yet."""
    return job.version if number not in job.confirmed else 0


def _clipped(ranges: tuple[tuple[int, int], ...], instances: int) -> tuple[tuple[int, int], ...]:
    clipped = sorted((max(start, 0), min(stop, instances)) for start, stop in ranges)
    merged: list[tuple[int, int]] = []
    for start, stop in clipped:
        if start >= stop:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return tuple(merged)


def _touched(ranges: tuple[tuple[int, int], ...]) -> list[int]:
    return sorted(
        {k for start, stop in ranges for k in range(start // SLICE_SIZE, -(-stop // SLICE_SIZE))}
    )


def _members(job: Job, number: int, *, ranges: tuple[tuple[int, int], ...]) -> Bits:
    assert job.spec is not None
    count = count_of(job.spec, number)
    return members_in(number, ranges, count=count) - job.stopped.get(number, Bits())


def _evolve(job: Job | None, fact: Fact) -> Job:
    evolved = EVOLVE[type(fact)](job, fact)
    assert evolved is not None
    return evolved


def _id(at: At) -> str:
    return at.key.partition("/")[2]
