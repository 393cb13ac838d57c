"""How facts of workflows change a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import immutables
from msgspec.structs import replace

from peloton.actors.job import spec_versions as v
from peloton.actors.job import throttle as t
from peloton.actors.job import waits as w
from peloton.actors.job.budget import reshared
from peloton.actors.job.grants import count_of
from peloton.actors.job.messages import moment_of
from peloton.actors.job.slice.messages import slices_of
from peloton.actors.job.slice.rollout_messages import RolloutTally
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.stages import TERMINAL_JOB_STATES, JobGoals, JobStates
from peloton.actors.job.state import Job, awaited_of, default_goal, still_there
from peloton.actors.job.volume_sizes import VolumeSizes, configs_of, sizes_of_update
from peloton.actors.job.workflow import facts as f
from peloton.actors.job.workflow.leaves import bounds_of, progress_of
from peloton.actors.job.workflow.messages import WorkflowOptions, WorkflowStates, WorkflowTypes
from peloton.actors.job.workflow.state import (
    ENDED_KEPT_MAX,
    EVENTS_KEPT_MAX,
    WORKFLOW_OVER,
    Workflow,
)
from peloton.runtime.vocabulary import Bits


def _begun(job: Job, fact: f.WorkflowBegun) -> Job:
    known, spec, version = job.spec, fact.spec, job.version + 1
    assert known is not None
    last = job.workflow
    past = job.past_workflows
    if last is not None:
        past = (
            *past,
            last if last.is_over else _ended(job, last, state=WorkflowStates.ABORTED, at=fact.at),
        )
    restarts = fact.kind != WorkflowTypes.UPDATE
    members = immutables.Map(fact.members) if restarts else None
    workflow = Workflow(
        number=version,
        first=version,
        kind=fact.kind,
        options=fact.options,
        version=spec.config_version,
        previous_version=known.config_version,
        created_at=fact.at,
        members=members,
        ranges=fact.ranges,
        carried=immutables.Map(bounds_of(job)),
        opaque=fact.opaque,
        digest=fact.digest,
        before=None if restarts else known,
        sizes=None if restarts else job.volume_sizes,
    )
    first = WorkflowStates.PAUSED if fact.options.paused else WorkflowStates.INITIALIZED
    versions = v.same_spec(job.versions, known)
    if not restarts:
        versions = v.replaced(job.versions, known)
        versions = v.began(versions, spec, overrides=fact.overrides)
    begun = replace(
        _resized(job, spec, version=version),
        version=version,
        workflow_version=job.workflow_version + 1,
        confirmed=Bits(),
        overrides=job.overrides if restarts else immutables.Map(fact.overrides),
        workflow=_in(workflow, first, at=fact.at),
        past_workflows=past[-ENDED_KEPT_MAX:],
        waits=w.timed(job.waits, fact.at),
        throttled=t.grown(job.throttled, spec) if job.throttled is not None else None,
        updated_at=fact.at,
        versions=versions,
        volume_sizes=_sizes(job, fact),
    )
    job = reshared(job, begun)
    return _started(job, members, at=fact.at) if fact.options.starts else job


def _sizes(job: Job, fact: f.WorkflowBegun) -> VolumeSizes:
    """Return the known sizes of volumes after a workflow; only updates change them."""
    if fact.kind != WorkflowTypes.UPDATE:
        return job.volume_sizes
    return sizes_of_update(job.volume_sizes, fact.spec, own=configs_of(fact.overrides))


def _resized(job: Job, spec: JobSpec, *, version: int) -> Job:
    """Return the job with this spec, by the goals of this version; it may have fewer instances.

    Whether those that are to be removed were stopped does not matter any more. Their slices stay,
    with no instances, until the job is deleted: more instances may be wanted again. As none of
    their instances may have anything to do, they are asked for their tallies; and so are those of
    which no instance exists, as after a creation that was aborted.
    """
    most, needed = job.reach, slices_of(spec.instances)
    asked = {*range(needed, job.slices), *filter(lambda each: _is_silent(job, each), range(needed))}
    return replace(
        job,
        spec=spec,
        stopped=still_there(job.stopped, spec),
        span=most if most > spec.instances else 0,
        opened=job.slices if job.slices > needed else 0,
        awaited=awaited_of(job, version).update(dict.fromkeys(sorted(asked), version)),
    )


def _is_silent(job: Job, number: int) -> bool:
    """Return whether a slice has, as far as is known, no instances that would change and so be
    tallied."""
    report = job.reports.get(number)
    return report is None or all(name == "INITIALIZED" for name, _ in report.tally.counts)


def with_creation(job: Job, options: WorkflowOptions, *, opaque: str, at: float) -> Job:
    """Return a new job whose instances are added by a workflow: an update from version 0."""
    assert job.spec is not None
    workflow = Workflow(
        number=job.version,
        first=job.version,
        kind=WorkflowTypes.UPDATE,
        options=options,
        version=job.spec.config_version,
        previous_version=0,
        created_at=at,
        opaque=opaque,
    )
    first = WorkflowStates.PAUSED if options.paused else WorkflowStates.INITIALIZED
    return replace(job, workflow=_in(workflow, first, at=at))


def _started(job: Job, members: Mapping[int, Bits] | None, *, at: float) -> Job:
    """Return the job with all instances that a workflow starts wanted; of a stopped one, only
    these."""
    spec = job.spec
    assert spec is not None
    stopped = job.stopped
    if job.goal == JobGoals.KILLED:
        every = {number: Bits.span(0, count_of(spec, number)) for number in range(job.slices)}
        stopped = immutables.Map(every)
    for number in range(job.slices):
        some = Bits.span(0, count_of(spec, number)) if members is None else members.get(number)
        if some and number in stopped:
            stopped = stopped.set(number, stopped[number] - some)
    ended = job.goal == JobGoals.KILLED or job.state in TERMINAL_JOB_STATES
    return replace(
        job,
        goal=default_goal(spec),
        state=JobStates.PENDING if ended else job.state,
        stopped=stopped,
        stop=None,
        waits=w.started_again(job.waits, at=at, moment=moment_of(spec.deadline, job.created_at)),
        completed_at=0.0,
    )


def _in(workflow: Workflow, state: WorkflowStates, *, at: float) -> Workflow:
    """Return the workflow in this state, which is one of its events."""
    events = (*workflow.events, (state, at))[-EVENTS_KEPT_MAX:]
    return replace(
        workflow,
        state=state,
        previous=workflow.state,
        updated_at=at,
        progressed_at=at,
        completed_at=at if state in WORKFLOW_OVER else 0.0,
        events=events,
    )


def _ended(job: Job, workflow: Workflow, *, state: WorkflowStates, at: float) -> Workflow:
    """Return the workflow once it is over, without what is only needed while it runs."""
    return replace(
        _in(workflow, state, at=at),
        ended=progress_of(job),
        leaves=immutables.Map(),
        carried=immutables.Map(),
        members=None,
        before=None,
        sizes=None,
    )


def _moved(job: Job, fact: f.WorkflowMoved) -> Job:
    workflow = job.workflow
    assert workflow is not None
    workflow = replace(workflow, opaque=fact.opaque or workflow.opaque)
    if fact.because:
        workflow = replace(workflow, because=fact.because)
    if fact.state != workflow.state:
        over = fact.state in WORKFLOW_OVER
        moved = _ended(job, workflow, state=fact.state, at=fact.at) if over else None
        workflow = moved or _in(workflow, fact.state, at=fact.at)
    # All that was to be removed is, once an update is through.
    through = fact.state in (WorkflowStates.SUCCEEDED, WorkflowStates.ROLLED_BACK)
    through = through and workflow.kind == WorkflowTypes.UPDATE
    return replace(
        job,
        span=0 if through else job.span,
        stopped=still_there(job.stopped, job.spec) if through and job.spec else job.stopped,
        workflow=workflow,
        workflow_version=job.workflow_version + fact.ordered,
        version=job.version + 1,
        confirmed=Bits(),
        waits=w.timed(job.waits, fact.at),
        updated_at=fact.at,
    )


def _undone(job: Job, fact: f.WorkflowUndone) -> Job:
    workflow, spec = job.workflow, job.spec
    assert workflow is not None and spec is not None and workflow.before is not None
    number, version = job.version + 1, spec.config_version + 1
    back = replace(
        _in(workflow, WorkflowStates.ROLLING_BACKWARD, at=fact.at),
        number=number,
        version=version,
        undone=workflow.number,
        leaves=immutables.Map(),
        carried=immutables.Map(bounds_of(job)),
        options=replace(workflow.options, starts=False),
        before=None,
        sizes=None,
        because=fact.because,
    )
    undone = replace(
        _resized(job, replace(workflow.before, config_version=version), version=number),
        workflow=back,
        workflow_version=job.workflow_version + fact.ordered,
        version=number,
        confirmed=Bits(),
        waits=w.timed(job.waits, fact.at),
        updated_at=fact.at,
        volume_sizes=job.volume_sizes if workflow.sizes is None else workflow.sizes,
        versions=v.gone_back(
            v.replaced(job.versions, spec), version, to=workflow.before.config_version
        ),
    )
    return reshared(job, undone)


def _raised(job: Job, fact: f.LeavesRaised) -> Job:
    workflow = job.workflow
    assert workflow is not None
    leaves = workflow.leaves.update(dict(fact.leaves))
    touched = Bits.of(*(number for number, _ in fact.leaves))
    return replace(
        job,
        workflow=replace(workflow, leaves=leaves),
        version=job.version + 1,
        confirmed=job.confirmed - touched,
    )


def with_downed(job: Job, *, number: int, tally: RolloutTally, goal: int) -> Job:
    """Return the job after a workflow has stopped these members of a slice, as of this goal."""
    workflow, known = job.workflow, job.stopped.get(number, Bits())
    if workflow is None or goal < max(workflow.first, job.awaited.get(number, 0)):
        return job  # they may have been started since
    assert job.spec is not None
    downed = tally.downed & Bits.span(0, count_of(job.spec, number))  # the others are removed
    if not downed - known:
        return job
    return replace(job, stopped=job.stopped.set(number, known | downed))


def with_progress(job: Job, *, number: int, tally: RolloutTally, at: float) -> Job:
    """Return the job after a slice's report on its rollout; its tally is applied later."""
    workflow, report = job.workflow, job.reports.get(number)
    if workflow is None or tally.number != workflow.number:
        return job
    known = report.tally.rollout if report is not None else None
    if known is not None and known.number == tally.number and known.done >= tally.done:
        return job
    workflow = replace(workflow, progressed_at=at)
    return replace(job, workflow=workflow, waits=w.timed(job.waits, at))


def _opaque(job: Job, fact: f.OpaqueChanged) -> Job:
    workflow = job.workflow
    assert workflow is not None
    workflow = replace(workflow, opaque=fact.opaque, updated_at=fact.at)
    return replace(job, workflow=workflow, workflow_version=job.workflow_version + 1)


WORKFLOW_EVOLVE: Mapping[type, Callable[[Any, Any], Job | None]] = {
    f.WorkflowBegun: _begun,
    f.WorkflowMoved: _moved,
    f.WorkflowUndone: _undone,
    f.LeavesRaised: _raised,
    f.OpaqueChanged: _opaque,
}
"""Of a job's facts, those of its workflows."""
