"""How a job decides commands that change it after its creation: update, start, restart.

All are absolute: a repeat finds nothing left to do, and the slices learn of the newest state in
whatever order and however often it is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from peloton.actors.job import facts as f
from peloton.actors.job import messages as m
from peloton.actors.job.grants import count_of
from peloton.actors.job.messages import NONE_TO_START, OTHER_VERSION, TERMINATED
from peloton.actors.job.orders import (
    clipped,
    evolve,
    evolved_by,
    goals_of,
    missing,
    other_version,
    raise_grants,
    sender_of,
    slices_in,
)
from peloton.actors.job.slice.messages import members_in
from peloton.actors.job.slice.task_config import Override
from peloton.actors.job.spec import INVALID, JobSpec, check_instances, check_spec, updated
from peloton.actors.job.spec_versions import newly_owed
from peloton.actors.job.stages import TERMINAL_JOB_STATES, JobGoals
from peloton.actors.job.state import Job, version_of
from peloton.actors.task.messages import SLICE_SIZE
from peloton.runtime.vocabulary import SELF, At, Bits, Decision, Fact, Refused, Send

BUSY = "BUSY"
INCOMPLETE = "INCOMPLETE"
CHANGEABLE = (
    "instances", "description", "priority", "preemptible", "revocable", "minimum_running",
    "maximum_running", "max_running_time_s",
)  # fmt: skip
"""Fields of a spec that an update may change. New instances alone get a new priority, or whether
they may be preempted."""


def start(job: Job, message: m.StartInstances, at: At) -> Decision:
    """Begin new runs of stopped instances, or with `again` of those that are to run."""
    spec = job.spec
    if spec is None or job.goal == JobGoals.DELETED:
        return missing(message, at)
    whole = ((0, spec.instances),)
    ranges = clipped(message.ranges, job.reach) if message.ranges else whole
    members = _all_startable(job, ranges, again=message.again)
    if not members:
        if not message.again and job.state in TERMINAL_JOB_STATES:
            # It may be restarted, and stopped: then the same request starts it.
            refusal = Refused(TERMINATED, NONE_TO_START, "jobId", again=True)
            return Decision(reply=refusal, because=NONE_TO_START)
        because = "all of them were stopped" if message.again else "none of them was stopped"
        return Decision(reply=m.InstancesOrdered(()), because=because)
    if spec.unique and job.state in TERMINAL_JOB_STATES:
        text = "it has ended, and has given up its name: create the job anew"
        return Decision(reply=Refused(TERMINATED, text, "jobId"), because=text)
    facts: tuple[Fact, ...] = (f.InstancesStarted(members, at.now, at.who),)
    because = "Task restart API request" if message.again else "Task start API request"
    reply = m.InstancesOrdered(_ranges(members))
    return _ordered(job, facts, reply=reply, because=because, now=at.now)


def start_job(job: Job, message: m.StartJob, at: At) -> Decision:
    """Begin new runs of all instances of a service that were stopped."""
    spec = job.spec
    if spec is None or job.goal == JobGoals.DELETED:
        return missing(message, at)
    refused = other_version(job, message.expected)
    if refused is not None:
        return refused
    if not spec.is_service:
        return Decision(reply=Refused(INVALID, "the job is not a service", "jobId"))
    members = _all_startable(job, ((0, spec.instances),), again=False)
    if not members:
        reply = m.JobStarted(version_of(job))
        return Decision(reply=reply, because="none of its instances was stopped")
    fact = f.InstancesStarted(members, at.now, at.who, whole=True)
    reply = m.JobStarted(version_of(evolve(job, fact)))
    return _ordered(job, (fact,), reply=reply, because="started on request", now=at.now)


def add_change(job: Job, message: m.AddChange, at: At) -> Decision:
    """Store one piece of a large update; a repeat replaces the earlier one."""
    refused = _not_changeable(job, message, at)
    if refused is not None:
        return refused
    if job.pieces and sender_of(job.pieces_by) != sender_of(at.who):
        text = "the job is being updated by another client"
        return Decision(reply=Refused(BUSY, text, "id", again=True), because=text)
    fact = f.ChangePieceGiven(message.slice_number, message.overrides, at.who, at.now)
    return Decision(facts=(fact,), reply=m.OverridesAdded(message.slice_number))


def update(job: Job, message: m.UpdateJob, at: At) -> Decision:
    """Apply more instances, a new description, priority or limit."""
    refused = _not_changeable(job, message, at)
    if refused is not None:
        return refused
    known = job.spec
    assert known is not None
    received = {number: job.pieces[number] for number in sorted(job.pieces)}
    if not message.pieces:
        received = {}
    if message.pieces != len(received):
        text = f"{len(received)} of {message.pieces} pieces were received: send all of them again"
        drop = (Send(SELF, m.DropPieces()),) if received else ()
        refusal = Refused(INCOMPLETE, text, "config.instanceConfig", again=True)
        return Decision(sends=drop, reply=refusal, because=text)
    spec = updated(known, message.spec)
    pieces = received | dict(message.overrides)
    given = [override for overrides in pieces.values() for override in overrides]
    spec = msgspec.structs.replace(spec, own_configs=known.own_configs + len(given))
    wrong = _check_growth(known, spec.instances, given=given) or check_spec(spec)
    wrong = wrong or check_instances(spec, given, own=spec.own_configs)
    if wrong is not None:
        return Decision(reply=wrong, because=wrong.text)
    if not given and all(getattr(spec, name) == getattr(known, name) for name in CHANGEABLE):
        return Decision(reply=m.JobUpdated(0, known.config_version), because="nothing new")
    added = spec.instances - known.instances
    changed = f.JobChanged(spec, tuple(pieces.items()), at.now, at.who)
    facts: tuple[Fact, ...] = (changed,)
    reply = m.JobUpdated(added, spec.config_version)
    return _ordered(job, facts, reply=reply, because=f"updated: {added} more instances", now=at.now)


def _ordered(
    job: Job, facts: tuple[Fact, ...], *, reply: Any, because: str, now: float
) -> Decision:
    """Return the decision with these facts: what they free is granted, and the slices get new
    goals."""
    ordered = evolved_by(job, facts)
    raised, folded, _ = raise_grants(ordered, now=now)
    slices = Bits.span(0, folded.slices) - folded.confirmed
    sends = goals_of(folded, slices) + newly_owed(
        job.key, before=job.versions, after=folded.versions
    )
    return Decision(facts=(*facts, *raised), sends=sends, reply=reply, because=because)


def _all_startable(
    job: Job, ranges: tuple[tuple[int, int], ...], *, again: bool
) -> tuple[tuple[int, Bits], ...]:
    """Return the members of slices that begin new runs."""
    return tuple(
        (number, some)
        for number in slices_in(ranges)
        if (some := _startable(job, number, ranges=ranges, again=again))
    )


def _startable(job: Job, number: int, *, ranges: tuple[tuple[int, int], ...], again: bool) -> Bits:
    assert job.spec is not None
    stopped, count = job.stopped.get(number, Bits()), count_of(job.spec, number)
    killed = job.goal == JobGoals.KILLED
    if again:  # it gives runs to who is to run, and starts nobody
        return Bits() if killed else members_in(number, ranges, count=count) - stopped
    if killed:
        return members_in(number, ranges, count=count)
    # Who was stopped may be beyond the count.
    return members_in(number, ranges, count=job.reach_in(number)) & stopped


def _ranges(members: Iterable[tuple[int, Bits]]) -> tuple[tuple[int, int], ...]:
    """Return the instances as half-open ranges, ascending; it takes a step for each range."""
    found: list[tuple[int, int]] = []
    for number, some in members:
        raw, first = some.raw, number * SLICE_SIZE
        while raw:
            skipped = (raw & -raw).bit_length() - 1
            raw >>= skipped
            length = (~raw & (raw + 1)).bit_length() - 1  # of the ones at the end
            start, stop = first + skipped, first + skipped + length
            if found and found[-1][1] == start:
                found[-1] = found[-1][0], stop
            else:
                found.append((start, stop))
            raw, first = raw >> length, stop
    return tuple(found)


def _not_changeable(job: Job, message: Any, at: At) -> Decision | None:
    """Refuse an update that this type of job, or its state, does not allow; else return None."""
    spec = job.spec
    if spec is None or job.goal == JobGoals.DELETED:
        return missing(message, at)
    if job.state in TERMINAL_JOB_STATES or job.goal == JobGoals.KILLED:
        text = f"Job is in a terminal state:{job.state.name}"
        return Decision(reply=Refused(TERMINATED, text, "id", again=True), because=text)
    version = message.version if isinstance(message, m.UpdateJob) else 0
    if version and version != spec.config_version:
        text = "invalid job configuration version"
        refusal = Refused(OTHER_VERSION, text, "config.changeLog.version")
        return Decision(reply=refusal, because=text)
    return None


def _check_growth(known: JobSpec, instances: int, *, given: Sequence[Override]) -> Refused | None:
    if instances < known.instances:
        text = f"new instance count can't be less: {instances} are less than {known.instances}"
        return Refused(INVALID, text, "config.instanceCount")
    for override in given:
        if override.instance < known.instances:
            text = f"instance {override.instance} exists: its config cannot be changed"
            return Refused(INVALID, text, f"config.instanceConfig[{override.instance}]")
    return None
