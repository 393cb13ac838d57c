"""Schedules through the gateway, and as people type them."""

from __future__ import annotations

import itertools
import time
import uuid
from pathlib import Path
from typing import Any

import grpc
import pytest

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2 as job
from peloton.gateway.access.access_table import SCHEDULES
from peloton.ops.v1 import schedules_pb2 as wire
from peloton.ops.v1 import schedules_pb2_grpc
from tests.cli.terminal import typed
from tests.gateway.access_fixture import ROLES, Guarded
from tests.gateway.fleet_fixture import Deployment, default_config

CODE = grpc.StatusCode
YAML = """\
name: nightly
owner: me
instanceCount: 1
defaultConfig:
  resource: {cpuLimit: 1.0, memLimitMb: 10.0, diskLimitMb: 0.0}
  command: {value: 'true', shell: true}
"""


def schedules(deployment: Deployment) -> schedules_pb2_grpc.SchedulesStub:
    return schedules_pb2_grpc.SchedulesStub(deployment.channel)


def wanted(**fields: Any) -> wire.CreateScheduleRequest:
    config = job.JobConfig(name="n", owner="me", instanceCount=1, defaultConfig=default_config())
    given: dict[str, Any] = {
        "name": f"s-{uuid.uuid4()}",
        "cron": "0 0 1 1 *",
        "pool": "/work",
        "job": config,
        **fields,
    }
    return wire.CreateScheduleRequest(schedule=wire.Schedule(**given))


def test_a_schedule_is_kept_as_it_was_sent(deployment: Deployment) -> None:
    calls, sent = schedules(deployment), wanted(time_zone="Europe/Berlin", starting_deadline_s=60.0)
    calls.CreateSchedule(sent)
    name = sent.schedule.name
    info = calls.GetSchedule(wire.GetScheduleRequest(name=name)).info
    sent.schedule.job.respoolID.value = deployment.pool
    assert info.schedule == sent.schedule
    assert info.next_at > time.time() and info.created_at <= time.time()
    assert (info.made, info.skipped, len(info.jobs)) == (0, 0, 0)
    listed = calls.ListSchedules(wire.ListSchedulesRequest()).schedules
    (line,) = [one for one in listed if one.schedule.name == name]
    assert line.next_at == info.next_at and not line.schedule.HasField("job")
    calls.PauseSchedule(wire.PauseScheduleRequest(name=name))
    paused = calls.GetSchedule(wire.GetScheduleRequest(name=name)).info
    assert paused.schedule.paused and not paused.next_at
    calls.ResumeSchedule(wire.ResumeScheduleRequest(name=name))
    assert calls.GetSchedule(wire.GetScheduleRequest(name=name)).info == info
    calls.DeleteSchedule(wire.DeleteScheduleRequest(name=name))
    with pytest.raises(grpc.RpcError) as caught:
        calls.GetSchedule(wire.GetScheduleRequest(name=name))
    assert caught.value.code() == CODE.NOT_FOUND


def test_a_name_is_taken_and_a_repeat_is_answered(deployment: Deployment) -> None:
    calls, sent = schedules(deployment), wanted()
    key = (("peloton-request-key", str(uuid.uuid4())),)
    calls.CreateSchedule(sent, metadata=key)
    calls.CreateSchedule(sent, metadata=key)
    with pytest.raises(grpc.RpcError) as caught:
        calls.CreateSchedule(sent)
    assert caught.value.code() == CODE.ALREADY_EXISTS


