"""R23 to R25, R29 and R38: a history that breaks a rule is reported, and its right twin is not.

Histories are written by hand. That storms find the same where it is planted into the program is in
`test_planted.py`.
"""

from __future__ import annotations

import msgspec
import pytest

from peloton.actors.host import facts as hf
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.job import facts as jf
from peloton.actors.job.name import facts as nf
from peloton.actors.job.notice_messages import Notice, PostNotice
from peloton.actors.job.slice import facts as sf
from peloton.actors.job.slice.messages import SliceOpening, Tally
from peloton.actors.job.spec import Notify, Throttle
from peloton.actors.job.stages import JobStates
from peloton.actors.schedule import facts as cf
from peloton.actors.schedule.messages import Overlaps, ScheduleSpec
from peloton.actors.task import facts as tf
from peloton.actors.task.messages import TaskGoals
from peloton.chaos.cluster.rules.job_ends import JobEnds
from peloton.chaos.cluster.work.ganging import GangCheck
from peloton.chaos.cluster.work.noticing import NoticeCheck
from peloton.chaos.cluster.work.ordering import NameCheck
from peloton.chaos.cluster.work.pacing import PaceCheck
from peloton.chaos.cluster.work.scheduling import ScheduleCheck
from peloton.chaos.cluster.world.cluster import NEED, STORM_POOL, job_spec
from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.vocabulary import Bits, Key
from tests.worlds.checkers.histories import Step, breaks, note, of, small_cluster

JOB, SLICE, CROWD = Key("job/j"), Key("slice/j/0"), Key("task/j/0")

# ---- R23 ----

PACED = msgspec.structs.replace(job_spec(9), throttle=Throttle("", 2, 5.0))


def made(paced: bool = True) -> Entry:
    return of(JOB, jf.JobMade(JOB, PACED if paced else job_spec(9), "/p", 0.0))


def begun(at: float | None, *members: int, slice_number: int = 0) -> Entry:
    return of(f"slice/j/{slice_number}", sf.MembersBegun(Bits.of(*members), at))


CHANGED = of(JOB, jf.JobChanged(PACED, (), 0.0))
FREED = of(JOB, jf.JobChanged(job_spec(9), (), 0.0))
TOO_FAST: dict[str, list[Step]] = {
    "at once": [made(), begun(1.0, 0, 1, 2)],
    "just within the period": [made(), begun(1.0, 0, 1), begun(5.9, 2)],
    "told in another order": [made(), begun(5.9, 2), begun(1.0, 0, 1)],
    "of two slices": [made(), begun(1.0, 0, 1), begun(2.0, 0, slice_number=1)],
    "since it was changed": [made(paced=False), CHANGED, begun(1.0, 0, 1, 2)],
    "in a later period": [made(), begun(1.0, 0, 1), begun(6.0, 2), begun(7.0, 3, 4)],
}
SLOW_ENOUGH: dict[str, list[Step]] = {
    "a period later": [made(), begun(1.0, 0, 1), begun(6.0, 2, 3)],
    "no throttle": [made(paced=False), begun(1.0, 0, 1, 2)],
    "not any more": [made(), FREED, begun(1.0, 0, 1, 2)],
    "not counted": [made(), begun(None, 0, 1, 2)],
    "a job of the same name": [made(), begun(1.0, 0, 1), made(), begun(1.0, 0, 1)],
}


@pytest.mark.parametrize("name", TOO_FAST)
def test_more_starts_than_a_throttle_allows_are_found(name: str) -> None:
    breaks(lambda: note(PaceCheck(), TOO_FAST[name]), f"R23 {JOB}: 3 instances begin")


@pytest.mark.parametrize("name", SLOW_ENOUGH)
def test_as_many_starts_as_a_throttle_allows_are_right(name: str) -> None:
    note(PaceCheck(), SLOW_ENOUGH[name])


def test_starts_are_not_compared_where_clocks_differ() -> None:
    check = PaceCheck()
    check.clocks_agree = False
    note(check, TOO_FAST["at once"])
    assert not check.checked


# ---- R24 ----


def notifying(*states: str) -> Entry:
    spec = msgspec.structs.replace(job_spec(2), notify=Notify("http://outside/", states))
    return of(JOB, jf.JobMade(JOB, spec, "/p", 0.0))


def tallied(**counts: int) -> Entry:
    return of(JOB, jf.JobTallied(0, 1, Tally(tuple(counts.items())), 1.0))


