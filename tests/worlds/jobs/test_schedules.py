"""Schedules on simulated clusters: each moment makes one job, whatever crashes meanwhile.

What counts is which jobs there are, and when they began.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from peloton.actors.job.spec import Deadline
from peloton.actors.job.stages import JobStates
from peloton.actors.schedule.messages import (
    CreateSchedule,
    DeleteSchedule,
    GetSchedule,
    Overlaps,
    PauseSchedule,
    ScheduleChanged,
    ScheduleSpec,
    ScheduleView,
    schedule_key,
)
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import ClusterSetup, job_spec
from peloton.chaos.cluster.world.machines import Fate
from peloton.runtime.core.turning.dues import LOOK_S
from peloton.runtime.vocabulary import Absent, Key, Refused

NIGHTLY = schedule_key("nightly")
SHORT = Fate(2.0)


def cluster_of(fate: Fate = SHORT, **setup: Any) -> CheckedCluster:
    given = {"fates": lambda run: fate, **setup}
    return CheckedCluster(hosts=3, setup=ClusterSetup(**given))


def scheduled(cluster: CheckedCluster, cron: str = "* * * * *", **fields: Any) -> None:
    spec = ScheduleSpec(cron, "UTC", "/p", job_spec(1), **fields)
    assert cluster.ask(NIGHTLY, CreateSchedule(spec)) == ScheduleChanged()


def view(cluster: CheckedCluster) -> ScheduleView:
    found = cluster.ask(NIGHTLY, GetSchedule(), keyed=False)
    assert isinstance(found, ScheduleView)
    return found


def jobs(cluster: CheckedCluster) -> dict[Key, float]:
    return {name: job.created_at for name, job in cluster.cells("job").items()}


def test_each_moment_makes_one_job() -> None:
    cluster = cluster_of()
    scheduled(cluster)
    cluster.run_for(290.0)
    found = view(cluster)
    assert found.summary.made == len(found.runs) == len(jobs(cluster)) in (4, 5)
    assert found.summary.skipped == 0 and not found.making
    moments = [run.moment for run in found.runs]
    assert all(moment % 60 == 0 for moment in moments)
    assert [late - early for early, late in zip(moments, moments[1:], strict=False)] == [60.0] * (
        len(moments) - 1
    )
    for run in found.runs:
        assert run.moment <= jobs(cluster)[run.job] < run.moment + 5.0
        assert cluster.job(run.job).summary.state == JobStates.SUCCEEDED


@pytest.mark.parametrize("seed", range(6))
def test_each_moment_makes_one_job_whatever_crashes(seed: int) -> None:
    cluster, drawn = cluster_of(), random.Random(seed)
    scheduled(cluster, overlap=Overlaps.ALLOW)
    first = cluster.world.now
    while cluster.world.now < first + 400.0:
        cluster.run_for(drawn.choice((0.1, 1.0, 20.0, 59.0)))
        known = view(cluster)
        target = drawn.choice([NIGHTLY, *(run.job for run in known.runs)])
        cluster.crash_shard(target)
        # About a moment, when there is most to lose.
        cluster.run_for(max(60.0 - cluster.world.now % 60.0 + drawn.uniform(-0.2, 0.4), 0.0))
        cluster.crash_shard(target)
    cluster.run_for(30.0)
    found = view(cluster)
    assert not found.making
    assert {run.job for run in found.runs} <= {*jobs(cluster)}
    assert found.summary.made == len(jobs(cluster))
    assert found.summary.made + found.summary.skipped <= (cluster.world.now - first) // 60 + 1
    moments = [run.moment for run in found.runs]
    assert moments == sorted({*moments})


def test_a_moment_is_skipped_while_the_job_before_runs() -> None:
    cluster = cluster_of(Fate(90.0))
    scheduled(cluster)
    cluster.run_for(300.0)
    found = view(cluster)
    assert found.summary.skipped >= 1 and found.skip is not None
    assert found.skip.why.endswith("of the moment before has not ended")
    assert found.summary.made == len(jobs(cluster)) <= 3


def test_jobs_may_overlap() -> None:
    cluster = cluster_of(Fate(90.0))
    scheduled(cluster, overlap=Overlaps.ALLOW)
    cluster.run_for(300.0)
    assert view(cluster).summary.skipped == 0 and view(cluster).summary.made >= 4


def test_a_job_is_replaced() -> None:
    cluster = cluster_of(Fate(None))
    scheduled(cluster, overlap=Overlaps.REPLACE)
    cluster.run_for(250.0)
    found = view(cluster)
    *older, last = found.runs
    assert len(older) >= 2 and not found.summary.skipped
    assert cluster.job(last.job).summary.state == JobStates.RUNNING
    for run, successor in zip(found.runs, found.runs[1:], strict=False):
        ended = cluster.job(run.job).summary
        assert ended.state == JobStates.KILLED
        assert ended.completed_at <= jobs(cluster)[successor.job]


def test_after_a_pause_only_later_moments_count() -> None:
    cluster = cluster_of()
    scheduled(cluster)
    cluster.run_for(70.0)
    made = view(cluster).summary.made
    assert cluster.ask(NIGHTLY, PauseSchedule(True), keyed=False) == ScheduleChanged()
    cluster.run_for(300.0)
    assert (view(cluster).summary.made, view(cluster).summary.next_at) == (made, 0.0)
    assert cluster.ask(NIGHTLY, PauseSchedule(False), keyed=False) == ScheduleChanged()
    assert view(cluster).summary.next_at > cluster.world.now
    cluster.run_for(60.0)
    assert view(cluster).summary.made == made + 1


def test_a_job_that_cannot_be_is_skipped_and_named() -> None:
    cluster = cluster_of()
    late = msgspec.structs.replace(job_spec(1), deadline=Deadline("then", at=1.0))
    spec = ScheduleSpec("* * * * *", "UTC", "/p", late)
    assert cluster.ask(NIGHTLY, CreateSchedule(spec)) == ScheduleChanged()
    cluster.run_for(70.0)
    found = view(cluster)
    assert not found.runs and found.skip is not None
    assert found.skip.why == "config.labels: peloton.deadline: then has passed"


def test_a_deleted_schedule_leaves_its_jobs_and_its_name() -> None:
    cluster = cluster_of(Fate(None))
    scheduled(cluster)
    taken = cluster.ask(NIGHTLY, CreateSchedule(ScheduleSpec("@daily", "UTC", "/p", job_spec(1))))
    assert isinstance(taken, Refused) and taken.code == "ALREADY_EXISTS"
    cluster.run_for(70.0)
    (job,) = jobs(cluster)
    assert cluster.ask(NIGHTLY, DeleteSchedule()) == ScheduleChanged()
    cluster.run_for(120.0)
    assert [*jobs(cluster)] == [job] and cluster.job(job).summary.state == JobStates.RUNNING
    assert isinstance(cluster.ask(NIGHTLY, GetSchedule(), keyed=False), Absent)
    scheduled(cluster)
    cluster.run_for(70.0)
    assert len(jobs(cluster)) == 2


def test_what_never_comes_is_refused() -> None:
    cluster = cluster_of()
    spec = ScheduleSpec("0 0 30 2 *", "UTC", "/p", job_spec(1))
    answer = cluster.ask(NIGHTLY, CreateSchedule(spec))
    assert isinstance(answer, Refused) and "never comes" in answer.text


def set_clocks(cluster: CheckedCluster, by_s: float) -> None:
    """As an operator, or a time server, sets the clocks of all machines."""
    for daemon in cluster.world.daemons.values():
        assert daemon.process is not None
        daemon.process.clock.set_by_s += by_s


def test_moments_follow_a_clock_that_is_set_forward() -> None:
    """As after a machine was asleep, or began with a wrong time."""
    cluster = cluster_of()
    scheduled(cluster, "0 5 * * *")
    cluster.run_for(1.0)
    wanted = view(cluster).summary.next_at
    set_clocks(cluster, wanted - cluster.world.now + 10.0)
    cluster.run_for(LOOK_S + 1.0)
    (run,) = view(cluster).runs
    assert run.moment == wanted
    assert view(cluster).summary.next_at == wanted + 86_400.0


def test_a_clock_that_is_set_back_makes_no_moment_twice() -> None:
    cluster = cluster_of()
    scheduled(cluster, overlap=Overlaps.ALLOW)
    cluster.run_for(200.0)
    before = view(cluster)
    assert before.summary.made >= 3
    set_clocks(cluster, -120.0)
    for paused in (True, False):  # which looks for the next moment anew
        cluster.ask(NIGHTLY, PauseSchedule(paused), keyed=False)
    cluster.run_for(90.0)
    assert view(cluster).summary.made == before.summary.made, "the clock shows moments that came"
    cluster.run_for(120.0)
    moments = [run.moment for run in view(cluster).runs]
    assert len(moments) > before.summary.made and moments == sorted({*moments})


def test_a_pause_does_not_follow_a_clock_that_is_set() -> None:
    """A job that has to end within a time has that time; one with a date, until that is shown."""
    cluster = cluster_of(Fate(None))
    now = cluster.world.now
    deadlines = Deadline("1h", 3600.0), Deadline("a date", at=now + 7200.0)
    within, dated = (
        cluster.create_job(msgspec.structs.replace(job_spec(1), deadline=one), name)
        for one, name in zip(deadlines, ("within", "dated"), strict=True)
    )
    cluster.run_for(5.0)
    set_clocks(cluster, 7200.0)
    cluster.run_for(LOOK_S + 30.0)
    assert cluster.job(dated).summary.state == JobStates.KILLED
    assert cluster.job(within).summary.state == JobStates.RUNNING
    set_clocks(cluster, -86_400.0)
    cluster.run_for(3600.0)
    assert cluster.job(within).summary.state == JobStates.KILLED


def owner(cluster: CheckedCluster) -> str:
    return view(cluster).summary.created_by


def test_moments_whose_owner_has_lost_the_right_make_no_job() -> None:
    cluster = cluster_of()
    scheduled(cluster)
    cluster.run_for(130.0)
    made = view(cluster).summary.made
    assert made == 2
    cluster.listener.revoked.add(owner(cluster))
    cluster.run_for(120.0)
    found = view(cluster)
    assert (found.summary.made, found.summary.skipped) == (made, 2) and not found.making
    assert found.skip is not None and found.skip.why == "no rights any longer"
    cluster.listener.revoked.clear()
    cluster.run_for(120.0)
    assert view(cluster).summary.made == len(jobs(cluster)) == made + 2
    cluster.check_quiet()


def test_answers_about_rights_may_be_lost() -> None:
    cluster = cluster_of()
    scheduled(cluster)
    cluster.listener.lost_share = 0.7
    cluster.run_for(600.0)
    cluster.listener.lost_share = 0.0
    cluster.run_for(20.0)
    found = view(cluster)
    assert found.summary.skipped == 0 and found.summary.made == len(jobs(cluster))
    moments = [run.moment for run in found.runs]
    assert moments[-1] - moments[0] == 60.0 * (len(moments) - 1) and len(moments) >= 9
    assert any(jobs(cluster)[run.job] - run.moment >= 5.0 for run in found.runs), "none was lost"


def test_a_daemon_that_dies_with_the_question_leaves_it_to_the_next() -> None:
    cluster = cluster_of()
    scheduled(cluster)
    cluster.listener.lost_share = 1.0
    cluster.run_for(max(60.0 - cluster.world.now % 60.0 + 0.2, 0.0))
    assert view(cluster).summary.made == 0
    cluster.crash_shard(NIGHTLY)
    cluster.listener.lost_share = 0.0
    cluster.run_until(lambda: view(cluster).summary.made == 1)
    cluster.run_for(10.0)
    assert len(jobs(cluster)) == 1 and view(cluster).summary.skipped == 0
