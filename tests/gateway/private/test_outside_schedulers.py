"""Answers to programs of the original that schedule tasks themselves: none changes a task."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from typing import Any

import grpc
import pytest

from peloton.api.mesos.v1 import mesos_pb2 as mesos
from peloton.api.v0.task import task_pb2
from peloton.gateway.private import outside_schedulers
from peloton.gateway.private.outside_schedulers import (
    WAIT_FOR_NOTHING_S_MAX,
    OutsideSchedulers,
    _wait_ms,
)
from peloton.private.eventstream import eventstream_pb2 as eventstream
from peloton.private.resmgr import resmgr_pb2 as resmgr
from peloton.private.resmgrsvc import resmgrsvc_pb2 as resmgrsvc
from peloton.private.resmgrsvc import resmgrsvc_pb2_grpc
from tests.gateway.fleet_fixture import Deployment, default_config

SHORT_MS = 50


@pytest.fixture
def tasks(deployment: Deployment) -> Any:
    return resmgrsvc_pb2_grpc.ResourceManagerServiceStub(deployment.channel)


@pytest.fixture
def job(deployment: Deployment) -> Any:
    """A job with one instance that runs on."""
    found = deployment.create(deployment.request(1, defaultConfig=default_config(600.0)))
    deployment.until(lambda: deployment.job(found).runtime.taskStats["RUNNING"] == 1)
    yield found
    deployment.tasks.Stop(task_pb2.StopRequest(jobId={"value": found}))
    deployment.ended(found)


def gang(*names: str) -> resmgrsvc.Gang:
    return resmgrsvc.Gang(tasks=[resmgr.Task(id={"value": name}) for name in names])


def test_reports_of_others_change_nothing(deployment: Deployment, tasks: Any, job: str) -> None:
    before = deployment.task(job)
    lies = [
        {"task": {"value": name}, "mesosTaskId": {"value": run}, "state": task_pb2.FAILED}
        for name, run in (
            (f"{job}-0", f"{job}-0-1"),
            (f"{job}-0", f"{job}-0-9"),
            (f"{job}-7", f"{job}-7-1"),
            ("nonsense", ""),
        )
    ]
    sent = resmgrsvc.UpdateTasksStateRequest(taskStates=lies)
    assert tasks.UpdateTasksState(sent) == resmgrsvc.UpdateTasksStateResponse()
    status = mesos.TaskStatus(task_id=mesos.TaskID(value=f"{job}-0-1"), state=mesos.TASK_FAILED)
    events = [eventstream.Event(offset=offset, mesosTaskStatus=status) for offset in (7, 9, 8)]
    answer = tasks.NotifyTaskUpdates(resmgrsvc.NotifyTaskUpdatesRequest(events=events))
    assert answer.purgeOffset == 9 and not answer.HasField("error")
    assert tasks.NotifyTaskUpdates(resmgrsvc.NotifyTaskUpdatesRequest()).purgeOffset == 0
    assert deployment.task(job) == before


class NotedWaits(asyncio.SelectorEventLoop):
    """A loop that notes for how long its tasks would wait, and goes on at once."""

    def __init__(self) -> None:
        super().__init__()
        self.waits_s: list[float] = []

    def call_later(self, delay: float, callback: Any, *args: Any, **context: Any) -> Any:
        self.waits_s.append(delay)
        return super().call_later(0.0, callback, *args, **context)


WAITING = ["GetPreemptibleTasks", "DequeueGangs", "GetPlacements"]


@pytest.mark.parametrize("call", WAITING)
def test_an_answer_waits_for_the_timeout(call: str) -> None:
    sent = getattr(resmgrsvc, f"{call}Request")(limit=10, timeout=SHORT_MS)
    with contextlib.closing(NotedWaits()) as loop:
        loop.run_until_complete(getattr(OutsideSchedulers(), call)(sent, Unhurried()))
    assert loop.waits_s == [SHORT_MS / 1000]


@pytest.mark.parametrize("call", WAITING)
def test_nothing_comes_and_that_is_said_after_the_timeout(
    deployment: Deployment, tasks: Any, call: str
) -> None:
    waits = deployment.request(40, defaultConfig=default_config(600.0))
    job = deployment.create(waits)  # many, of which some wait
    kind = getattr(resmgrsvc, f"{call}Request")
    answer = getattr(tasks, call)(kind(limit=10, timeout=SHORT_MS), timeout=60)
    if call == "GetPlacements":
        assert answer == resmgrsvc.GetPlacementsResponse()
    else:
        assert answer.error.timedout.message
        (field,) = answer.ListFields()
        assert field[0].name == "error", "and no task"
    deployment.tasks.Stop(task_pb2.StopRequest(jobId={"value": job}))
    deployment.ended(job)


class Unhurried:
    """A call without a deadline."""

    def time_remaining(self) -> None:
        return None


class Hurried:
    """A call whose deadline is near."""

    def time_remaining(self) -> float:
        return 0.02


def test_the_answer_comes_before_the_deadline_of_the_caller() -> None:
    asyncio.run(_wait_ms(0, Hurried()))  # type: ignore[arg-type]
    waits = _wait_ms(2**32 - 1, Hurried())  # type: ignore[arg-type]
    asyncio.run(asyncio.wait_for(waits, WAIT_FOR_NOTHING_S_MAX / 2))


def test_a_gang_is_refused_task_by_task(deployment: Deployment, tasks: Any, job: str) -> None:
    names = [f"{job}-0", f"{job}-1", f"{uuid.uuid4()}-0", "nonsense"]
    sent = resmgrsvc.EnqueueGangsRequest(
        resPool={"value": deployment.pool}, gangs=[gang(*names[:2]), gang(*names[2:])]
    )
    failed = tasks.EnqueueGangs(sent).error.failure.failed
    assert [one.task.id.value for one in failed] == names
    assert {one.message for one in failed} == {outside_schedulers.FROM_JOBS_ONLY}
    nothing = resmgrsvc.EnqueueGangsRequest(resPool={"value": deployment.pool})
    assert tasks.EnqueueGangs(nothing) == resmgrsvc.EnqueueGangsResponse()


def test_a_placement_is_refused_and_a_failed_one_ignored(tasks: Any, job: str) -> None:
    placed = resmgr.Placement(hostname="a")
    failed = {"reason": "full", "gang": gang(f"{job}-0")}
    sent = resmgrsvc.SetPlacementsRequest(placements=[placed], failedPlacements=[failed])
    (one,) = tasks.SetPlacements(sent).error.failure.failed
    assert one.placement == placed and "own placers" in one.message
    only = resmgrsvc.SetPlacementsRequest(failedPlacements=[failed])
    assert tasks.SetPlacements(only) == resmgrsvc.SetPlacementsResponse()


def test_many_who_wait_leave_the_threads_to_others(
    deployment: Deployment, tasks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outside_schedulers, "WAIT_FOR_NOTHING_S_MAX", 600.0)
    asked = resmgrsvc.DequeueGangsRequest(limit=1, timeout=600_000)
    waiting = [tasks.DequeueGangs.future(asked) for _ in range(100)]
    assert deployment.ended(deployment.create(deployment.request(1))).done
    assert not any(one.done() for one in waiting)
    for one in waiting:
        one.cancel()
    with pytest.raises(grpc.FutureCancelledError):
        waiting[0].result()
