"""What a pod of v1alpha says in the words of Mesos: its executor and its container, in both forms.

Turns the newer form into the older one, which is that of a task's config, and back. Where a client
gives both they have to say the same. It must not check what the config's own rules check.
"""

from __future__ import annotations

from typing import Any

from peloton.api.mesos.v1 import mesos_pb2 as mesos
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.api.v1alpha.pod.apachemesos import apachemesos_pb2 as apachemesos
from peloton.gateway.translate_task import BadConfig
from peloton.gateway.uris import newer_uris

MesosPod = apachemesos.PodSpec


def agree(same: bool, field: str, *, of: str) -> None:
    """Raises BadConfig unless both forms say the same."""
    if not same:
        raise BadConfig(field, f"differs from {of}, the older form of it: give one of both")


def executor_in(
    sent: pod.PodSpec, container: pod.ContainerSpec, *, field: str
) -> mesos.ExecutorInfo | None:
    """The executor of a container, in the older form if it has that."""
    spec = sent.mesos_spec
    newer = spec.executor_spec if spec.HasField("executor_spec") else None
    if not container.HasField("executor"):
        return _older_executor(newer) if newer is not None else None
    older = container.executor
    where = f"{field.rpartition('.')[0]}.mesos_spec.executor_spec"
    agree(newer in (None, _newer_executor(older)), where, of="executor of the container")
    return older


def _older_executor(sent: Any) -> mesos.ExecutorInfo:
    """Its resources say nothing in either form. The types have the same numbers."""
    found = mesos.ExecutorInfo(executor_id={"value": sent.executor_id}, type=sent.type)
    if sent.data:
        found.data = sent.data
    return found


def _newer_executor(sent: Any) -> MesosPod.ExecutorSpec:
    return MesosPod.ExecutorSpec(type=sent.type, executor_id=sent.executor_id.value, data=sent.data)


def container_in(
    sent: pod.PodSpec, container: pod.ContainerSpec, *, field: str
) -> mesos.ContainerInfo | None:
    """The image, in the older form if it has that."""
    spec = sent.mesos_spec
    if spec.docker_parameters and spec.type != MesosPod.CONTAINER_TYPE_DOCKER:
        where = field.rpartition(".")[0]
        raise BadConfig(f"{where}.mesos_spec.docker_parameters", "are of docker containers only")
    if container.HasField("container"):
        older = container.container
        same = not container.image or container.image == image_of(older)
        agree(same, f"{field}.image", of="container")
        same = not spec.docker_parameters or _parameters(older) == [*spec.docker_parameters]
        where = f"{field.rpartition('.')[0]}.mesos_spec.docker_parameters"
        agree(same, where, of="container.docker.parameters")
        return older
    return _older_image(sent, container.image) if container.image else None


def _older_image(sent: pod.PodSpec, image: str) -> mesos.ContainerInfo:
    if sent.mesos_spec.type == MesosPod.CONTAINER_TYPE_DOCKER:
        found = mesos.ContainerInfo(type=mesos.ContainerInfo.DOCKER)
        found.docker.image = image
        found.docker.network = mesos.ContainerInfo.DockerInfo.HOST
        for one in sent.mesos_spec.docker_parameters:
            found.docker.parameters.add(key=one.key, value=one.value)
        return found
    found = mesos.ContainerInfo(type=mesos.ContainerInfo.MESOS)
    found.mesos.image.type = mesos.Image.DOCKER
    found.mesos.image.docker.name = image
    found.mesos.image.cached = True
    return found


def put_newer(found: pod.PodSpec, config: task.TaskConfig) -> None:
    """What of the newer form is said beside the container."""
    if config.HasField("executor"):
        found.mesos_spec.executor_spec.CopyFrom(_newer_executor(config.executor))
    if config.HasField("command"):
        found.mesos_spec.shell = config.command.shell
        found.mesos_spec.uris.extend(newer_uris(config.command.uris))
    if image_of(config.container):
        docker = config.container.type == mesos.ContainerInfo.DOCKER
        spec = MesosPod
        found.mesos_spec.type = spec.CONTAINER_TYPE_DOCKER if docker else spec.CONTAINER_TYPE_MESOS
        if docker:
            found.mesos_spec.docker_parameters.extend(_parameters(config.container))


def _parameters(container: mesos.ContainerInfo) -> list[Any]:
    found = pod.PodSpec()
    for one in container.docker.parameters:
        found.mesos_spec.docker_parameters.add(key=one.key, value=one.value)
    return [*found.mesos_spec.docker_parameters]


def image_of(container: Any) -> str:
    """The name of the image of a container in the older form; "" without one."""
    return str(container.docker.image or container.mesos.image.docker.name)
