"""How many members of each slice a workflow lets begin, as a table over jobs.

Must not run anything: that is what `tests/worlds/test_workflows.py` is for.
"""

from __future__ import annotations

import msgspec
import pytest

from peloton.actors.job.record import Job
from peloton.actors.job.slice.messages import TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.workflow.leaves import higher_leaves
from peloton.actors.job.workflow.messages import WorkflowOptions, WorkflowStates, WorkflowTypes
from peloton.actors.job.workflow.record import Workflow
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
