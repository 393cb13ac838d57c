"""Translates a job's config from the wire, and its config and runtime back.

A JobConfig becomes a spec with overrides beside it, and views become JobInfo and JobSummary. Fields
that are not supported yet are refused by name. No query is sent.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from peloton.actors.host.run_spec import SecretRef
from peloton.actors.job.messages import JobSummary, JobView
from peloton.actors.job.slice.task_config import Override, TaskConfig
from peloton.actors.job.spec import BATCH, JobSpec, check_instances, check_spec
from peloton.actors.job.stages import JobGoals
from peloton.actors.respool.messages import pool_key
from peloton.actors.task.messages import SLICE_SIZE
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2 as job
from peloton.gateway.translate.bad_field import BadField
from peloton.gateway.translate.job_labels import fields_of
from peloton.gateway.translate.run_as import UNKNOWN, RunAs
from peloton.gateway.translate.texts import client_name, nanoseconds, rfc3339, wire_usage
from peloton.gateway.translate.translate_task import RAW_BYTES_MAX, to_config

ENTITY_BYTES_MAX = 4_000_000
"""Largest size of the configs of one slice, by a generous estimate: a journal entry is limited."""
LINES_KEPT_MAX = 1024
"""Lines of listings that are kept: those of one page are mostly those of the page before."""

WIRE_JOB_GOALS = {
    JobGoals.SUCCEEDED: job.SUCCEEDED,
    JobGoals.RUNNING: job.RUNNING,
    JobGoals.KILLED: job.KILLED,
    JobGoals.DELETED: job.DELETED,
}


class ParsedJob(NamedTuple):
    """A client's request: the spec, and instances' own configs by slice."""

    spec: JobSpec
    pieces: dict[int, tuple[Override, ...]]

    def with_secrets(self, refs: tuple[SecretRef, ...]) -> ParsedJob:
        """Return the request with these secrets for each instance."""
        return self._replace(spec=self.spec.with_secrets(refs)) if refs else self

    def size_bytes(self) -> int:
        """Return the approximate size of the pieces in messages."""
        return sum(len(o.config.raw) for piece in self.pieces.values() for o in piece)


def to_spec(
    sent: job.JobConfig, by: RunAs = UNKNOWN, *, inventories: int = 1, on_mesos: bool = False
) -> ParsedJob:
    """Return the spec of a config, checked for a caller.

    Raises BadField, BadAmount or NotPermitted, naming the field. `inventories`: how many this
    cluster has. `on_mesos`: as of `to_config`.
    """
    has_default = sent.HasField("defaultConfig")
    default = TaskConfig()
    if has_default:
        default = to_config(sent.defaultConfig, "config.defaultConfig", by=by, on_mesos=on_mesos)
        default = default.on_slack() if sent.sla.revocable else default
    if sent.type == job.DAEMON and sent.instanceCount:
        text = "must be 0 for a daemon job, which has one on each host"
        raise BadField("config.instanceCount", text)
    spec = JobSpec(
        name=sent.name,
        owner=sent.owningTeam or sent.owner,
        pool=pool_key(sent.respoolID.value),
        instances=sent.instanceCount,
        default=default,
        job_type=_name(sent.type),
        labels=tuple((label.key, label.value) for label in sent.labels),
        description=sent.description,
        priority=sent.sla.priority,
        preemptible=sent.sla.preemptible,
        revocable=sent.sla.revocable,
        minimum_running=sent.sla.minimumRunningInstances,
        maximum_running=sent.sla.maximumRunningInstances,
        max_running_time_s=float(sent.sla.maxRunningTime),
        has_default=has_default,
        raw=_raw(sent),
        own_configs=len(sent.instanceConfig),
        spread=sent.placementStrategy == job.PLACEMENT_STRATEGY_SPREAD_JOB,
        maximum_unavailable=sent.sla.maximumUnavailableInstances,
        **fields_of(sent.labels, name=sent.name),
    )
    spec = spec.on_hosts_of(inventories)
    refused = check_spec(spec)
    if refused is not None:
        raise BadField(refused.field, refused.text)
    _refuse_unsupported(spec, sent)
    pieces = _pieces(sent, by, on_mesos=on_mesos)
    overrides = [override for piece in pieces.values() for override in piece]
    refused = check_instances(spec, overrides, own=len(overrides))
    if refused is not None:
        raise BadField(refused.field, refused.text)
    return ParsedJob(spec, pieces)


def _name(kind: int) -> str:
    known = job.JobType.DESCRIPTOR.values_by_number.get(kind)
    return known.name if known is not None else str(kind)


def _raw(sent: job.JobConfig) -> bytes:
    """Return the job's own part; its default and the instances' configs are kept beside it."""
    rest = job.JobConfig()
    for field, value in sent.ListFields():
        if field.name in ("defaultConfig", "instanceConfig"):
            continue
        if field.is_repeated:
            getattr(rest, field.name).extend(value)
        elif field.message_type is not None:
            getattr(rest, field.name).CopyFrom(value)
        else:
            setattr(rest, field.name, value)
    raw: bytes = rest.SerializeToString(deterministic=True)
    if len(raw) > RAW_BYTES_MAX:
        raise BadField("config", f"{len(raw)} bytes, the limit is {RAW_BYTES_MAX}")
    return raw


def _refuse_unsupported(spec: JobSpec, sent: job.JobConfig) -> None:
    if sent.placementStrategy not in job.PlacementStrategy.values():
        text = f"unknown placement strategy {sent.placementStrategy}"
        raise BadField("config.placementStrategy", text)


def _pieces(sent: job.JobConfig, by: RunAs, *, on_mesos: bool) -> dict[int, tuple[Override, ...]]:
    found: dict[int, list[Override]] = {}
    in_slice: dict[int, int] = {}
    for instance in sorted(sent.instanceConfig):
        field = f"config.instanceConfig[{instance}]"
        config = to_config(sent.instanceConfig[instance], field, by=by, on_mesos=on_mesos)
        config = config.on_slack() if sent.sla.revocable else config
        number = instance // SLICE_SIZE
        found.setdefault(number, []).append(Override(instance, config))
        # As sent and translated, and for host, placer and pool.
        in_slice[number] = in_slice.get(number, 0) + 3 * len(config.raw) + 300
        if in_slice[number] > ENTITY_BYTES_MAX:
            text = f"own configs of a slice's instances take more than {ENTITY_BYTES_MAX} bytes"
            raise BadField(field, text)
    return {number: tuple(overrides) for number, overrides in found.items()}


# ---- back ----


def job_config_of(view: JobView) -> job.JobConfig:
    """Return the config as its client wrote it, without the instances' own."""
    found = job.JobConfig.FromString(view.spec.raw)
    if view.spec.has_default:
        found.defaultConfig.ParseFromString(view.spec.default.raw)
    found.changeLog.CopyFrom(_change(view.summary))
    found.changeLog.updatedBy = view.created_by
    return found


