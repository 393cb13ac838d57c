"""Whole lives of jobs in a calm cluster: each test says one story from its begin to its end.

Those are in `test_storms.py`.
"""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from peloton.actors.host.facts import RunsRefused
from peloton.actors.host.messages import ConfigureHost
from peloton.actors.job.decide import PIECES_TIMEOUT_S
from peloton.actors.job.messages import (
    AddOverrides,
    CreateJob,
    DeleteJob,
    GetJob,
    JobCreated,
    StopJob,
)
from peloton.actors.job.slice.task_config import Command, Override, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.stages import JobStates
from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool.lot.messages import GetLot, lot_key
from peloton.actors.respool.messages import DeletePool, PoolDone
from peloton.actors.task.messages import End, RunOutcome
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.checks import ledgers_equal_the_machines
from peloton.chaos.cluster.world.cluster import (
    HOST_CAPACITY,
    NEED,
    STORM_POOL,
    ClusterSetup,
    job_id,
    job_spec,
)
from peloton.chaos.cluster.world.machines import FAILURE, MACHINE_BACKEND, SUCCESS, Fate
from peloton.runtime.vocabulary import Absent, Key, Refused


def test_a_job_lives_and_leaves_nothing() -> None:
    cluster = CheckedCluster(hosts=3)
    job = cluster.create_job(job_spec(10))
    cluster.run_until(lambda: cluster.counts(job) == {"RUNNING": 10}, within_s=1.0)
    assert cluster.job(job).summary.state == JobStates.RUNNING
    ledgers_equal_the_machines(cluster)
    cluster.run_until(cluster.over, within_s=5.0)
    summary = cluster.job(job).summary
    assert (summary.state, summary.counts) == (JobStates.SUCCEEDED, (("SUCCEEDED", 10),))
    assert summary.created_at <= summary.started_at < summary.completed_at
    assert isinstance(cluster.ask(STORM_POOL, DeletePool()), PoolDone), "nothing is held or wanted"
    cluster.run_for(10.0)
    cluster.check_quiet()
    cluster.ask(job, DeleteJob())
    cluster.run_for(10.0)
    cluster.check_gone(job)
    assert cluster.ask(job, GetJob()) == Absent(job)


def fates_of_a_mixed_job(run: str) -> Fate:
    """Instance 0 succeeds, 1 fails once, 2 fails for good, 3 loses its host twice."""
    instance, number = (int(part) for part in run[37:].split("-"))
    if instance == 1 and number == 1 or instance == 2:
        return Fate(1.0, FAILURE)
    if instance == 3 and number <= 2:
        return Fate(1.0, RunOutcome(End.LOST, reason="lost", system=True))
    return Fate(1.0, SUCCESS)


def test_a_mixed_job() -> None:
    cluster = CheckedCluster(setup=ClusterSetup(fates=fates_of_a_mixed_job))
    job = cluster.create_job(job_spec(4, max_failures=3))
    cluster.run_until(cluster.over)
    cluster.run_for(5.0)
    views = cluster.instances(job, 4)
    assert [(v.state, v.run, v.failures) for v in views] == [
        ("SUCCEEDED", 1, 0),
        ("SUCCEEDED", 2, 1),
        ("FAILED", 3, 3),
        ("SUCCEEDED", 3, 0),
    ]
    assert [past.outcome for past in views[2].runs] == [FAILURE, FAILURE]
    assert cluster.job(job).summary.state == JobStates.FAILED
    cluster.check_quiet()


def test_some_are_stopped_and_the_rest_goes_on() -> None:
    cluster = CheckedCluster(setup=ClusterSetup(fates=lambda run: Fate(20.0)))
    job = cluster.create_job(job_spec(6))
    cluster.run_for(1.0)
    cluster.ask(job, StopJob(((0, 2),)))
    cluster.run_for(1.0)
    assert cluster.job(job).summary.counts == (("KILLED", 2), ("RUNNING", 4))
    cluster.run_until(cluster.over)
    assert cluster.job(job).summary.counts == (("KILLED", 2), ("SUCCEEDED", 4))
    assert cluster.job(job).summary.state == JobStates.KILLED


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.5])
def test_a_stopped_job_ends(after_s: float) -> None:
    cluster = CheckedCluster(hosts=2, setup=ClusterSetup(fates=lambda run: Fate(None)))
    job = cluster.create_job(job_spec(20))
    cluster.run_for(after_s)
    cluster.ask(job, StopJob())
    cluster.run_until(cluster.over, within_s=10.0)
    cluster.run_for(5.0)
    assert cluster.counts(job) == {"KILLED": 20}
    cluster.check_quiet()


