"""How a job decides commands that begin, pause, resume and abort its workflows.

A command becomes facts, goals for the slices and an answer with the job's new version.
"""

from __future__ import annotations

import hashlib

import msgspec

from peloton.actors.job.grants import count_of
from peloton.actors.job.messages import OTHER_VERSION
from peloton.actors.job.orders import (
    clipped,
    evolved_by,
    goals_of,
    missing,
    other_version,
    slices_in,
)
from peloton.actors.job.slice.messages import members_in
from peloton.actors.job.slice.task_config import Override
from peloton.actors.job.spec import INVALID, PROGRESS_LABEL, JobSpec, check_instances, check_spec
from peloton.actors.job.spec_versions import newly_owed
from peloton.actors.job.stages import JobGoals, JobStates
from peloton.actors.job.state import Job, version_of
from peloton.actors.job.volume_sizes import resized
from peloton.actors.job.workflow import facts as f
from peloton.actors.job.workflow import messages as m
from peloton.actors.job.workflow.goals import WorkflowGoals, next_state
from peloton.actors.job.workflow.messages import OTHER_CONFIG, WorkflowStates
from peloton.actors.job.workflow.progress import failure_of, go_on, touched_by
from peloton.actors.job.workflow.state import TEXTS, Workflow
from peloton.runtime.vocabulary import At, Decision, Fact, Refused

CONFLICT, DELETING, TERMINATING = "CONFLICT", "DELETING", "TERMINATING"
NO_WORKFLOW = "NO_WORKFLOW"
FIXED = (
    ("pool", "respool_id", "resource pool identifier is immutable"),
    ("job_type", "type", "job type is immutable"),
)
FIXED_LABELS = ("after", "deadline", "unique", "throttle", "notify", "room_first")
"""What labels say of a job as a whole; it holds from its creation on."""
_GOALS = {
    m.WorkflowOrders.PAUSE: WorkflowGoals.PAUSE,
    m.WorkflowOrders.RESUME: WorkflowGoals.RESUME,
    m.WorkflowOrders.ABORT: WorkflowGoals.ABORT,
    m.WorkflowOrders.ROLL_BACK: WorkflowGoals.UNDO,
}


def replace_job(job: Job, message: m.ReplaceJob, at: At) -> Decision:
    """Give the job another spec, and its instances what of it is new to them."""
    refused = _not_now(job, message, at=at, kind=m.WorkflowTypes.UPDATE)
    if refused is not None:
        return refused
    known = job.spec
    assert known is not None
    if message.config and message.config != known.config_version:
        field = "updateConfig.jobConfig.changeLog.version"
        return _refused(OTHER_VERSION, OTHER_CONFIG, field=field)
    given = [override for _, overrides in message.overrides for override in overrides]
    spec = msgspec.structs.replace(
        message.spec, config_version=known.config_version + 1, own_configs=len(given)
    )
    digest = _digest(spec, message.overrides)
    same = _same_again(job, message, digest=digest, at=at)
    if same is not None:
        return same
    wrong = resized(known, spec, own=given, sizes=job.volume_sizes)
    wrong = wrong or _wrong(known, spec, given=given)
    if wrong is not None:
        return Decision(reply=wrong, because=wrong.text)
    fact = f.WorkflowBegun(
        kind=m.WorkflowTypes.UPDATE,
        options=message.options,
        spec=spec,
        at=at.now,
        overrides=message.overrides,
        opaque=message.opaque,
        digest=digest,
        who=at.who,
    )
    return _ordered(job, fact, at=at, because="Job configuration updated via API")


def restart_job(job: Job, message: m.RestartJob, at: At) -> Decision:
    """Begin a workflow that restarts, starts or stops instances, a batch at a time."""
    options = msgspec.structs.replace(message.options, starts=message.kind != m.WorkflowTypes.STOP)
    message = msgspec.structs.replace(message, options=options)
    refused = _not_now(job, message, at=at, kind=message.kind)
    if refused is not None:
        return refused
    spec = job.spec
    assert spec is not None
    if message.config and message.config != spec.config_version:
        return _refused(OTHER_VERSION, OTHER_CONFIG, field="resourceVersion")
    whole = ((0, spec.instances),)
    ranges = clipped(message.ranges, spec.instances) or whole
    members = [
        (number, members_in(number, ranges, count=count_of(spec, number)))
        for number in slices_in(ranges)
    ]
    fact = f.WorkflowBegun(
        kind=message.kind,
        options=options,
        spec=msgspec.structs.replace(spec, config_version=spec.config_version + 1),
        at=at.now,
        members=tuple((number, some) for number, some in members if some),
        ranges=ranges,
        opaque=message.opaque,
        who=at.who,
    )
    return _ordered(job, fact, at=at, because=TEXTS[message.kind])


def is_starting(job: Job) -> bool:
    """Return whether a workflow is about to start instances that were stopped."""
    workflow = job.workflow
    return workflow is not None and not workflow.is_over and workflow.options.starts