def listened(steps: list[Step], *told: dict[str, int]) -> NoticeCheck:
    """What a listener got of a history."""
    listener = small_cluster().listener
    for number, counts in enumerate(told):
        notice = Notice(number, JobStates.SUCCEEDED, tuple(counts.items()), 0.0, 1.0)
        order = PostNotice(JOB, "http://outside/", notice, "j", "me", "/p", 2, 0.0)
        listener.told.append(order)
    ends = JobEnds()
    note(ends, steps)
    check = NoticeCheck(listener, ends)
    check.step()
    return check


WELL, HALF = {"SUCCEEDED": 2}, {"SUCCEEDED": 1, "FAILED": 1}


def test_an_end_that_did_not_happen_is_found() -> None:
    running: list[Step] = [notifying(), tallied(SUCCEEDED=1, RUNNING=1)]
    breaks(lambda: listened(running, WELL), f"R24 {JOB} is told to have ended")
    other: list[Step] = [notifying(), tallied(**HALF)]
    breaks(lambda: listened(other, HALF, WELL), f"R24 {JOB} is told to have ended")


@pytest.mark.parametrize("told", [(), (HALF,)])
def test_an_end_that_nobody_was_told_is_found(told: tuple[dict[str, int], ...]) -> None:
    check = listened([notifying(), tallied(**HALF), tallied(**WELL)], *told)
    breaks(check.quiet, f"R24 nobody was told that {JOB} ended: (('SUCCEEDED', 2),)")


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([notifying(), tallied(**HALF), tallied(**WELL)], (WELL,)),
        ([notifying(), tallied(**WELL)], (WELL, WELL)),
        ([notifying(), tallied(RUNNING=2)], ()),
        ([notifying("FAILED"), tallied(**WELL)], ()),
        ([made(), tallied(SUCCEEDED=9)], ()),
        ([notifying(), tallied(**WELL), of(JOB, jf.JobForgotten())], ()),
    ],
)
def test_ends_that_were_told_are_right(steps: list[Step], told: tuple[dict[str, int], ...]) -> None:
    listened(steps, *told).quiet()


# ---- R25 ----

DUE = Key("schedule/s0")


def scheduled(paused: bool = False, overlap: Overlaps = Overlaps.SKIP) -> Entry:
    spec = ScheduleSpec("* * * * *", "UTC", "/p", job_spec(), overlap=overlap)
    return of(DUE, cf.ScheduleMade(DUE, spec, paused, 0.0, "", 60.0))


def comes(moment: float, job: str = "", why: str = "") -> Entry:
    return of(DUE, cf.MomentCome(moment, Key(job), why, moment, moment + 60.0))


def settled(job: str, *, is_made: bool) -> Entry:
    return of(DUE, cf.JobSettled(Key(job), is_made, "" if is_made else "refused", 1.0))


ONCE: list[Step] = [scheduled(), comes(60.0, JOB), made(), settled(JOB, is_made=True)]
ENDED = of(JOB, jf.JobTallied(0, 1, Tally((("KILLED", 9),)), 1.0))
RUNNING = of(JOB, jf.JobTallied(0, 1, Tally((("KILLED", 8), ("RUNNING", 1))), 1.0))
NEXT: list[Step] = [comes(120.0, "job/k"), of("job/k", jf.JobMade(Key("job/k"), PACED, "/p", 0.0))]
ALLOWED: list[Step] = [scheduled(overlap=Overlaps.ALLOW), *ONCE[1:]]
PAUSED = of(DUE, cf.SchedulePaused(True, 1.0, 0.0))
GOES_ON = of(DUE, cf.SchedulePaused(False, 1.0, 0.0))
MOMENTS: dict[str, list[Step]] = {
    "R25 moment 60.0 comes after 60.0": [*ONCE, comes(60.0, "job/k")],
    "R25 moment 61.0 comes": [scheduled(), comes(61.0, JOB)],
    "R25 60.0 makes : ": [scheduled(), comes(60.0)],
    "R25 60.0 makes job/j: late": [scheduled(), comes(60.0, JOB, "late")],
    "R25 120.0 makes job/j: ": [*ONCE, comes(120.0, JOB)],
    "R25 job/j is given up": [scheduled(), comes(60.0, JOB), comes(120.0, "job/k")],
    "R25 was not to be made": [scheduled(), comes(60.0, JOB), settled("job/k", is_made=True)],
    "R25 and the job is not there": [scheduled(), comes(60.0, JOB), settled(JOB, is_made=True)],
    "R25 and the job is there": [*ONCE[:3], settled(JOB, is_made=False)],
    "R25 schedule/s0 makes job/k, and job/j goes on": [*ONCE, RUNNING, *NEXT],
    "R25 makes job/k, and job/j goes on": [
        scheduled(overlap=Overlaps.REPLACE),
        *ONCE[1:],
        of(JOB, jf.StopOrdered(1.0)),
        *NEXT,
    ],
    "R25 is neither made nor refused": [scheduled(), comes(60.0, JOB), made()],
}
ON_TIME: dict[str, list[Step]] = {
    "made": [*ONCE, 90.0, comes(120.0, why="late")],
    "refused": [scheduled(), 90.0, comes(60.0, JOB), settled(JOB, is_made=False)],
    "another one": [*ONCE, 90.0, comes(180.0, "job/k"), settled("job/k", is_made=False)],
    "the one before has ended": [*ONCE, ENDED, *NEXT, settled("job/k", is_made=True)],
    "the one before is deleted": [
        *ONCE,
        of(JOB, jf.DeletionOrdered(1.0)),
        *NEXT,
        settled("job/k", is_made=True),
    ],
    "jobs may overlap": [*ALLOWED, RUNNING, *NEXT, settled("job/k", is_made=True)],
    "paused": [*ONCE, PAUSED],
    "made paused": [scheduled(paused=True)],
    "deleted": [scheduled(), comes(60.0, JOB), of(DUE, cf.ScheduleDeleted())],
}


