"""How a workflow proceeds by what slices report: more leave, its end, its failure, its rollback."""

from __future__ import annotations

from peloton.actors.job.state import Job
from peloton.actors.job.workflow import facts as f
from peloton.actors.job.workflow.folds import WORKFLOW_EVOLVE
from peloton.actors.job.workflow.goals import WorkflowGoals, next_state
from peloton.actors.job.workflow.leaves import higher_leaves, is_through, progress_of
from peloton.actors.job.workflow.messages import WorkflowStates
from peloton.actors.job.workflow.state import Workflow
from peloton.runtime.vocabulary import Bits, Fact, counted


def go_on(job: Job, *, now: float) -> tuple[tuple[Fact, ...], Job]:
    """Return the facts that follow for the workflow, and the job after them."""
    facts: list[Fact] = []
    while (fact := _next(job, now=now)) is not None:
        facts.append(fact)
        folded = WORKFLOW_EVOLVE[type(fact)](job, fact)
        assert folded is not None
        job = folded
    return tuple(facts), job


def failure_of(
    workflow: Workflow, because: str, *, now: float
) -> f.WorkflowMoved | f.WorkflowUndone:
    """Return the fact that a workflow fails, or rolls back."""
    moved = next_state(workflow, WorkflowGoals.FAIL) or WorkflowStates.FAILED
    if moved == WorkflowStates.ROLLING_BACKWARD:
        return f.WorkflowUndone(now, because)
    return f.WorkflowMoved(moved, now, because=because)


def touched_by(before: Job, after: Job) -> Bits:
    """Return the slices that have to learn of a change."""
    if before.version == after.version:
        return Bits()
    return Bits.span(0, after.slices) - after.confirmed


def _next(job: Job, *, now: float) -> Fact | None:
    workflow = job.workflow
    if workflow is None or workflow.is_over or job.spec is None or not job.key:
        return None
    moved = next_state(workflow, WorkflowGoals.GO_ON)
    if moved is not None:
        return f.WorkflowMoved(moved, now)
    if not workflow.is_rolling:
        return None
    failed, most = progress_of(job).failed, workflow.options.tolerated
    if most and failed >= most:
        because = counted(failed, "instance", many="instances") + " failed"
        each = counted(workflow.options.max_attempts, "failure", many="failures")
        because = f"{because} with {each} or more"
        return failure_of(workflow, because, now=now)
    if is_through(job):
        moved = next_state(workflow, WorkflowGoals.FINISH)
        return None if moved is None else f.WorkflowMoved(moved, now)
    leaves = higher_leaves(job)
    return f.LeavesRaised(leaves) if leaves else None
