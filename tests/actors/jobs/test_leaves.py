"""How many members of each slice a workflow lets begin, as a table over jobs.

Whole workflows are played in `tests/worlds/services/test_workflows.py`.
"""

from __future__ import annotations

import immutables
import msgspec
import pytest

from peloton.actors.job.slice.messages import Tally
from peloton.actors.job.slice.task_config import TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.state import Job, SliceReport
from peloton.actors.job.workflow.facts import WorkflowBegun, WorkflowUndone
from peloton.actors.job.workflow.folds import WORKFLOW_EVOLVE
from peloton.actors.job.workflow.leaves import higher_leaves
from peloton.actors.job.workflow.messages import WorkflowOptions, WorkflowStates, WorkflowTypes
from peloton.actors.job.workflow.state import Workflow
from peloton.runtime.vocabulary import Key

SPEC = JobSpec("s", "owner", Key("respool/p"), 3, TaskConfig(), job_type="SERVICE")
ROLLING = Workflow(
    2, WorkflowTypes.UPDATE, WorkflowOptions(), 2, 1, 0.0, state=WorkflowStates.ROLLING_FORWARD
)


@pytest.mark.parametrize(
    ("instances", "span", "batch", "expected"),
    [
        (3, 0, 0, ((0, 3),)),
        (3, 0, 2, ((0, 2),)),
        # Those that are to be removed are instances of it, too: all at once is with them.
        (3, 900, 0, ((0, 900),)),
        (3, 1500, 0, ((0, 1000), (1, 500))),
        (3, 1500, 1200, ((0, 1000), (1, 200))),
    ],
)
def test_a_new_workflow_has_leave_for_its_batch(
    instances: int, span: int, batch: int, expected: tuple[tuple[int, int], ...]
) -> None:
    spec = msgspec.structs.replace(SPEC, instances=instances)
    workflow = msgspec.structs.replace(ROLLING, options=WorkflowOptions(batch))
    slices = -(-max(instances, span) // 1000)
    job = Job(Key("job/j"), spec, workflow=workflow, span=span, opened=slices)
    assert higher_leaves(job) == expected


def test_slices_that_went_are_awaited_in_each_workflow() -> None:
    """They have nothing to do, so no change of their instances would be tallied."""
    reports = immutables.Map({0: SliceReport(1, Tally((("RUNNING", 3),)))})
    job = Job(Key("job/j"), SPEC, opened=3, reports=reports)
    begun = WorkflowBegun(WorkflowTypes.UPDATE, WorkflowOptions(), SPEC, 1.0)
    job = WORKFLOW_EVOLVE[WorkflowBegun](job, begun) or job
    assert dict(job.awaited) == {1: job.version, 2: job.version}
    job = WORKFLOW_EVOLVE[WorkflowUndone](job, WorkflowUndone(2.0, "")) or job
    assert dict(job.awaited) == {1: job.version, 2: job.version}


@pytest.mark.parametrize(
    ("tally", "awaited"),
    [
        (None, True),
        (Tally(()), True),
        (Tally((("INITIALIZED", 3),)), True),
        (Tally((("INITIALIZED", 2), ("KILLED", 1))), False),
    ],
)
def test_slices_of_which_no_instance_exists_are_awaited(tally: Tally | None, awaited: bool) -> None:
    job = Job(Key("job/j"), SPEC)
    if tally is not None:
        job = msgspec.structs.replace(job, reports=immutables.Map({0: SliceReport(1, tally)}))
    begun = WorkflowBegun(WorkflowTypes.RESTART, WorkflowOptions(), SPEC, 1.0)
    job = WORKFLOW_EVOLVE[WorkflowBegun](job, begun) or job
    assert (0 in job.awaited) == awaited