CALM: dict[str, tuple[list[Step], list[Step]]] = {
    "no moment at all": ([scheduled()], []),
    "none in the calm": ([scheduled(), 10.0, comes(60.0, why="late")], []),
    "none since it goes on": ([scheduled(), PAUSED, GOES_ON], []),
}
CALM_WELL: dict[str, tuple[list[Step], list[Step]]] = {
    "a moment in the calm": ([scheduled()], [comes(60.0, why="late")]),
    "paused in the storm": ([scheduled(), PAUSED], []),
    "made paused": ([scheduled(paused=True)], []),
    "deleted": ([scheduled(), of(DUE, cf.ScheduleDeleted())], []),
}


def timed(steps: list[Step], calm: list[Step] | None = None) -> None:
    """A history, and perhaps what happens in a calm after it."""
    cluster = small_cluster()
    ends = JobEnds()
    check = ScheduleCheck(cluster, ends)
    for step in steps:
        if isinstance(step, Entry):
            note(ends, [step])
        note(check, [step], cluster=cluster)
    check.step()
    check.quiet()
    if calm is not None:
        note(check, [90.0], cluster=cluster)
        since = cluster.world.now
        note(check, calm, cluster=cluster)
        check.went_on(since)


@pytest.mark.parametrize("name", CALM)
def test_a_calm_without_a_moment_is_found(name: str) -> None:
    breaks(lambda: timed(*CALM[name]), f"R25 {DUE} had no moment since")


@pytest.mark.parametrize("name", CALM_WELL)
def test_a_calm_with_a_moment_is_right(name: str) -> None:
    timed(*CALM_WELL[name])


@pytest.mark.parametrize("text", MOMENTS)
def test_a_moment_that_is_lost_or_comes_twice_is_found(text: str) -> None:
    breaks(lambda: timed(MOMENTS[text]), text)


@pytest.mark.parametrize("name", ON_TIME)
def test_moments_that_come_once_are_right(name: str) -> None:
    timed(ON_TIME[name])


# ---- R38 ----

NAME = Key("name/p/j")
CLAIMED, KEPT = of(NAME, nf.NameClaimed(JOB)), of(NAME, nf.NameKept(JOB, 0.0))
FREE = of(NAME, nf.NameForgotten())
OTHERS = of(NAME, nf.NameClaimed(Key("job/k")))
NAMED: list[Step] = [made(), CLAIMED, RUNNING]
TAKEN: dict[str, list[Step]] = {
    "R38 name/p/j is free, and job/j": [*NAMED, FREE],
    "R38 and job/j, which has it, is not gone": [*NAMED, of(JOB, jf.DeletionOrdered(1.0)), FREE],
    "R38 name/p/j is kept for job/k, and job/j has it": [*NAMED, OTHERS],
    "R38 and job/j has it": [*NAMED, of(NAME, nf.NameKept(Key("job/k"), 0.0))],
}
GIVEN_UP: dict[str, list[Step]] = {
    "ended": [*NAMED, ENDED, FREE, OTHERS],
    "gone": [*NAMED, of(JOB, jf.SliceVanished(0)), FREE, OTHERS],
    "forgotten": [*NAMED, of(JOB, jf.JobForgotten()), FREE],
    "nothing of it was there": [made(), CLAIMED, FREE],
    "only kept": [made(), RUNNING, KEPT, FREE, OTHERS],
    "kept, and then its own": [KEPT, *NAMED],
}


