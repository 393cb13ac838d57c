"""How a job decides commands of clients and reports of its slices.

Commands become goals, in order, each answered; reports of slices become what clients see. Goals for
slices are absolute and carry one version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import immutables
from msgspec.structs import replace

from peloton.actors.job import archiving, changes, waiting
from peloton.actors.job import facts as f
from peloton.actors.job import messages as m
from peloton.actors.job.grants import metered
from peloton.actors.job.messages import NOT_TERMINAL
from peloton.actors.job.name.messages import NameFreed, NameGranted, NameRefused
from peloton.actors.job.notice_messages import NoticeHandled
from peloton.actors.job.orders import (
    asked_first,
    clipped,
    evolve,
    goals_of,
    missing,
    other_version,
    raise_grants,
    said_at_end,
    sender_of,
    slices_in,
    spare_asked,
    tallied_by,
)
from peloton.actors.job.slice.messages import SliceGone, SliceOpen, SliceTally, members_in
from peloton.actors.job.slice.rollout_messages import SpareAsked
from peloton.actors.job.spec import check_instances, check_spec, check_waits
from peloton.actors.job.spec_versions import newly_owed, owed_to_specs
from peloton.actors.job.stages import TERMINAL_JOB_STATES, JobGoals
from peloton.actors.job.state import Job, version_of
from peloton.actors.job.version.messages import DropSpec
from peloton.actors.job.workflow import decide as workflows
from peloton.actors.job.workflow.messages import ControlWorkflow, ReplaceJob, RestartJob
from peloton.actors.job.workflow.progress import go_on
from peloton.runtime.vocabulary import SELF, SENDER, At, Bits, Decision, Due, Fact, Refused, Send

EXISTS = "ALREADY_EXISTS"
INCOMPLETE = changes.INCOMPLETE
PIECES, PIECES_TIMEOUT_S = "pieces", 600.0


def add_first(message: m.AddOverrides, at: At) -> Decision:
    """Store the first piece of a large job."""
    fact = f.OverridesGiven(message.slice_number, message.overrides, at.who)
    return Decision(facts=(fact,), reply=m.OverridesAdded(message.slice_number))


def add(job: Job, message: m.AddOverrides, at: At) -> Decision:
    """Store one more piece; a repeat replaces the earlier one."""
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
    """Refuse a message if the pieces of an incomplete job are another client's; else return None.

    Any client that may submit somewhere may send pieces for any id: those of other clients must not
    be replaced, dropped or completed by that.
    """
    if not job.created_by or sender_of(job.created_by) == sender_of(at.who):
        return None
    text = f"job {_id(at)} is being created by another client"
    return Decision(reply=Refused(EXISTS, text, "id"), because=text)


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
    refused = refused or check_waits(spec, now=at.now)
    if refused is not None:
        return Decision(reply=refused, because=refused.text)
    facts: tuple[Fact, ...] = tuple(
        f.OverridesGiven(number, overrides) for number, overrides in message.overrides
    )
    options = message.options if spec.is_service else None
    made = f.JobMade(at.key, spec, message.pool_path, at.now, at.who, options, message.opaque)
    for fact in facts:
        job = evolve(job, fact)
    folded = evolve(job, made)
    raised: tuple[Fact, ...] = ()
    if spec.throttle is not None:
        raised, folded, _ = raise_grants(folded, now=at.now)
    moved: tuple[Fact, ...] = ()
    if folded.workflow is not None:
        moved, folded = go_on(folded, now=at.now)
    return Decision(
        facts=(*facts, made, *raised, *moved),
        sends=(
            *goals_of(folded, Bits.span(0, folded.slices)),
            *asked_first(folded),
            *(owed_to_specs(at.key, folded.versions) if folded.versions.keeping else ()),
        ),
        reply=m.JobCreated(at.key),
    )


def make_first(message: m.MakeJob, at: At) -> Decision:
    """Create the job of one moment of a schedule."""
    created = m.CreateJob(message.spec, message.overrides, pool_path=message.pool_path)
    decision = _create(None, created, replace(at, who=message.who))
    answer = m.MakeHandled(at.key)
    if isinstance(decision.reply, Refused):
        if decision.reply.again:
            return Decision(because=decision.reply.text)  # it is owed, and so sent again
        answer = m.MakeHandled(at.key, f"{decision.reply.field}: {decision.reply.text}")
    return replace(decision, reply=None, sends=(*decision.sends, Send(SENDER, answer)))


def make(job: Job, message: m.MakeJob, at: At) -> Decision:
    """Answer that the moment has its job: no other client can have made one with this id."""
    return Decision(sends=(Send(SENDER, m.MakeHandled(at.key)),), because="it is made already")


def stop(job: Job, message: m.StopJob, at: At) -> Decision:
    """End all instances, or some. Those that have ended keep their outcome."""
    if job.spec is None or (job.goal == JobGoals.DELETED and message.expected is not None):
        return missing(message, at)
    refused = other_version(job, message.expected)
    if refused is not None:
        return refused
    whole = ((0, job.reach),)
    ranges = clipped(message.ranges, job.reach) if message.ranges else whole
    reply = m.JobStopped(ranges, message.ended, version_of(job) if job.spec.is_service else None)
    if job.goal in (JobGoals.KILLED, JobGoals.DELETED):
        return Decision(reply=reply, because="it is being stopped already")
    if message.expected is not None and workflows.is_starting(job):
        text = "job has active update with start_pods set, cannot stop it now"
        return Decision(reply=Refused(workflows.TERMINATING, text, "id"), because=text)
    # Members that wait for their restart end without any change of a task, which were tallied.
    # So do slices without instances: of a daemon job without hosts, or that a workflow adds.
    tallied = metered(job.spec) or job.spec.is_daemon or job.workflow is not None
    if ranges == whole:
        if job.state in TERMINAL_JOB_STATES:
            return Decision(reply=reply, because="it has ended")
        facts: tuple[Fact, ...] = (f.StopOrdered(at.now, at.who, tallied),)
        touched = Bits.span(0, job.slices)
        if reply.version is not None:
            reply = replace(reply, version=version_of(evolve(job, facts[0])))
    else:
        stopped = [(number, _members(job, number, ranges=ranges)) for number in slices_in(ranges)]
        facts = tuple(
            f.InstancesStopped(k, members, at.who, at.now, tallied)
            for k, members in stopped
            if members
        )
        touched = Bits.of(*(k for k, members in stopped if members))
    folded = job
    for fact in facts:
        folded = evolve(folded, fact)
    return Decision(
        facts=facts,
        sends=goals_of(folded, touched),
        reply=reply,
        because="Task stop API request",
    )


def delete(job: Job, message: m.DeleteJob, at: At) -> Decision:
    """Delete the job: clients no longer see it; it is forgotten once its slices are gone."""
    if job.spec is None:
        return missing(message, at)
    if job.goal == JobGoals.DELETED:
        return Decision(reply=m.JobDeleted(), because="it is being deleted already")
    refused = other_version(job, message.expected)
    if refused is not None:
        return refused
    if job.state not in TERMINAL_JOB_STATES and not message.force:
        text = f"Job is not in a terminal state: {job.state.name}"
        return Decision(reply=Refused(NOT_TERMINAL, text, "id"), because=text)
    fact = f.DeletionOrdered(at.now)
    folded = evolve(job, fact)
    return Decision(
        facts=(fact,),
        sends=(
            *goals_of(folded, Bits.span(0, folded.slices)),
            *archiving.dropped(job),
            *newly_owed(at.key, before=job.versions, after=folded.versions),
            *said_at_end(folded),
        ),
        reply=m.JobDeleted(),
        because="deleted by a client",
    )


def slice_open(job: Job, message: SliceOpen, at: At) -> Decision:
    """Record that a slice has confirmed the goal; a confirmation of an older version confirms
    nothing.

    Its tally counts even so, if the slice holds the order that awaits it: an order to another slice
    may have raised the version meanwhile.
    """
    facts: tuple[Fact, ...] = ()
    if message.number not in job.confirmed and message.version >= job.version:
        facts = (f.SliceConfirmed(message.number, message.version),)
    awaited = job.awaited.get(message.number)
    if message.tally is None or awaited is None or message.version < awaited:
        return Decision(facts=facts)
    if job.goal == JobGoals.DELETED:
        return Decision(facts=facts)
    known = job.reports.get(message.number)
    version = known.version if known is not None else 0
    fact = f.JobTallied(message.number, version, message.tally, at.now, message.version)
    return tallied_by(job, (*facts, fact), now=at.now)


def tally(job: Job, message: SliceTally, at: At) -> Decision:
    """Apply the tally of a slice, unless a newer one is known."""
    known = job.reports.get(message.number)
    if job.goal == JobGoals.DELETED or (known is not None and known.version >= message.version):
        return Decision()
    goal = message.goal
    if known is not None and goal < known.goal:
        return Decision(because="made under an older goal than the known tally")
    awaited = job.awaited.get(message.number)
    if known is not None and known.tally == message.tally and (awaited is None or goal < awaited):
        return Decision()
    fact = f.JobTallied(message.number, message.version, message.tally, at.now, goal)
    return tallied_by(job, (fact,), now=at.now)


def slice_gone(job: Job, message: SliceGone, at: At) -> Decision:
    """Record that a slice and its tasks are deleted."""
    if message.number in job.gone or job.goal != JobGoals.DELETED:
        return Decision()
    fact = f.SliceVanished(message.number)
    return Decision(facts=(fact,), sends=said_at_end(evolve(job, fact)))


def drop(job: Job, message: m.DropPieces, at: At) -> Decision:
    """Forget the pieces, unless the job was created meanwhile."""
    if job.spec is not None:
        facts: tuple[Fact, ...] = (f.ChangePiecesDropped(at.now),) if job.pieces else ()
        return Decision(facts=facts, because="the job is complete")
    return Decision(facts=(f.JobForgotten(),), because="pieces that do not belong together")


def due(job: Job, message: Due, at: At) -> Decision:
    """Act on a deadline that has passed: of the job, its throttle or workflow, or of pieces."""
    name = message.name.partition(" ")[0]
    if name == waiting.DEADLINE:
        return waiting.deadline_passed(job, at)
    if name == waiting.THROTTLE:
        return waiting.throttle_passed(job, at)
    if name == waiting.PROGRESS:
        return workflows.without_progress(job, at)
    text = f"its client did not send all pieces within {PIECES_TIMEOUT_S:g} s"
    if job.spec is not None:
        return Decision(facts=(f.ChangePiecesDropped(at.now),), because=text)
    return Decision(facts=(f.JobForgotten(),), because=text)


def deadline(job: Job) -> tuple[str, float] | None:
    """Return name and seconds of the first deadline, or None: of the job, its throttle or workflow,
    or of the pieces of an incomplete job or update, which take memory."""
    pieces = (PIECES, PIECES_TIMEOUT_S) if job.spec is None or job.pieces else None
    own, starts = waiting.deadline_of(job), waiting.throttle_of(job)
    progress = waiting.progress_end_of(job) if job.workflow is not None else None
    some = [one for one in (pieces, own, starts, progress) if one is not None]
    return min(some, key=lambda one: one[1], default=None)


def spec_stored(job: Job, message: m.SpecStored, at: At) -> Decision:
    """Note that an owner has a spec, or have it drop one that nobody wants any more."""
    versions = job.versions
    if any(one.number == message.number for one in versions.keeping):
        return Decision(facts=(f.SpecConfirmed(message.number),))
    if message.number in versions.leaving or message.number in versions.numbers:
        return Decision()
    return spec_for_nobody(message, at)


def spec_for_nobody(message: m.SpecStored, at: At) -> Decision:
    """Have the owner drop a spec that the job does not want any more, or of a deleted job."""
    return Decision(sends=(Send(SENDER, DropSpec(message.number)),), because="nobody wants it")


def spec_dropped(job: Job, message: m.SpecDropped, at: At) -> Decision:
    """Note that an owner has a spec no more, and have the next one dropped."""
    if message.number not in job.versions.leaving:
        return Decision()
    fact = f.SpecGone(message.number)
    after = evolve(job, fact).versions
    sends = newly_owed(at.key, before=job.versions, after=after)
    return Decision(facts=(fact,), sends=sends)


DECIDE: Mapping[type, Callable[[Any, Any, At], Decision]] = {
    m.AddOverrides: add,
    m.CreateJob: create,
    m.StopJob: stop,
    m.DeleteJob: delete,
    SliceOpen: slice_open,
    SliceTally: tally,
    SliceGone: slice_gone,
    m.DropPieces: drop,
    m.StartInstances: changes.start,
    m.StartJob: changes.start_job,
    m.AddChange: changes.add_change,
    m.UpdateJob: changes.update,
    m.LeaveMemory: archiving.leave,
    m.Archived: archiving.archived,
    m.ForgetJob: archiving.forget,
    m.AwaitEnd: waiting.await_end,
    m.AwaitNoted: waiting.noted,
    m.EndTold: waiting.told,
    m.EndHeard: waiting.heard,
    NameGranted: waiting.granted,
    NameRefused: waiting.refused,
    NameFreed: waiting.freed,
    NoticeHandled: waiting.told_outside,
    m.MakeJob: make,
    ReplaceJob: workflows.replace_job,
    RestartJob: workflows.restart_job,
    ControlWorkflow: workflows.control,
    SpareAsked: spare_asked,
    m.SpecStored: spec_stored,
    m.SpecDropped: spec_dropped,
    Due: due,
}

ABSENT: Mapping[type, Callable[[Any, At], Decision]] = {
    m.AddOverrides: add_first,
    m.CreateJob: create_first,
    m.StopJob: missing,
    m.DeleteJob: missing,
    m.StartInstances: missing,
    m.StartJob: missing,
    m.AddChange: missing,
    m.UpdateJob: missing,
    m.ForgetJob: archiving.unknown,
    m.AwaitEnd: waiting.await_absent,
    m.EndTold: waiting.told_absent,
    NameGranted: waiting.granted_absent,
    m.MakeJob: make_first,
    ReplaceJob: missing,
    RestartJob: missing,
    ControlWorkflow: missing,
    m.SpecStored: spec_for_nobody,
}


def owed(job: Job) -> tuple[Send, ...]:
    """Return what is repeated until it is answered.

    Goals are sent until their slice has confirmed them; deletion, until it is gone; and what
    concerns other jobs, until they answer.
    """
    if job.spec is None:
        return ()
    done = job.gone if job.goal == JobGoals.DELETED else job.confirmed
    goals = goals_of(job, Bits.span(0, job.slices) - done)
    versions = job.versions
    specs = owed_to_specs(job.key, versions) if versions.keeping or versions.leaving else ()
    return (*goals, *specs, *waiting.owed_to_others(job))


def _members(job: Job, number: int, *, ranges: tuple[tuple[int, int], ...]) -> Bits:
    return members_in(number, ranges, count=job.reach_in(number)) - job.stopped.get(number, Bits())


def _id(at: At) -> str:
    return at.key.partition("/")[2]
