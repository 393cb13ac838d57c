"""Translates a task's config between the wire and the actors.

A proto becomes the record that actors decide by, with the proto's bytes kept for reading back.
Default and own bytes are merged by the same rule as `actors.job.spec.effective`. Invalid values and
fields that are not supported yet are refused: nothing is ignored silently.
"""

from __future__ import annotations

import functools
import re

from peloton.actors.host.machine_messages import VolumeConfig
from peloton.actors.host.run_spec import Container, MesosWords, Port
from peloton.actors.job.slice.task_config import Command, TaskConfig
from peloton.actors.resources import UNIT, BadAmount, Resources, millionths
from peloton.actors.task.run_messages import HealthCheck, RetryRules
from peloton.api.mesos.v1 import mesos_pb2 as mesos
from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.translate.bad_field import BadField, in_field
from peloton.gateway.translate.health_checks import to_check
from peloton.gateway.translate.mesos_faults import missing_fields
from peloton.gateway.translate.mesos_words import mesos_words
from peloton.gateway.translate.retry_rules import to_rules
from peloton.gateway.translate.run_as import UNKNOWN, RunAs
from peloton.gateway.translate.several_containers import (
    CONTAINERS_MAX,
    NAME,
    checked_container,
    containers_in,
    has_several,
    is_several,
    readiness_in,
)
from peloton.gateway.translate.uris import uris_of
from peloton.placement.conditions import leaves
from peloton.placement.messages import Constraint, Label

PORT_MAX = 65_535
RAW_BYTES_MAX = 192 * 1024
"""Largest config of one instance, and the largest default: every host keeps one for each run that
it is about to start. Larger texts travel as files of the job."""
ARGUMENT_BYTES_MAX = 128 * 1024 - 1
"""Of one argument or variable of a program: the kernel starts none with a longer one."""
CONDITIONS_MAX = 100
"""Conditions of one constraint: a host evaluates them for each instance that it is to run."""
MAX_RUNNING_LABEL = "peloton.task.max_running_time_s"
"""The label of a task by which it limits the time of each of its runs."""
SECONDS_MAX = 2.0**32
_SECONDS = re.compile(r"[0-9]{1,10}(\.[0-9]{1,6})?")
PATH_MAX = 1024
_NO_FOLDERS = (".", "..", "stdout", "stderr")
_PATH = re.compile(r"/?[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*/?")
_IMAGE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,511}")
LATER = "is not supported yet"


class SecretVolume(BadField):
    """The config has a secret as a volume of its own."""


def to_config(
    sent: task.TaskConfig, field: str, *, by: RunAs = UNKNOWN, on_mesos: bool = False
) -> TaskConfig:
    """Return the record of a config, for a caller.

    Raises BadField, BadAmount or NotPermitted, naming the field. `on_mesos`: the hosts are those of
    Mesos, which can do more.
    """
    for missing in missing_fields(sent):
        raise BadField(f"{field}.{missing}", "required field is missing")
    _refuse_volumes(sent, field, on_mesos=on_mesos and not has_several(sent))
    check = _checks(sent, field)
    raw = sent.SerializeToString(deterministic=True)
    if len(raw) > RAW_BYTES_MAX:
        raise BadField(field, f"{len(raw)} bytes, the limit is {RAW_BYTES_MAX}")
    resources = resources_of(sent.resource, f"{field}.resource")
    policy, kinds = sent.preemptionPolicy.type, task.PreemptionPolicy
    preemptible = policy == kinds.TYPE_PREEMPTIBLE if policy != kinds.TYPE_INVALID else None
    containers = _containers(sent, field, by=by)
    if containers and sent.environment.variables:
        raise BadField(f"{field}.environment", f"variables of several containers {LATER}")
    return TaskConfig(
        name=sent.name,
        resources=resources if sent.HasField("resource") else None,
        command=_command(sent.command, field, by=by) if sent.HasField("command") else None,
        ports=_ports(sent, f"{field}.ports"),
        labels=tuple((label.key, label.value) for label in sent.labels),
        constraint=_constraint_of(sent, field),
        max_failures=sent.restartPolicy.maxFailures if sent.HasField("restartPolicy") else None,
        kill_grace_s=float(sent.killGracePeriodSeconds) or None,
        image=_image_of_all(sent, field, among=containers),
        controller=sent.controller,
        revocable=sent.revocable,
        health_check=sent.HasField("healthCheck") or check is not None,
        executor=_mesos(sent, field, on_mesos=on_mesos),
        preemptible=preemptible,
        raw=raw,
        max_running_s=_max_running_s(sent, field),
        kill_on_preempt=sent.preemptionPolicy.killOnPreempt or None,
        containers=containers,
        check=check,
        volume=_volume(sent.volume, f"{field}.volume") if sent.HasField("volume") else None,
        environment=_variables(sent.environment, f"{field}.environment"),
        retry=_retry(sent.retry, f"{field}.retry") if sent.HasField("retry") else None,
    )


