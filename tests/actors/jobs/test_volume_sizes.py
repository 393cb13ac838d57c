"""Which sizes of volumes a job remembers, as a table over its updates.

Whole clusters are played in `tests/worlds/services/test_volumes.py`.
"""

from __future__ import annotations

import immutables
import pytest
from msgspec.structs import replace

from peloton.actors.host.machine_messages import VolumeConfig
from peloton.actors.job.slice.task_config import Override, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.state import Job
from peloton.actors.job.volume_sizes import resized
from peloton.actors.job.workflow.facts import WorkflowBegun, WorkflowUndone
from peloton.actors.job.workflow.folds import WORKFLOW_EVOLVE
from peloton.actors.job.workflow.messages import WorkflowOptions, WorkflowTypes
from peloton.runtime.vocabulary import Key

SPEC = JobSpec("s", "owner", Key("respool/p"), 3, TaskConfig(), job_type="SERVICE")


def own(size_mb: int) -> tuple[Override, ...]:
    """A volume of instance 1 alone."""
    return (Override(1, TaskConfig(volume=VolumeConfig("/data", size_mb))),)


def updated(
    job: Job, *given: Override, spec: JobSpec = SPEC, kind: WorkflowTypes = WorkflowTypes.UPDATE
) -> Job:
    begun = WorkflowBegun(kind, WorkflowOptions(), spec, 1.0, overrides=((0, given),))
    return WORKFLOW_EVOLVE[WorkflowBegun](job, begun) or job


def undone(job: Job) -> Job:
    return WORKFLOW_EVOLVE[WorkflowUndone](job, WorkflowUndone(2.0, "")) or job


def may_have(job: Job, size_mb: int) -> bool:
    assert job.spec is not None
    return resized(job.spec, SPEC, own=own(size_mb), sizes=job.volume_sizes) is None


JOB = Job(Key("job/j"), SPEC)
MADE = updated(JOB, *own(200))


@pytest.mark.parametrize(
    ("job", "free"),
    [
        (JOB, True),
        (MADE, False),
        (updated(MADE, *own(200)), False),
        (updated(MADE, spec=replace(SPEC, instances=1)), False),  # its volume may be there yet
        (updated(MADE, kind=WorkflowTypes.RESTART), False),
        (updated(MADE), True),
        (undone(MADE), True),
        (undone(updated(MADE)), False),
        (undone(updated(JOB)), True),
    ],
)
def test_a_size_is_kept_until_an_update_takes_it_back_or_is_taken_back(
    job: Job, free: bool
) -> None:
    assert may_have(job, 200) and may_have(job, 100) == free


def test_what_changed_no_sizes_takes_none_back() -> None:
    assert MADE.workflow is not None
    restart = replace(MADE, workflow=replace(MADE.workflow, sizes=None))
    assert undone(restart).volume_sizes == immutables.Map({1: 200})
