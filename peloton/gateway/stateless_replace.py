"""JobService.ReplaceJob: another spec for a service, given to its instances by a workflow.

Turns the spec into the command, and ends the call for a spec that no service can have. It must not
compare versions: only the job knows its own at the moment of the change.
"""

from __future__ import annotations

from peloton.actors.job.entity_version import EntityVersion
from peloton.actors.job.messages import JobView, ReplaceJob
from peloton.actors.job.workflow.messages import WorkflowOptions
from peloton.actors.respool.messages import pool_key
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.gateway.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.config_specs import spec_wanted
from peloton.gateway.job_secrets import SecretsOfCall, masked
from peloton.gateway.opaque_data import opaque_of
from peloton.gateway.pod_specs import NotBuilt
from peloton.gateway.requests import request_of
from peloton.gateway.stateless_create import NO_SECRETS
from peloton.gateway.stateless_specs import spec_text, to_config_v0
from peloton.gateway.texts import client_name
from peloton.gateway.translate_task import BadConfig, SecretVolume
from peloton.gateway.workflow_status import healthy_s


def replacement(
    cluster_client: ClusterClient,
    sent: svc.ReplaceJobRequest,
    *,
    view: JobView,
    context: Context,
    secrets: SecretsOfCall,
) -> ReplaceJob:
    """The command, without the version that the client expects, its secrets not yet stored."""
    secrets.end_unless_enabled(sent.secrets, text=NO_SECRETS)
    wanted, opaque = sent.update_spec, opaque_of(sent, context)
    config = replacing_config(cluster_client, sent.spec, view=view, context=context)

    def text_of(text: str) -> str:
        return f"invalid job spec: {spec_text(text, sent.spec)}"

    whole = masked(sent, cluster_client.secrets)
    request = request_of(whole, context, level=cluster_client.level)
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
    """The config of v0 that is this spec, in the pool of the job; its rules are not checked."""
    pool = spec.respool_id.value
    if pool and pool_key(pool) != view.spec.pool:
        text = "failed to validate spec update: resource pool identifier is immutable"
        end(context, Code.INVALID_ARGUMENT, text=text)
    try:
        config = to_config_v0(
            spec, images_run=cluster_client.images_run, on_mesos=cluster_client.on_mesos
        )
    except NotBuilt as error:
        end(context, Code.UNIMPLEMENTED, text=str(error))
    except SecretVolume as error:
        text = f"input cannot contain secret volume: {error}"
        end(context, Code.INVALID_ARGUMENT, text=text)
    except BadConfig as error:
        end(context, Code.INVALID_ARGUMENT, text=f"invalid job spec: {error}")
    config.respoolID.value = client_name(view.spec.pool)
    if view.spec.is_daemon:  # which specs of v1alpha cannot say
        config.type = job.DAEMON
    return config


def expecting(command: ReplaceJob, expected: EntityVersion) -> ReplaceJob:
    """The same, refused if the job has another version."""
    return ReplaceJob(
        command.spec, command.overrides, command.options, expected, opaque=command.opaque
    )
