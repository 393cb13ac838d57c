"""A job as clients see it: its entry in a listing, and its details."""

from __future__ import annotations

import functools

from msgspec.structs import replace

from peloton.actors.job.messages import GetJob, JobSummary, JobView
from peloton.actors.job.slice.task_config import TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.stages import JobGoals, JobStates
from peloton.actors.job.state import Job, version_of
from peloton.actors.job.totals import by_version, used
from peloton.actors.job.waiting import next_start_of, what_blocks
from peloton.actors.job.workflow.leaves import progress_of
from peloton.actors.job.workflow.messages import WorkflowView
from peloton.runtime.vocabulary import Absent, At, Bits, Key


def summary(key: Key, job: Job) -> JobSummary | None:
    """Return the entry of a listing; None for a job that is incomplete or being deleted."""
    spec = job.spec
    if spec is None or job.goal == JobGoals.DELETED:
        return None
    return JobSummary(
        job=key,
        name=spec.name,
        owner=spec.owner,
        state=job.state,
        instances=sum(job.counts.values()) if spec.inventories else spec.instances,
        pool=spec.pool,
        pool_path=job.pool_path,
        created_at=job.created_at,
        started_at=job.started_at,
        completed_at=job.completed_at,
        updated_at=job.updated_at,
        labels=spec.labels,
        job_type=spec.job_type,
        counts=tuple(job.counts.items()),
        created_by=job.created_by,
        usage=used([report.tally for _, report in sorted(job.reports.items())]),
        config_version=spec.config_version,
        versions=_versions(job),
    )


DEFAULTS_KEPT_MAX = 1024
"""Texts of default configs that are shared: most jobs have the default of a job before."""
TEXT_LENGTH_MAX = 16 * 1024
"""Of each text so much is searched: a command may be a script of many pages."""


def texts(job: Job) -> tuple[str, ...]:
    """Return the strings of the config in lower case: of the job, and of its default.

    A word of the config is in one of them, and a name and its value are also found together.
    """
    return () if job.spec is None else texts_of(job.spec, job.pool_path)


def texts_of(spec: JobSpec, pool_path: str) -> tuple[str, ...]:
    """Return the strings of a spec in lower case."""
    own = [spec.name, spec.owner, spec.description, pool_path, spec.job_type]
    own += _pairs(spec.labels)
    return "\n".join(own)[:TEXT_LENGTH_MAX].lower(), _text_of(spec.default)


@functools.lru_cache(DEFAULTS_KEPT_MAX)
def _text_of(default: TaskConfig) -> str:
    found = [default.name, default.image, *_pairs(default.labels)]
    command = default.command
    if command is not None:
        found += [command.value, *command.arguments, command.user, *_pairs(default.variables)]
    for port in default.ports:
        found += [port.name, port.env]
    return "\n".join(found)[:TEXT_LENGTH_MAX].lower()


def _pairs(pairs: tuple[tuple[str, str], ...]) -> list[str]:
    return [text for name, value in pairs for text in (name, value, f"{name}={value}")]


def get_job(job: Job, query: GetJob, at: At) -> JobView | Absent:
    """Return the details; a job that is being deleted is absent for clients at once."""
    line = summary(at.key, job)
    if line is None or job.spec is None:
        return Absent(at.key)
    return JobView(
        summary=line,
        spec=job.spec,
        goal=job.goal,
        desired_state_version=job.desired_state_version,
        slices=job.slices,
        because=_because(job),
        stop=job.stop,
        part_stops=tuple((number, job.part_stops[number]) for number in sorted(job.part_stops)),
        created_by=job.created_by,
        blocked_by=what_blocks(job),
        next_start_at=next_start_of(job),
        version=version_of(job),
        workflows=_workflows(job),
        span=job.span,
        since=job.versions.since,
        past=job.versions.past,
        stored=job.versions.stored,
    )


def of_spec(view: JobView, spec: JobSpec) -> JobView:
    """Return the view with an earlier spec."""
    return replace(view, spec=spec)


def _workflows(job: Job) -> tuple[WorkflowView, ...]:
    if job.workflow is None:
        return ()
    every = (*job.past_workflows, job.workflow)
    return tuple(one.view(progress_of(job)) for one in reversed(every))


def _versions(job: Job) -> tuple[tuple[int, int], ...]:
    if job.spec is None or job.spec.config_version == 1:
        return ()
    return by_version(job.reports[number].tally for number in sorted(job.reports))


def _because(job: Job) -> str:
    if job.blocked:
        return what_blocks(job)
    if job.stop is not None and job.stop.reason:
        return job.stop.reason
    others = job.confirmed - Bits.of(0)  # than the first, which opens with its job
    open_slices = job.slices - 1 - len(others)
    if job.spec is not None and job.spec.config_version > 1:
        open_slices = job.slices - len(job.confirmed)
    if job.state == JobStates.INITIALIZED and open_slices:
        return f"{open_slices} of {job.slices} slices are still being opened"
    if job.state == JobStates.KILLING:
        return "instances are being stopped"
    if job.state == JobStates.PENDING and job.spec is not None and job.spec.is_daemon:
        return "" if job.counts else "no host is one that it is for"
    return ""