BAD_JOB = job.JobConfig(name="n", owner="me", instanceCount=0, defaultConfig=default_config())
AFTER = job.JobConfig(
    name="n",
    owner="me",
    instanceCount=1,
    defaultConfig=default_config(),
    labels=[peloton_pb2.Label(key="peloton.name_unique", value="true")],
)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"name": ""}, "schedule.name: '' is not 1 to 63 letters"),
        ({"name": "a/b"}, "schedule.name: 'a/b' is not"),
        ({"cron": "0 0 * *"}, "schedule.cron: '0 0 * *' has not five fields"),
        ({"cron": "0 99 * * *"}, "schedule.cron: hour: '99' is not from 0 to 23"),
        ({"cron": "0 0 30 2 *"}, "cron: '0 0 30 2 *' never comes"),
        ({"time_zone": "Mars"}, "schedule.time_zone: 'Mars' is not a time zone"),
        ({"overlap": 7}, "schedule.overlap: unknown policy 7"),
        ({"starting_deadline_s": -1.0}, "schedule.starting_deadline_s: -1 is not between"),
        ({"pool": "/nowhere"}, "schedule.pool: there is no pool '/nowhere'"),
        ({"pool": "/"}, "cannot submit jobs to the `root` resource pool"),
        ({"job": BAD_JOB}, "schedule.job: config.instanceCount: a job needs at least one"),
        ({"job": AFTER}, "schedule.job.labels: labels peloton.after and peloton.name_unique"),
    ],
)
def test_a_bad_schedule_is_refused(
    deployment: Deployment, fields: dict[str, Any], says: str
) -> None:
    calls, sent = schedules(deployment), wanted(**fields)
    for call in (
        lambda: calls.CreateSchedule(sent),
        lambda: calls.CheckSchedule(wire.CheckScheduleRequest(schedule=sent.schedule)),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            call()
        assert caught.value.code() == CODE.INVALID_ARGUMENT
        assert says in str(caught.value.details())


def test_a_schedule_that_is_checked_has_moments_and_is_not_made(deployment: Deployment) -> None:
    calls, sent = schedules(deployment), wanted(name="checked", cron="*/10 * * * *")
    found = calls.CheckSchedule(wire.CheckScheduleRequest(schedule=sent.schedule)).moments
    assert len(found) == 3 and found[0] > time.time()
    assert [later - one for one, later in itertools.pairwise(found)] == [600.0, 600.0]
    with pytest.raises(grpc.RpcError) as caught:
        calls.GetSchedule(wire.GetScheduleRequest(name="checked"))
    assert caught.value.code() == CODE.NOT_FOUND


@pytest.mark.parametrize("name", ["none", "", "a/b"])
def test_what_does_not_exist_is_not_found(deployment: Deployment, name: str) -> None:
    calls = schedules(deployment)
    for call, request in (
        (calls.GetSchedule, wire.GetScheduleRequest(name=name)),
        (calls.PauseSchedule, wire.PauseScheduleRequest(name=name)),
        (calls.ResumeSchedule, wire.ResumeScheduleRequest(name=name)),
        (calls.DeleteSchedule, wire.DeleteScheduleRequest(name=name)),
    ):
        with pytest.raises(grpc.RpcError) as caught:
            call(request)
        assert caught.value.code() == CODE.NOT_FOUND


def test_a_schedule_as_people_type_it(deployment: Deployment, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(YAML)

    def cron(*words: str) -> Any:
        return typed("--api", deployment.api, "-t", "60s", "cron", *words)

    name = f"s-{uuid.uuid4()}"
    made = cron("create", name, "30 2 * * *", "/work", str(file), "--overlap", "replace")
    assert (made.code, made.out) == (0, f"Schedule {name} created\n"), made.err
    assert name in cron("list").out
    shown = cron("show", name).out
    assert "Cron: 30 2 * * *" in shown and "Overlap: replace" in shown and "T02:30:00Z" in shown
    assert cron("pause", name).code == 0 and "Next: paused" in cron("show", name).out
    assert cron("resume", name).out == f"Schedule {name} resumed\n"
    again = cron("create", name, "@daily", "/work", str(file))
    assert again.code and "already exists" in again.err
    assert cron("delete", name).code == 0
    gone = cron("show", name)
    assert gone.code and f"Schedule {name}: not found" in gone.err
    bad = cron("create", name, "61 * * * *", "/work", str(file))
    assert bad.code and "minute: '61' is not from 0 to 59" in bad.err


def test_a_schedule_is_seen_and_changed_as_its_jobs_are(fleet: Guarded) -> None:
    def call(name: str, sent: Any, by: str) -> tuple[grpc.StatusCode, bytes]:
        code, _, data = fleet.call(f"{SCHEDULES}.{name}", sent, ROLES[by])
        return code, data

    def listed(by: str) -> list[str]:
        _, data = call("ListSchedules", wire.ListSchedulesRequest(), by)
        found = wire.ListSchedulesResponse.FromString(data).schedules
        return [one.schedule.name for one in found]

    sent = wanted(pool="/team/jobs")
    name = sent.schedule.name
    assert call("CreateSchedule", sent, "viewer")[0] == CODE.PERMISSION_DENIED
    assert call("CreateSchedule", sent, "stranger")[0] == CODE.INVALID_ARGUMENT
    assert call("CreateSchedule", sent, "submitter")[0] == CODE.OK
    name = f"sue:{name}"
    get, delete = wire.GetScheduleRequest(name=name), wire.DeleteScheduleRequest(name=name)
    assert call("GetSchedule", get, "viewer")[0] == CODE.OK
    assert call("GetSchedule", get, "stranger")[0] == CODE.NOT_FOUND
    assert (listed("submitter"), listed("viewer"), listed("stranger")) == ([name], [name], [])
    assert call("DeleteSchedule", delete, "viewer")[0] == CODE.PERMISSION_DENIED
    assert call("DeleteSchedule", delete, "stranger")[0] == CODE.NOT_FOUND
    assert call("PauseSchedule", wire.PauseScheduleRequest(name=name), "operator")[0] == CODE.OK
    assert call("DeleteSchedule", delete, "submitter")[0] == CODE.OK