def named(steps: list[Step]) -> None:
    ends = JobEnds()
    note(ends, steps)
    check = NameCheck(ends)
    note(check, steps)
    check.step()


@pytest.mark.parametrize("text", TAKEN)
def test_a_name_that_is_free_too_early_is_found(text: str) -> None:
    breaks(lambda: named(TAKEN[text]), text)


@pytest.mark.parametrize("name", GIVEN_UP)
def test_names_of_jobs_that_are_gone_are_free(name: str) -> None:
    named(GIVEN_UP[name])


# ---- R29 ----

OPENED = of(
    SLICE,
    sf.SliceOpened(JOB, 0, SliceOpening("j", "n", STORM_POOL, 3, job_spec().default, gang=2)),
)
COMPLETE = of(SLICE, sf.GangComplete())
FORMED = of(SLICE, sf.GangFormed(Bits.of(0, 1)))
GO = of(CROWD, tf.TaskLaunching(), members=3)
LAUNCHING = of(CROWD, tf.TaskLaunching(), members=1)
ASKING = of(CROWD, tf.TaskLaunching(prepare=True), members=3)
TO_END = of(CROWD, tf.TaskGoalSet(TaskGoals.KILLED), members=2)
TO_RUN = of(CROWD, tf.TaskGoalSet(TaskGoals.SUCCEEDED), members=2)
ONE_STOPPED = of(SLICE, sf.SliceGoalSet(2, TaskGoals.RUNNING, Bits.of(1)))


def holds(*members: int) -> Entry:
    return of(
        "host/h0",
        hf.RunsAccepted(CROWD, Bits.of(*members), 1, RunSpec(NEED, "x"), 1.0, prepared=True),
    )


def gives_back(*members: int) -> Entry:
    return of("host/h0", hf.PreparedReleased(CROWD, Bits.of(*members), 1))


def starts(*members: int) -> Entry:
    return of("host/h0", hf.PreparedStarted(CROWD, Bits.of(*members), 1, 1.0))


WHOLE: list[Step] = [OPENED, holds(0, 1), COMPLETE, GO, starts(0, 1)]
PARTS: dict[str, list[Step]] = {
    "R29 starts as complete, and no host has prepared [1]": [OPENED, holds(0), COMPLETE],
    "R29 and no host has prepared [0]": [OPENED, holds(0, 1), gives_back(0), COMPLETE],
    "R29 no host has prepared [0, 1]": [OPENED, COMPLETE],
    "R29 members [0] launch before": [OPENED, LAUNCHING],
    "R29 members [0, 1] launch before": [OPENED, holds(0, 1), GO],
    "R29 launch before the gang is complete": [*WHOLE, FORMED, LAUNCHING],
    "R29 members [0, 1] are started": [OPENED, holds(0, 1), COMPLETE, starts(0, 1)],
    "R29 members [1] launch, and are to end": [OPENED, holds(0, 1), COMPLETE, TO_END, GO],
    "R29 their gang has not said go": [*WHOLE[:-1], ASKING, starts(0)],
}
TOGETHER: dict[str, list[Step]] = {
    "whole": WHOLE,
    "told in another order within the round": [OPENED, COMPLETE, starts(0, 1), GO, holds(0, 1)],
    "a member is stopped": [OPENED, ONE_STOPPED, holds(0), COMPLETE, LAUNCHING],
    "who is not of the gang": [OPENED, of(CROWD, tf.TaskLaunching(), members=4)],
    "a member is to run after all": [OPENED, holds(0, 1), COMPLETE, TO_END, TO_RUN, GO],
    "alone after it was complete": [*WHOLE, LAUNCHING],
    "the slice is gone": [OPENED, of(SLICE, sf.SliceForgotten()), LAUNCHING],
}


def ganged(steps: list[Step]) -> GangCheck:
    check = GangCheck()
    note(check, steps)
    check.settle()
    return check


@pytest.mark.parametrize("text", PARTS)
def test_a_gang_that_starts_in_part_is_found(text: str) -> None:
    breaks(lambda: ganged(PARTS[text]), text)


@pytest.mark.parametrize("name", TOGETHER)
def test_a_gang_that_starts_together_is_right(name: str) -> None:
    ganged(TOGETHER[name])
