"""A job as clients see it: its entry in a listing, and its details. Must not decide anything."""

from __future__ import annotations

from peloton.actors.job.messages import GetJob, JobGoals, JobStates, JobSummary, JobView
from peloton.actors.job.state import Job
from peloton.runtime.vocabulary import Absent, At, Bits, Key


def summary(key: Key, job: Job) -> JobSummary | None:
    """The entry of a listing; none for a job that is incomplete or being deleted."""
    spec = job.spec
    if spec is None or job.goal == JobGoals.DELETED:
        return None
    return JobSummary(
        job=key,
        name=spec.name,
        owner=spec.owner,
        state=job.state,
        instances=spec.instances,
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
    )


def get_job(job: Job, query: GetJob, at: At) -> JobView | Absent:
    """The details; a job that is being deleted is absent for clients at once."""
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
    )


def _because(job: Job) -> str:
    others = job.confirmed - Bits.of(0)  # than the first, which opens with its job
    open_slices = job.slices - 1 - len(others)
    if job.state == JobStates.INITIALIZED and open_slices:
        return f"{open_slices} of {job.slices} slices are still being opened"
    if job.state == JobStates.KILLING:
        return "instances are being stopped"
    return ""
