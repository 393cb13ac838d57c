"""Translates a pod's spec of v1alpha to the task config that runs it, and back.

A PodSpec becomes a TaskConfig of v0, so that everything behind it is one path. What no task can do
yet is refused by its path: a field that would have an effect is never ignored. The task's own rules
are checked later.
"""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import Message

from peloton.api.mesos.v1 import mesos_pb2 as mesos
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.gateway.translate.bad_field import BadField
from peloton.gateway.translate.mesos_pods import (
    MesosPod,
    agree,
    container_in,
    executor_in,
    image_of,
    put_newer,
)
from peloton.gateway.translate.several_containers import (
    CHECKS,
    containers_in,
    executor_of,
    is_several,
    keeps_containers,
)
from peloton.gateway.translate.translate_task import LATER, SecretVolume
from peloton.gateway.translate.uris import older_uris

NETWORKS = (MesosPod.NetworkSpec.NETWORK_TYPE_INVALID, MesosPod.NetworkSpec.NETWORK_TYPE_HOST)
"""Those that need nothing: the host's."""
_Form = TypeVar("_Form", bound=Message)
INIT, MAIN = "init_containers", "containers"
_UNBUILT = {
    "host_ports": "a port of the host",
}
_UNBUILT_ELSEWHERE = {
    "volumes": "a volume",
    "volume_mounts": "a volume",
}
"""On other hosts than those of Mesos."""
_UNBUILT_IN_CHECK = {
    "success_threshold": "a number of successes",
    "command": "a command of this form; `command_check` has one",
    "http_get": "a request of this form; `http_check` has one",
}


class NotBuilt(BadField):
    """The spec asks for something that is not built yet, which clients know as UNIMPLEMENTED."""


# ---- to the config of a task ----


def to_task(
    sent: pod.PodSpec, field: str, *, several: bool = False, on_mesos: bool = False
) -> task.TaskConfig:
    """Return the config of a task that is this pod; raises BadField, naming the field.

    `several`: also a single container is written as several are. `on_mesos`: as of `to_config`.
    """
    several = several or keeps_containers(sent)
    _refuse_unbuilt(sent, field, on_mesos=on_mesos and not several)
    found = task.TaskConfig(
        controller=sent.controller,
        killGracePeriodSeconds=sent.kill_grace_period_seconds,
        revocable=sent.revocable,
    )
    for label in sent.labels:
        found.labels.add(key=label.key, value=label.value)
    if sent.HasField("constraint"):
        found.constraint.CopyFrom(_recast(task.Constraint, sent.constraint))
    if sent.HasField("restart_policy"):
        found.restartPolicy.maxFailures = sent.restart_policy.max_failures
    if sent.HasField("volume"):
        found.volume.CopyFrom(_recast(task.PersistentVolumeConfig, sent.volume))
    if sent.HasField("preemption_policy"):
        _put_policy(found, sent.preemption_policy)
    for variable in sent.environment:
        found.environment.variables.add(name=variable.name, value=variable.value)
    if several:
        _put_several(found, sent, field=field)
    elif sent.containers:
        only = sent.containers[0]
        where = f"{field}.containers[0]"
        _put_container(found, sent, container=only, field=where, on_mesos=on_mesos)
    return found


def refuse_images(sent: pod.PodSpec, field: str) -> None:
    """Refuse several containers of which one has an image, for a cluster that runs images."""
    for name in (INIT, MAIN) if is_several(sent) else ():
        for at, one in enumerate(getattr(sent, name)):
            if one.image or image_of(one.container):
                text = f"running the images of several containers of a pod {LATER}"
                raise NotBuilt(f"{field}.{name}[{at}].image", text)


def _refuse_unbuilt(sent: pod.PodSpec, field: str, *, on_mesos: bool) -> None:
    _refuse(sent, _UNBUILT if on_mesos else _UNBUILT | _UNBUILT_ELSEWHERE, field=field)
    if sent.pod_name.value:
        raise BadField(f"{field}.pod_name", "the name of a pod follows from its job")
    where = f"{field}.mesos_spec"
    if sent.mesos_spec.HasField("executor_spec") and not on_mesos:
        text = "an executor is not supported: a pod is a command"
        raise BadField(f"{where}.executor_spec", text)
    if sent.mesos_spec.network_spec.type not in NETWORKS:
        raise BadField(f"{where}.network_spec.type", f"another network than the host's {LATER}")


def _refuse(sent: Message, unbuilt: dict[str, str], *, field: str) -> None:
    for known, _ in sent.ListFields():
        if known.name in unbuilt:
            raise BadField(f"{field}.{known.name}", f"{unbuilt[known.name]} {LATER}")


def _put_policy(found: task.TaskConfig, sent: pod.PreemptionPolicy) -> None:
    """Put the preemption policy.

    A policy that is there always decides: without `kill_on_preempt` against preemption.
    """
    policy = task.PreemptionPolicy
    kill = sent.kill_on_preempt
    found.preemptionPolicy.type = policy.TYPE_PREEMPTIBLE if kill else policy.TYPE_NON_PREEMPTIBLE
    found.preemptionPolicy.killOnPreempt = kill


