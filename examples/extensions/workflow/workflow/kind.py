"""A workflow: a graph of jobs, each begun once those it is `after` have succeeded.

`workflow/NAME` makes a job for a step, waits for its end, and makes another one for a step that
failed, as often as its `retries` say. It fails with a step that has none left, or when its deadline
is over: then what runs is stopped. `Resume` tries the failed steps again and keeps what succeeded.
All of it is journaled, so a cluster that restarts goes on where it was.
"""

from __future__ import annotations

import enum
import re
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from peloton.sdk.kit import (
    PASSING,
    ActorFact,
    ActorKind,
    ActorMessage,
    ActorReply,
    ActorState,
    At,
    CallAnswered,
    ClusterCall,
    Decision,
    refusal,
)

JOBS_OF = uuid.UUID("6d0a4d4e-6c57-4d0e-9f0e-6a7f1c1d7f52")
"""The ids of jobs are made of the workflow, the step and the attempt: to make one twice is one."""
STEPS_MAX, RETRIES_MAX = 500, 20
STEP_NAME = re.compile(r"[A-Za-z0-9._-]{1,63}", re.ASCII)
WAIT_S = 20.0
CREATE = "peloton.api.v0.job.svc.JobService.CreateJob"
WAIT = "peloton.ops.v1.Ops.WaitJob"
STOP = "peloton.api.v0.task.TaskManager.Stop"
GONE = ("NOT_FOUND", "notFound")
INVALID, BUSY, ABSENT = "INVALID", "BUSY", "ABSENT"


class Phase(enum.StrEnum):
    """How far a workflow is."""

    NEW = "new"
    RUNNING = "running"
    STOPPING = "stopping"  # it fails, or is cancelled, and jobs still run
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Progress(enum.StrEnum):
    """How far a step is."""

    WAITING = "waiting"
    CREATING = "creating"  # its job is being made
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"


OVER = (Progress.SUCCEEDED, Progress.FAILED, Progress.STOPPED)


class Step(Struct, frozen=True):
    """A step: `job` is a JobConfig in protobuf's JSON form, without its pool."""

    name: str
    job: Mapping[str, Any]
    after: tuple[str, ...] = ()
    retries: int = 0


class StepState(Struct, frozen=True):
    """How far a step is, by which attempt, and why."""

    step: Step
    progress: Progress = Progress.WAITING
    attempt: int = 1
    failures: int = 0  # since it was last begun by a person
    because: str = ""


class Workflow(ActorState, frozen=True):
    """The graph with its progress. `outcome`: what it becomes once nothing runs any more."""

    key: str = ""
    pool: str = ""
    deadline_s: float = 0.0
    runs: int = 0
    phase: Phase = Phase.NEW
    outcome: Phase = Phase.NEW
    because: str = ""
    steps: Mapping[str, StepState] = {}


class Start(ActorMessage, frozen=True):
    """Begin a workflow whose jobs are in this pool, by its path. `deadline_s` 0: none."""

    pool: str
    steps: tuple[Step, ...]
    deadline_s: float = 0.0


class Cancel(ActorMessage, frozen=True):
    """Stop what runs, and begin nothing more."""


class Resume(ActorMessage, frozen=True):
    """Try again the steps that failed or were stopped."""


class Accepted(ActorReply, frozen=True):
    """The order is journaled."""


class Started(ActorFact, frozen=True):
    """A workflow begins."""

    key: str
    pool: str
    steps: tuple[Step, ...]
    deadline_s: float


class StepMoved(ActorFact, frozen=True):
    """A step has come so far."""

    name: str
    progress: Progress
    because: str = ""


class Ending(ActorFact, frozen=True):
    """Nothing more is begun, and what runs is stopped."""

    outcome: Phase
    because: str


class Ended(ActorFact, frozen=True):
    """Nothing runs any more."""

    phase: Phase


class Resumed(ActorFact, frozen=True):
    """The steps that did not succeed wait again."""


WORKFLOW = ActorKind("workflow", state=Workflow)


# ---- orders ----


@WORKFLOW.decides(Start, reply=Accepted)
def start(flow: Workflow, message: Start, at: At) -> Decision:
    """Begin, unless one of this name is there that is another or still runs."""
    if flow.phase != Phase.NEW:
        return refusal(BUSY, f"it is {flow.phase} already")
    for field, text in wrong(message):
        return refusal(INVALID, text, field=field)
    fact = Started(at.key, message.pool, message.steps, message.deadline_s)
    return Decision((fact,), reply=Accepted(), because="started")