def _mesos(sent: task.TaskConfig, field: str, *, on_mesos: bool) -> MesosWords | bool:
    """Return what only hosts of Mesos can do; for others, whether an executor is asked for."""
    if has_several(sent):
        return False
    if not on_mesos:
        return sent.HasField("executor")
    with in_field(field):
        return mesos_words(sent)


def _volume(sent: task.PersistentVolumeConfig, field: str) -> VolumeConfig:
    """Return where the task sees its volume: below its sandbox, or there in its container."""
    path, where = sent.containerPath, f"{field}.containerPath"
    if not sent.sizeMB:
        raise BadField(f"{field}.sizeMB", "must be at least 1")
    if len(path) > PATH_MAX or not _PATH.fullmatch(path):
        raise BadField(where, f"no path of letters, digits and . _ - in folders: {path[:100]!r}")
    if any(part in _NO_FOLDERS for part in path.split("/")):
        raise BadField(where, f"must name a folder of its own: {path!r}")
    return VolumeConfig(path, sent.sizeMB)


def _containers(sent: task.TaskConfig, within: str, *, by: RunAs) -> tuple[Container, ...]:
    """Return the containers of a pod with several: init containers first, in the order of the
    spec."""
    try:
        pod = containers_in(sent)
    except ValueError as error:
        raise BadField(f"{within}.executor.data", str(error)) from error
    if pod is None:
        return ()
    where = f"{within}.executor"
    several = is_several(pod)
    if len(pod.init_containers) + len(pod.containers) > CONTAINERS_MAX:
        raise BadField(f"{where}.containers", f"the limit of one pod is {CONTAINERS_MAX}")
    found: list[Container] = []
    for name in ("init_containers", "containers"):
        for at, one in enumerate(getattr(pod, name)):
            field = f"{where}.{name}[{at}]"
            if several and not NAME.fullmatch(one.name):
                text = "each of several containers needs one of letters, digits, `.`, `-` and `_`"
                raise BadField(f"{field}.name", f"{text}, got {one.name[:100]!r}")
            if any(known.name == one.name for known in found):
                raise BadField(f"{field}.name", f"{one.name} is the name of another container")
            command = _command(one.command, field, by=by)
            if command.user != sent.command.user:
                raise BadField(f"{field}.command.user", "differs from that of the first container")
            if one.container.volumes:
                raise BadField(f"{field}.container.volumes", f"a volume {LATER}")
            if command.uris:
                text = f"fetching files for several containers {LATER}"
                raise BadField(f"{field}.command.uris", text)
            image = _image(one.container, f"{field}.container")
            found.append(
                Container(
                    one.name,
                    command.value,
                    command.shell,
                    command.arguments,
                    command.environment,
                    image,
                    init=name == "init_containers",
                )  # fmt: skip
            )
    return tuple(found)


def _image_of_all(sent: task.TaskConfig, field: str, *, among: tuple[Container, ...]) -> str:
    """Return the image of a task; of several containers, one that any of them has."""
    found = _image(sent.container, f"{field}.container")
    return found or next((one.image for one in among if one.image), "")


def _checks(sent: task.TaskConfig, field: str) -> HealthCheck | None:
    """Return the checks of health and of readiness; None if they are not enabled.

    What an instance says of its own wins as a whole.
    """
    container = checked_container(sent)
    found = _check(sent.healthCheck, f"{field}.healthCheck", container=container)
    kept = readiness_in(sent)
    if kept is None:
        return found
    check = task.HealthCheckConfig.FromString(kept[1].SerializeToString())
    where = f"{field}.executor.containers[{kept[0]}].readiness_check"
    readiness = _check(check, where, container=container)
    if readiness is None:
        return found
    return (found or HealthCheck(container=readiness.container)).beside(readiness)


