"""Specs of v1alpha to configs of v0 and back, and the names of their fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from peloton.api.mesos.v1 import mesos_pb2 as mesos
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.gateway.translate.bad_field import BadField
from peloton.gateway.translate.mesos_pods import image_of
from peloton.gateway.translate.pod_specs import pod_spec_of, to_task
from peloton.gateway.translate.stateless_specs import (
    job_spec_of,
    spec_path,
    spec_text,
    to_config_v0,
)
from peloton.gateway.v1alpha.stateless_replace import without_contradiction
from tests.gateway.service_specs import pod_spec, service_spec

FULL = pod_spec(
    labels=[{"key": "k", "value": "v"}],
    constraint={
        "type": 2,
        "and_constraint": {
            "constraints": [
                {"type": 1, "label_constraint": {"kind": 1, "condition": 1, "requirement": 1,
                                                 "label": {"key": "k", "value": "v"}}},
                {"type": 3, "or_constraint": {"constraints": [
                    {"type": 1, "label_constraint": {"kind": 2, "condition": 3,
                                                     "label": {"key": "a", "value": "b"}}}]}},
            ]
        },
    },
    restart_policy={"max_failures": 2},
    preemption_policy={},
    controller=True,
    kill_grace_period_seconds=7,
)  # fmt: skip
FULL.containers[0].MergeFrom(
    pod.ContainerSpec(
        liveness_check={
            "enabled": True, "initial_interval_secs": 1, "interval_secs": 2,
            "max_consecutive_failures": 3, "timeout_secs": 4, "type": 2,
            "http_check": {"scheme": "http", "port": 80, "path": "/health"},
        },
        ports=[{"name": "a", "value": 80}, {"name": "b", "env_name": "B"}],
        image="image:1",
    )
)  # fmt: skip


@pytest.mark.parametrize("kind", [1, 2])
def test_a_pod_comes_back_as_it_was_sent(kind: int) -> None:
    sent = pod.PodSpec()
    sent.CopyFrom(FULL)
    sent.mesos_spec.type = kind
    if kind == 1:
        sent.mesos_spec.docker_parameters.add(key="k", value="v")
    config = to_task(sent, "spec")
    assert config.constraint.andConstraint.constraints[0].labelConstraint.requirement == 1
    assert config.healthCheck.httpCheck.path == "/health" and config.ports[1].envName == "B"
    assert config.preemptionPolicy.type == task.PreemptionPolicy.TYPE_NON_PREEMPTIBLE
    back = pod_spec_of(config)
    # And what it says in the older form is the same again.
    assert to_task(back, "spec") == config
    for older in ("command", "container"):
        back.containers[0].ClearField(older)
    assert back == sent


def test_an_image_without_a_type_is_one_of_mesos() -> None:
    config = to_task(pod.PodSpec(containers=[{"image": "i"}]), "spec")
    assert config.container.type == mesos.ContainerInfo.MESOS
    assert config.container.mesos.image.docker.name == "i"
    assert not config.HasField("command")


@pytest.mark.parametrize(
    ("mesos_spec", "shell"), [({}, False), ({"shell": True}, True), (None, True)]
)
def test_a_shell_is_what_mesos_would_take(mesos_spec: dict[str, bool] | None, shell: bool) -> None:
    sent = pod.PodSpec(containers=[{"entrypoint": {"value": "x", "arguments": ["a"]}}])
    if mesos_spec is not None:
        sent.mesos_spec.SetInParent()
        sent.mesos_spec.shell = mesos_spec.get("shell", False)
    command = to_task(sent, "spec").command
    assert (command.value, [*command.arguments], command.shell) == ("x", ["a"], shell)


def test_a_pod_of_a_job_has_its_name() -> None:
    assert pod_spec_of(task.TaskConfig(), "job-1") == pod.PodSpec(pod_name={"value": "job-1"})


def test_slack_is_a_matter_of_the_whole_job() -> None:
    sent = service_spec("p", sla={"preemptible": True, "revocable": True}, instance_spec={0: {}})
    config = to_config_v0(sent)
    assert config.sla.revocable and config.defaultConfig.revocable
    assert config.instanceConfig[0].revocable


def test_a_job_without_an_sla_gets_none_back() -> None:
    assert not job_spec_of(to_config_v0(service_spec("p"))).HasField("sla")


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("config", "spec"),
        ("config.type", "spec"),
        ("config.respoolID", "spec.respool_id"),
        ("config.sla.maximumUnavailableInstances", "spec.sla.maximum_unavailable_instances"),
        ("config.labels[3]", "spec.labels[3]"),
        ("config.defaultConfig", "spec.default_spec"),
        ("config.defaultConfig.healthCheck", "spec.default_spec.containers[0].liveness_check"),
        ("config.defaultConfig.command", "spec.default_spec.containers[0].entrypoint"),
        ("config.defaultConfig.command.environment.variables[2].name",
         "spec.default_spec.containers[0].environment[2].name"),
        ("config.instanceConfig[4].container.docker.image",
         "spec.instance_spec[4].containers[0].container.docker.image"),
        ("config.instanceConfig[4].command.value",
         "spec.instance_spec[4].containers[0].command.value"),
        ("config.instanceConfig[5].killGracePeriodSeconds",
         "spec.instance_spec[5].kill_grace_period_seconds"),
        ("peloton-request-key", "peloton-request-key"),
    ],
)  # fmt: skip
def test_a_field_has_the_name_that_the_client_gave_it(path: str, named: str) -> None:
    older = {"container": {"type": 1}, "command": {"value": "x"}}
    sent = stateless.JobSpec(instance_spec={4: {"containers": [older]}})
    assert spec_path(path, sent) == named
    if path.startswith("config"):
        assert (
            spec_text(f"{path}: a config. Which: it is", sent) == f"{named}: a config. Which: it is"
        )
    assert set(sent.instance_spec) == {4}


def read_spec(*, kind: int = 1) -> stateless.JobSpec:
    """A spec as a client reads it: all in both forms, of one container and of several."""
    default = pod.PodSpec()
    default.CopyFrom(FULL)
    default.mesos_spec.type, default.mesos_spec.shell = kind, True
    if kind == 1:
        default.mesos_spec.docker_parameters.add(key="k", value="v")
    own = pod.PodSpec(init_containers=[{"name": "i", "entrypoint": {"value": "first"}}])
    own.containers.add(name="a", entrypoint={"value": "main", "arguments": ["x"]})
    own.containers.add(name="b", entrypoint={"value": "beside"})
    sent = service_spec("p", default_spec=default, instance_count=3)
    sent.instance_spec[1].CopyFrom(own)
    return job_spec_of(to_config_v0(sent))


ONE = "default_spec.containers[0]"
CHANGES = {
    "older command": (f"{ONE}.command.value", "new", "value", "new"),
    "newer command": (f"{ONE}.entrypoint.value", "new", "value", "new"),
    "older arguments": (f"{ONE}.command.arguments", ["new"], "arguments", ["new"]),
    "newer arguments": (f"{ONE}.entrypoint.arguments", ["new"], "arguments", ["new"]),
    "older shell": (f"{ONE}.command.shell", False, "shell", False),
}


def put(spec: stateless.JobSpec, path: str, value: object) -> None:
    """Set a field of a spec; one of a list by its number."""
    *way, last = path.replace("[", ".").replace("]", "").split(".")
    at: Any = spec
    for part in way:
        at = at[int(part)] if part.isdigit() else getattr(at, part)
    if isinstance(value, list):
        del getattr(at, last)[:]
        getattr(at, last).extend(value)
    else:
        setattr(at, last, value)


def replaced(sent: stateless.JobSpec, known: stateless.JobSpec) -> job.JobConfig:
    return without_contradiction(sent, known=lambda: known, build=to_config_v0)


def older_container(one: pod.PodSpec) -> None:
    container = one.containers[0].container
    container.type = mesos.ContainerInfo.DOCKER
    container.docker.image = "image:1"
    container.docker.parameters.add(key="env", value="A=1")
    container.volumes.add(container_path="/in", host_path="/out", mode=mesos.Volume.RO)


def older_command(one: pod.PodSpec) -> None:
    one.containers[0].command.value, one.containers[0].command.shell = "ls | wc", True
    one.mesos_spec.type = 1


def variables_beside_an_entrypoint(one: pod.PodSpec) -> None:
    command = one.containers[0].command
    command.value = one.containers[0].entrypoint.value = "ls"
    command.environment.variables.add(name="A", value="1")


@pytest.mark.parametrize("form", [older_container, older_command, variables_beside_an_entrypoint])
def test_a_file_that_did_not_change_changes_nothing(form: Callable[[pod.PodSpec], None]) -> None:
    """What it leaves out in the newer form has not changed, though all is stored in both."""
    sent = stateless.JobSpec(name="a", instance_count=1)
    sent.default_spec.containers.add()
    form(sent.default_spec)
    made = to_config_v0(sent)
    assert replaced(sent, job_spec_of(made)) == made


@pytest.mark.parametrize("beside", ["entrypoint", "image"])
def test_a_change_of_one_field_keeps_what_the_newer_form_leaves_out(beside: str) -> None:
    sent = stateless.JobSpec(name="a", instance_count=1)
    one = sent.default_spec.containers.add()
    older_container(sent.default_spec)
    variables_beside_an_entrypoint(sent.default_spec)
    expected = to_config_v0(sent)
    known = job_spec_of(expected)
    setting = expected.defaultConfig
    if beside == "entrypoint":
        one.entrypoint.value = setting.command.value = "new"
    else:
        one.image = setting.container.docker.image = "image:2"
    assert replaced(sent, known) == expected


@pytest.mark.parametrize("path, value, field, expected", CHANGES.values(), ids=CHANGES)
def test_of_a_spec_that_was_read_the_form_that_was_changed_counts(
    path: str, value: object, field: str, expected: object
) -> None:
    known, sent = read_spec(), read_spec()
    put(sent, path, value)
    config = replaced(sent, known)
    assert getattr(config.defaultConfig.command, field) == expected
    same = to_config_v0(known)
    setting = config.defaultConfig.command
    if isinstance(expected, list):
        del setting.arguments[:]
        setting.arguments.extend(same.defaultConfig.command.arguments)
    else:
        setattr(setting, field, getattr(same.defaultConfig.command, field))
    assert config == same, "nothing else has changed"


def test_the_command_may_change_in_one_form_and_the_variables_in_the_other() -> None:
    known, sent = read_spec(), read_spec()
    one = sent.default_spec.containers[0]
    one.command.value = "new"
    one.environment.add(name="ADDED", value="1")
    command = replaced(sent, known).defaultConfig.command
    assert command.value == "new" and command.environment.variables[-1].name == "ADDED"
    one.entrypoint.value = "another"
    with pytest.raises(BadField, match=r"^spec\.default_spec\.containers\[0\]\.entrypoint\.value"):
        replaced(sent, known)


@pytest.mark.parametrize("kind", [1, 2])
def test_an_image_that_was_changed_in_one_form_counts(kind: int) -> None:
    known, newer, older = read_spec(kind=kind), read_spec(kind=kind), read_spec(kind=kind)
    newer.default_spec.containers[0].image = "image:2"
    container = older.default_spec.containers[0].container
    form = container.docker if kind == 1 else container.mesos.image.docker
    name = "image" if kind == 1 else "name"
    setattr(form, name, "image:2")
    first, second = replaced(newer, known), replaced(older, known)
    assert first == second and image_of(first.defaultConfig.container) == "image:2"


def test_each_of_several_containers_is_settled_by_itself() -> None:
    known, sent = read_spec(), read_spec()
    own = sent.instance_spec[1]
    own.init_containers[0].command.value = "other first"
    own.containers[0].entrypoint.arguments.append("y")
    own.containers[1].command.value = "other beside"
    back = job_spec_of(replaced(sent, known)).instance_spec[1]
    told = [*back.init_containers, *back.containers]
    assert [one.entrypoint.value for one in told] == ["other first", "main", "other beside"]
    assert [*told[1].entrypoint.arguments] == ["x", "y"]
    assert replaced(known, known) == to_config_v0(known)