def _put_several(found: task.TaskConfig, sent: pod.PodSpec, *, field: str) -> None:
    """Put several containers: the first stands for all, with the resources and ports of all."""
    if not sent.containers:
        raise BadField(f"{field}.containers", "a pod needs one beside its init containers")
    kept = pod.PodSpec()
    kept.CopyFrom(sent)
    parts = {
        name: [
            _part(sent, one, field=f"{field}.{name}[{at}]")
            for at, one in enumerate(getattr(sent, name))
        ]
        for name in (INIT, MAIN)
    }
    for name, some in parts.items():
        for container, part in zip(getattr(kept, name), some, strict=True):
            for older in ("command", "container"):
                if part.HasField(older):
                    getattr(container, older).CopyFrom(getattr(part, older))
    _refuse_second_checks(sent, field)
    first = parts[MAIN][0]
    found.name = first.name
    found.command.CopyFrom(first.command)
    if first.HasField("container"):
        found.container.CopyFrom(first.container)
    found.resource.CopyFrom(_needed(parts[INIT], parts[MAIN]))
    _put_ports_and_check(found, parts, field=field)
    found.executor.CopyFrom(executor_of(kept))


def _refuse_second_checks(sent: pod.PodSpec, field: str) -> None:
    """Refuse checks of more than one container, and of an init container."""
    having = ""
    for name in (INIT, MAIN):
        for at, one in enumerate(getattr(sent, name)):
            for check in filter(one.HasField, CHECKS):
                where = f"{field}.{name}[{at}]"
                if name == INIT:
                    raise BadField(f"{where}.{check}", "an init container has none")
                if having not in ("", where):
                    text = f"the check of a second container of a pod {LATER}"
                    raise BadField(f"{where}.{check}", text)
                having = where


def _part(sent: pod.PodSpec, container: pod.ContainerSpec, *, field: str) -> task.TaskConfig:
    """Return the config of a task that were this container alone."""
    found = task.TaskConfig()
    _put_container(found, sent, container=container, field=field, on_mesos=False)
    if found.HasField("executor"):
        raise BadField(f"{field}.executor", "an executor is not supported: a pod is a command")
    if not found.HasField("command"):
        raise BadField(f"{field}.entrypoint", "missing: each of several containers has its own")
    return found


def _needed(inits: list[task.TaskConfig], mains: list[task.TaskConfig]) -> task.ResourceConfig:
    """Return the resources of the whole pod.

    Of each kind the sum of the containers, which run together, and no less than what the largest
    init container needs.
    """
    found = task.ResourceConfig()
    for kind in task.ResourceConfig.DESCRIPTOR.fields:
        total = sum(getattr(one.resource, kind.name) for one in mains)
        most = max([total, *(getattr(one.resource, kind.name) for one in inits)])
        if most:
            # Sums of decimal fractions are none: as many places as an amount has.
            setattr(found, kind.name, round(most, 6) if isinstance(most, float) else most)
    return found


def _put_ports_and_check(
    found: task.TaskConfig, parts: dict[str, list[task.TaskConfig]], *, field: str
) -> None:
    """Put what the pod has once: ports, each with a name of its own, and the checks of a
    container."""
    names: dict[str, None] = {}
    for name, some in parts.items():
        for at, part in enumerate(some):
            where = f"{field}.{name}[{at}]"
            for number, port in enumerate(part.ports):
                if port.name and port.name in names:
                    text = f"{port.name} is named twice in the pod"
                    raise BadField(f"{where}.ports[{number}].name", text)
                names[port.name] = None
                found.ports.append(port)
            if part.HasField("healthCheck"):
                found.healthCheck.CopyFrom(part.healthCheck)


def _put_container(
    found: task.TaskConfig,
    sent: pod.PodSpec,
    *,
    container: pod.ContainerSpec,
    field: str,
    on_mesos: bool,
) -> None:
    if not on_mesos:
        _refuse(container, _UNBUILT_ELSEWHERE, field=field)
    for at, volume in enumerate(container.container.volumes):
        if volume.source.type == mesos.Volume.Source.SECRET:
            text = "a secret is given beside the spec"
            raise SecretVolume(f"{field}.container.volumes[{at}]", text)
    found.name = container.name
    if container.HasField("resource"):
        found.resource.CopyFrom(_recast(task.ResourceConfig, container.resource))
    for check in CHECKS:
        if container.HasField(check):
            _refuse(getattr(container, check), _UNBUILT_IN_CHECK, field=f"{field}.{check}")
    if container.HasField("liveness_check"):
        check = _recast(task.HealthCheckConfig, container.liveness_check)
        found.healthCheck.CopyFrom(check)
    for at, port in enumerate(container.ports):
        _put_port(found, port, field=f"{field}.ports[{at}]")
    executor = executor_in(sent, container, field=field)
    if executor is not None:
        found.executor.CopyFrom(executor)
    command = _command(sent, container, field=field)
    if command is not None:
        found.command.CopyFrom(command)
    image = container_in(sent, container, field=field)
    if image is not None:
        found.container.CopyFrom(image)