@WORKFLOW.decides(Cancel, reply=Accepted)
def cancel(flow: Workflow, message: Cancel, at: At) -> Decision:
    """Stop it, if it runs."""
    if flow.phase == Phase.NEW:
        return refusal(ABSENT, "it was never started")
    if flow.phase != Phase.RUNNING:
        return Decision(reply=Accepted(), because=f"it is {flow.phase} already")
    because = f"cancelled by {at.who}"
    return Decision((Ending(Phase.CANCELLED, because),), reply=Accepted(), because=because)


@WORKFLOW.decides(Resume, reply=Accepted)
def resume(flow: Workflow, message: Resume, at: At) -> Decision:
    """Go on after a failure."""
    if flow.phase not in (Phase.FAILED, Phase.CANCELLED):
        return refusal(BUSY, f"it is {flow.phase}: only what failed or was cancelled is resumed")
    return Decision((Resumed(),), reply=Accepted(), because="resumed")


def wrong(message: Start) -> Iterator[tuple[str, str]]:
    """Yield the mistakes of a graph: the path of a field, and what is wrong there."""
    if not 1 <= len(message.steps) <= STEPS_MAX:
        yield "steps", f"{len(message.steps)} steps, 1 to {STEPS_MAX} are possible"
    if message.deadline_s < 0:
        yield "deadline_s", "is negative"
    seen: dict[str, None] = {}
    for number, step in enumerate(message.steps):
        where = f"steps[{number}]"
        if STEP_NAME.fullmatch(step.name) is None:
            yield f"{where}.name", f"{step.name!r} is not 1 to 63 letters, digits, -, _ and dots"
        elif step.name in seen:
            yield f"{where}.name", f"{step.name!r} is given twice"
        if not 0 <= step.retries <= RETRIES_MAX:
            yield f"{where}.retries", f"{step.retries} is not between 0 and {RETRIES_MAX}"
        for name in step.after:
            if name not in seen:  # so there is no circle
                yield f"{where}.after", f"{name!r} is no step before this one"
        seen[step.name] = None


# ---- what it does ----


@WORKFLOW.calls
def calls(flow: Workflow) -> tuple[ClusterCall, ...]:
    """Make the jobs of steps that are to run, wait for their ends, stop what is to stop."""
    return tuple(_calls(flow))


def _calls(flow: Workflow) -> Iterator[ClusterCall]:
    for state in flow.steps.values():
        job, which = {"value": job_id(flow, state)}, f"{state.step.name}:{state.attempt}"
        if state.progress == Progress.CREATING:
            config = {"name": f"{flow.key.partition('/')[2]}.{state.step.name}", **state.step.job}
            request = {"id": job, "pool": {"value": flow.pool}, "config": config}
            yield ClusterCall(f"create:{which}", CREATE, request)
        if state.progress == Progress.RUNNING:
            wait = {"jobId": job["value"], "timeoutS": WAIT_S}
            yield ClusterCall(f"end:{which}", WAIT, wait, until="done")
            if flow.phase == Phase.STOPPING and state.because != STOP:
                yield ClusterCall(f"stop:{which}", STOP, {"jobId": job})


def job_id(flow: Workflow, state: StepState) -> str:
    """Return the id of the job of a step's attempt."""
    return str(uuid.uuid5(JOBS_OF, f"{flow.key}/{state.step.name}/{state.attempt}"))


@WORKFLOW.answered
def answered(flow: Workflow, answer: CallAnswered, at: At) -> Decision:
    """Journal what a call has brought."""
    what, name, _ = answer.id.split(":")
    state = flow.steps[name]
    if answer.code in PASSING:
        return Decision(because=f"{answer.id} is tried again: {answer.text}")
    if what == "create":
        return _created(state, answer)
    if what == "stop":
        if answer.code and answer.code not in GONE:
            return Decision(because=f"cannot be stopped: {answer.code}: {answer.text}")
        return Decision((StepMoved(name, Progress.RUNNING, STOP),), because="told to stop")
    if answer.code:
        return _over(state, Progress.FAILED, f"{answer.code}: {answer.text}")
    won = answer.answer.get("state") == "SUCCEEDED"
    lost = Progress.STOPPED if flow.phase == Phase.STOPPING else Progress.FAILED
    text = "" if won else f"its job {job_id(flow, state)} is {answer.answer.get('state')}"
    return _over(state, Progress.SUCCEEDED if won else lost, text)


def _created(state: StepState, answer: CallAnswered) -> Decision:
    if answer.code and answer.code not in ("alreadyExists", "ALREADY_EXISTS"):
        return _over(state, Progress.FAILED, f"{answer.code}: {answer.text}")
    return Decision((StepMoved(state.step.name, Progress.RUNNING),), because="its job is there")


