"""The whole config of a job, with those that instances have of their own.

Turns views of a job and its instances into a JobConfig. It must not merge: an own config is given
back as it was written.
"""

from __future__ import annotations

from peloton.actors.job.messages import JobView
from peloton.api.v0.job import job_pb2 as job
from peloton.gateway.cluster_client import ClusterClient, Context
from peloton.gateway.translate_job import job_config_of


def whole_config(
    cluster_client: ClusterClient, view: JobView, *, context: Context
) -> job.JobConfig:
    """The config as its client wrote it; only jobs with such instances have them asked."""
    found = job_config_of(view)
    if view.spec.own_configs:
        default = view.spec.default.raw
        for instance in cluster_client.instances(view, context=context, stop=view.spec.instances):
            if instance.config.raw != default:
                found.instanceConfig[instance.instance].ParseFromString(instance.config.raw)
    return found
