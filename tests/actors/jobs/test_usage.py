"""What the runs of a job used, and when they began and ended, from the columns to the job.

The columns of a crowd are written by hand.
"""

from __future__ import annotations

import pytest

from peloton.actors.job.kind import KIND as JOBS
from peloton.actors.job.messages import CreateJob
from peloton.actors.job.slice.configs import spec_rows
from peloton.actors.job.slice.counts import tally
from peloton.actors.job.slice.messages import ListInstances, SliceOpening, SliceTally, Tally
from peloton.actors.job.slice.state import Slice
from peloton.actors.job.slice.tally import list_instances
from peloton.actors.job.slice.task_config import Command, Override, TaskConfig
from peloton.actors.job.slice.usage import times
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.stages import JobStates
from peloton.actors.job.state import Job
from peloton.actors.job.view import summary
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task.kind import KIND as TASK
from peloton.actors.task.messages import Policy, TaskGoals
from peloton.actors.task.state import Task, TaskStates
from peloton.runtime.core.entities.crowd import Crowd
from peloton.runtime.core.turning.turn import take_turn
from peloton.runtime.vocabulary import At, Bits, Key

ID = "0" * 36
JOB, SLICE_KEY = Key(f"job/{ID}"), Key("slice/j/0")
DEFAULT = TaskConfig(resources=Resources(2 * UNIT, 100 * UNIT), command=Command("x"))
LARGE = TaskConfig(resources=Resources(4 * UNIT, 0, 7 * UNIT, UNIT))
OPENING = SliceOpening("j", "n", Key("respool/p"), 4, DEFAULT, (Override(3, LARGE),))
ROWS, MEMBERS = spec_rows(0, OPENING)
SLICE = Slice(JOB, 0, 4, ROWS)


def crowd(*states: TaskStates) -> Crowd:
    """Members in these states; each has run 10 s of the time from 100 on, if it has ended."""
    found = Crowd(TASK, Key("task/j/0"))
    for member, state in enumerate(states):
        task = Task(TaskGoals.SUCCEEDED, state, Policy())
        found.classes[task] = found.classes.get(task, 0) | 1 << member
    found.columns.add((1 << len(states)) - 1)
    for spec, members in enumerate(MEMBERS):
        found.columns.write("spec", members.raw, value=spec)
    for member, state in enumerate(states):
        if state != TaskStates.WAITING:
            found.columns.write("started_at", 1 << member, value=100.0 + member)
        if state in (TaskStates.SUCCEEDED, TaskStates.FAILED):
            found.columns.write("ended_at", 1 << member, value=110.0 + member)
    return found


ALL = [TaskStates.SUCCEEDED] * 4


def test_usage_is_the_limit_times_the_seconds_of_ended_runs() -> None:
    assert times(SLICE, crowd(*[TaskStates.WAITING] * 4)) == ()
    waits = TaskStates.WAITING, TaskStates.RUNNING, TaskStates.WAITING, TaskStates.RUNNING
    assert times(SLICE, crowd(*waits)) == (101.0,), "a run counts once it ends"
    mixed = crowd(TaskStates.SUCCEEDED, TaskStates.RUNNING, TaskStates.FAILED, TaskStates.WAITING)
    assert times(SLICE, mixed) == (100.0, 112.0, 40.0, 2000.0)
    assert times(SLICE, crowd(*ALL)) == (100.0, 113.0, 60.0 + 40.0, 3000.0, 10.0)


def test_earlier_runs_count_too() -> None:
    found = crowd(*ALL)
    found.columns.write("ran_s", 0b0001, value=5.0)
    assert times(SLICE, found)[2:] == (110.0, 3500.0, 10.0)
    (view, *_) = list_instances(
        SLICE, ListInstances(0, 4), At(now=200.0, key=SLICE_KEY, index=found)
    )
    assert view.ran_s == 15.0


