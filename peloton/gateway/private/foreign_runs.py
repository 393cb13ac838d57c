"""Runs that clients of the private services launch on their holds, and kill by their ids.

Configs of either API version become runs of no job, which a host starts; ids of runs become kills:
of foreign runs at their hosts, of those of jobs through their jobs, which count them. A launch
needs a hold, and a kill of a job's run concerns only the present run of its instance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from peloton.actors.host.holds.foreign_names import FOREIGN_ID_MAX, is_foreign_id
from peloton.actors.host.holds.hold_messages import (
    NO_HOLD,
    ForeignKilled,
    ForeignRun,
    KillForeign,
    LaunchForeign,
)
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.job.messages import JobStopped, StopJob
from peloton.actors.job.slice.task_config import Command, TaskConfig
from peloton.actors.resources import BadAmount, Resources
from peloton.actors.task.messages import SLICE_SIZE, parse_pod
from peloton.api.mesos.v1 import mesos_pb2 as mesos
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.inventories import all_hosts
from peloton.gateway.translate.bad_field import BadField
from peloton.gateway.translate.counterparts import recast
from peloton.gateway.translate.host_abilities import refuse_uris_of
from peloton.gateway.translate.reasons import has_ended
from peloton.gateway.translate.run_as import NotPermitted, RunAs, run_as
from peloton.gateway.translate.texts import known_job
from peloton.gateway.translate.translate_task import LATER, to_config
from peloton.placement.messages import Label
from peloton.runtime.vocabulary import Refused, key

LAUNCH_RUNS_MAX = 1000
"""Runs of one launch: a host decides it in one turn."""
GRACE_S = 30.0
_POD_FIELDS = frozenset((
    "pod_name", "labels", "containers", "constraint", "restart_policy", "preemption_policy",
    "controller", "kill_grace_period_seconds", "revocable",
))  # fmt: skip
_CONTAINER_FIELDS = frozenset((
    "name", "resource", "container", "command", "ports", "entrypoint", "environment", "image",
    "liveness_check", "readiness_check",
))  # fmt: skip


# ---- launches ----


class RunWanted(NamedTuple):
    """One run of a launch: the client's id of it, what to run, and numbers of its ports by name.

    `field` is the path of all that in the request.
    """

    task: str
    config: task.TaskConfig
    ports: Mapping[str, int]
    field: str


def launch_runs(
    cluster_client: ClusterClient,
    hold: tuple[str, str],
    *,
    runs: Sequence[RunWanted],
    context: Context,
) -> Refused | None:
    """Start runs on a hold, given as host and name; return None, or why the host did not."""
    host, name = hold
    if len(runs) > LAUNCH_RUNS_MAX:
        text = f"{len(runs)} runs, the limit of one launch is {LAUNCH_RUNS_MAX}"
        end(context, Code.INVALID_ARGUMENT, text=text)
    by = run_as(context.principal)
    try:
        message = LaunchForeign(name, tuple(_foreign(run, by=by) for run in runs))
    except (BadField, BadAmount) as error:
        end(context, Code.INVALID_ARGUMENT, text=str(error))
    except NotPermitted as error:
        end(context, Code.PERMISSION_DENIED, text=str(error), field=error.field)
    answer = cluster_client.ask(key("host", host), message, context=context)
    return answer if isinstance(answer, Refused) else None


def refused_code(refused: Refused) -> Any:
    """Return the status of a refused launch, as the original has it for a hold that does not
    exist."""
    return Code.INTERNAL if refused.code == NO_HOLD else Code.FAILED_PRECONDITION


def _foreign(run: RunWanted, *, by: RunAs) -> ForeignRun:
    if not is_foreign_id(run.task):
        text = f"{run.task!r} is not 1 to {FOREIGN_ID_MAX} letters, digits, - and _"
        raise BadField(f"{run.field}.id", text)
    found = to_config(_numbered(run), f"{run.field}.config", by=by)
    refuse_uris_of(found, f"{run.field}.config")
    if found.command is None:
        raise BadField(f"{run.field}.config.command", "required field is missing")
    return ForeignRun(run.task, _run_spec(found, found.command))


def _numbered(run: RunWanted) -> task.TaskConfig:
    """Return the config with the numbers that the client has picked; the host picks the others."""
    config = task.TaskConfig()
    config.CopyFrom(run.config)
    names = {port.name for port in config.ports}
    for name in sorted(run.ports):
        if name not in names:
            raise BadField(f"{run.field}.ports[{name}]", "the config has no port of this name")
    for port in config.ports:
        port.value = port.value or run.ports.get(port.name, 0)
    return config


def _run_spec(config: TaskConfig, command: Command) -> RunSpec:
    return RunSpec(
        resources=config.resources or Resources(),
        value=command.value,
        shell=command.shell,
        arguments=command.arguments,
        environment=command.environment,
        ports=config.ports,
        kill_grace_s=GRACE_S if config.kill_grace_s is None else config.kill_grace_s,
        image=config.image,
        user=command.user,
        caller=command.caller,
        labels=tuple(Label(name, value) for name, value in config.labels),
    )


def config_of_pod(spec: pod.PodSpec, field: str) -> task.TaskConfig:
    """Return the config of v0 that says the same as a pod with one container. Raises BadField."""
    _refuse_others(spec, field, known=_POD_FIELDS)
    if len(spec.containers) != 1:
        text = f"{len(spec.containers)} containers; a pod has exactly one so far"
        raise BadField(f"{field}.containers", text)
    one = spec.containers[0]
    _refuse_others(one, f"{field}.containers[0]", known=_CONTAINER_FIELDS)
    found = task.TaskConfig(
        name=spec.pod_name.value or one.name,
        resource=task.ResourceConfig(
            cpuLimit=one.resource.cpu_limit,
            memLimitMb=one.resource.mem_limit_mb,
            diskLimitMb=one.resource.disk_limit_mb,
            fdLimit=one.resource.fd_limit,
            gpuLimit=one.resource.gpu_limit,
        ),
        labels=[{"key": label.key, "value": label.value} for label in spec.labels],
        killGracePeriodSeconds=spec.kill_grace_period_seconds,
        controller=spec.controller,
        revocable=spec.revocable,
    )
    for port in one.ports:
        found.ports.add(name=port.name, value=port.value, envName=port.env_name)
    if spec.HasField("constraint"):
        found.constraint.CopyFrom(recast(task.Constraint, spec.constraint))
    _set_command(found, one)
    return found


def _set_command(config: task.TaskConfig, one: pod.ContainerSpec) -> None:
    if one.HasField("container"):
        config.container.CopyFrom(one.container)
    if one.image:
        config.container.type = mesos.ContainerInfo.DOCKER
        config.container.docker.image = one.image
    if one.HasField("command"):
        config.command.CopyFrom(one.command)
    elif one.HasField("entrypoint"):
        config.command.shell = False
        config.command.value = one.entrypoint.value
        config.command.arguments.extend((one.entrypoint.value, *one.entrypoint.arguments))
    for variable in one.environment:
        config.command.environment.variables.add(name=variable.name, value=variable.value)


def _refuse_others(sent: Any, field: str, *, known: frozenset[str]) -> None:
    for descriptor, _ in sent.ListFields():
        if descriptor.name not in known:
            raise BadField(f"{field}.{descriptor.name}", LATER)


# ---- kills ----


def no_runs_text(names: Iterable[str]) -> str:
    """Return text about names that are of no run."""
    return f"no run of these ids: {', '.join(names)}"


def kill_runs(
    cluster_client: ClusterClient, names: Iterable[str], *, context: Context
) -> list[str]:
    """End these runs; return the names that are of no run."""
    left = dict.fromkeys(names)
    foreign = tuple(name for name in left if is_foreign_id(name))
    if foreign:
        views = all_hosts(cluster_client, context)
        asks = [(v.summary.host, KillForeign(foreign)) for v in views if v.foreign]
        for answer in cluster_client.each(asks, context, changes=True):
            assert isinstance(answer, ForeignKilled)
            for name in answer.tasks:
                left.pop(name, None)
    return [name for name in left if not _stop(cluster_client, name, context=context)]


def _stop(cluster_client: ClusterClient, name: str, *, context: Context) -> bool:
    """Stop the instance whose present run has this name; return whether there is one."""
    parsed = parse_pod(name)
    if parsed is None:
        return False
    crowd, member, run = parsed
    _, job_id, number = crowd.split("/")
    instance = int(number) * SLICE_SIZE + member
    view = cluster_client.job(known_job(job_id), context)
    if view is None:
        return False
    shown = cluster_client.instances(view, instance, stop=instance + 1, context=context)
    if not any(one.run == run and not has_ended(one) for one in shown):
        return False
    order = StopJob(((instance, instance + 1),))
    answer = cluster_client.ask(view.summary.job, order, context=context)
    return isinstance(answer, JobStopped)