def _check(sent: task.HealthCheckConfig, field: str, *, container: str) -> HealthCheck | None:
    with in_field(field):
        return to_check(sent, container=container)


def _retry(sent: task.RetryConfig, field: str) -> RetryRules:
    with in_field(field):
        return to_rules(sent)


def _max_running_s(sent: task.TaskConfig, field: str) -> float | None:
    """Return the limit of a run's time. The wire has a field for the whole job only."""
    for at, label in enumerate(sent.labels):
        if label.key == MAX_RUNNING_LABEL:
            if not _SECONDS.fullmatch(label.value) or not 0 < float(label.value) < SECONDS_MAX:
                text = f"{MAX_RUNNING_LABEL} must be a number of seconds above 0"
                raise BadField(f"{field}.labels[{at}]", f"{text}, got {label.value!r}")
            return float(label.value)
    return None


def _refuse_volumes(sent: task.TaskConfig, field: str, *, on_mesos: bool) -> None:
    for at, volume in enumerate(sent.container.volumes):
        if volume.source.type == mesos.Volume.Source.SECRET:
            text = "a secret is given beside the config"
            raise SecretVolume(f"{field}.container.volumes[{at}]", text)
    if sent.container.volumes and not on_mesos:
        raise BadField(f"{field}.container.volumes", f"a volume {LATER}")


def resources_of(sent: task.ResourceConfig, field: str) -> Resources:
    """Return the amounts of a config; raises BadAmount, naming the field.

    A gpu is given whole, to one run: several that share one would need its memory to be divided,
    which nothing here enforces, and a sum of free parts does not say that one device has room.
    """
    gpu = millionths(sent.gpuLimit, f"{field}.gpuLimit")
    if gpu % UNIT:
        text = "is not a whole number: each gpu is given whole, to one task"
        raise BadAmount(f"{field}.gpuLimit: {sent.gpuLimit:g} {text}")
    return Resources(
        cpu=millionths(sent.cpuLimit, f"{field}.cpuLimit"),
        memory=millionths(sent.memLimitMb, f"{field}.memLimitMb"),
        disk=millionths(sent.diskLimitMb, f"{field}.diskLimitMb"),
        gpu=gpu,
    )


def _command(sent: mesos.CommandInfo, within: str, *, by: RunAs) -> Command:
    field = f"{within}.command"
    by.check(sent.user, f"{field}.user")
    if not sent.shell and not sent.value:
        raise BadField(f"{field}.value", f"a command that is the image's own {LATER}")
    environment = _variables(sent.environment, f"{field}.environment")
    for name in ("value", "user"):
        _check_text(getattr(sent, name), f"{field}.{name}")
    for at, text in enumerate(sent.arguments):
        _check_text(text, f"{field}.arguments[{at}]")
    arguments = tuple(sent.arguments)
    with in_field(field):
        uris = uris_of(sent)
    return Command(sent.value, sent.shell, arguments, environment, sent.user, by.caller, uris)


def _variables(sent: mesos.Environment, field: str) -> tuple[tuple[str, str], ...]:
    found = []
    for at, variable in enumerate(sent.variables):
        where = f"{field}.variables[{at}]"
        if variable.type == mesos.Environment.Variable.SECRET:
            raise BadField(where, f"a secret {LATER}")
        if not variable.name or "=" in variable.name:
            raise BadField(f"{where}.name", f"{variable.name!r} is not a valid variable name")
        _check_text(f"{variable.name}={variable.value}", where)
        found.append((variable.name, variable.value))
    return tuple(found)


def _check_text(text: str, field: str) -> None:
    """Refuse a text that no program can be started with: every attempt would fail."""
    if "\0" in text:
        raise BadField(field, "must not contain a NUL character")
    if len(text) > ARGUMENT_BYTES_MAX // 4:  # no character has more bytes
        size_bytes = len(text.encode())
        if size_bytes > ARGUMENT_BYTES_MAX:
            limit = f"{size_bytes} bytes, the kernel's limit of one argument is"
            raise BadField(field, f"{limit} {ARGUMENT_BYTES_MAX}")