def test_a_slice_that_reports_each_end_counts_at_the_last_only() -> None:
    limited = Slice(JOB, 0, 4, ROWS, grant=2)
    some = crowd(*ALL[:3], TaskStates.RUNNING)
    assert tally(limited, At(now=1.0, key=SLICE_KEY, index=some)).times == ()
    assert tally(SLICE, At(now=1.0, key=SLICE_KEY, index=some)).times[:2] == (100.0, 112.0)
    assert tally(limited, At(now=1.0, key=SLICE_KEY, index=crowd(*ALL))).times[:2] == (100.0, 113.0)


def told(job: Job | None, now: float, version: int, *, number: int = 0, given: Tally) -> Job:
    message = SliceTally(version, number, given)
    found: Job = take_turn(JOBS, job, message=message, at=At(now=now, key=JOB)).state
    return found


def made(instances: int) -> Job:
    spec = JobSpec("j", "me", Key("respool/p"), instances, DEFAULT)
    at = At(now=90.0, key=JOB)
    job: Job = take_turn(JOBS, None, message=CreateJob(spec), at=at).state
    return job


def test_a_job_starts_with_its_first_run_and_completes_with_its_last_end() -> None:
    job = told(made(2), 105.0, 1, given=Tally((("RUNNING", 1), ("PENDING", 1)), "", (101.5,)))
    assert (job.started_at, job.completed_at) == (101.5, 0.0)
    later = Tally((("RUNNING", 1), ("SUCCEEDED", 1)), "", (103.0, 107.0, 4.0))
    job = told(job, 108.0, 2, given=later)
    assert job.started_at == 101.5, "the first run was retried: its start is known still"
    silent = told(job, 109.0, 3, given=Tally((("SUCCEEDED", 1), ("KILLED", 1))))
    assert (silent.state, silent.completed_at) == (JobStates.KILLED, 107.0)
    line = summary(JOB, silent)
    assert line is not None and line.usage == (4.0,), "what was counted stays"
    job = told(job, 120.0, 3, given=Tally((("SUCCEEDED", 2),), "", (103.0, 118.0, 9.0, 3.0)))
    assert (job.state, job.completed_at) == (JobStates.SUCCEEDED, 118.0)
    assert summary(JOB, job).usage == (9.0, 3.0)  # type: ignore[union-attr]


def test_a_job_of_many_slices_sums_them() -> None:
    job = made(2000)
    job = told(job, 100.0, 1, given=Tally((("SUCCEEDED", 1000),), "", (91.0, 99.0, 1.5)))
    second = Tally((("SUCCEEDED", 1000),), "", (90.5, 98.0, 2.0, 8.0))
    job = told(job, 101.0, 1, number=1, given=second)
    assert (job.started_at, job.completed_at) == (90.5, 99.0)
    assert summary(JOB, job).usage == (3.5, 8.0)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("own", "job", "limit"), [(None, None, None), (5.0, None, 5.0), (5.0, 3.0, 3.0), (5.0, 9.0, 5)]
)
def test_the_shorter_limit_of_job_and_task_holds(
    own: float | None, job: float | None, limit: float | None
) -> None:
    config = TaskConfig(command=Command("x"), max_running_s=own)
    opening = SliceOpening("j", "n", Key("respool/p"), 4, config, max_running_s=job)
    ((row,), _) = spec_rows(0, opening)
    assert row.policy.max_running_s == limit
    assert MEMBERS[0] == Bits.of(3)


@pytest.mark.parametrize(("said", "holds"), [(None, None), (60.0, 60.0)])
def test_a_task_knows_when_its_failures_count_no_more(
    said: float | None, holds: float | None
) -> None:
    config = TaskConfig(command=Command("x"))
    opening = SliceOpening("j", "n", Key("respool/p"), 4, config, healthy_after_s=said)
    ((row,), _) = spec_rows(0, opening)
    assert row.policy.healthy_after_s == holds
