"""The whole config of a job, with those that instances have of their own.

An own config is given back as it was written, not merged. While a workflow goes on, instances whose
turn is yet to come have the configs of the spec before, so views of instances may differ from what
the job wants.
"""

from __future__ import annotations

from peloton.actors.job.messages import JobView
from peloton.actors.job.version.messages import GetSpec, SpecView, version_key
from peloton.api.v0.job import job_pb2 as job
from peloton.gateway.cluster.cluster_client import ClusterClient, Context
from peloton.gateway.translate.translate_job import job_config_of


def whole_config(
    cluster_client: ClusterClient, view: JobView, *, context: Context
) -> job.JobConfig:
    """Return the config as its client wrote it; only jobs with own configs of instances are
    asked for them."""
    found = job_config_of(view)
    if not view.spec.own_configs:
        return found
    number = view.stored
    kept = kept_spec(cluster_client, view, number=number, context=context) if number else None
    if kept is not None:
        put_own(found, kept)
        return found
    # Of a batch job the configs of instances never change; of a service they were too large.
    default = view.spec.default.raw
    every = cluster_client.instances(view, context=context, stop=view.spec.instances, unadded=True)
    for instance in every:
        if instance.config.raw != default:
            found.instanceConfig[instance.instance].ParseFromString(instance.config.raw)
    return found


def kept_spec(
    cluster_client: ClusterClient, view: JobView, *, number: int, context: Context
) -> SpecView | None:
    """Return the spec of the job that is kept under this number; None if it is not kept any
    more."""
    owner = version_key(view.summary.job, number)
    found = cluster_client.ask(owner, GetSpec(), context=context)
    return found if isinstance(found, SpecView) else None


def put_own(config: job.JobConfig, kept: SpecView) -> None:
    """Add the configs that single instances have by this spec."""
    for own in kept.overrides:
        config.instanceConfig[own.instance].ParseFromString(own.config.raw)
