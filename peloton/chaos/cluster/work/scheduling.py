"""R25: each moment of a schedule makes one job at most, none is lost, and none comes too early.

Turns scenario actions into schedules that are due each minute, and committed facts into a
`Contradiction` or nothing. After a time without an owner only the last moment counts, and a moment
may make no job if its schedule journals the reason: so only the moments in a calm may not be lost,
and the jobs that a moment was to make. If jobs may not overlap, the one before has ended, or is
deleted, once the next one is there. The schedule's own computation of a moment is not used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peloton.actors.job import facts as jf
from peloton.actors.schedule import facts as cf
from peloton.actors.schedule.messages import (
    CreateSchedule,
    DeleteSchedule,
    Overlaps,
    PauseSchedule,
    ScheduleSpec,
    schedule_key,
)
from peloton.chaos.cluster.rules.job_ends import JobEnds
from peloton.chaos.cluster.work.drawing import ActionDraw, by_weight
from peloton.chaos.cluster.work.workload import client_of, cluster_of
from peloton.chaos.cluster.world.cluster import SimulatedCluster, job_spec
from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.storms import Storm
from peloton.runtime.vocabulary import Key, Message

SHARE = 0.12
ACTIONS = (2, 5)
SCHEDULES = 2
EVERY_S = 60.0
CALM_S = 90.0
"""In s: a calm of this length has a moment of each schedule, though clocks are off by a tenth."""


class ScheduleCheck:
    """The moments of each schedule, and the jobs they were to make."""

    def __init__(self, cluster: SimulatedCluster, ends: JobEnds) -> None:
        self.jobs: dict[Key, Key] = {}  # to be made, and by which schedule
        self._cluster = cluster
        self._ends = ends
        self._made: dict[Key, None] = {}
        self._alone: dict[Key, None] = {}  # schedules whose jobs may not overlap
        self._before: dict[Key, Key] = {}  # the job that a schedule made last
        self._new: dict[Key, None] = {}  # jobs made since the last step
        self._last: dict[Key, float] = {}  # the last moment of each that there is
        self._come: dict[Key, float] = {}  # when that came
        self._paused: dict[Key, None] = {}
        self._open: dict[Key, Key] = {}  # the job that is to be made
        self._settled: dict[Key, cf.JobSettled] = {}  # since the last step
        self.noted: dict[type, Callable[[Entry, Any], None]] = {
            cf.ScheduleMade: self._created,
            cf.SchedulePaused: self._pauses,
            cf.MomentCome: self._comes,
            cf.JobSettled: self._settles,
            cf.ScheduleDeleted: self._deleted,
            jf.JobMade: self._makes,
        }

    @property
    def going(self) -> list[Key]:
        """The schedules that are not paused."""
        return [each for each in self._last if each not in self._paused]

    def went_on(self, since: float) -> None:
        """Check that each schedule has had a moment since then. Raises `Contradiction`."""
        for schedule in self.going:
            if self._come[schedule] < since:
                raise Contradiction(f"R25 {schedule} had no moment since {since:.1f}")

    def step(self) -> None:
        """Check after all frames of this instant are known. Raises `Contradiction`.

        Frames of a shard come before those of another, whichever was committed first.
        """
        for schedule, fact in self._settled.items():
            if fact.made != (fact.job in self._made):
                there = "there" if fact.job in self._made else "not there"
                raise Contradiction(f"R25 {schedule}: {fact}, and the job is {there}")
        self._settled.clear()
        for job in self._new:
            schedule = self.jobs.get(job)
            if schedule in self._alone:
                before = self._before.get(schedule)
                if before is not None and not self._ends.was_over(before):
                    raise Contradiction(f"R25 {schedule} makes {job}, and {before} goes on")
                self._before[schedule] = job
        self._new.clear()

    def quiet(self) -> None:
        """Check at a quiet point. Raises `Contradiction`."""
        for schedule, job in self._open.items():
            raise Contradiction(f"R25 {schedule}: {job} of its moment is neither made nor refused")

    def _created(self, entry: Entry, fact: cf.ScheduleMade) -> None:
        self._last[entry.key], self._come[entry.key] = 0.0, self._cluster.world.now
        self._paused.pop(entry.key, None)
        self._alone.pop(entry.key, None)
        if fact.paused:
            self._paused[entry.key] = None
        if fact.spec.overlap != Overlaps.ALLOW:
            self._alone[entry.key] = None

    def _pauses(self, entry: Entry, fact: cf.SchedulePaused) -> None:
        self._come[entry.key] = self._cluster.world.now
        self._paused.pop(entry.key, None)
        if fact.paused:
            self._paused[entry.key] = None

    def _comes(self, entry: Entry, fact: cf.MomentCome) -> None:
        schedule = entry.key
        if fact.moment <= self._last[schedule] or fact.moment % EVERY_S:
            text = f"moment {fact.moment} comes after {self._last[schedule]}"
            raise Contradiction(f"R25 {schedule}: {text}")
        if bool(fact.job) == bool(fact.why) or fact.job in self.jobs:
            raise Contradiction(f"R25 {schedule}: {fact.moment} makes {fact.job}: {fact.why}")
        if fact.job and schedule in self._open:
            raise Contradiction(f"R25 {schedule}: {self._open[schedule]} is given up")
        self._last[schedule], self._come[schedule] = fact.moment, self._cluster.world.now
        if fact.job:
            self._open[schedule] = fact.job
            self.jobs[fact.job] = schedule

    def _settles(self, entry: Entry, fact: cf.JobSettled) -> None:
        if self._open.pop(entry.key, None) != fact.job:
            raise Contradiction(f"R25 {entry.key}: {fact}, and that job was not to be made")
        self._settled[entry.key] = fact

    def _deleted(self, entry: Entry, fact: cf.ScheduleDeleted) -> None:  # noqa: ARG002
        for known in (self._last, self._come, self._open, self._paused, self._before):
            known.pop(entry.key, None)

    def _makes(self, entry: Entry, fact: jf.JobMade) -> None:  # noqa: ARG002
        self._made[entry.key] = None
        self._new[entry.key] = None


def create_schedule(storm: Storm, action: StormAction) -> None:
    """Create a schedule with a moment each minute."""
    overlap = Overlaps(action.count % len(Overlaps))
    late_s = (0.0, 0.0, 30.0)[action.other % 3]
    job = job_spec(1 + action.count % 2)
    spec = ScheduleSpec("* * * * *", "UTC", "/p", job, overlap=overlap, starting_deadline_s=late_s)
    _ask(storm, action, message=CreateSchedule(spec))


def pause_schedule(storm: Storm, action: StormAction) -> None:
    """Pause a schedule, or resume it."""
    _ask(storm, action, message=PauseSchedule(action.other % 2 == 0))


def delete_schedule(storm: Storm, action: StormAction) -> None:
    """Delete a schedule; its jobs stay."""
    _ask(storm, action, message=DeleteSchedule())


def _ask(storm: Storm, action: StormAction, *, message: Message) -> None:
    schedule = schedule_key(f"s{action.which % SCHEDULES}")
    storm.strike(action.name, schedule)
    client = client_of(action)
    keyed = not isinstance(message, PauseSchedule)
    cluster_of(storm).clients.command(client, schedule, message=message, keyed=keyed)


def end_all(cluster: SimulatedCluster, check: ScheduleCheck) -> bool:
    """Let each schedule have a moment more, and pause them; return whether there was any."""
    if not check.going:
        return False
    since = cluster.world.now
    cluster.world.run_for(CALM_S)
    check.went_on(since)
    for schedule in check.going:
        pause = PauseSchedule(paused=True)
        cluster.clients.command("operator", schedule, message=pause, keyed=False)
    return True


WORK: dict[str, Callable[[Storm, StormAction], None]] = {
    "create schedule": create_schedule,
    "pause schedule": pause_schedule,
    "delete schedule": delete_schedule,
}
WEIGHTS = {"create schedule": 5, "pause schedule": 2, "delete schedule": 1}


DRAWN = ActionDraw(
    "schedules",
    SHARE,
    ACTIONS,
    by_weight(WEIGHTS),
    lambda chance: chance.randrange(6),
)