def test_a_pool_that_is_full_says_so_in_order() -> None:
    cluster = CheckedCluster(hosts=3, setup=ClusterSetup(fates=lambda run: Fate(None)))
    pool = cluster.make_pool("small", Resources(4 * UNIT, HOST_CAPACITY.memory, 0, 0))
    first = cluster.create_job(job_spec(6, pool=pool), "a")
    cluster.run_for(0.2)
    second = cluster.create_job(job_spec(3, pool=pool), "b")
    cluster.run_for(0.2)
    assert cluster.counts(first) == {"RUNNING": 4, "PENDING": 2}
    lots = [lot_key(job.partition("/")[2], 0, shape_number=0) for job in (first, second)]
    waits = [cluster.ask(lot, GetLot()) for lot in lots]
    reason = "limit of <pool /small> reached: cpu requested 1, 0 of 4 free; "
    reason += f"<job {first.partition('/')[2]}> holds 4"
    assert [(each.position, each.because) for each in waits] == [(0, reason), (2, reason)]
    assert [view.code for view in cluster.instances(second, 3)] == ["POOL"] * 3
    for run in [*cluster.machines.running][:3]:
        cluster.backend.end(run, SUCCESS)
    cluster.run_for(0.5)
    assert cluster.counts(first) == {"RUNNING": 3, "SUCCEEDED": 3}
    assert cluster.counts(second) == {"RUNNING": 1, "PENDING": 2}
    waiting = cluster.ask(lots[1], GetLot())
    assert waiting.position == 0 and len(waiting.waiting) == 2


def test_no_host_that_fits_is_said_with_the_reason() -> None:
    cluster = CheckedCluster(hosts=2)
    big = Resources(3 * UNIT, 1, 0, 0)
    job = cluster.create_job(job_spec(3, resources=big))
    cluster.run_for(0.5)
    waiting = [v for v in cluster.instances(job, 3) if v.state == "PENDING"]
    # The pool of the whole cluster admits only what fits its sum, so two run and one waits there
    # or at the placer, which knows that no single host has room.
    assert len(waiting) == 1 and waiting[0].code == "POOL" or "no host" in waiting[0].because
    cluster.run_until(cluster.over)
    assert cluster.job(job).summary.state == JobStates.SUCCEEDED


def test_launches_that_hosts_refuse_find_another_host() -> None:
    """Three placers propose the same room at the same moment; the hosts alone grant it."""
    cluster = CheckedCluster(daemons=3, hosts=4, setup=ClusterSetup(fates=lambda run: Fate(3.0)))
    for service in cluster.placers.values():
        service.placer.index.take_part(0, 1)  # otherwise each begins with hosts of its own
    specs = [job_spec(5) for _ in range(8)]
    orders = [cluster.order(job_id(f"j{n}"), CreateJob(each)) for n, each in enumerate(specs)]
    cluster.run_until(cluster.over)
    cluster.run_for(5.0)
    assert cluster.written(RunsRefused), "nobody was refused: the test shows nothing"
    for order in orders:
        assert cluster.job(order.job).summary.state == JobStates.SUCCEEDED
    cluster.check_quiet()


def test_a_host_is_lost_and_comes_back() -> None:
    cluster = CheckedCluster(hosts=2, setup=ClusterSetup(fates=lambda run: Fate(None)))
    cluster.machines.stop_s = 3.0
    job = cluster.create_job(job_spec(6))
    cluster.run_for(1.0)
    lost = cluster.hosts[0]
    old = [run for run, at in cluster.machines.running.items() if at.host == lost]
    cluster.cut(lost)
    cluster.run_for(59.0)
    assert cluster.counts(job) == {"RUNNING": 6}, "it may come back any time"
    cluster.run_for(5.0)
    free = [host.free for host in cluster.cells("host").values()]
    assert free.count(HOST_CAPACITY) <= 1
    views = cluster.instances(job, 6)
    again = [view for view in views if view.run == 2]
    assert len(again) == len(old), "each lost instance has a new run"
    assert all(past.outcome.end == End.LOST for view in again for past in view.runs)
    assert dict(Counter(view.failures for view in views)) == {0: 6}, "free tries"
    cluster.mend(lost)
    starts: list[bool] = []
    cluster.world.checks.append(lambda: starts.append(room_is_real(cluster, lost)))
    cluster.run_for(30.0)
    assert all(starts), "new runs began while the old ones still took the room"
    assert not [run for run in old if run in cluster.machines.running]
    assert cluster.counts(job) == {"RUNNING": 6}


def room_is_real(cluster: CheckedCluster, host: Key) -> bool:
    """Whether what really runs on a machine fits it."""
    return cluster.machines.used(host).within(HOST_CAPACITY)


def test_overrides_come_in_pieces() -> None:
    cluster = CheckedCluster(hosts=20)
    job = job_id("pieces")
    own = TaskConfig(resources=Resources(2 * UNIT, UNIT), command=Command("own"))
    default = TaskConfig(resources=NEED, command=Command("x"))
    whole = JobSpec("j", "me", STORM_POOL, 2010, default)
    for number in (0, 2):
        cluster.ask(job, AddOverrides(number, (Override(number * 1000 + 3, own),)), keyed=False)
    assert cluster.ask(job, CreateJob(whole, pieces=2)) == JobCreated(job)
    cluster.run_until(cluster.over)
    views = {view.instance: view for view in cluster.instances(job, 2010)}
    assert len(views) == 2010
    changed = [number for number, view in views.items() if view.config.command == own.command]
    assert changed == [3, 2003]
    assert cluster.job(job).summary.state == JobStates.SUCCEEDED


