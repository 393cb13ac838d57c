"""Parts of a config that only hosts of Mesos understand: a task's own executor, and containers.

These fields become the JSON that such a host is told, or a refusal that names the field: a field
that would have an effect is never ignored.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from peloton.actors.host.run_spec import MesosWords
from peloton.api.mesos.v1 import mesos_pb2 as mesos
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.translate.bad_field import BadField

_OF_EXECUTOR = ("type", "executor_id", "data", "name", "source", "labels", "shutdown_grace_period")
_FOLLOWS = ("type", "executor_id", "resources", "framework_id")
"""Of an executor: there is one kind, its id is made of the run's, it uses what its task has been
given, and whose it is is known. So these say nothing, whatever a client sends."""
_TASKS = {"command": "command", "container": "container", "discovery": "ports"}
"""What an executor has of its task, and where that is said."""


_OF_CONTAINER = (
    "type", "docker", "mesos", "volumes", "hostname", "network_infos", "linux_info", "rlimit_info"
)  # fmt: skip
_HOST = mesos.ContainerInfo.DockerInfo.HOST
PATH_CHARS_MAX = 4096
LATER = "is not supported yet"


def mesos_words(sent: task.TaskConfig) -> MesosWords | bool:
    """Return the record of these parts, or False; raises BadField."""
    executor = _executor(sent.executor) if sent.HasField("executor") else ""
    container = _container(sent.container) if sent.HasField("container") else ""
    return MesosWords(executor, container) if executor or container else False


def _executor(sent: mesos.ExecutorInfo) -> str:
    if sent.type != mesos.ExecutorInfo.CUSTOM:
        raise BadField("executor.type", "Unsupported type in executor config")
    if not sent.data:
        raise BadField("executor.data", "Data field not set in executor config")
    for field, _ in sent.ListFields():
        if field.name in _TASKS:
            text = f"an executor has its task's: say it in {_TASKS[field.name]} of the task"
            raise BadField(f"executor.{field.name}", text)
        if field.name not in (*_OF_EXECUTOR, *_FOLLOWS):
            raise BadField(f"executor.{field.name}", LATER)
    return _text({name: one for name, one in as_words(sent).items() if name not in _FOLLOWS})


def _container(sent: mesos.ContainerInfo) -> str:
    """Return the container; empty if it is only an image in Mesos' own container type."""
    for field, _ in sent.ListFields():
        if field.name not in _OF_CONTAINER:
            raise BadField(f"container.{field.name}", LATER)
    for at, volume in enumerate(sent.volumes):
        _check_volume(volume, f"container.volumes[{at}]")
    if sent.type == mesos.ContainerInfo.DOCKER:
        if not sent.docker.image:
            raise BadField("container.docker.image", "a container of type DOCKER needs one")
        if sent.HasField("mesos"):
            raise BadField("container.mesos", "is of containers of type MESOS only")
        return _text(as_words(sent))
    words = as_words(sent)
    image = _image_of_mesos(sent)
    plain = {"type": "DOCKER", "docker": {"name": image.get("docker", {}).get("name", "")}}
    if not {*words} - {"type", "docker", "mesos"} and image in ({}, plain):
        return ""
    words.pop("docker", None)
    return _text({**words, "mesos": {"image": image}} if image else words)


def _check_volume(sent: mesos.Volume, field: str) -> None:
    """Check a volume of a container; the data of a service, which outlive a run, are no such
    volume."""
    for name in ("container_path", "host_path"):
        path = getattr(sent, name)
        given = name == "container_path" or sent.HasField("host_path")
        if given and (not path or len(path) > PATH_CHARS_MAX or not path.isprintable()):
            text = f"must have 1 to {PATH_CHARS_MAX} printable characters, got {path[:100]!r}"
            raise BadField(f"{field}.{name}", text)
    if sum(map(sent.HasField, ("host_path", "image", "source"))) != 1:
        raise BadField(field, "needs one of host_path, image and source")
    if sent.HasField("source") and sent.source.type == mesos.Volume.Source.UNKNOWN:
        raise BadField(f"{field}.source.type", "is missing")


def _image_of_mesos(sent: mesos.ContainerInfo) -> dict[str, Any]:
    """Return the image, which may stand in the field of the other type if that has nothing else."""
    if not sent.HasField("docker"):
        image = as_words(sent.mesos.image)
        if image.get("cached"):  # which is so where nothing is said
            del image["cached"]
        return image
    for field, value in sent.docker.ListFields():
        if field.name != "image" and not (field.name == "network" and value == _HOST):
            text = "is of containers of type DOCKER only"
            raise BadField(f"container.docker.{field.name}", text)
    if sent.mesos.HasField("image"):
        raise BadField("container.docker.image", "there is another in mesos")
    return {"type": "DOCKER", "docker": {"name": sent.docker.image}} if sent.docker.image else {}


def as_words(sent: Any) -> dict[str, Any]:
    """Return a message of Mesos as Mesos reads it in JSON: what is set, by name."""
    found: dict[str, Any] = {}
    for field, value in sent.ListFields():
        if field.is_repeated:
            found[field.name] = [_word(field, one) for one in value]
        else:
            found[field.name] = _word(field, value)
    return found


def _word(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return as_words(value)
    if field.enum_type is not None:
        return field.enum_type.values_by_number[value].name
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _text(words: dict[str, Any]) -> str:
    return json.dumps(words, sort_keys=True, separators=(",", ":"))
