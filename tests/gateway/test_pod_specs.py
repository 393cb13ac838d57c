"""Specs of v1alpha to configs of v0 and back, and the names of their fields."""

from __future__ import annotations

import pytest

from peloton.api.mesos.v1 import mesos_pb2 as mesos
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.gateway.pod_specs import pod_spec_of, to_task
from peloton.gateway.stateless_specs import job_spec_of, spec_path, spec_text, to_config_v0
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
