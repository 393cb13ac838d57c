"""The state of a job: the record that facts change (`folds.py`), and what follows from it.

Its size must not grow with the instances, but for two things limited by slices: their last reports,
and which of their members are stopped. Overrides are kept only until their slice has them.
"""

from __future__ import annotations

import immutables

from peloton.actors.job.grants import Use, count_of, metered, use_of
from peloton.actors.job.messages import StopRecord
from peloton.actors.job.slice.messages import BETWEEN_ATTEMPTS, Tally, slices_of
from peloton.actors.job.slice.task_config import Override
from peloton.actors.job.spec import SERVICE, JobSpec
from peloton.actors.job.spec_versions import SpecVersions
from peloton.actors.job.stages import EntityVersion, JobGoals, JobStates
from peloton.actors.job.throttle import Throttled
from peloton.actors.job.totals import total
from peloton.actors.job.volume_sizes import VolumeSizes
from peloton.actors.job.waits import Waits
from peloton.actors.job.workflow.state import Workflow
from peloton.actors.task.messages import SLICE_SIZE
from peloton.runtime.vocabulary import Bits, Key, Value


def default_goal(spec: JobSpec) -> JobGoals:
    """Return the goal of a job that nobody has stopped."""
    return JobGoals.RUNNING if spec.is_service else JobGoals.SUCCEEDED


class SliceReport(Value, frozen=True, gc=False, array_like=True):
    """The last tally of a slice."""

    version: int
    tally: Tally
    goal: int = 0  # the version of the goal that the slice held


class Share(Value, frozen=True, gc=False, array_like=True):
    """How many members of one slice may be down.

    `carried`: how many might have been before it was lowered, which holds until the slice reports
    under a goal of the version `since` or later. `heard`: the number of its last request.
    """

    allowance: int = 0
    carried: int = 0
    since: int = 0
    heard: int = 0


class Job(Value, frozen=True, gc=False, array_like=True):
    """One job. `version` numbers its goals; a slice is confirmed when it holds the newest.

    `restarts`: by slice, members to restart with the version of the order, until it is confirmed.
    `awaited`: by slice, the version of an order by which instances run that had ended, or did not
    exist: the job has not ended before a tally of that version or a later one.
    """

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
    restarts: immutables.Map[int, tuple[tuple[int, Bits], ...]] = immutables.Map()
    awaited: immutables.Map[int, int] = immutables.Map()
    uses: immutables.Map[int, Use] = immutables.Map()  # by slice; only where there is a limit
    pieces: immutables.Map[int, tuple[Override, ...]] = immutables.Map()  # of an update to come
    pieces_by: str = ""  # who sends them
    period: Key = Key("")  # of the archive, that has it
    archived_end: float = 0.0  # and with which end
    waits: Waits = Waits()
    throttled: Throttled | None = None
    workflow_version: int = 1
    workflow: Workflow | None = None  # the last one
    past_workflows: tuple[Workflow, ...] = ()  # those before it, the newest last
    shares: immutables.Map[int, Share] = immutables.Map()  # of how many may be down, by slice
    span: int = 0  # instances there may be yet, where they are more than the spec says
    opened: int = 0  # slices there are, where they are more than it needs
    versions: SpecVersions = SpecVersions()
    volume_sizes: VolumeSizes = immutables.Map()  # that differ from the default's

    @property
    def blocked(self) -> bool:
        """Return whether the job may not begin yet: its slices are not told its goal."""
        return self.waits.blocks and self.is_wanted

    @property
    def is_wanted(self) -> bool:
        """Return whether the job is to run: nobody has stopped or deleted it."""
        return self.goal in (JobGoals.SUCCEEDED, JobGoals.RUNNING)

    @property
    def is_stopped(self) -> bool:
        """Return whether no instance is to run, also if all were stopped one by one."""
        if self.spec is None or not self.is_wanted:
            return True
        spec, parts = self.spec, self.stopped
        if sum(map(len, parts.values())) < spec.instances:
            return False
        # Some may be beyond those that are to run.
        return sum(map(len, still_there(parts, spec).values())) >= spec.instances

    @property
    def reach(self) -> int:
        """Return one past the highest instance there may be."""
        count = self.spec.instances if self.spec is not None else 0
        return max(count, self.span)

    def reach_in(self, number: int) -> int:
        """Return one past the highest member of one slice there may be."""
        return max(min(self.reach - number * SLICE_SIZE, SLICE_SIZE), 0)

    @property
    def slices(self) -> int:
        """Return how many slices hold the instances."""
        if self.spec is None:
            return 0
        needed = slices_of(self.spec.instances)
        return needed if needed > self.opened else self.opened

    @property
    def counts(self) -> dict[str, int]:
        """Return instances by the state that clients see."""
        found = counts_of(self.spec, self.reports, rolled=self.workflow is not None)
        if BETWEEN_ATTEMPTS in found:
            found["FAILED"] = found.get("FAILED", 0) + found.pop(BETWEEN_ATTEMPTS)
        return dict(sorted(found.items()))


def still_there(stopped: immutables.Map[int, Bits], spec: JobSpec) -> immutables.Map[int, Bits]:
    """Return those of these members of slices that the spec still has."""
    kept = ((k, stopped[k] & Bits.span(0, count_of(spec, k))) for k in sorted(stopped))
    return immutables.Map({number: some for number, some in kept if some})


def awaited_of(job: Job, version: int) -> immutables.Map[int, int]:
    """Return what is awaited once there is a goal of this version for all slices.

    Of a daemon job it is the tally of each: one without hosts has no tasks that would send it.
    """
    if job.spec is None or not job.spec.is_daemon:
        return job.awaited
    return job.awaited.update(dict.fromkeys(range(job.slices), version))


def version_of(job: Job) -> EntityVersion:
    """Return what clients compare before they change the job."""
    config = job.spec.config_version if job.spec is not None else 1
    return EntityVersion(config, job.desired_state_version, job.workflow_version)


def known_use(job: Job, number: int) -> Use:
    """Return what is known of the use of one slice of a job with a limit."""
    use, report = job.uses.get(number), job.reports.get(number)
    assert job.spec is not None
    if use is not None:
        return use
    if report is not None:  # stored by a version that derived it each time
        return use_of(report.tally, job.grants.get(number, 0))
    return Use(0, count_of(job.spec, number))


def known_uses(job: Job) -> dict[int, Use]:
    """Return what is known of the use of all slices."""
    return {number: known_use(job, number) for number in range(job.slices)}


def counts_of(
    spec: JobSpec | None, reports: immutables.Map[int, SliceReport], *, rolled: bool
) -> dict[str, int]:
    """Return instances by state, by what slices report.

    Slices without a report count as INITIALIZED if a service or a metered job has them, but not for
    a job that had a workflow (`rolled`).
    """
    counts = total(reports[number].tally for number in sorted(reports))
    if spec is None or spec.inventories or rolled:
        return counts
    if spec.job_type == SERVICE or metered(spec):
        # A slice of which none may begin has no tasks yet, and so sends no tally.
        unreported = [
            number for number in range(slices_of(spec.instances)) if number not in reports
        ]
        waiting = sum(count_of(spec, number) for number in unreported)
        if waiting:
            counts["INITIALIZED"] = counts.get("INITIALIZED", 0) + waiting
    return counts