def _ports(sent: task.TaskConfig, field: str) -> tuple[Port, ...]:
    ports = tuple(_port(port, f"{field}[{at}]") for at, port in enumerate(sent.ports))
    fixed = [port.number for port in ports if port.number]
    for at, port in enumerate(ports):
        if fixed.count(port.number) > 1:
            # No host could ever give one port twice, so the task would wait for good.
            raise BadField(f"{field}[{at}].value", f"port {port.number} is named twice")
    return ports


def _port(sent: task.PortConfig, field: str) -> Port:
    if sent.value > PORT_MAX:
        raise BadField(f"{field}.value", f"must be ≤ {PORT_MAX}, got {sent.value}")
    return Port(sent.name, sent.value, sent.envName)


def _image(sent: mesos.ContainerInfo, field: str) -> str:
    """Return the image.

    Only names that no image can have are refused; the whole form is checked where an image is run.
    """
    where = "docker.image" if sent.docker.image else "mesos.image.docker.name"
    image = str(sent.docker.image or sent.mesos.image.docker.name)
    if image and not _IMAGE_NAME.fullmatch(image):
        raise BadField(f"{field}.{where}", f"not the name of an image: {image[:100]!r}")
    return image


# ---- constraints ----

_KINDS = {task.LabelConstraint.TASK: "task", task.LabelConstraint.HOST: "host"}
_CONDITIONS = {
    task.LabelConstraint.CONDITION_LESS_THAN: "less",
    task.LabelConstraint.CONDITION_EQUAL: "equal",
    task.LabelConstraint.CONDITION_GREATER_THAN: "greater",
}


def _constraint_of(sent: task.TaskConfig, field: str) -> Constraint | None:
    if not sent.HasField("constraint"):
        return None
    return to_constraint(sent.constraint, f"{field}.constraint")


def to_constraint(sent: task.Constraint, field: str) -> Constraint:
    """Return the record of a constraint; raises BadField, naming the field."""
    found = _constraint(sent, field)
    count = sum(1 for _ in leaves(found))
    if count > CONDITIONS_MAX:
        raise BadField(field, f"{count} conditions, the limit is {CONDITIONS_MAX}")
    return found


def _constraint(sent: task.Constraint, field: str) -> Constraint:
    if sent.type == task.Constraint.LABEL_CONSTRAINT:
        return _label(sent.labelConstraint, f"{field}.labelConstraint")
    if sent.type == task.Constraint.AND_CONSTRAINT:
        form, members, where = "and", sent.andConstraint.constraints, "andConstraint"
    elif sent.type == task.Constraint.OR_CONSTRAINT:
        form, members, where = "or", sent.orConstraint.constraints, "orConstraint"
    else:
        raise BadField(f"{field}.type", f"unknown constraint type {sent.type}")
    found = (_constraint(m, f"{field}.{where}.constraints[{at}]") for at, m in enumerate(members))
    return Constraint(form, members=tuple(found))


def _label(sent: task.LabelConstraint, field: str) -> Constraint:
    kind, condition = _KINDS.get(sent.kind), _CONDITIONS.get(sent.condition)
    if kind is None:
        raise BadField(f"{field}.kind", f"unknown kind {sent.kind}")
    if condition is None:
        raise BadField(f"{field}.condition", f"unknown condition {sent.condition}")
    return Constraint(
        "label",
        kind=kind,
        label=Label(sent.label.key, sent.label.value),
        condition=condition,
        requirement=sent.requirement,
    )


# ---- reading back ----

_BOOLEANS = ("controller", "revocable")
_OF_ALL = ("container", "ports", "resource", "healthCheck")
"""What several containers of an instance's own say together."""


@functools.lru_cache(maxsize=256)
def merged(default: bytes, own: bytes) -> task.TaskConfig:
    """Return the effective config of an instance. The result is cached: do not change it."""
    found = task.TaskConfig.FromString(default)
    if own == default:
        return found
    overrides = task.TaskConfig.FromString(own)
    for name in _BOOLEANS:
        found.ClearField(name)
    if overrides.HasField("command") and has_several(found):
        found.ClearField("executor")  # several containers, which belong to their command
    if has_several(overrides):
        for name in _OF_ALL:
            found.ClearField(name)
    for field, _ in overrides.ListFields():
        # Whole fields, never a merge inside of one.
        found.ClearField(field.name)
    found.MergeFrom(overrides)
    return found