def _over(state: StepState, progress: Progress, because: str) -> Decision:
    return Decision(
        (StepMoved(state.step.name, progress, because),), because=because or "it is done"
    )


def fail(flow: Workflow, at: At) -> Decision | None:
    """Give up once a step has failed for good."""
    for state in flow.steps.values():
        if state.progress == Progress.FAILED and state.failures > state.step.retries:
            because = f"step {state.step.name} failed: {state.because}"
            return Decision((Ending(Phase.FAILED, because),), because=because)
    return None


def retry(flow: Workflow, at: At) -> Decision | None:
    """Try failed steps again."""
    again = [s for s in flow.steps.values() if s.progress == Progress.FAILED]
    facts = tuple(StepMoved(s.step.name, Progress.CREATING, s.because) for s in again)
    return Decision(facts, because="retried") if facts else None


def begin(flow: Workflow, at: At) -> Decision | None:
    """Begin all steps whose predecessors have succeeded."""
    won = {name for name, state in flow.steps.items() if state.progress == Progress.SUCCEEDED}
    ready = [
        name
        for name, state in flow.steps.items()
        if state.progress == Progress.WAITING and won.issuperset(state.step.after)
    ]
    facts = tuple(StepMoved(name, Progress.CREATING) for name in ready)
    return Decision(facts, because="ready") if facts else None


def succeed(flow: Workflow, at: At) -> Decision | None:
    """End once every step has succeeded."""
    if all(state.progress == Progress.SUCCEEDED for state in flow.steps.values()):
        return Decision((Ended(Phase.SUCCEEDED),), because="every step has succeeded")
    return None


def end(flow: Workflow, at: At) -> Decision | None:
    """End once nothing runs any more; what had succeeded by then has succeeded."""
    busy = (Progress.CREATING, Progress.RUNNING)
    if any(state.progress in busy for state in flow.steps.values()):
        return None
    won = succeed(flow, at)
    if won is not None:
        return won
    return Decision((Ended(flow.outcome),), because="nothing runs any more")


WORKFLOW.pursues(
    lambda flow: flow.phase,
    {
        Phase.NEW: (),
        Phase.RUNNING: (fail, retry, begin, succeed),
        Phase.STOPPING: (end,),
        Phase.SUCCEEDED: (),
        Phase.FAILED: (),
        Phase.CANCELLED: (),
    },
)


@WORKFLOW.deadline
def deadline(flow: Workflow) -> tuple[str, float] | None:
    """The deadline of a workflow, which begins anew when it is resumed."""
    if flow.phase == Phase.RUNNING and flow.deadline_s:
        return f"deadline:{flow.runs}", flow.deadline_s
    return None


@WORKFLOW.due("deadline")
def late(flow: Workflow, at: At) -> Decision:
    """Fail, as time is over."""
    because = f"it did not end within {flow.deadline_s:g} s"
    return Decision((Ending(Phase.FAILED, because),), because=because)


# ---- facts ----


@WORKFLOW.folds(Started)
def started(flow: Workflow, fact: Started) -> Workflow:
    return Workflow(
        key=fact.key,
        pool=fact.pool,
        deadline_s=fact.deadline_s,
        runs=1,
        phase=Phase.RUNNING,
        steps={step.name: StepState(step) for step in fact.steps},
    )


@WORKFLOW.folds(StepMoved)
def moved(flow: Workflow, fact: StepMoved) -> Workflow:
    before = flow.steps[fact.name]
    begun = fact.progress == Progress.CREATING and before.progress == Progress.FAILED
    after = replace(
        before,
        progress=fact.progress,
        because=fact.because,
        attempt=before.attempt + begun,
        failures=before.failures + (fact.progress == Progress.FAILED),
    )
    return replace(flow, steps={**flow.steps, fact.name: after})


@WORKFLOW.folds(Ending)
def ending(flow: Workflow, fact: Ending) -> Workflow:
    return replace(flow, phase=Phase.STOPPING, outcome=fact.outcome, because=fact.because)


@WORKFLOW.folds(Ended)
def ended(flow: Workflow, fact: Ended) -> Workflow:
    return replace(flow, phase=fact.phase)


@WORKFLOW.folds(Resumed)
def resumed(flow: Workflow, fact: Resumed) -> Workflow:
    steps = {
        name: state
        if state.progress == Progress.SUCCEEDED
        else StepState(state.step, attempt=state.attempt + 1)
        for name, state in flow.steps.items()
    }
    return replace(
        flow, steps=steps, phase=Phase.RUNNING, runs=flow.runs + 1, outcome=Phase.NEW, because=""
    )
