"""The executor and the container of a v1alpha pod in terms of Mesos, in both of their forms.

The newer form becomes the older one, which is that of a task's config, and back. If a client gives
both they have to say the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from peloton.api.mesos.v1 import mesos_pb2 as mesos
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.api.v1alpha.pod.apachemesos import apachemesos_pb2 as apachemesos
from peloton.api.v1alpha.volume.volume_pb2 import VolumeSpec
from peloton.gateway.translate.bad_field import BadField
from peloton.gateway.translate.translate_task import LATER
from peloton.gateway.translate.uris import newer_uris

MesosPod = apachemesos.PodSpec


def agree(same: bool, field: str, *, of: str) -> None:
    """Raise BadField unless both forms say the same."""
    if not same:
        raise BadField(field, f"differs from {of}, the older form of it: give one of both")


def executor_in(
    sent: pod.PodSpec, container: pod.ContainerSpec, *, field: str
) -> mesos.ExecutorInfo | None:
    """Return the executor of a container, in the older form if it has that."""
    spec = sent.mesos_spec
    newer = spec.executor_spec if spec.HasField("executor_spec") else None
    if not container.HasField("executor"):
        return _older_executor(newer) if newer is not None else None
    older = container.executor
    where = f"{field.rpartition('.')[0]}.mesos_spec.executor_spec"
    agree(newer in (None, _newer_executor(older)), where, of="executor of the container")
    return older


def _older_executor(sent: Any) -> mesos.ExecutorInfo:
    """Return an executor in the older form.

    Its resources say nothing in either form. The types have the same numbers.
    """
    found = mesos.ExecutorInfo(executor_id={"value": sent.executor_id}, type=sent.type)
    if sent.data:
        found.data = sent.data
    return found


def _newer_executor(sent: Any) -> MesosPod.ExecutorSpec:
    return MesosPod.ExecutorSpec(type=sent.type, executor_id=sent.executor_id.value, data=sent.data)


def container_in(
    sent: pod.PodSpec, container: pod.ContainerSpec, *, field: str
) -> mesos.ContainerInfo | None:
    """Return the image and the volumes, in the older form if it has that."""
    spec = sent.mesos_spec
    volumes = _older_volumes(sent, container, field=field)
    if spec.docker_parameters and spec.type != MesosPod.CONTAINER_TYPE_DOCKER:
        where = field.rpartition(".")[0]
        raise BadField(f"{where}.mesos_spec.docker_parameters", "are of docker containers only")
    if container.HasField("container"):
        older = container.container
        same = not container.image or container.image == image_of(older)
        agree(same, f"{field}.image", of="container")
        same = not spec.docker_parameters or _parameters(older) == [*spec.docker_parameters]
        where = f"{field.rpartition('.')[0]}.mesos_spec.docker_parameters"
        agree(same, where, of="container.docker.parameters")
        same = not volumes or volumes == [*_of_hosts(older)]
        agree(same, f"{field}.volume_mounts", of="container.volumes")
        return older
    if not container.image and not volumes:
        return None
    found = _older_image(sent, container.image)
    found.volumes.extend(volumes)
    return found


def put_into_older(sent: pod.PodSpec, container: pod.ContainerSpec, *, field: str) -> None:
    """Write image, parameters and volumes of the newer form over the older form.

    The older form keeps what the newer one leaves out.
    """
    older = container.container
    if container.image and older.type == mesos.ContainerInfo.DOCKER:
        older.docker.image = container.image
    elif container.image:
        older.mesos.image.type = mesos.Image.DOCKER
        older.mesos.image.docker.name = container.image
    if sent.mesos_spec.docker_parameters and older.type == mesos.ContainerInfo.DOCKER:
        del older.docker.parameters[:]
        for one in sent.mesos_spec.docker_parameters:
            older.docker.parameters.add(key=one.key, value=one.value)
    if container.volume_mounts:
        others = [one for one in older.volumes if not one.HasField("host_path")]
        del older.volumes[:]
        older.volumes.extend((*others, *_older_volumes(sent, container, field=field)))


def _older_volumes(
    sent: pod.PodSpec, container: pod.ContainerSpec, *, field: str
) -> list[mesos.Volume]:
    """Return the volumes of a pod that a container mounts."""
    paths: dict[str, str] = {}
    for at, volume in enumerate(sent.volumes):
        where = f"{field.rpartition('.')[0]}.volumes[{at}]"
        if volume.type != volume.VOLUME_TYPE_HOST_PATH:
            raise BadField(f"{where}.type", f"a volume that is not a path of the host {LATER}")
        if not volume.name or volume.name in paths:
            raise BadField(f"{where}.name", "each volume needs one of its own")
        if not volume.host_path.path:
            raise BadField(f"{where}.host_path.path", "missing")
        paths[volume.name] = volume.host_path.path
    found = []
    for at, mount in enumerate(container.volume_mounts):
        if mount.name not in paths:
            text = f"the pod has no volume {mount.name[:100]!r}"
            raise BadField(f"{field}.volume_mounts[{at}].name", text)
        mode = mesos.Volume.RO if mount.read_only else mesos.Volume.RW
        path = paths[mount.name]
        found.append(mesos.Volume(container_path=mount.mount_path, host_path=path, mode=mode))
    return found


def _of_hosts(container: mesos.ContainerInfo) -> Iterator[mesos.Volume]:
    """Yield the volumes that the newer form can express."""
    for volume in container.volumes:
        if volume.HasField("host_path"):
            yield volume


def _older_image(sent: pod.PodSpec, image: str) -> mesos.ContainerInfo:
    if sent.mesos_spec.type == MesosPod.CONTAINER_TYPE_DOCKER:
        found = mesos.ContainerInfo(type=mesos.ContainerInfo.DOCKER)
        found.docker.image = image  # without one it is refused as any such container
        found.docker.network = mesos.ContainerInfo.DockerInfo.HOST
        for one in sent.mesos_spec.docker_parameters:
            found.docker.parameters.add(key=one.key, value=one.value)
        return found
    found = mesos.ContainerInfo(type=mesos.ContainerInfo.MESOS)
    if not image:
        return found
    found.mesos.image.type = mesos.Image.DOCKER
    found.mesos.image.docker.name = image
    found.mesos.image.cached = True
    return found


def put_newer(found: pod.PodSpec, config: task.TaskConfig) -> None:
    """Put the parts of the newer form that are outside of the container."""
    if config.HasField("executor"):
        found.mesos_spec.executor_spec.CopyFrom(_newer_executor(config.executor))
    if config.HasField("command"):
        found.mesos_spec.shell = config.command.shell
        found.mesos_spec.uris.extend(newer_uris(config.command.uris))
    _put_volumes(found, config.container)
    if image_of(config.container):
        docker = config.container.type == mesos.ContainerInfo.DOCKER
        spec = MesosPod
        found.mesos_spec.type = spec.CONTAINER_TYPE_DOCKER if docker else spec.CONTAINER_TYPE_MESOS
        if docker:
            found.mesos_spec.docker_parameters.extend(_parameters(config.container))


def _put_volumes(found: pod.PodSpec, container: mesos.ContainerInfo) -> None:
    """Put the volumes of a config's container; each has its path on the host as its name."""
    for volume in _of_hosts(container):
        path = volume.host_path
        if path not in {one.name for one in found.volumes}:
            kind = VolumeSpec.VOLUME_TYPE_HOST_PATH
            found.volumes.add(name=path, type=kind, host_path={"path": path})
        read_only = volume.mode == mesos.Volume.RO
        mounts = found.containers[0].volume_mounts
        mounts.add(name=path, read_only=read_only, mount_path=volume.container_path)


def _parameters(container: mesos.ContainerInfo) -> list[Any]:
    found = pod.PodSpec()
    for one in container.docker.parameters:
        found.mesos_spec.docker_parameters.add(key=one.key, value=one.value)
    return [*found.mesos_spec.docker_parameters]


def image_of(container: Any) -> str:
    """Return the name of the image of a container in the older form; "" without one."""
    return str(container.docker.image or container.mesos.image.docker.name)
