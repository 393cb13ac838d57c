"""The name of a schedule that is hidden from a caller is free to them."""

from __future__ import annotations

from typing import Any

import grpc

from peloton.actors.schedule.messages import CreateSchedule, ScheduleChanged, ScheduleSpec
from peloton.chaos.cluster.world.cluster import job_spec
from peloton.gateway.access.access_table import OPS, SCHEDULES
from peloton.gateway.translate.actor_keys import named_schedule, own_schedule
from peloton.ops.v1 import ops_pb2 as ops
from peloton.ops.v1 import schedules_pb2 as wire
from peloton.runtime.core.principal import BASIC, UNVERIFIED, Principal
from tests.gateway.access_fixture import ROLES, Guarded, create_request, unknown_id
from tests.gateway.fleet_fixture import WAIT_S_MAX

CODE = grpc.StatusCode
SUE, ADMIN, OLGA = ROLES["submitter"], ROLES["administrator"], Principal("olga", BASIC)


def wanted(name: str, path: str) -> wire.CreateScheduleRequest:
    made = wire.Schedule(name=name, cron="@yearly", pool=path)
    made.job.CopyFrom(create_request("").config)
    return wire.CreateScheduleRequest(schedule=made)


def create(fleet: Guarded, name: str, path: str, by: Principal) -> tuple[Any, str]:
    return fleet.call(f"{SCHEDULES}.CreateSchedule", wanted(name, path), by)[:2]


def create_by_version_before(fleet: Guarded, name: str, path: str, by: Principal) -> None:
    """Under the name of all, whoever asks."""
    spec = ScheduleSpec("@yearly", "UTC", path, job_spec(1))
    made = fleet.open.region.ask(named_schedule(name), CreateSchedule(spec), who=by.text)
    assert isinstance(made.result(WAIT_S_MAX), ScheduleChanged)


def listed(fleet: Guarded, by: Principal) -> set[str]:
    data = fleet.call(f"{SCHEDULES}.ListSchedules", wire.ListSchedulesRequest(), by)[2]
    return {one.schedule.name for one in wire.ListSchedulesResponse.FromString(data).schedules}


def got(fleet: Guarded, name: str, by: Principal) -> str:
    code, text, data = fleet.call(
        f"{SCHEDULES}.GetSchedule", wire.GetScheduleRequest(name=name), by
    )
    if code != CODE.OK:
        return f"{code.name} {text}"
    answer = wire.GetScheduleResponse.FromString(data)
    return f"{answer.info.schedule.name} in {answer.info.schedule.pool}"


def test_a_name_that_a_hidden_schedule_has_is_free(fleet: Guarded) -> None:
    taken, free = unknown_id(), unknown_id()
    for by in (OLGA, ADMIN):
        assert create(fleet, taken, "/other/jobs", by)[0] == CODE.OK
    answers = [create(fleet, name, "/team/jobs", SUE) for name in (taken, free)]
    assert answers == [(CODE.OK, "")] * 2, "whether another has the name makes no difference"
    assert {f"sue:{taken}", f"sue:{free}"} <= listed(fleet, SUE)
    assert not any("olga" in name or name == taken for name in listed(fleet, SUE))
    assert {taken, f"sue:{taken}", f"olga:{taken}"} <= listed(fleet, ADMIN)
    code, text = create(fleet, taken, "/team/jobs", SUE)
    assert code == CODE.ALREADY_EXISTS and f"sue:{taken}" in text


def test_who_sees_a_schedule_of_a_name_makes_no_second_one(fleet: Guarded) -> None:
    """As whoever repeats the creation of one that a version before has made."""
    name, other = unknown_id(), unknown_id()
    create_by_version_before(fleet, name, "/team/jobs", SUE)
    code, text = create(fleet, name, "/team/jobs", SUE)
    assert code == CODE.ALREADY_EXISTS and f"schedule {name} already" in text
    assert f"sue:{name}" not in listed(fleet, ADMIN)
    assert create(fleet, other, "/team/jobs", SUE)[0] == CODE.OK
    create_by_version_before(fleet, other, "/team/jobs", SUE)
    text = create(fleet, other, "/team/jobs", SUE)[1]
    assert f"schedule sue:{other} already" in text, "their own comes first"


def test_a_name_means_ones_own_before_that_of_all(fleet: Guarded) -> None:
    name = unknown_id()
    assert create(fleet, name, "/team/jobs", ADMIN)[0] == CODE.OK
    vera = ROLES["viewer"]
    assert got(fleet, name, vera) == f"{name} in /team/jobs"
    assert create(fleet, name, "/team/jobs", SUE)[0] == CODE.OK
    assert got(fleet, name, SUE) == got(fleet, f"sue:{name}", SUE) == f"sue:{name} in /team/jobs"
    assert got(fleet, f"sue:{name}", vera) == f"sue:{name} in /team/jobs"
    sent = wire.DeleteScheduleRequest(name=name)
    assert fleet.call(f"{SCHEDULES}.DeleteSchedule", sent, SUE)[0] == CODE.OK
    assert got(fleet, name, ADMIN) == f"{name} in /team/jobs", "that of all is still there"
    assert got(fleet, name, SUE).startswith("NOT_FOUND"), "she may only submit there"


def test_a_story_is_of_the_one_that_is_named(fleet: Guarded) -> None:
    """And not of a hidden one whose name is also that of the caller's own."""
    name = unknown_id()
    assert create(fleet, name, "/other/jobs", ADMIN)[0] == CODE.OK
    assert create(fleet, name, "/team/jobs", SUE)[0] == CODE.OK
    for key, by, code in (
        (f"schedule/{name}", SUE, CODE.NOT_FOUND),
        (f"schedule/sue:{name}", SUE, CODE.OK),
        (f"schedule/{name}", ADMIN, CODE.OK),
    ):
        assert fleet.call(f"{OPS}.Story", ops.StoryRequest(key=key), by)[0] == code, key


def test_names_that_cannot_be_are_of_no_schedule() -> None:
    for name in ("", "/", "a/b", ":a", "a:b:c", "-a", "a b", "x" * 64):
        assert named_schedule(name) == "schedule/-", name
    odd = Principal("cn=a/b:c", BASIC)
    assert own_schedule("n", odd) == "schedule/cn%3Da%2Fb%3Ac:n"
    assert own_schedule("n", Principal("ann", UNVERIFIED)) == "schedule/*:n"
