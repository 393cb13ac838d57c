"""The containers of a pod that has several, within the config of a task.

A task of v0 has one command. What more a pod has goes, as with the original's executor for pods,
into the data of an executor: the containers of the spec, each with its command and image in the
older form too. Commands are translated where specs become configs.
"""

from __future__ import annotations

import functools
import re

from google.protobuf.message import DecodeError

from peloton.api.mesos.v1 import mesos_pb2 as mesos
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v1alpha.pod import pod_pb2 as pod

EXECUTOR_ID = "peloton.containers"
CONTAINERS_MAX = 32
"""Of one pod, init containers included: a process of its own watches all of them."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""Of a container among several: it also names its files in the sandbox."""
CHECKS = ("liveness_check", "readiness_check")


def is_several(sent: pod.PodSpec) -> bool:
    """Return whether a pod consists of more than a single container."""
    return len(sent.containers) > 1 or len(sent.init_containers) > 0


def executor_of(sent: pod.PodSpec) -> mesos.ExecutorInfo:
    """Return the executor that keeps these containers in a task's config."""
    kept = pod.PodSpec(init_containers=sent.init_containers, containers=sent.containers)
    if sent.HasField("mesos_spec"):
        kept.mesos_spec.CopyFrom(sent.mesos_spec)
    return mesos.ExecutorInfo(
        type=mesos.ExecutorInfo.CUSTOM,
        executor_id={"value": EXECUTOR_ID},
        data=kept.SerializeToString(deterministic=True),
    )


def has_several(config: task.TaskConfig) -> bool:
    """Return whether a config is that of a pod with several containers."""
    return bool(config.executor.executor_id.value == EXECUTOR_ID)


def containers_in(config: task.TaskConfig) -> pod.PodSpec | None:
    """Return the containers of a pod that has several, or None; must not be changed, as they are
    cached.

    Raises ValueError if they cannot be read.
    """
    return _read(config.executor.data) if has_several(config) else None


def keeps_containers(sent: pod.PodSpec) -> bool:
    """Return whether a pod has what a task of v0 has no field for, so that its containers are
    kept."""
    return is_several(sent) or any(one.HasField("readiness_check") for one in sent.containers)


def readiness_in(config: task.TaskConfig) -> tuple[int, pod.HealthCheckSpec] | None:
    """Return the readiness check of a config, and which of its containers has it."""
    try:
        pod = containers_in(config)
    except ValueError:
        return None  # which is refused with the containers
    for at, one in enumerate(pod.containers if pod is not None else ()):
        if one.HasField("readiness_check"):
            return at, one.readiness_check
    return None


def checked_container(config: task.TaskConfig) -> str:
    """Return which of several containers the checks of a config belong to: the first, if none
    has one."""
    try:
        pod = containers_in(config)
    except ValueError:
        return ""  # which is refused with the containers
    if pod is None or not pod.containers:
        return ""
    if len(pod.containers) + len(pod.init_containers) == 1:
        return ""
    having = [one.name for one in pod.containers if any(map(one.HasField, CHECKS))]
    return str([*having, pod.containers[0].name][0])


@functools.lru_cache(maxsize=256)
def _read(data: bytes) -> pod.PodSpec:
    try:
        return pod.PodSpec.FromString(data)
    except DecodeError as error:
        raise ValueError("cannot be read as containers of a pod") from error


def whole_pod(own: pod.PodSpec, default: pod.PodSpec) -> pod.PodSpec:
    """Return an instance's own pod, completed by the default.

    It gets the containers, or init containers, of the default, if there are several in either. A
    pod without any has all of the default's.
    """
    several = is_several(own) or is_several(default)
    if not several or not (own.containers or own.init_containers):
        return own
    found = pod.PodSpec()
    found.CopyFrom(own)
    if not own.containers:
        found.containers.extend(default.containers)
    if not own.init_containers:
        found.init_containers.extend(default.init_containers)
    if default.HasField("mesos_spec") and not own.HasField("mesos_spec"):
        found.mesos_spec.CopyFrom(default.mesos_spec)
    return found
