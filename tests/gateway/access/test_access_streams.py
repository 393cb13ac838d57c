"""A stream goes by the owner that a job has now, also where its id was that of another one."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.task import task_pb2 as task
from peloton.ops.v1 import ops_pb2 as ops
from peloton.ops.v1 import ops_pb2_grpc
from tests.gateway.access_fixture import (
    ROLES,
    Guarded,
    create_request,
    said_by,
    unknown_id,
)
from tests.gateway.fleet_fixture import WAIT_S_MAX, default_config, named

VERA = ROLES["viewer"]


def made(fleet: Guarded, job_id: str, path: str) -> None:
    """A job of this id in this pool, which ends by itself."""
    default = default_config(seconds=0.01)
    request = create_request(fleet.pools[path], defaultConfig=default)
    request.id.value = job_id
    assert fleet.open.create(request) == job_id
    fleet.open.tasks.Stop(task.StopRequest(jobId=named(job_id)))
    fleet.open.ended(job_id)


def deleted(fleet: Guarded, job_id: str) -> None:
    fleet.open.jobs.Delete(job.DeleteRequest(id=named(job_id)))
    get = job.GetRequest(id=named(job_id))
    fleet.open.until(lambda: fleet.open.jobs.Get(get).HasField("error"))


@pytest.mark.parametrize("kinds", [["job"], ["slice"], ["task"], ["job", "task", "lot"]])
def test_an_id_that_is_used_again_is_another_job(fleet: Guarded, kinds: list[str]) -> None:
    again = unknown_id()
    stub = ops_pb2_grpc.OpsStub(fleet.channel)
    sent = ops.WatchRequest(kinds=kinds)
    found = stub.Watch(sent, metadata=said_by(VERA), timeout=WAIT_S_MAX)
    next(found)

    def shown(mark: str) -> list[Any]:
        """The events of the id before the first one of the mark."""
        events: list[Any] = []
        for message in found:
            events += [event for event in message.events if again in event.key]
            if any(mark in event.key for event in message.events):
                return events
        raise AssertionError("the stream ended")

    made(fleet, again, "/team/jobs")
    assert shown(fleet.job("/team/jobs"))
    deleted(fleet, again)
    shown(fleet.job("/team/jobs"))
    made(fleet, again, "/other/jobs")
    last = fleet.job("/team/jobs")
    # Events of the end of the first job may still come; no part of the second one may begin.
    facts = {fact for event in shown(last) for fact in event.facts}
    assert not facts & {"JobMade", "SliceOpened", "TaskCreated", "LotOpened"}
    found.cancel()
