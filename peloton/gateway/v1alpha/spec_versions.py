"""The spec of a job as it was at a config version, or the refusal if it is not kept.

A version becomes the config of v0 that its client wrote, with those that single instances had of
their own. The job decides which versions are kept.
"""

from __future__ import annotations

from peloton.actors.job.messages import JobView, KeptSpec
from peloton.actors.job.version.messages import OWN_BYTES_KEPT_MAX, SPECS_KEPT_MAX
from peloton.actors.job.view import of_spec
from peloton.api.v0.job import job_pb2 as job
from peloton.gateway.cluster.cluster_client import ClusterClient, Code, Context, end
from peloton.gateway.translate.translate_job import job_config_of
from peloton.gateway.v0.whole_configs import kept_spec, put_own, whole_config

TOO_LARGE = f"its instances had configs of their own of more than {OWN_BYTES_KEPT_MAX} bytes in all"


def config_at(
    cluster_client: ClusterClient, view: JobView, *, version: int, context: Context
) -> job.JobConfig:
    """Return the config at this version; end the call if that is not kept."""
    newest = view.spec.config_version
    if (view.since or newest) <= version <= newest:
        found = whole_config(cluster_client, view, context=context)
    else:
        found = _earlier(cluster_client, view, version=version, context=context)
    found.changeLog.version = version
    return found


def _earlier(
    cluster_client: ClusterClient, view: JobView, *, version: int, context: Context
) -> job.JobConfig:
    kept = next((one for one in view.past if one.first <= version <= one.last), None)
    if kept is None or not kept.stored:
        end(context, Code.NOT_FOUND, text=why_not(view, version, kept=kept))
    stored = kept_spec(cluster_client, view, number=kept.stored, context=context)
    if stored is None:  # it has gone since the job was asked
        end(context, Code.NOT_FOUND, text=f"version {version} is no longer stored")
    then = of_spec(view, stored.spec)
    if not stored.spec.is_service:
        return whole_config(cluster_client, then, context=context)
    found = job_config_of(then)
    put_own(found, stored)
    return found


def why_not(view: JobView, version: int, *, kept: KeptSpec | None) -> str:
    """Return why the spec of a version cannot be answered."""
    newest = view.spec.config_version
    if not 0 < version <= newest:
        return f"there is no version {version}; the newest is {newest}"
    if kept is not None:
        return f"version {version} is not stored: {TOO_LARGE}"
    oldest = next((one.first for one in view.past if one.stored), view.since or newest)
    text = f"version {version} is no longer stored; the oldest available is {oldest}"
    return f"{text}: of a job the last {SPECS_KEPT_MAX} specs before the present one are kept"
