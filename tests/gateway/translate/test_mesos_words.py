"""Parts of a spec that only hosts of Mesos understand: in both forms, and if a cluster has none."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

from peloton.actors.host.run_spec import MesosWords
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.gateway.grpc_server import STANDARD_OPTIONS
from peloton.gateway.translate.bad_field import BadField
from peloton.gateway.translate.mesos_words import mesos_words
from peloton.gateway.translate.pod_specs import pod_spec_of, to_task
from peloton.gateway.translate.stateless_specs import spec_path
from peloton.gateway.translate.translate_task import merged, to_config
from tests.gateway.fleet_fixture import Deployment, default_config, running
from tests.gateway.service_specs import service_spec

DATA = b"\x00\xffas is"
CUSTOM = {"type": "CUSTOM", "executor_id": {"value": "any"}, "data": DATA}
NEWER = {"type": "EXECUTOR_TYPE_CUSTOM", "executor_id": "any", "data": DATA}
RUNS = {"name": "a", "entrypoint": {"value": "/bin/own"}}


def words(**config: Any) -> dict[str, Any]:
    found = mesos_words(task.TaskConfig(**config))
    assert isinstance(found, MesosWords)
    return dict(json.loads(found.executor))


def test_an_executor_is_told_with_its_data_as_they_are() -> None:
    data = base64.b64encode(DATA).decode()
    assert words(executor=CUSTOM) == {"data": data}
    more = {
        "name": "Own", "source": "here", "shutdown_grace_period": {"nanoseconds": 2**40},
        "labels": {"labels": [{"key": "k", "value": "v"}]},
    }  # fmt: skip
    assert words(executor=CUSTOM | more) == {"data": data, **more}
    assert mesos_words(task.TaskConfig(command={"value": "true"})) is False


def test_what_follows_from_the_run_says_nothing() -> None:
    one = {"name": "cpus", "type": "SCALAR", "scalar": {"value": 1}}
    follows = {"resources": [one], "framework_id": {"value": "f"}}
    assert words(executor=CUSTOM | follows) == words(executor=CUSTOM)


@pytest.mark.parametrize(
    ("given", "field", "text"),
    [
        ({"type": "DEFAULT"}, "executor.type", "Unsupported type in executor config"),
        ({"data": b""}, "executor.data", "Data field not set in executor config"),
        ({"command": {"value": "x"}}, "executor.command", "say it in command of the task"),
        ({"container": {"type": "MESOS"}}, "executor.container", "in container of the task"),
        ({"discovery": {"visibility": "CLUSTER"}}, "executor.discovery", "in ports of the task"),
    ],
)  # fmt: skip
def test_what_is_no_executor(given: dict[str, Any], field: str, text: str) -> None:
    config = task.TaskConfig(executor=CUSTOM | given)
    with pytest.raises(BadField, match=text) as why:
        mesos_words(config)
    assert why.value.field == field
    with pytest.raises(BadField, match=rf"^config\.{field}: "):
        to_config(config, "config", on_mesos=True)


DOCKER = {
    "type": "DOCKER", "hostname": "h",
    "docker": {
        "image": "debian:12", "network": "BRIDGE", "privileged": True, "force_pull_image": True,
        "parameters": [{"key": "cap-add", "value": "NET_ADMIN"}], "volume_driver": "v",
        "port_mappings": [{"host_port": 31000, "container_port": 80, "protocol": "tcp"}],
    },
}  # fmt: skip
IMAGE = {"type": "DOCKER", "docker": {"name": "debian:12"}}
OWN_KIND = {"type": "MESOS", "mesos": {"image": IMAGE}}


def container(**sent: Any) -> Any:
    """What is said of a container; "" where its image says all."""
    found = mesos_words(task.TaskConfig(container=sent))
    return json.loads(found.container) if isinstance(found, MesosWords) else ""


def test_a_container_of_docker_is_told_as_it_is() -> None:
    assert container(**DOCKER) == DOCKER
    config = to_config(task.TaskConfig(container=DOCKER), "config", on_mesos=True)
    assert config.image == "debian:12" and isinstance(config.executor, MesosWords)
    assert to_config(task.TaskConfig(container=DOCKER), "config").executor is False


def test_an_image_in_a_container_of_mesos_is_told_by_its_name_unless_there_is_more() -> None:
    assert container(**OWN_KIND) == container(type="MESOS") == ""
    assert container(type="MESOS", mesos={"image": IMAGE | {"cached": True}}) == ""
    assert container(type="MESOS", docker={"image": "debian:12", "network": "HOST"}) == ""
    more = {"rlimit_info": {"rlimits": [{"type": "RLMT_NOFILE", "hard": 2**40, "soft": 9}]}}
    assert container(**OWN_KIND, **more) == OWN_KIND | more
    assert container(type="MESOS", docker={"image": "debian:12"}, **more) == OWN_KIND | more
    assert container(type="MESOS", **more) == {"type": "MESOS"} | more
    fresh = {"type": "MESOS", "mesos": {"image": IMAGE | {"cached": False}}}
    assert container(**fresh) == fresh


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"type": "DOCKER"}, "container.docker.image"),
        ({"type": "DOCKER", "docker": {"image": ""}}, "container.docker.image"),
        (DOCKER | {"mesos": {}}, "container.mesos"),
        ({"type": "MESOS", "docker": {"image": "a", "privileged": True}},
         "container.docker.privileged"),
        ({"type": "MESOS", "docker": {"image": "a", "network": "NONE"}},
         "container.docker.network"),
        (OWN_KIND | {"docker": {"image": "a"}}, "container.docker.image"),
        (OWN_KIND | {"tty_info": {}}, "container.tty_info"),
    ],
)  # fmt: skip
def test_what_is_no_container(given: dict[str, Any], field: str) -> None:
    with pytest.raises(BadField, match=rf"^config\.{re.escape(field)}: "):
        to_config(task.TaskConfig(container=given), "config", on_mesos=True)


HOSTS = {"container_path": "/in", "host_path": "/on/host", "mode": "RO"}
OTHER = {"container_path": "in", "host_path": "/other", "mode": "RW"}


def test_volumes_are_told_in_containers_of_either_kind() -> None:
    assert container(type="MESOS", volumes=[HOSTS]) == {"type": "MESOS", "volumes": [HOSTS]}
    sandbox = {"type": "SANDBOX_PATH", "sandbox_path": {"type": "PARENT", "path": "x"}}
    more = [HOSTS, {"container_path": "/x", "mode": "RW", "source": sandbox}]
    assert container(**DOCKER, volumes=more) == DOCKER | {"volumes": more}
    assert container(**OWN_KIND, volumes=[HOSTS]) == OWN_KIND | {"volumes": [HOSTS]}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"container_path": ""}, "[0].container_path: must have 1 to 4096 printable"),
        ({"container_path": "a\nb"}, "[0].container_path: must have 1 to 4096 printable"),
        ({"host_path": ""}, "[0].host_path: must have 1 to 4096 printable"),
        ({"host_path": None}, "[0]: needs one of host_path, image and source"),
        ({"source": {"type": "HOST_PATH"}}, "[0]: needs one of host_path, image and source"),
        ({"host_path": None, "source": {}}, "[0].source.type: is missing"),
        ({"mode": None}, "[0].mode: required field is missing"),
        ({"host_path": None, "source": {"type": "SECRET"}}, "[0]: a secret is given beside"),
    ],
)
def test_what_is_no_volume(given: dict[str, Any], field: str) -> None:
    volume = {name: one for name, one in (HOSTS | given).items() if one is not None}
    config = task.TaskConfig(container={"type": "MESOS", "volumes": [volume]})
    with pytest.raises(BadField, match=rf"^config\.container\.volumes{re.escape(field)}"):
        to_config(config, "config", on_mesos=True)


def test_volumes_are_for_hosts_of_mesos_and_a_single_container() -> None:
    config = task.TaskConfig(container={"type": "MESOS", "volumes": [HOSTS]})
    with pytest.raises(BadField, match=r"^config\.container\.volumes: a volume is not supported"):
        to_config(config, "config")
    second = {"name": "b", "entrypoint": {"value": "true"}, "container": config.container}
    sent = to_task(pod.PodSpec(containers=[RUNS, second]), "spec", on_mesos=True)
    for on_mesos in (False, True):
        text = r"^config\.executor\.containers\[1\]\.container\.volumes: a volume is not supported"
        with pytest.raises(BadField, match=text):
            to_config(sent, "config", on_mesos=on_mesos)


NAMED = [
    {"name": "a", "type": "VOLUME_TYPE_HOST_PATH", "host_path": {"path": "/on/host"}},
    {"name": "b", "type": "VOLUME_TYPE_HOST_PATH", "host_path": {"path": "/other"}},
]
MOUNTS = [{"name": "a", "mount_path": "/in", "read_only": True}, {"name": "b", "mount_path": "in"}]


def mounting(*, volumes: Any = NAMED, mounts: Any = MOUNTS, **more: Any) -> pod.PodSpec:
    return pod.PodSpec(containers=[RUNS | {"volume_mounts": mounts} | more], volumes=volumes)


def test_a_pod_mounts_volumes_in_either_form_and_reads_back_both() -> None:
    config = to_task(mounting(), "spec", on_mesos=True)
    expected = task.TaskConfig(container={"type": "MESOS", "volumes": [HOSTS, OTHER]})
    assert config.container == expected.container
    back = pod_spec_of(config)
    assert [one.name for one in back.volumes] == ["/on/host", "/other"]
    assert back.containers[0].container == expected.container
    assert to_task(back, "spec", on_mesos=True) == config
    back.containers[0].ClearField("container")
    assert to_task(back, "spec", on_mesos=True) == config
    with_image = to_task(mounting(image="debian:12"), "spec", on_mesos=True).container
    assert len(with_image.volumes) == 2 and with_image.mesos.image.docker.name == "debian:12"
    twice = to_task(
        mounting(mounts=[MOUNTS[0], MOUNTS[0] | {"mount_path": "/2"}]), "s", on_mesos=True
    )
    assert len(pod_spec_of(twice).volumes) == 1 and len(twice.container.volumes) == 2
    other = mounting(container={"type": "MESOS", "volumes": [HOSTS]})
    text = r"^spec\.containers\[0\]\.volume_mounts: differs from container\.volumes"
    with pytest.raises(BadField, match=text):
        to_task(other, "spec", on_mesos=True)


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (mounting(mounts=[{"name": "c", "mount_path": "/x"}]),
         "containers[0].volume_mounts[0].name: the pod has no volume 'c'"),
        (mounting(volumes=[NAMED[0], NAMED[0]]), "volumes[1].name: each volume needs"),
        (mounting(volumes=[NAMED[0] | {"name": ""}]), "volumes[0].name: each volume needs"),
        (mounting(volumes=[NAMED[0] | {"host_path": {}}]), "volumes[0].host_path.path: missing"),
        (mounting(volumes=[{"name": "a", "type": "VOLUME_TYPE_EMPTY_DIR"}]),
         "volumes[0].type: a volume that is not a path of the host is not supported yet"),
        (mounting(volumes=[{"name": "a", "host_path": {"path": "/x"}}]), "volumes[0].type: "),
    ],
)  # fmt: skip
def test_what_a_pod_cannot_mount(sent: pod.PodSpec, text: str) -> None:
    with pytest.raises(BadField, match=rf"^spec\.{re.escape(text)}"):
        to_task(sent, "spec", on_mesos=True)


def test_a_bad_path_is_named_where_the_client_wrote_it() -> None:
    newer = service_spec("p", default_spec=mounting())
    path = "config.defaultConfig.container.volumes[1].container_path"
    where = "spec.default_spec.containers[0].volume_mounts[1]"
    assert spec_path(path, newer) == where
    assert spec_path("config.defaultConfig.container.docker.image", newer).endswith("].image")


def test_a_pod_has_a_container_of_docker_in_either_form() -> None:
    parameters = [{"key": "cap-add", "value": "NET_ADMIN"}]
    kind = {"type": "CONTAINER_TYPE_DOCKER", "docker_parameters": parameters}
    newer = pod.PodSpec(containers=[RUNS | {"image": "debian:12"}], mesos_spec=kind)
    config = to_task(newer, "spec", on_mesos=True)
    docker = {"image": "debian:12", "network": "HOST", "parameters": parameters}
    told = mesos_words(config)
    assert isinstance(told, MesosWords)
    assert json.loads(told.container) == {"type": "DOCKER", "docker": docker}
    assert to_task(pod_spec_of(config), "spec", on_mesos=True) == config
    older = pod.PodSpec(containers=[RUNS | {"container": DOCKER}])
    assert (
        to_task(older, "spec", on_mesos=True).container
        == task.TaskConfig(container=DOCKER).container
    )
    both = pod_spec_of(config)
    both.mesos_spec.docker_parameters[0].value = "other"
    text = r"^spec\.mesos_spec\.docker_parameters: differs from container\.docker\.parameters"
    with pytest.raises(BadField, match=text):
        to_task(both, "spec", on_mesos=True)


def test_a_pod_says_it_in_either_form_and_reads_back_both() -> None:
    newer = pod.PodSpec(containers=[RUNS], mesos_spec={"executor_spec": NEWER})
    older = pod.PodSpec(containers=[RUNS | {"executor": CUSTOM}])
    for sent in (newer, older):
        config = to_task(sent, "spec", on_mesos=True)
        assert config.executor == task.TaskConfig(executor=CUSTOM).executor
        back = pod_spec_of(config)
        assert back.mesos_spec.executor_spec == newer.mesos_spec.executor_spec
        assert back.containers[0].executor == older.containers[0].executor
        assert to_task(back, "spec", on_mesos=True) == config
    both = pod.PodSpec(
        containers=[RUNS | {"executor": CUSTOM}],
        mesos_spec={"executor_spec": NEWER | {"data": b"x"}},
    )
    with pytest.raises(BadField, match=r"^spec\.mesos_spec\.executor_spec: differs from executor"):
        to_task(both, "spec", on_mesos=True)


def test_errors_name_the_form_that_was_written() -> None:
    path = "config.defaultConfig.executor.data"
    newer = service_spec("p", default_spec=pod.PodSpec(containers=[RUNS]))
    older = service_spec("p", default_spec=pod.PodSpec(containers=[RUNS | {"executor": CUSTOM}]))
    assert spec_path(path, newer) == "spec.default_spec.mesos_spec.executor_spec.data"
    assert spec_path(path, older) == "spec.default_spec.containers[0].executor.data"


def test_an_instance_has_the_executor_of_the_default_or_its_own() -> None:
    default = task.TaskConfig(command={"value": "a"}, executor=CUSTOM)
    command = task.TaskConfig(command={"value": "b"})
    other = task.TaskConfig(executor=CUSTOM | {"data": b"other"})

    def shown(own: task.TaskConfig) -> task.TaskConfig:
        return merged(default.SerializeToString(), own.SerializeToString())

    assert shown(command).command.value == "b" and shown(command).executor.data == DATA
    assert shown(other).command.value == "a" and shown(other).executor.data == b"other"


def service(deployment: Deployment, **more: Any) -> task.TaskConfig:
    """The default config of a service of this deployment that was made with more."""
    config = default_config(600.0)
    config.MergeFrom(task.TaskConfig(**more))
    request = deployment.request(1, defaultConfig=config)
    request.config.type = job.SERVICE
    made = deployment.create(request)
    return deployment.task(made).result.config


def test_a_cluster_of_mesos_takes_an_executor_and_another_refuses_it(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with running(tmp_path, options=STANDARD_OPTIONS._replace(outside=True)) as deployment:
        assert service(deployment, executor=CUSTOM).executor.data == DATA
    refused = pytest.raises(AssertionError, match="an executor is not supported: a task")
    with running(tmp_path_factory.mktemp("other")) as deployment, refused:
        service(deployment, executor=CUSTOM)