def _put_port(found: task.TaskConfig, sent: pod.PortSpec, *, field: str) -> None:
    template = pod.PortSpec.PORT_TYPE_DYNAMIC_TEMPLATE_VAR
    if sent.template_name or sent.type == template:
        raise BadField(f"{field}.template_name", f"a port for a template {LATER}")
    # The type says again what the number says; a contradiction cannot be obeyed.
    static, dynamic = pod.PortSpec.PORT_TYPE_STATIC, pod.PortSpec.PORT_TYPE_DYNAMIC_ENV_VAR
    if (sent.type == static and not sent.value) or (sent.type == dynamic and sent.value):
        kind = pod.PortSpec.PortType.Name(sent.type)
        raise BadField(f"{field}.type", f"{kind} and the number {sent.value} exclude each other")
    found.ports.add(name=sent.name, value=sent.value, envName=sent.env_name)


def _command(
    sent: pod.PodSpec, container: pod.ContainerSpec, *, field: str
) -> mesos.CommandInfo | None:
    """Return the command, in the older form if it has that; if both are there they must say the
    same."""
    given = container.HasField("entrypoint") or len(container.environment) > 0
    given = given or len(sent.mesos_spec.uris) > 0
    newer = newer_command(sent, container) if given else None
    if not container.HasField("command"):
        return newer
    older = container.command
    if newer is not None and container.HasField("entrypoint"):
        agree(newer.value == older.value, f"{field}.entrypoint.value", of="command.value")
        same = newer.arguments == older.arguments
        agree(same, f"{field}.entrypoint.arguments", of="command.arguments")
    if sent.mesos_spec.uris and newer is not None:
        same = newer.uris == older.uris
        agree(same, f"{field.rpartition('.')[0]}.mesos_spec.uris", of="command.uris")
    if container.environment and newer is not None:
        same = newer.environment == older.environment
        agree(same, f"{field}.environment", of="command.environment")
    return older


def newer_command(sent: pod.PodSpec, container: pod.ContainerSpec) -> mesos.CommandInfo:
    """Return the command of a container in its newer form."""
    entry = container.entrypoint
    found = mesos.CommandInfo(value=entry.value, arguments=entry.arguments)
    if sent.HasField("mesos_spec"):
        found.shell = sent.mesos_spec.shell
        found.uris.extend(older_uris(sent.mesos_spec.uris))
    for variable in container.environment:
        found.environment.variables.add(name=variable.name, value=variable.value)
    return found


def _recast(form: type[_Form], sent: Message) -> _Form:
    """Return the message in v0, whose fields have the same numbers and meanings."""
    return form.FromString(sent.SerializeToString())


# ---- back ----


def pod_spec_of(config: task.TaskConfig, pod_name: str = "") -> pod.PodSpec:
    """Return the spec of a pod by its stored config, in the older and the newer form.

    `pod_name`: of one pod; a spec of a job has none.
    """
    found = pod.PodSpec(
        controller=config.controller,
        kill_grace_period_seconds=config.killGracePeriodSeconds,
        revocable=config.revocable,
    )
    if pod_name:
        found.pod_name.value = pod_name
    for label in config.labels:
        found.labels.add(key=label.key, value=label.value)
    if config.HasField("constraint"):
        found.constraint.CopyFrom(_recast(pod.Constraint, config.constraint))
    if config.HasField("restartPolicy"):
        found.restart_policy.max_failures = config.restartPolicy.maxFailures
    if config.HasField("volume"):
        found.volume.CopyFrom(_recast(pod.PersistentVolumeSpec, config.volume))
    if config.HasField("preemptionPolicy"):
        found.preemption_policy.kill_on_preempt = config.preemptionPolicy.killOnPreempt
    for variable in config.environment.variables:
        found.environment.add(name=variable.name, value=variable.value)
    several = containers_in(config)
    if several is not None:
        found.MergeFrom(several)
        return found
    container = _container_of(config)
    if container.ByteSize():
        found.containers.append(container)
    put_newer(found, config)
    return found


def _container_of(config: task.TaskConfig) -> pod.ContainerSpec:
    found = pod.ContainerSpec(name=config.name, image=image_of(config.container))
    if config.HasField("resource"):
        found.resource.CopyFrom(_recast(pod.ResourceSpec, config.resource))
    if config.HasField("healthCheck"):
        found.liveness_check.CopyFrom(_recast(pod.HealthCheckSpec, config.healthCheck))
    for port in config.ports:
        found.ports.add(name=port.name, value=port.value, env_name=port.envName)
    for older in ("executor", "container", "command"):
        if config.HasField(older):
            getattr(found, older).CopyFrom(getattr(config, older))
    if config.HasField("command"):
        found.entrypoint.value = config.command.value
        found.entrypoint.arguments.extend(config.command.arguments)
        for variable in config.command.environment.variables:
            found.environment.add(name=variable.name, value=variable.value)
    return found
