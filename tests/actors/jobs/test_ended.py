"""Which states of a job and of a slice are final: a row for each, as they leave memory by it.

Every state is made by hand.
"""

from __future__ import annotations

from typing import Any

import immutables
import msgspec
import pytest

from peloton.actors.job.kind import KIND as JOB
from peloton.actors.job.slice.kind import kind as slice_kind
from peloton.actors.job.slice.state import Slice
from peloton.actors.job.slice.task_config import Command, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.stages import TERMINAL_JOB_STATES, JobGoals, JobStates
from peloton.actors.job.state import Job
from peloton.actors.job.waits import NameStates, Waits
from peloton.actors.resources import Resources
from peloton.actors.task.kind import KIND as TASK
from peloton.actors.task.messages import Policy, TaskGoals
from peloton.actors.task.state import ENDED, Admission, Task, TaskStates
from peloton.runtime.core.entities.crowd import Crowd
from peloton.runtime.vocabulary import Bits, Key

SLICE = slice_kind()

DEFAULT = TaskConfig(resources=Resources(1, 1), command=Command("true"))
SPEC = JobSpec("j", "me", Key("respool/p"), 1500, DEFAULT)
OVER = Job(Key("job/j"), SPEC, state=JobStates.SUCCEEDED, confirmed=Bits.of(0, 1))
WAITER = immutables.Map({Key("job/w"): True})


@pytest.mark.parametrize("goal", JobGoals)
@pytest.mark.parametrize("state", JobStates)
def test_a_job_is_final_by_its_state_alone(state: JobStates, goal: JobGoals) -> None:
    """A job that is deleted is forgotten instead, by a step of its own, whatever is said here."""
    job = msgspec.structs.replace(OVER, state=state, goal=goal)
    assert JOB.ended(job, None) == (state in TERMINAL_JOB_STATES)


@pytest.mark.parametrize(
    ("fields", "final"),
    [
        ({}, True),
        ({"spec": None}, False),  # pieces only
        ({"confirmed": Bits.of(0)}, False),
        ({"confirmed": Bits()}, False),
        ({"waits": Waits(waiters=WAITER)}, False),
        ({"waits": Waits(others=WAITER)}, True),  # they are told that nobody waits
        ({"waits": Waits(name=NameStates.ASKED)}, False),
        ({"waits": Waits(name=NameStates.GRANTED)}, False),
        ({"waits": Waits(name=NameStates.FREED)}, True),
    ],
)
def test_a_job_that_owes_something_to_somebody_is_not_final(
    fields: dict[str, Any], final: bool
) -> None:
    job = msgspec.structs.replace(OVER, **fields)
    assert JOB.ended(job, None) == final
    assert not (final and JOB.owed(job)), "what is owed must not leave memory"


def crowd(*tasks: Task) -> Crowd:
    found = Crowd(TASK, Key("task/j/0"))
    for at, task in enumerate(tasks):
        found.classes[task] = found.classes.get(task, 0) | 1 << at
        found.columns.add(1 << at)
    return found


def task(state: TaskStates, admission: Admission = Admission.NONE) -> Task:
    return Task(TaskGoals.SUCCEEDED, state, Policy(), 1, 1, admission)


SLICE_OVER = Slice(Key("job/j"), 0, 2, ())


@pytest.mark.parametrize("admission", Admission)
@pytest.mark.parametrize("state", TaskStates)
def test_a_slice_is_final_once_all_have_ended_and_hold_no_ticket(
    state: TaskStates, admission: Admission
) -> None:
    tasks = crowd(task(TaskStates.SUCCEEDED), task(state, admission))
    final = state in ENDED and admission == Admission.NONE
    assert SLICE.ended(SLICE_OVER, tasks) == final


@pytest.mark.parametrize(
    ("fields", "final"),
    [
        ({}, True),
        ({"goal": TaskGoals.KILLED}, True),
        ({"goal": TaskGoals.DELETED}, False),  # it has to be forgotten
        ({"closed": (Bits.of(1),)}, False),
        ({"awaiting_restart": Bits.of(1)}, False),
        ({"awaiting_restart": Bits.of(1), "goal": TaskGoals.KILLED}, True),
        ({"awaiting_restart": Bits.of(1), "goal": TaskGoals.RUNNING}, False),
    ],
)
def test_a_slice_with_members_that_are_to_begin_is_not_final(
    fields: dict[str, Any], final: bool
) -> None:
    slice_ = msgspec.structs.replace(SLICE_OVER, **fields)
    assert SLICE.ended(slice_, crowd(task(TaskStates.KILLED))) == final


@pytest.mark.parametrize("tasks", [None, crowd()])
def test_a_slice_without_tasks_is_not_final(tasks: Crowd | None) -> None:
    assert not SLICE.ended(SLICE_OVER, tasks)