def job_info_of(view: JobView) -> job.JobInfo:
    """Return config and runtime."""
    runtime = runtime_of(view.summary)
    runtime.goalState = WIRE_JOB_GOALS[view.goal]
    runtime.desiredStateVersion = view.desired_state_version
    runtime.revision.updatedBy = view.stop.who if view.stop is not None else view.created_by
    job_id = peloton_pb2.JobID(value=client_name(view.summary.job))
    return job.JobInfo(id=job_id, config=job_config_of(view), runtime=runtime)


def runtime_of(summary: JobSummary) -> job.RuntimeInfo:
    """Return the runtime as a summary has it."""
    return job.RuntimeInfo(
        state=summary.state.name,
        creationTime=rfc3339(summary.created_at),
        startTime=rfc3339(summary.started_at),
        completionTime=rfc3339(summary.completed_at),
        taskStats=dict(summary.counts),
        goalState=job.SUCCEEDED if summary.job_type == BATCH else job.RUNNING,
        configVersion=summary.config_version,
        configurationVersion=summary.config_version,
        stateVersion=1,
        desiredStateVersion=1,
        workflowVersion=1,
        revision=_change(summary),
        resourceUsage=wire_usage(summary.usage),
        taskConfigVersionStats=config_versions(summary),
    )


def config_versions(summary: JobSummary) -> dict[int, int]:
    """Return instances by the version of their config."""
    whole = {summary.config_version: sum(count for _, count in summary.counts)}
    return dict(summary.versions) or whole


@functools.lru_cache(LINES_KEPT_MAX)
def summary_of(summary: JobSummary) -> job.JobSummary:
    """Return a line of a listing; shared by all callers, who must not change it."""
    found = job.JobSummary(
        id=peloton_pb2.JobID(value=client_name(summary.job)),
        name=summary.name,
        type=summary.job_type,
        owner=summary.owner,
        owningTeam=summary.owner,
        instanceCount=summary.instances,
        respoolID=peloton_pb2.ResourcePoolID(value=client_name(summary.pool)),
        runtime=runtime_of(summary),
    )
    for key, value in summary.labels:
        found.labels.add(key=key, value=value)
    return found


def _change(summary: JobSummary) -> peloton_pb2.ChangeLog:
    return peloton_pb2.ChangeLog(
        version=summary.config_version,
        createdAt=nanoseconds(summary.created_at),
        updatedAt=nanoseconds(summary.updated_at),
    )
