"""The state of a job, and how facts change it.

Its size must not grow with the instances, but for two things bounded by slices: their last
reports, and which of their members are stopped. Overrides are kept only until their slice has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import immutables
import msgspec

from peloton.actors.job import facts as f
from peloton.actors.job.grants import count_of, first, limited
from peloton.actors.job.messages import JobGoals, JobStates, StopRecord
from peloton.actors.job.slice.messages import Tally, slices_of
from peloton.actors.job.spec import JobSpec, Override
from peloton.actors.job.totals import TERMINAL_JOB_STATES, has_begun, job_state_of, total
from peloton.runtime.vocabulary import Bits, Key, Value


class SliceReport(Value, frozen=True, gc=False, array_like=True):
    """The last tally of a slice."""

    version: int
    tally: Tally


class Job(Value, frozen=True, gc=False, array_like=True):
    """One job. `version` numbers its goals; a slice is confirmed when it holds the newest."""

    key: Key = Key("")
    spec: JobSpec | None = None  # None while the job is incomplete
    pool_path: str = ""
    goal: JobGoals = JobGoals.SUCCEEDED
    state: JobStates = JobStates.INITIALIZED
    version: int = 1
    desired_state_version: int = 1
    confirmed: Bits = Bits()
    gone: Bits = Bits()
    stopped: immutables.Map[int, Bits] = immutables.Map()
    overrides: immutables.Map[int, tuple[Override, ...]] = immutables.Map()
    reports: immutables.Map[int, SliceReport] = immutables.Map()
    created_at: float = 0.0
    started_at: float = 0.0
    completed_at: float = 0.0
    updated_at: float = 0.0
    stop: StopRecord | None = None  # of the whole job
    part_stops: immutables.Map[int, StopRecord] = immutables.Map()  # the last one of each slice
    grants: immutables.Map[int, int] = immutables.Map()  # by slice; only where there is a limit
    created_by: str = ""  # while the job is incomplete, who sends its pieces

    @property
    def slices(self) -> int:
        """How many slices hold the instances."""
        return slices_of(self.spec.instances) if self.spec is not None else 0

    @property
    def counts(self) -> dict[str, int]:
        """Instances by state."""
        return dict(sorted(_counts(self.spec, self.reports).items()))


replace = msgspec.structs.replace


def _counts(spec: JobSpec | None, reports: immutables.Map[int, SliceReport]) -> dict[str, int]:
    counts = total(reports[number].tally for number in sorted(reports))
    if spec is not None and limited(spec):
        # A slice without a grant has no tasks yet, and so sends no tally.
        unreported = [
            number for number in range(slices_of(spec.instances)) if number not in reports
        ]
        waiting = sum(count_of(spec, number) for number in unreported)
        if waiting:
            counts["INITIALIZED"] = counts.get("INITIALIZED", 0) + waiting
    return counts


def _given(job: Job | None, fact: f.OverridesGiven) -> Job:
    job = job if job is not None else Job()
    overrides = job.overrides.set(fact.slice_number, fact.overrides)
    return replace(job, overrides=overrides, created_by=fact.who or job.created_by)


def _made(job: Job | None, fact: f.JobMade) -> Job:
    job = job if job is not None else Job()
    return replace(
        job,
        key=fact.job,
        spec=fact.spec,
        pool_path=fact.pool_path,
        created_at=fact.at,
        updated_at=fact.at,
        created_by=fact.who,
        grants=immutables.Map(first(fact.spec) if limited(fact.spec) else ()),
    )


def _stop(job: Job, fact: f.StopOrdered) -> Job:
    return replace(
        job,
        goal=JobGoals.KILLED,
        state=JobStates.KILLING,
        stop=StopRecord(fact.at, fact.who),
        version=job.version + 1,
        desired_state_version=job.desired_state_version + 1,
        confirmed=Bits(),
        updated_at=fact.at,
    )


def _stop_some(job: Job, fact: f.InstancesStopped) -> Job:
    before = job.stopped.get(fact.slice_number, Bits())
    return replace(
        job,
        version=job.version + 1,
        confirmed=job.confirmed - Bits.of(fact.slice_number),
        stopped=job.stopped.set(fact.slice_number, before | fact.members),
        part_stops=job.part_stops.set(fact.slice_number, StopRecord(fact.at, fact.who)),
    )


def _delete(job: Job, fact: f.DeletionOrdered) -> Job:
    return replace(
        job,
        goal=JobGoals.DELETED,
        version=job.version + 1,
        desired_state_version=job.desired_state_version + 1,
        confirmed=Bits(),
        updated_at=fact.at,
    )


def _confirmed(job: Job, number: int) -> Job:
    overrides = job.overrides
    if number in overrides:
        overrides = overrides.delete(number)
    return replace(job, confirmed=job.confirmed | Bits.of(number), overrides=overrides)


def _tallied(job: Job, fact: f.JobTallied) -> Job:
    spec = job.spec
    assert spec is not None
    if job.version == 1 and fact.number == 0 and 0 not in job.confirmed:
        job = _confirmed(job, 0)  # there was no other goal: who has tasks holds it
    reports = job.reports.set(fact.number, SliceReport(fact.version, fact.tally))
    counts = _counts(spec, reports)
    controller = reports[0].tally.controller if 0 in reports else ""
    state = job_state_of(counts, spec.instances, known=job.state, controller=controller)
    return replace(
        job,
        reports=reports,
        state=state,
        started_at=job.started_at or (fact.at if has_begun(counts) else 0.0),
        completed_at=(job.completed_at or fact.at) if state in TERMINAL_JOB_STATES else 0.0,
        updated_at=fact.at,
    )


def _raised(job: Job, fact: f.GrantsRaised) -> Job:
    grants, touched = job.grants, Bits()
    for number, grant in fact.grants:
        grants, touched = grants.set(number, grant), touched | Bits.of(number)
    return replace(job, grants=grants, version=job.version + 1, confirmed=job.confirmed - touched)


EVOLVE: Mapping[type, Callable[[Any, Any], Job | None]] = {
    f.OverridesGiven: _given,
    f.JobMade: _made,
    f.StopOrdered: _stop,
    f.InstancesStopped: _stop_some,
    f.DeletionOrdered: _delete,
    f.SliceConfirmed: lambda job, fact: _confirmed(job, fact.number),
    f.JobTallied: _tallied,
    f.SliceVanished: lambda job, fact: replace(job, gone=job.gone | Bits.of(fact.number)),
    f.JobForgotten: lambda job, fact: None,
    f.GrantsRaised: _raised,
}
