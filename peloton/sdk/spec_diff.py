"""What a spec would change of a service: which instances, and which fields of its spec.

The spec that a job has is compared with another one. What the server fills in is not guessed:
fields that only one of two forms has are compared in the form that both have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from google.protobuf import json_format
from google.protobuf.message import Message

from peloton.api.mesos.v1 import mesos_pb2 as mesos
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.sdk import specs

ABSENT = ""
"""The text of a field that is not given."""
_OF_PODS = ("defaultspec", "instancespec")
"""Keys, as `specs.plain` has them, that only specs of v1alpha have."""
_NOT_COMPARED = ("changeLog", "respoolID", "revision", "respool_id")
"""What the server writes, and the pool, which is no part of a file."""
_BY_NAME = {"labels": "key", "ports": "name", "variables": "name", "environment": "name"}
"""Lists whose order says nothing, and what tells their items apart."""
Span = tuple[int, int]


class FieldChange(NamedTuple):
    """A field whose value differs; a text is empty if the field is not given."""

    field: str
    old: str
    new: str


class InstanceChanges(NamedTuple):
    """Instances by what becomes of them, as ranges that include their last instance."""

    updated: tuple[Span, ...] = ()
    added: tuple[Span, ...] = ()
    removed: tuple[Span, ...] = ()
    unchanged: tuple[Span, ...] = ()

    @property
    def is_none(self) -> bool:
        """Return whether all instances stay as they are."""
        return not (self.updated or self.added or self.removed)


def is_of_v1alpha(spec: Mapping[str, Any]) -> bool:
    """Return whether a file has a spec of v1alpha, and not a config of v0."""
    return any(specs.plain(str(key)) in _OF_PODS for key in spec)


# ---- fields ----


def field_changes(old: Message, new: Message) -> list[FieldChange]:
    """Return the fields that differ between two specs, in the order of their names."""
    before, after = dict(_fields(_plain(old))), dict(_fields(_plain(new)))
    names = sorted({*before, *after})
    changes = (FieldChange(one, before.get(one, ABSENT), after.get(one, ABSENT)) for one in names)
    return [change for change in changes if change.old != change.new]


def _plain(spec: Message) -> dict[str, Any]:
    if isinstance(spec, stateless.JobSpec):
        spec = newer_form(spec)
    found = json_format.MessageToDict(spec, preserving_proto_field_name=True)
    for name in _NOT_COMPARED:
        found.pop(name, None)
    return found


def _fields(data: Any, path: str = "", *, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(data, dict):
        for key, value in data.items():
            yield from _fields(value, specs.below(path, key), name=str(key))
    elif isinstance(data, list):
        told = _BY_NAME.get(name)
        for at, item in enumerate(data):
            which = item.get(told, at) if told and isinstance(item, dict) else at
            yield from _fields(item, f"{path}[{which}]")
    else:
        yield path, str(data)


def newer_form(spec: stateless.JobSpec) -> stateless.JobSpec:
    """Return the spec without the older forms of commands and images, which the newer ones
    repeat."""
    found = stateless.JobSpec()
    found.CopyFrom(spec)
    for one in (found.default_spec, *found.instance_spec.values()):
        for container in one.containers:
            _renew(one, container)
    if not found.default_spec.ByteSize():
        found.ClearField("default_spec")
    return found


def _renew(one: pod.PodSpec, container: pod.ContainerSpec) -> None:
    spec = one.mesos_spec
    shell = spec.shell if one.HasField("mesos_spec") else True
    if container.HasField("command"):
        command = container.command
        shell = command.shell
        container.entrypoint.value = command.value
        del container.entrypoint.arguments[:]
        container.entrypoint.arguments.extend(command.arguments)
        container.ClearField("environment")
        for variable in command.environment.variables:
            container.environment.add(name=variable.name, value=variable.value)
    if container.HasField("container"):
        older = container.container
        is_docker = older.type == mesos.ContainerInfo.DOCKER
        spec.type = spec.CONTAINER_TYPE_DOCKER if is_docker else spec.CONTAINER_TYPE_MESOS
        container.image = older.docker.image or older.mesos.image.docker.name
    for older_form in ("command", "container"):
        container.ClearField(older_form)
    for port in container.ports:
        port.ClearField("type")  # the number says it
    # The server fills these in: mesos runs an image without a type, and the job decides for all
    # pods whether they run on slack.
    spec.shell = shell
    if not container.image:
        spec.ClearField("type")
    elif not spec.type:
        spec.type = spec.CONTAINER_TYPE_MESOS
    one.ClearField("revocable")


# ---- instances ----


def instance_changes(old: job.JobConfig, new: job.JobConfig) -> InstanceChanges:
    """Return which instances another config of v0 would change, by the newest config of the job."""
    now, then = old.instanceCount, new.instanceCount
    own = {*old.instanceConfig, *new.instanceConfig}
    usual = _effective(old.defaultConfig) == _effective(new.defaultConfig)

    def stays(instance: int) -> bool:
        if instance not in own:
            return usual
        return _of_instance(old, instance) == _of_instance(new, instance)

    both = range(min(now, then))
    same = [stays(instance) for instance in both]
    return InstanceChanges(
        updated=spans(one for one in both if not same[one]),
        added=spans(range(now, then)),
        removed=spans(range(then, now)),
        unchanged=spans(one for one in both if same[one]),
    )


def _of_instance(config: job.JobConfig, instance: int) -> dict[str, Any]:
    """Return the config of an instance: each field is its own if it has that, else the
    default's."""
    merged = task.TaskConfig()
    merged.CopyFrom(config.defaultConfig)
    if instance in config.instanceConfig:
        own = config.instanceConfig[instance]
        for field, _ in own.ListFields():
            merged.ClearField(field.name)
        merged.controller, merged.revocable = own.controller, own.revocable
        merged.MergeFrom(own)
    return _effective(merged)


def _effective(config: task.TaskConfig) -> dict[str, Any]:
    """Return what counts of a config: neither its name nor the order of labels and ports."""
    found = dict(_fields(json_format.MessageToDict(config, preserving_proto_field_name=True)))
    found.pop("name", None)
    return found


def spans(numbers: Iterable[int]) -> tuple[Span, ...]:
    """Return ascending numbers as ranges that include their ends."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return tuple((first, last) for first, last in found)
