"""JobService.ReplaceJob: another spec for a service, given to its instances by a workflow.

The spec becomes the command; a spec that no service can have ends the call. The job compares
versions, because only it knows its own at the moment of the change.

A spec that was read says commands and images twice, in the older form and in the newer one. A
client that knows one of them changes that, and sends the other back as it was. So of two forms that
differ, the one counts that differs from the stored spec; if both do, the spec is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from peloton.actors.job.messages import JobView
from peloton.actors.job.stages import EntityVersion
from peloton.actors.job.workflow.messages import ReplaceJob, WorkflowOptions
from peloton.actors.respool.messages import pool_key
from peloton.api.mesos.v1 import mesos_pb2 as mesos
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.pod import pod_pb2 as pod
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.cluster.requests import request_of
from peloton.gateway.cluster.rollouts import healthy_s
from peloton.gateway.translate.bad_field import BadField
from peloton.gateway.translate.mesos_pods import image_of, put_into_older
from peloton.gateway.translate.pod_specs import INIT, MAIN, NotBuilt, newer_command
from peloton.gateway.translate.stateless_specs import job_spec_of, spec_text, to_config_v0
from peloton.gateway.translate.texts import client_name
from peloton.gateway.translate.translate_task import SecretVolume
from peloton.gateway.translate.uris import newer_uris
from peloton.gateway.v0.config_specs import spec_wanted
from peloton.gateway.v0.job_secrets import SecretsOfCall, masked
from peloton.gateway.v0.opaque_data import opaque_of
from peloton.gateway.v0.whole_configs import whole_config
from peloton.gateway.v1alpha.stateless_create import NO_SECRETS


def replacement(
    cluster_client: ClusterClient,
    sent: svc.ReplaceJobRequest,
    *,
    view: JobView,
    context: Context,
    secrets: SecretsOfCall,
) -> ReplaceJob:
    """Return the command, without the version that the client expects, its secrets not yet
    stored."""
    secrets.end_unless_enabled(sent.secrets, text=NO_SECRETS)
    wanted, opaque = sent.update_spec, opaque_of(sent, context)
    config = replacing_config(cluster_client, sent.spec, view=view, context=context)

    def text_of(text: str) -> str:
        return f"invalid job spec: {spec_text(text, sent.spec)}"

    whole = masked(sent, cluster_client.secrets)
    request = request_of(whole, context)
    refs = secrets.for_replaced(sent.secrets, config, view=view, request=request)
    found = spec_wanted(cluster_client, config, context=context, text_of=text_of, secrets=refs)
    options = WorkflowOptions(
        batch=wanted.batch_size,
        max_attempts=wanted.max_instance_retries,
        tolerated=wanted.max_tolerable_instance_failures,
        back=wanted.rollback_on_failure,
        paused=wanted.start_paused,
        starts=wanted.start_pods,
        in_place=wanted.in_place,
        healthy_s=healthy_s(wanted),
    )
    return ReplaceJob(found.spec, tuple(found.pieces.items()), options, opaque=opaque)


def replacing_config(
    cluster_client: ClusterClient, spec: stateless.JobSpec, *, view: JobView, context: Context
) -> job.JobConfig:
    """Return the config of v0 that is this spec, in the pool of the job; its rules are not
    checked."""
    pool = spec.respool_id.value
    if pool and pool_key(pool) != view.spec.pool:
        text = "failed to validate spec update: resource pool identifier is immutable"
        end(context, Code.INVALID_ARGUMENT, text=text)
    try:
        config = without_contradiction(
            spec,
            known=lambda: job_spec_of(whole_config(cluster_client, view, context=context)),
            build=lambda one: to_config_v0(
                one, images_run=cluster_client.images_run, on_mesos=cluster_client.on_mesos
            ),
        )
    except NotBuilt as error:
        end(context, Code.UNIMPLEMENTED, text=str(error))
    except SecretVolume as error:
        text = f"input cannot contain secret volume: {error}"
        end(context, Code.INVALID_ARGUMENT, text=text)
    except BadField as error:
        end(context, Code.INVALID_ARGUMENT, text=f"invalid job spec: {error}")
    config.respoolID.value = client_name(view.spec.pool)
    # What specs of v1alpha cannot say stays as it is.
    if view.spec.is_daemon:
        config.type = job.DAEMON
    config.placementStrategy = job.JobConfig.FromString(view.spec.raw).placementStrategy
    return config


def without_contradiction(
    spec: stateless.JobSpec,
    *,
    known: Callable[[], stateless.JobSpec],
    build: Callable[[stateless.JobSpec], job.JobConfig],
) -> job.JobConfig:
    """Return the config of a spec, also if it says something twice and differently.

    Then what has changed against the stored spec counts. What a form leaves out is no change of the
    other.
    """
    try:
        return build(spec)
    except BadField:
        if not any(map(_says_twice, _containers(spec))):
            raise
        return build(settled(spec, known()))


def settled(sent: stateless.JobSpec, known: stateless.JobSpec) -> stateless.JobSpec:
    """Return the spec with one meaning for what it says twice.

    `known` is the stored one, which says all in both forms.
    """
    found = stateless.JobSpec()
    found.CopyFrom(sent)
    _settle_pod(found.default_spec, known.default_spec, field="spec.default_spec")
    for number, own in found.instance_spec.items():
        if number in known.instance_spec:
            field = f"spec.instance_spec[{number}]"
            _settle_pod(own, known.instance_spec[number], field=field)
    return found


def _containers(spec: stateless.JobSpec) -> Iterator[pod.ContainerSpec]:
    for one in (spec.default_spec, *spec.instance_spec.values()):
        yield from one.init_containers
        yield from one.containers


def _says_twice(one: pod.ContainerSpec) -> bool:
    return any(map(one.HasField, ("command", "container", "executor")))


def _settle_pod(sent: pod.PodSpec, known: pod.PodSpec, *, field: str) -> None:
    for name in (INIT, MAIN):
        pairs = zip(getattr(sent, name), getattr(known, name), strict=False)
        for at, (one, was) in enumerate(pairs):
            if one.HasField("command") and was.HasField("command"):
                _settle_command((sent, one), (known, was))
            if one.HasField("container") and was.HasField("container"):
                _settle_image((sent, one), (known, was), field=f"{field}.{name}[{at}]")
            if one.HasField("executor") and sent.mesos_spec.HasField("executor_spec"):
                newer = sent.mesos_spec.executor_spec, known.mesos_spec.executor_spec
                if one.executor != was.executor and newer[0] == newer[1]:
                    sent.mesos_spec.ClearField("executor_spec")
                elif one.executor == was.executor and newer[0] != newer[1]:
                    one.ClearField("executor")


_InPod = tuple[pod.PodSpec, pod.ContainerSpec]


def _settle_command(sent: _InPod, known: _InPod) -> None:
    """Settle field by field: the command may have changed in one form, and the variables in the
    other."""
    (spec, one), (_, was) = sent, known
    newer, newer_was = newer_command(*sent), newer_command(*known)
    given = {
        **dict.fromkeys(("value", "arguments"), one.HasField("entrypoint")),
        "environment": len(one.environment) > 0,
        "uris": len(spec.mesos_spec.uris) > 0,
    }
    result = mesos.CommandInfo()
    result.CopyFrom(one.command)
    for name in (name for name, there in given.items() if there):
        older = getattr(one.command, name)
        changed = getattr(newer, name) != getattr(newer_was, name)
        if older == getattr(newer, name) or not changed:
            continue
        if older != getattr(was.command, name):
            return  # both have changed: refused as of a new spec
        _take(result, newer, name=name)
    one.command.CopyFrom(result)
    # Both stay: what is stored of several containers is the pod as its client wrote it.
    if given["value"]:
        one.entrypoint.value = result.value
        one.entrypoint.arguments[:] = result.arguments
    if one.environment:
        del one.environment[:]
        for variable in result.environment.variables:
            one.environment.add(name=variable.name, value=variable.value)
    if given["uris"]:
        del spec.mesos_spec.uris[:]
        spec.mesos_spec.uris.extend(newer_uris(result.uris))


def _take(target: mesos.CommandInfo, source: mesos.CommandInfo, *, name: str) -> None:
    """Copy this field from the other command."""
    part = mesos.CommandInfo()
    part.CopyFrom(source)
    for field in part.DESCRIPTOR.fields:
        if field.name != name:
            part.ClearField(field.name)
    target.ClearField(name)
    target.MergeFrom(part)


def _settle_image(sent: _InPod, known: _InPod, *, field: str) -> None:
    """Settle the image, and what is said beside it."""
    (spec, one), (_, was) = sent, known
    pairs = zip(_beside_image(*sent), _beside_image(*known), strict=True)
    changed = any(said and said != before for said, before in pairs)
    if one.container == was.container and changed:
        put_into_older(*sent, field=field)
    elif one.container != was.container and not changed:
        if one.image:
            one.image = image_of(one.container)
        one.ClearField("volume_mounts")
        spec.mesos_spec.ClearField("docker_parameters")


def _beside_image(spec: pod.PodSpec, one: pod.ContainerSpec) -> tuple[object, ...]:
    """Return all that the newer form says beside the image; what it leaves out is empty."""
    mounts = one.volume_mounts and ([*one.volume_mounts], [*spec.volumes])
    return one.image, [*spec.mesos_spec.docker_parameters], mounts


def expecting(command: ReplaceJob, expected: EntityVersion) -> ReplaceJob:
    """Return the command, refused if the job has another version."""
    return ReplaceJob(
        command.spec, command.overrides, command.options, expected, opaque=command.opaque
    )