def control(job: Job, message: m.ControlWorkflow, at: At) -> Decision:
    """Pause, resume, abort or undo the workflow; instances that it has begun with go on in any
    case."""
    if job.spec is None or job.goal == JobGoals.DELETED:
        return missing(message, at)
    refused = other_version(job, message.expected)
    if refused is not None:
        return refused
    workflow = job.workflow
    if workflow is None or (message.number and workflow.first != message.number):
        return _refused(NO_WORKFLOW, "no workflow found", field="")
    state = next_state(workflow, _GOALS[message.order]) or workflow.state
    if message.order == m.WorkflowOrders.ROLL_BACK:
        return _undo(job, workflow, state=state, at=at)
    changes = state != workflow.state or message.opaque not in ("", workflow.opaque)
    if message.expected is None and not changes:
        # Of who names the version it is another one now, whatever the order changed.
        reply = m.WorkflowOrdered(version_of(job), workflow.first, changed=False)
        return Decision(reply=reply, because="the workflow is so already")
    fact = f.WorkflowMoved(state, at.now, ordered=True, opaque=message.opaque, who=at.who)
    return _ordered(job, fact, at=at, because=f"{message.order.name.lower()} by a client")


def without_progress(job: Job, at: At) -> Decision:
    """Fail the workflow, or roll it back: no instance was through for too long."""
    workflow, spec = job.workflow, job.spec
    if workflow is None or spec is None or not workflow.is_rolling:
        return Decision()
    because = f"no instance was through for {spec.progress_s:g} s ({PROGRESS_LABEL})"
    fact = failure_of(workflow, because, now=at.now)
    return msgspec.structs.replace(_ordered(job, fact, at=at, because=because), reply=None)


def _undo(job: Job, workflow: Workflow, *, state: m.WorkflowStates, at: At) -> Decision:
    """Roll the workflow back; refused if there is nothing to go back to."""
    if workflow.undone and workflow.state not in (WorkflowStates.ABORTED, WorkflowStates.FAILED):
        reply = m.WorkflowOrdered(version_of(job), workflow.first, changed=False)
        return Decision(reply=reply, because="it is on its way back already, or was")
    if state == workflow.state:
        reason = f"it is {workflow.state.name}" if workflow.is_over else "nothing was before it"
        text = f"workflow {workflow.kind.name} cannot be rolled back: {reason}"
        return _refused(CONFLICT, text, field="")
    fact = f.WorkflowUndone(at.now, "rolled back by a client", ordered=True, who=at.who)
    return _ordered(job, fact, at=at, because=fact.because)


def _ordered(job: Job, fact: Fact, *, at: At, because: str) -> Decision:
    begun = evolved_by(job, (fact,))
    more, folded = go_on(begun, now=at.now)
    assert folded.workflow is not None
    number = folded.workflow.first
    return Decision(
        facts=(fact, *more),
        sends=(
            *goals_of(folded, touched_by(job, folded)),
            *newly_owed(job.key, before=job.versions, after=folded.versions),
        ),
        reply=m.WorkflowOrdered(version_of(folded), number),
        because=because,
    )


def _not_now(
    job: Job, message: m.ReplaceJob | m.RestartJob, *, at: At, kind: m.WorkflowTypes
) -> Decision | None:
    """Refuse a workflow that the state of the job does not allow; else return None."""
    spec = job.spec
    if spec is None:
        return missing(message, at)
    refused = other_version(job, message.expected)
    if refused is not None:
        return refused
    if job.goal == JobGoals.DELETED:
        return _refused(DELETING, "job is going to be deleted", field="id")
    if not spec.is_service:
        if kind == m.WorkflowTypes.UPDATE:
            return _refused(CONFLICT, f"failed to validate spec update: {FIXED[1][2]}", field="")
        return _refused(INVALID, "the job is not a service", field="jobId")
    if message.options.starts and job.state == JobStates.KILLING:
        text = "job is being terminated, cannot update with start_pods set now"
        return _refused(TERMINATING, text, field="id")
    workflow = job.workflow
    if workflow is None or workflow.is_over:
        return None
    if (workflow.kind, kind) == (m.WorkflowTypes.UPDATE, m.WorkflowTypes.UPDATE):
        return None
    text = f"workflow {kind.name} cannot overwrite workflow {workflow.kind.name}"
    return _refused(CONFLICT, text, field="")


def _same_again(job: Job, message: m.ReplaceJob, *, digest: str, at: At) -> Decision | None:
    """Answer a repeat if the job is on its way to this very spec already; else return None."""
    workflow = job.workflow
    if workflow is None or workflow.is_over or workflow.undone:
        return None
    if (workflow.digest, workflow.options) != (digest, message.options):
        return None
    if message.opaque == workflow.opaque:
        reply = m.WorkflowOrdered(version_of(job), workflow.first, changed=False)
        return Decision(reply=reply, because="the job is on its way to it already")
    fact = f.OpaqueChanged(message.opaque, at.now)
    return _ordered(job, fact, at=at, because="only the client's data are others")


def _digest(spec: JobSpec, overrides: tuple[tuple[int, tuple[Override, ...]], ...]) -> str:
    """Return a digest that equal requests share; it leaves out the number of the version."""
    wanted = msgspec.structs.replace(spec, config_version=0), overrides
    return hashlib.sha256(msgspec.msgpack.encode(wanted)).hexdigest()


def _wrong(known: JobSpec, spec: JobSpec, *, given: list[Override]) -> Refused | None:
    """Return the refusal for the first rule that the new spec breaks, or None."""
    for name, field, text in FIXED:
        if getattr(known, name) != getattr(spec, name):
            text = f"failed to validate spec update: {text}"
            return Refused(INVALID, text, f"config.{field}")
    for name in FIXED_LABELS:
        if getattr(known, name) != getattr(spec, name):
            text = f"peloton.{name}: it holds from the creation of a job on"
            return Refused(INVALID, text, "config.labels")
    return check_spec(spec) or check_instances(spec, given, own=len(given))


def _refused(code: str, text: str, *, field: str) -> Decision:
    return Decision(reply=Refused(code, text, field), because=text)