def test_pieces_of_an_attempt_that_was_given_up_are_in_nobodys_way() -> None:
    cluster = CheckedCluster()
    whole = JobSpec("j", "me", STORM_POOL, 2010, TaskConfig(command=Command("x")))
    own = TaskConfig(command=Command("own"))
    repeated, late = job_id("repeated"), job_id("late")

    def said(job: Key) -> object:
        for piece in (0, 2):
            cluster.ask(job, AddOverrides(piece, (Override(piece * 1000, own),)), keyed=False)
        return cluster.ask(job, CreateJob(whole, pieces=2))

    for job in (repeated, late):
        cluster.ask(job, AddOverrides(1, (Override(1003, own),)), keyed=False)
    assert isinstance(said(repeated), Refused), "there is one piece too many"
    assert said(repeated) == JobCreated(repeated)
    cluster.run_for(PIECES_TIMEOUT_S + 1.0)
    assert late not in cluster.cells("job")
    assert said(late) == JobCreated(late)


def test_an_ended_job_is_still_found_stopped_and_deleted() -> None:
    """Its slices have left memory: they come back from their final states."""
    cluster = CheckedCluster()
    job = cluster.create_job(job_spec(5))
    cluster.run_until(cluster.over)
    cluster.run_for(20.0)
    assert not cluster.cells("slice"), "ended slices leave memory"
    assert [view.state for view in cluster.instances(job, 5)] == ["SUCCEEDED"] * 5
    cluster.ask(job, StopJob(((0, 3),)))
    cluster.run_for(20.0)
    assert [view.state for view in cluster.instances(job, 5)] == ["SUCCEEDED"] * 5
    cluster.ask(job, DeleteJob())
    cluster.run_for(20.0)
    cluster.check_gone(job)


@pytest.mark.parametrize("crash", [False, True])
def test_who_fits_no_host_leaves_its_pools_room_to_others_until_one_does(crash: bool) -> None:
    cluster = CheckedCluster(hosts=2, setup=ClusterSetup(fates=lambda run: Fate(1.0)))
    big = Resources(HOST_CAPACITY.cpu + UNIT, NEED.memory, 0, 0)
    first = cluster.create_job(job_spec(1, resources=big), "a")
    cluster.run_for(5.0)
    held = [lot for lot in cluster.cells("lot").values() if lot.admitted or lot.waiting]
    assert held == [], "it holds nothing, and stands in nobody's way"
    second = cluster.create_job(job_spec(30), "b")
    cluster.run_until(lambda: cluster.counts(second) == {"SUCCEEDED": 30}, within_s=120.0)
    if crash:
        cluster.crash_shard(first)
        cluster.run_for(3.0)
    (view,) = cluster.instances(first, 1)
    assert (view.state, view.code, view.run) == ("PENDING", "NEVER", 1)
    cluster.run_for(3.0)
    frames = len(cluster.frame_sizes())
    cluster.run_for(60.0)
    assert len(cluster.frame_sizes()) == frames, "looking is free"
    larger = Resources(HOST_CAPACITY.cpu * 2, HOST_CAPACITY.memory, HOST_CAPACITY.disk, 0)
    cluster.tell(cluster.hosts[0], ConfigureHost(larger, (), MACHINE_BACKEND))
    cluster.run_until(lambda: cluster.counts(first) == {"SUCCEEDED": 1}, within_s=20.0)
    cluster.run_for(5.0)
    cluster.check_quiet()


def test_a_run_may_take_as_long_as_its_job_allows_whoever_owns_it() -> None:
    """Instance 0 ends in time, the others never; the daemon restarts while they run."""
    fates = ClusterSetup(fates=lambda run: Fate(2.0 if run[37:].startswith("0-") else None))
    cluster = CheckedCluster(setup=fates)
    spec = msgspec.structs.replace(job_spec(3, max_failures=3), max_running_time_s=20.0)
    job = cluster.create_job(spec)
    cluster.run_until(lambda: cluster.counts(job).get("SUCCEEDED") == 1)
    cluster.run_for(5.0)
    for daemon in [*cluster.world.daemons.values()]:
        cluster.world.kill(daemon)
        cluster.world.restart(daemon)
    cluster.run_until(cluster.over, within_s=60.0)
    first, *others = cluster.instances(job, 3)
    assert (first.state, [view.state for view in others]) == ("SUCCEEDED", ["KILLED"] * 2)
    for view in others:
        assert view.outcome is not None and view.outcome.reason == "Deadline exceeded"
        assert view.run == 1 and view.started_at is not None and view.ended_at is not None
        assert 20.0 <= view.ended_at - view.started_at < 22.0
    assert cluster.job(job).summary.state == JobStates.KILLED
    cpu = sum(view.ran_s for view in (first, *others)) * NEED.cpu / UNIT
    assert cluster.job(job).summary.usage[0] == pytest.approx(cpu)
