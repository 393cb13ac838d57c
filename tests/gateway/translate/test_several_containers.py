"""Pods of several containers: their configs of v0, what instances replace, and statuses."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.actors.job.slice.task_config import effective
from peloton.actors.resources import Resources
from peloton.actors.task.messages import End, RunOutcome
from peloton.actors.task.run_messages import ContainerEnd
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.gateway.translate.bad_field import BadField
from peloton.gateway.translate.container_status import container_statuses
from peloton.gateway.translate.pod_specs import NotBuilt, pod_spec_of, to_task
from peloton.gateway.translate.run_as import RunAs
from peloton.gateway.translate.several_containers import EXECUTOR_ID, containers_in
from peloton.gateway.translate.stateless_specs import to_config_v0
from peloton.gateway.translate.translate_task import merged, to_config
from peloton.gateway.v1alpha.pod_status import pod_status_of

STATE = pod.ContainerState


def container(name: str, cpu: float = 0.1, memory: float = 10.0, **more: Any) -> dict[str, Any]:
    need = {"cpu_limit": cpu, "mem_limit_mb": memory}
    return {"name": name, "resource": need, "entrypoint": {"value": f"run {name}"}, **more}


POD = pod.PodSpec(
    init_containers=[container("first", 0.05), container("second", 0.05, 100.0)],
    containers=[
        container("web", ports=[{"name": "http", "env_name": "HTTP"}],
                  environment=[{"name": "A", "value": "1"}]),
        container("db", 0.2, image="db:1", ports=[{"name": "sql", "value": 5432}]),
    ],
    labels=[{"key": "k", "value": "v"}],
    mesos_spec={"shell": True},
)  # fmt: skip


def plain(sent: pod.PodSpec) -> pod.PodSpec:
    """Without the older form."""
    found = pod.PodSpec()
    found.CopyFrom(sent)
    for one in (*found.init_containers, *found.containers):
        for older in ("command", "container"):
            one.ClearField(older)
    return found


def test_a_pod_comes_back_as_it_was_sent() -> None:
    config = to_task(POD, "spec")
    back = pod_spec_of(config, "job-1")
    assert back.pod_name.value == "job-1"
    back.ClearField("pod_name")
    assert back.containers[1].container.mesos.image.docker.name == "db:1"
    assert back.init_containers[0].command.value == "run first"
    # And what it says in the older form is the same again.
    assert to_task(back, "spec") == config
    assert plain(back) == POD


def test_the_pod_needs_what_all_need_together() -> None:
    """The sum of those that run together, or what the largest init container needs."""
    config = to_config(to_task(POD, "spec"), "config")
    assert config.resources == Resources(cpu=300_000, memory=100_000_000)
    assert [(port.name, port.number) for port in config.ports] == [("http", 0), ("sql", 5432)]
    assert config.command is not None and config.command.value == "run web"
    assert [(one.name, one.init, one.image) for one in config.containers] == [
        ("first", True, ""), ("second", True, ""), ("web", False, ""), ("db", False, "db:1"),
    ]  # fmt: skip
    assert config.containers[2].environment == (("A", "1"),) and config.containers[2].shell
    assert config.image == "db:1" and not config.executor


def test_one_container_is_a_config_as_ever() -> None:
    config = to_config(to_task(pod.PodSpec(containers=[container("web")]), "spec"), "config")
    assert config.containers == ()


OTHER = container("other", 0.5, 20.0)
ONE = pod.PodSpec(containers=[container("one", ports=[{"name": "p", "value": 1}], image="i:1")])
MERGED: list[tuple[pod.PodSpec, pod.PodSpec, list[str], int]] = [
    # Default, own, the containers of the instance, its cpu.
    (POD, pod.PodSpec(labels=[{"key": "x"}]), ["first", "second", "web", "db"], 300_000),
    (POD, pod.PodSpec(containers=[OTHER]), ["first", "second", "other"], 500_000),
    (POD, pod.PodSpec(init_containers=[OTHER]), ["other", "web", "db"], 500_000),
    (pod.PodSpec(containers=POD.containers), pod.PodSpec(containers=[OTHER]), ["other"], 500_000),
    (ONE, pod.PodSpec(init_containers=[OTHER]), ["other", "one"], 500_000),
    (ONE, pod.PodSpec(containers=POD.containers), ["web", "db"], 300_000),
]


@pytest.mark.parametrize(("default", "own", "names", "cpu"), MERGED)
def test_what_an_instance_has_of_its_own_replaces_the_default(
    default: pod.PodSpec, own: pod.PodSpec, names: list[str], cpu: int
) -> None:
    sent = stateless.JobSpec(default_spec=default, instance_spec={3: own})
    config = to_config_v0(sent)
    whole = to_config(config.defaultConfig, "config")
    mine = to_config(config.instanceConfig[3], "config")
    found = effective(whole, mine)
    assert [one.name for one in found.containers] == names
    assert found.resources is not None and found.resources.cpu == cpu
    raw = [one.SerializeToString() for one in (config.defaultConfig, config.instanceConfig[3])]
    # What clients see is made of the bytes, by the same rule.
    shown = merged(*raw)
    again = to_config(shown, "config")
    for name in ("containers", "resources", "ports", "command", "image"):
        assert getattr(again, name) == getattr(found, name), name
    spec = pod_spec_of(shown)
    assert [one.name for one in (*spec.init_containers, *spec.containers)] == names


def test_a_command_alone_replaces_several_containers() -> None:
    """As a client of v0 may say it."""
    default = to_task(POD, "spec")
    own = task.TaskConfig(command={"value": "mine"})
    found = effective(to_config(default, "config"), to_config(own, "config"))
    shown = merged(default.SerializeToString(), own.SerializeToString())
    assert found.containers == () and containers_in(shown) is None
    assert shown.command.value == "mine"


def test_containers_of_an_instance_are_whole() -> None:
    own = pod.PodSpec(containers=[{"name": "x", "resource": {"cpu_limit": 1.0}}])
    with pytest.raises(BadField, match=r"^spec\.instance_spec\[0\]\.containers\[0\]\.entrypoint"):
        to_config_v0(stateless.JobSpec(default_spec=POD, instance_spec={0: own}))


def test_a_cluster_that_runs_images_runs_none_of_several_containers() -> None:
    sent = stateless.JobSpec(default_spec=POD)
    text = r"^spec\.default_spec\.containers\[1\]\.image: running the images of several"
    with pytest.raises(NotBuilt, match=text):
        to_config_v0(sent, images_run=True)
    sent.default_spec.containers[1].image = ""
    to_config_v0(sent, images_run=True)
    to_config_v0(stateless.JobSpec(default_spec=ONE), images_run=True)


def test_what_cannot_be_read_is_refused() -> None:
    config = task.TaskConfig(
        command={"value": "x"},
        executor={"executor_id": {"value": EXECUTOR_ID}, "type": 2, "data": b"\xff"},
    )
    with pytest.raises(BadField, match=r"^config\.executor\.data: cannot be read"):
        to_config(config, "config")


def test_all_containers_run_as_one_account() -> None:
    sent = pod.PodSpec(
        containers=[
            {"name": name, "command": {"value": "x", "user": user}}
            for name, user in (("a", "ann"), ("b", "bob"))
        ]
    )
    text = r"^config\.executor\.containers\[1\]\.command\.user: differs from that of the first"
    with pytest.raises(BadField, match=text):
        to_config(to_task(sent, "spec"), "config", by=RunAs(any_user=True))
    sent.containers[1].command.user = "ann"
    to_config(to_task(sent, "spec"), "config", by=RunAs(any_user=True))


# ---- statuses ----


def shown(
    state: str,
    outcome: RunOutcome | None = None,
    told: tuple[ContainerEnd, ...] = (),
    **runtime: Any,
) -> dict[str, pod.ContainerStatus]:
    """The statuses by name, and that there is one for each container."""
    info = task.TaskInfo(
        config=to_task(POD, "spec"), runtime={"state": task.TaskState.Value(state), **runtime}
    )
    found = container_statuses(info, outcome, told=told)
    assert found is not None
    assert [one.name for one in found.init] == ["first", "second"]
    assert [one.name for one in found.main] == ["web", "db"]
    return {one.name: one for one in (*found.init, *found.main)}


def states(found: dict[str, pod.ContainerStatus]) -> list[str]:
    return [STATE.Name(one.state).removeprefix("CONTAINER_STATE_") for one in found.values()]


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        ("PENDING", ["PENDING"] * 4),
        ("LAUNCHED", ["LAUNCHED", "LAUNCHED", "PENDING", "PENDING"]),
        ("RUNNING", ["SUCCEEDED", "SUCCEEDED", "RUNNING", "RUNNING"]),
        ("KILLING", ["KILLING"] * 4),
        ("LOST", ["FAILED"] * 4),
        ("KILLED", ["KILLED"] * 4),
    ],
)
def test_of_what_was_not_told_its_pod_says_what_it_does(state: str, wanted: list[str]) -> None:
    assert states(shown(state)) == wanted


FIRST_RUNS = (ContainerEnd("first", True, 1.0), ContainerEnd("second", True))
SECOND_RUNS = (ContainerEnd("first", True, 1.0, 2.0, 0), ContainerEnd("second", True, 2.0))
INITS_DONE = (SECOND_RUNS[0], ContainerEnd("second", True, 2.0, 3.0, 0))
WAIT = (ContainerEnd("web"), ContainerEnd("db"))
WEB, DB = ContainerEnd("web", False, 3.0), ContainerEnd("db", False, 3.0)
DB_DONE = ContainerEnd("db", False, 3.0, 8.0, 0)
DB_FAILED = ContainerEnd("db", False, 3.0, 8.0, 3)
DB_SHOT = ContainerEnd("db", False, 3.0, 8.0, None, "SIGSEGV")
WEB_ENDED = ContainerEnd("web", False, 3.0, 9.0, None, "SIGTERM")


@pytest.mark.parametrize(
    ("state", "told", "wanted"),
    [
        ("LAUNCHED", (*FIRST_RUNS, *WAIT), ["RUNNING", "PENDING", "PENDING", "PENDING"]),
        ("LAUNCHED", (*SECOND_RUNS, *WAIT), ["SUCCEEDED", "RUNNING", "PENDING", "PENDING"]),
        ("LAUNCHED", (*INITS_DONE, WEB, WAIT[1]),
         ["SUCCEEDED", "SUCCEEDED", "RUNNING", "PENDING"]),
        ("RUNNING", (*INITS_DONE, WEB, DB), ["SUCCEEDED", "SUCCEEDED", "RUNNING", "RUNNING"]),
        ("RUNNING", (*INITS_DONE, WEB, DB_DONE),
         ["SUCCEEDED", "SUCCEEDED", "RUNNING", "SUCCEEDED"]),
        ("RUNNING", (*INITS_DONE, WEB, DB_FAILED), ["SUCCEEDED", "SUCCEEDED", "RUNNING", "FAILED"]),
        ("RUNNING", (*INITS_DONE, WEB, DB_SHOT), ["SUCCEEDED", "SUCCEEDED", "RUNNING", "FAILED"]),
        ("RUNNING", (*INITS_DONE, WEB_ENDED, DB_FAILED),
         ["SUCCEEDED", "SUCCEEDED", "KILLED", "FAILED"]),
        ("KILLING", (*SECOND_RUNS, *WAIT), ["SUCCEEDED", "KILLING", "PENDING", "PENDING"]),
        ("KILLING", (*INITS_DONE, WEB, DB_FAILED),
         ["SUCCEEDED", "SUCCEEDED", "KILLING", "KILLED"]),
        ("PREEMPTING", (*INITS_DONE, WEB_ENDED, DB),
         ["SUCCEEDED", "SUCCEEDED", "KILLED", "KILLING"]),
    ],
)  # fmt: skip
def test_while_a_pod_runs_each_container_is_as_was_told(
    state: str, told: tuple[ContainerEnd, ...], wanted: list[str]
) -> None:
    assert states(shown(state, told=told)) == wanted


def test_while_a_pod_runs_each_container_has_its_own_times_and_end() -> None:
    told = (*INITS_DONE, WEB, DB_DONE)
    found = shown("RUNNING", told=told, startTime="t", message="m", ports={"http": 31000})
    first, web, db = found["first"], found["web"], found["db"]
    assert first.start_time == "1970-01-01T00:00:01.000000000Z"
    assert first.completion_time == "1970-01-01T00:00:02.000000000Z"
    assert web.start_time == db.start_time == "1970-01-01T00:00:03.000000000Z"
    assert not web.completion_time and not web.HasField("terminationStatus")
    assert web.message == "m" and dict(web.ports) == {"http": 31000}
    assert db.completion_time == "1970-01-01T00:00:08.000000000Z" and not db.message
    assert db.HasField("terminationStatus") and db.terminationStatus.exit_code == 0


@pytest.mark.parametrize(
    ("end", "message", "code", "signal"),
    [
        (DB_FAILED, "container db: exit code 3", 3, ""),
        (DB_SHOT, "container db: signal SIGSEGV", 0, "SIGSEGV"),
    ],
)
def test_what_failed_says_so_before_its_pod_has_ended(
    end: ContainerEnd, message: str, code: int, signal: str
) -> None:
    found = shown("RUNNING", told=(*INITS_DONE, WEB_ENDED, end), message="m", reason="r")
    db, web = found["db"], found["web"]
    assert (db.message, db.reason) == (message, "")
    assert (db.terminationStatus.exit_code, db.terminationStatus.signal) == (code, signal)
    assert db.terminationStatus.reason == 2
    assert web.message == "ended because container db failed"


def test_what_has_not_begun_is_not_said_to_stay_so_before_the_end() -> None:
    found = shown("LAUNCHED", told=(*FIRST_RUNS, *WAIT))["web"]
    assert not found.message and not found.start_time and not found.HasField("terminationStatus")


def test_an_end_says_more_than_what_was_told_before() -> None:
    outcome = RunOutcome(End.SUCCEEDED, 0, containers=(*INITS_DONE, WEB, DB_DONE))
    assert states(shown("SUCCEEDED", outcome, (*FIRST_RUNS, *WAIT)))[0] == "SUCCEEDED"


def test_a_running_container_has_its_ports_and_image() -> None:
    found = shown("RUNNING", startTime="t", ports={"http": 31000, "sql": 5432})
    assert dict(found["web"].ports) == {"http": 31000}
    assert dict(found["db"].ports) == {"sql": 5432}
    assert found["db"].image == "db:1" and found["db"].start_time == "t"
    assert found["db"].healthy.state == pod.HEALTH_STATE_DISABLED


def test_the_container_that_failed_is_told_from_those_that_ended_with_it() -> None:
    ends = (
        ContainerEnd("first", True, 1.0, 2.0, 0),
        ContainerEnd("second", True, 2.0, 3.0, 0),
        ContainerEnd("web", False, 3.0, 9.0, None, "SIGTERM"),
        ContainerEnd("db", False, 3.0, 8.0, 3),
    )
    message = "container db: exit code 3"
    outcome = RunOutcome(End.FAILED, 3, reason="exited", message=message, containers=ends)
    found = shown("FAILED", outcome, message=message, reason="exited", failureCount=2)
    assert states(found) == ["SUCCEEDED", "SUCCEEDED", "KILLED", "FAILED"]
    db, web = found["db"], found["web"]
    assert (db.message, db.reason, db.terminationStatus.exit_code) == (message, "exited", 3)
    assert db.terminationStatus.reason == 2 and db.failure_count == 2
    assert db.start_time == "1970-01-01T00:00:03.000000000Z"
    assert db.completion_time == "1970-01-01T00:00:08.000000000Z"
    assert web.message == "ended because container db failed"
    assert web.terminationStatus.signal == "SIGTERM"


def test_a_host_that_knows_no_names_tells_all_in_order() -> None:
    ends = (
        ContainerEnd("", True, 1.0, 2.0, 0),
        ContainerEnd("", True, 2.0, 3.0, 0),
        ContainerEnd("", False, 3.0, 9.0, None, "SIGTERM"),
        ContainerEnd("", False, 3.0, 8.0, 3),
    )
    found = shown("FAILED", RunOutcome(End.FAILED, 3, containers=ends))
    assert states(found) == ["SUCCEEDED", "SUCCEEDED", "KILLED", "FAILED"]
    assert found["db"].terminationStatus.exit_code == 3


def test_what_was_not_started_says_so() -> None:
    ends = (
        ContainerEnd("first", True, 1.0, 2.0, 7),
        *(ContainerEnd(name, name == "second") for name in ("second", "web", "db")),
    )
    outcome = RunOutcome(End.FAILED, 7, message="m", containers=ends)
    found = shown("FAILED", outcome, message="m")
    assert states(found) == ["FAILED", "PENDING", "PENDING", "PENDING"]
    assert found["web"].message == "was not started" and not found["web"].start_time
    assert not found["web"].HasField("terminationStatus")


def test_a_killed_pod_has_killed_containers() -> None:
    ends = (
        ContainerEnd("first", True, 1.0, 2.0, 0),
        ContainerEnd("second", True, 2.0, 3.0, 0),
        ContainerEnd("web", False, 3.0, 9.0, None, "SIGTERM"),
        ContainerEnd("db", False, 3.0, 8.0, 0),
    )
    outcome = RunOutcome(End.KILLED, None, "SIGTERM", "killed", "m", containers=ends)
    found = shown("KILLED", outcome, message="m", terminationStatus={"reason": 1})
    assert states(found) == ["SUCCEEDED", "SUCCEEDED", "KILLED", "SUCCEEDED"]
    assert found["web"].message == "m" and found["web"].terminationStatus.reason == 1


def test_the_status_of_a_pod_has_one_for_each_container() -> None:
    info = task.TaskInfo(config=to_task(POD, "spec"), runtime={"state": task.RUNNING})
    found = pod_status_of(info, told=(*INITS_DONE, WEB, DB_DONE))
    assert found.containers_status[1].state == pod.CONTAINER_STATE_SUCCEEDED
    assert [one.name for one in found.init_containers_status] == ["first", "second"]
    assert [one.name for one in found.containers_status] == ["web", "db"]
    (only,) = pod_status_of(task.TaskInfo(config=to_task(ONE, "spec"))).containers_status
    assert only.name == "one"


def test_a_pod_of_one_container_has_none_of_these() -> None:
    assert container_statuses(task.TaskInfo(config=to_task(ONE, "spec"))) is None
