"""Health checks from the wire, and what clients see of health."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from peloton.actors.host.run_spec import Port
from peloton.actors.job.slice.messages import InstanceView
from peloton.actors.job.slice.task_config import Command, TaskConfig, effective
from peloton.actors.job.spec import JobSpec
from peloton.actors.resources import Resources
from peloton.actors.task.messages import TaskGoals
from peloton.actors.task.run_messages import HealthCheck, HttpProbe, TaskHealth
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.gateway.private.job_cache import availability
from peloton.gateway.translate.bad_field import BadField
from peloton.gateway.translate.health_checks import CHANGED, health_of, to_check
from peloton.gateway.translate.pod_specs import pod_spec_of, to_task
from peloton.gateway.translate.translate_job import to_spec
from peloton.gateway.translate.translate_run import Translator
from peloton.gateway.translate.translate_task import to_config
from peloton.gateway.v1alpha.pod_status import pod_status_of
from peloton.runtime.vocabulary import Key
from peloton.sdk import specs

HTTP = {"enabled": True, "type": "HTTP", "httpCheck": {"port": 80}}
COMMAND = {"enabled": True, "type": "COMMAND", "commandCheck": {"command": "true"}}


def config(check: dict[str, Any]) -> task.TaskConfig:
    return specs.build(task.TaskConfig, {"command": {"value": "x"}, "healthCheck": check})


@pytest.mark.parametrize(
    ("sent", "check"),
    [
        (HTTP, HealthCheck(http=HttpProbe(80, "/", "http"))),
        (
            {**HTTP, "httpCheck": {"scheme": "HTTPS", "port": 443, "path": "/a?b=c"}},
            HealthCheck(http=HttpProbe(443, "/a?b=c", "https")),
        ),
        (COMMAND, HealthCheck("true", None, 15.0, 10.0, 20.0, 3)),
        (
            {
                **COMMAND, "initialIntervalSecs": 1, "intervalSecs": 2, "timeoutSecs": 3,
                "maxConsecutiveFailures": 4,
                "commandCheck": {"command": "true", "unshareEnvironments": True},
            },
            HealthCheck("true", None, 1.0, 2.0, 3.0, 4, True),
        ),
        ({**HTTP, "enabled": False}, None),
        ({"type": "GRPC"}, None),
    ],
)  # fmt: skip
def test_what_is_not_given_has_its_default(sent: Any, check: HealthCheck | None) -> None:
    found = to_config(config(sent), "config.defaultConfig")
    assert found.health_check and found.check == check


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        ({"enabled": True}, "type: must be COMMAND or HTTP, got UNKNOWN"),
        ({"enabled": True, "type": "GRPC"}, "type: must be COMMAND or HTTP, got GRPC"),
        ({**COMMAND, "commandCheck": {}}, "commandCheck.command: required field is missing"),
        (
            {**COMMAND, "commandCheck": {"command": "a\0"}},
            "commandCheck.command: must not contain a NUL character",
        ),
        ({**HTTP, "httpCheck": {}}, "httpCheck.port: must be from 1 to 65535, got 0"),
        (
            {**HTTP, "httpCheck": {"port": 65536}},
            "httpCheck.port: must be from 1 to 65535, got 65536",
        ),
        (
            {**HTTP, "httpCheck": {"port": 1, "scheme": "tcp"}},
            "httpCheck.scheme: must be http or https, got 'tcp'",
        ),
        (
            {**HTTP, "httpCheck": {"port": 1, "path": "/a\r\nHost: b"}},
            "httpCheck.path: must begin with / and have no blanks or special characters, "
            "got '/a\\r\\nHost: b'",
        ),
        (
            {**HTTP, "httpCheck": {"port": 1, "path": "a"}},
            "httpCheck.path: must begin with / and have no blanks or special characters, got 'a'",
        ),
        ({**HTTP, "intervalSecs": 86401}, "intervalSecs: must be ≤ 86400, got 86401"),
        (
            {**HTTP, "maxConsecutiveFailures": 1001},
            "maxConsecutiveFailures: must be ≤ 1000, got 1001",
        ),
    ],
)
def test_a_bad_check_is_refused_by_its_field(sent: Any, text: str) -> None:
    with pytest.raises(BadField) as bad:
        to_config(config(sent), "config.defaultConfig")
    assert str(bad.value) == f"config.defaultConfig.healthCheck.{text}"


def test_a_service_may_have_one() -> None:
    given = {"name": "j", "instanceCount": 1, "defaultConfig": {"command": {"value": "x"}}}
    given["defaultConfig"] |= {"healthCheck": HTTP}  # type: ignore[operator]
    assert to_spec(specs.build(job.JobConfig, {**given, "type": "SERVICE"})).spec.default.check


def test_the_message_of_an_instance_wins_as_a_whole() -> None:
    default = TaskConfig(health_check=True, check=HealthCheck("a"))
    assert effective(default, TaskConfig()).check == HealthCheck("a")
    own = TaskConfig(health_check=True, check=HealthCheck(http=HttpProbe(1)))
    assert effective(default, own).check == own.check
    off = TaskConfig(health_check=True, check=None)
    assert effective(default, off).check is None and effective(default, off).health_check


def test_a_check_of_v1alpha_is_that_of_v0() -> None:
    sent = pod.PodSpec(
        containers=[
            {
                "entrypoint": {"value": "x"},
                "liveness_check": {
                    "enabled": True, "type": "HEALTH_CHECK_TYPE_HTTP", "interval_secs": 7,
                    "http_check": {"scheme": "http", "port": 80, "path": "/p"},
                },
            }
        ]
    )  # fmt: skip
    found = to_check(to_task(sent, "spec").healthCheck)
    assert found == HealthCheck(http=HttpProbe(80, "/p"), interval_s=7.0)


LIVE = {"enabled": True, "type": "HEALTH_CHECK_TYPE_HTTP", "http_check": {"port": 80}}
READY: dict[str, Any] = {
    "enabled": True, "type": "HEALTH_CHECK_TYPE_COMMAND", "command_check": {"command": "r"},
    "max_consecutive_failures": 5,
}  # fmt: skip


def one(name: str = "", **fields: Any) -> dict[str, Any]:
    return {"name": name, "entrypoint": {"value": "x"}, **fields}


def test_a_readiness_check_goes_beside_the_other_and_comes_back() -> None:
    sent = pod.PodSpec(containers=[one(liveness_check=LIVE, readiness_check=READY)])
    config = to_task(sent, "spec")
    found = to_config(config, "spec")
    readiness = HealthCheck("r", max_failures=5)
    assert found.check == HealthCheck(http=HttpProbe(80), readiness=readiness)
    back = pod_spec_of(config).containers[0]
    assert back.readiness_check == sent.containers[0].readiness_check
    alone = to_config(to_task(pod.PodSpec(containers=[one(readiness_check=READY)]), "s"), "s")
    assert alone.health_check and alone.check is not None and not alone.check.of_health
    off = pod.PodSpec(containers=[one(readiness_check={**READY, "enabled": False})])
    assert to_config(to_task(off, "s"), "s").check is None


def test_it_belongs_to_one_container_which_goes_on_in_a_pod() -> None:
    sent = pod.PodSpec(containers=[one("web"), one("db", readiness_check=READY)])
    found = to_config(to_task(sent, "spec"), "spec").check
    assert found is not None and found.container == "db"
    assert found.readiness is not None and found.readiness.container == "db"


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        ({"containers": [one("a", readiness_check=READY), one("b", readiness_check=READY)]},
         "spec.containers[1].readiness_check: the check of a second container"),
        ({"containers": [one("a", liveness_check=LIVE), one("b", readiness_check=READY)]},
         "spec.containers[1].readiness_check: the check of a second container"),
        ({"init_containers": [one("a", readiness_check=READY)], "containers": [one("b")]},
         "spec.init_containers[0].readiness_check: an init container has none"),
        ({"containers": [one(readiness_check={**READY, "success_threshold": 2})]},
         "spec.containers[0].readiness_check.success_threshold: a number of successes"),
        ({"containers": [one(readiness_check={**READY, "interval_secs": 86401})]},
         "spec.executor.containers[0].readiness_check.intervalSecs: must be"),
    ],
)  # fmt: skip
def test_a_bad_readiness_check_is_refused_by_its_field(sent: Any, text: str) -> None:
    with pytest.raises(BadField) as bad:
        to_config(to_task(pod.PodSpec(**sent), "spec"), "spec")
    assert str(bad.value).startswith(text)


@pytest.mark.parametrize(("checked", "whose"), [("web", "web"), ("db", "db"), ("web", "")])
def test_a_command_for_a_pod_of_several_belongs_to_the_container_that_has_it(
    checked: str, whose: str
) -> None:
    """A request by HTTP belongs to none: it needs no variables."""
    check: dict[str, Any] = {"enabled": True}
    if whose:
        check |= {"type": "HEALTH_CHECK_TYPE_COMMAND", "command_check": {"command": "x"}}
    else:
        check |= {"type": "HEALTH_CHECK_TYPE_HTTP", "http_check": {"port": 80}}
    names = ("web", "db")
    sent = pod.PodSpec(containers=[{"name": name, "entrypoint": {"value": "x"}} for name in names])
    at = names.index(checked)
    sent.containers[at].liveness_check.CopyFrom(pod.HealthCheckSpec(**check))
    found = to_config(to_task(sent, "spec"), "spec").check
    assert found is not None and found.container == whose


def view(state: str = "RUNNING", **fields: Any) -> InstanceView:
    """An instance that is checked, as its slice shows it."""
    checked = TaskConfig(
        command=Command("x"), resources=Resources(), ports=(Port("p", 80),), check=HealthCheck("y")
    )
    found = InstanceView(
        0, state, TaskGoals.RUNNING, 1, 0, "host/h", 1.0, 2.0, 3.0, None, None, (), checked
    )
    return replace(found, **fields)


@pytest.mark.parametrize(
    ("shown", "health", "available"),
    [
        (view("PENDING"), TaskHealth.UNKNOWN, "UNAVAILABLE"),
        (view(health=TaskHealth.UNKNOWN), TaskHealth.UNKNOWN, "UNAVAILABLE"),
        (view(health=TaskHealth.HEALTHY), TaskHealth.HEALTHY, "AVAILABLE"),
        (view(health=TaskHealth.UNHEALTHY), TaskHealth.UNHEALTHY, "UNAVAILABLE"),
        (view(config=TaskConfig()), TaskHealth.DISABLED, "AVAILABLE"),
        (view("PENDING", config=TaskConfig()), TaskHealth.DISABLED, "UNAVAILABLE"),
        (view("FAILED", ended_at=4.0), TaskHealth.INVALID, "UNAVAILABLE"),
        (
            view(health=TaskHealth.HEALTHY, ready=TaskHealth.UNKNOWN),
            TaskHealth.HEALTHY,
            "UNAVAILABLE",
        ),
        (
            view(health=TaskHealth.HEALTHY, ready=TaskHealth.HEALTHY),
            TaskHealth.HEALTHY,
            "AVAILABLE",
        ),
    ],
)
def test_what_is_shown_of_health(shown: InstanceView, health: TaskHealth, available: str) -> None:
    assert health_of(shown) == health and availability(shown) == available


def test_the_last_change_is_an_event_of_its_own() -> None:
    shown = view(health=TaskHealth.UNHEALTHY, checked=("exit status 1", 5.0))
    config = task.TaskConfig(healthCheck=task.HealthCheckConfig(enabled=True)).SerializeToString()
    spec = to_spec(
        specs.build(
            job.JobConfig,
            {"name": "j", "instanceCount": 1, "defaultConfig": {"command": {"value": "x"}}},
        )
    )
    shown = replace(shown, config=replace(shown.config, raw=config))
    translator = Translator("j", spec.spec)
    assert translator.info(shown).runtime.healthy == task.UNHEALTHY
    newest, before, *_ = translator.events(shown, runs_max=1, only=None)
    assert (newest.healthy, newest.message, newest.reason, newest.actualState) == (
        "UNHEALTHY", "exit status 1", CHANGED, "RUNNING",
    )  # fmt: skip
    assert before.healthy == "HEALTH_UNKNOWN"


def test_one_that_is_not_ready_says_so_in_its_status_and_events() -> None:
    shown = view(
        health=TaskHealth.HEALTHY, ready=TaskHealth.UNHEALTHY, checked=("it loads", 5.0),
        code="READY", because="runs, but is not ready: it loads",
    )  # fmt: skip
    sent = {"name": "j", "instanceCount": 1, "defaultConfig": {"command": {"value": "x"}}}
    translator = Translator("j", to_spec(specs.build(job.JobConfig, sent)).spec)
    info = translator.info(shown)
    assert info.runtime.message == "runs, but is not ready: it loads"
    status = pod_status_of(info)
    assert status.message == status.containers_status[0].message == info.runtime.message
    newest, *_ = translator.events(shown, runs_max=1, only=None)
    assert (newest.healthy, newest.message) == ("HEALTHY", "not ready: it loads")
    ready = replace(shown, ready=TaskHealth.HEALTHY, checked=("", 6.0), code="", because="")
    newest, *_ = translator.events(ready, runs_max=1, only=None)
    assert newest.message == "ready"


def test_that_a_check_is_not_carried_out_is_said_in_the_status_and_by_one_event() -> None:
    said, job = "not checked: why", "c92956cf-cd8e-5e45-8242-808ffe31a2fb"
    shown = view(health=TaskHealth.DISABLED, checked=(said, 4.0))
    spec = JobSpec(name="j", owner="o", pool=Key("respool/p"), instances=1, default=view().config)
    found = Translator(job, spec, images_run=True)
    assert availability(shown) == "AVAILABLE"
    assert found.info(shown).runtime.message == said
    texts = [event.message for event in found.events(shown, runs_max=1, only=None)]
    assert texts.count(said) == 1
    well = view(health=TaskHealth.HEALTHY, checked=("exit code 0", 4.0))
    assert found.info(well).runtime.message == ""


def test_why_a_check_fails_or_cannot_be_run_is_said_in_the_status_and_events() -> None:
    sent = {"name": "j", "instanceCount": 1, "defaultConfig": {"command": {"value": "x"}}}
    translator = Translator("j", to_spec(specs.build(job.JobConfig, sent)).spec)
    said = "runs, and its health has not been checked yet: permission denied"
    shown = view(
        health=TaskHealth.UNKNOWN, checked=("permission denied", 5.0), code="HEALTH", because=said
    )
    info = translator.info(shown)
    assert info.runtime.message == pod_status_of(info).message == said
    newest, *_ = translator.events(shown, runs_max=1, only=None)
    assert newest.message == "permission denied"
    failing = replace(shown, health=TaskHealth.UNHEALTHY, because="its last check failed: status 1")
    assert translator.info(failing).runtime.message == "its last check failed: status 1"
    early = replace(shown, checked=None, because="runs, and its health has not been checked yet")
    assert translator.info(early).runtime.message == ""
