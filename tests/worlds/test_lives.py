"""Whole lives of jobs in a calm world: each test says one story from its begin to its end.

Must not use faults: those are in `test_storms.py`.
"""

from __future__ import annotations

from collections import Counter

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
    JobStates,
    StopJob,
)
from peloton.actors.job.spec import Command, JobSpec, Override, TaskConfig
from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool.lot.messages import GetLot, lot_key
from peloton.actors.respool.messages import DeletePool, PoolDone
from peloton.actors.task.messages import End, RunOutcome
from peloton.chaos.cluster.machines import FAILURE, SUCCESS, Fate
from peloton.runtime.vocabulary import Absent, Key, Refused
from tests.worlds import checks
from tests.worlds.harness import BACKEND, NEED, ROOM, World, job_id, spec


def test_a_job_lives_and_leaves_nothing() -> None:
    world = World(hosts=3)
    pool = world.make_pool()
    job = world.create(spec(pool, 10))
    world.run_until(lambda: world.job(job).summary.counts == (("RUNNING", 10),), within_s=1.0)
    assert world.job(job).summary.state == JobStates.RUNNING
    checks.ledgers_equal_the_machines(world)
    world.run_until(lambda: checks.over(world), within_s=5.0)
    summary = world.job(job).summary
    assert (summary.state, summary.counts) == (JobStates.SUCCEEDED, (("SUCCEEDED", 10),))
    assert summary.created_at < summary.started_at < summary.completed_at
    assert isinstance(world.ask(pool, DeletePool()), PoolDone), "nothing is held or wanted"
    world.run_for(10.0)
    checks.quiet(world)
    world.ask(job, DeleteJob())
    world.run_for(10.0)
    checks.nothing_is_left(world, job)
    assert world.ask(job, GetJob()) == Absent(job)


def fates_of_a_mixed_job(run: str) -> Fate:
    """Instance 0 succeeds, 1 fails once, 2 fails for good, 3 loses its host twice."""
    instance, number = (int(part) for part in run[37:].split("-"))
    if instance == 1 and number == 1 or instance == 2:
        return Fate(1.0, FAILURE)
    if instance == 3 and number <= 2:
        return Fate(1.0, RunOutcome(End.LOST, reason="lost", system=True))
    return Fate(1.0, SUCCESS)


def test_a_mixed_job() -> None:
    world = World(fates=fates_of_a_mixed_job)
    job = world.create(spec(world.make_pool(), 4, max_failures=3))
    world.run_until(lambda: checks.over(world))
    world.run_for(5.0)
    views = world.instances(job, 4)
    assert [(v.state, v.run, v.failures) for v in views] == [
        ("SUCCEEDED", 1, 0),
        ("SUCCEEDED", 2, 1),
        ("FAILED", 3, 3),
        ("SUCCEEDED", 3, 0),
    ]
    assert [past.outcome for past in views[2].runs] == [FAILURE, FAILURE]
    assert world.job(job).summary.state == JobStates.FAILED
    checks.quiet(world)


def test_some_are_stopped_and_the_rest_goes_on() -> None:
    world = World(fates=lambda run: Fate(20.0))
    job = world.create(spec(world.make_pool(), 6))
    world.run_for(1.0)
    world.ask(job, StopJob(((0, 2),)))
    world.run_for(1.0)
    assert world.job(job).summary.counts == (("KILLED", 2), ("RUNNING", 4))
    world.run_until(lambda: checks.over(world))
    assert world.job(job).summary.counts == (("KILLED", 2), ("SUCCEEDED", 4))
    assert world.job(job).summary.state == JobStates.KILLED


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.5])
def test_a_stopped_job_ends(after_s: float) -> None:
    world = World(hosts=2, fates=lambda run: Fate(None))
    job = world.create(spec(world.make_pool(), 20))
    world.run_for(after_s)
    world.ask(job, StopJob())
    world.run_until(lambda: checks.over(world), within_s=10.0)
    world.run_for(5.0)
    assert world.job(job).summary.counts == (("KILLED", 20),)
    checks.quiet(world)


def test_a_pool_that_is_full_says_so_in_order() -> None:
    world = World(hosts=3, fates=lambda run: Fate(None))
    pool = world.make_pool("small", Resources(4 * UNIT, ROOM.memory, 0, 0))
    first = world.create(spec(pool, 6), "a")
    world.run_for(0.2)
    second = world.create(spec(pool, 3), "b")
    world.run_for(0.2)
    assert dict(world.job(first).summary.counts) == {"RUNNING": 4, "PENDING": 2}
    lots = [lot_key(job.partition("/")[2], 0, shape_number=0) for job in (first, second)]
    waits = [world.ask(lot, GetLot()) for lot in lots]
    reason = "limit of pool /small reached: cpu requested 1, 0 of 4 free; "
    reason += f"job {first.partition('/')[2]} holds 4"
    assert [(each.position, each.because) for each in waits] == [(0, reason), (2, reason)]
    assert [view.code for view in world.instances(second, 3)] == ["POOL"] * 3
    for run in [*world.machines.running][:3]:
        world.machines.end(run, SUCCESS, world.now)
    world.run_for(0.5)
    assert dict(world.job(first).summary.counts) == {"RUNNING": 3, "SUCCEEDED": 3}
    assert dict(world.job(second).summary.counts) == {"RUNNING": 1, "PENDING": 2}
    waiting = world.ask(lots[1], GetLot())
    assert waiting.position == 0 and len(waiting.waiting) == 2


def test_no_host_that_fits_is_said_with_the_reason() -> None:
    world = World(hosts=2)
    big = Resources(3 * UNIT, 1, 0, 0)
    job = world.create(spec(world.make_pool(), 3, resources=big))
    world.run_for(0.5)
    waiting = [v for v in world.instances(job, 3) if v.state == "PENDING"]
    # The pool of the whole cluster admits only what fits its sum, so two run and one waits there
    # or at the placer, which knows that no single host has room.
    assert len(waiting) == 1 and waiting[0].code == "POOL" or "no host" in waiting[0].because
    world.run_until(lambda: checks.over(world))
    assert world.job(job).summary.state == JobStates.SUCCEEDED


def test_launches_that_hosts_refuse_find_another_host() -> None:
    """Two placers propose the same room at the same moment; the hosts alone grant it."""
    world = World(hosts=4, fates=lambda run: Fate(3.0))
    world.add_placer()
    pool = world.make_pool()
    specs = [spec(pool, 5) for _ in range(6)]
    orders = [world.order(job_id(f"j{n}"), CreateJob(each)) for n, each in enumerate(specs)]
    world.run_until(lambda: all(order.answer for order in orders) and checks.over(world))
    world.run_for(5.0)
    assert checks.written(world, RunsRefused), "nobody was refused: the test shows nothing"
    for order in orders:
        assert world.job(order.to).summary.state == JobStates.SUCCEEDED
    checks.quiet(world)


def test_a_host_is_lost_and_comes_back() -> None:
    world = World(hosts=2, fates=lambda run: Fate(None))
    world.machines.stop_s = 3.0
    job = world.create(spec(world.make_pool(), 6))
    world.run_for(1.0)
    lost = world.hosts[0]
    old = [run for run, at in world.machines.running.items() if at.host == lost]
    world.cut(lost)
    world.run_for(59.0)
    assert dict(world.job(job).summary.counts) == {"RUNNING": 6}, "it may come back any time"
    world.run_for(5.0)
    capacity = world.room.times(1)
    assert sum(1 for host in world.cells("host").values() if host.free == capacity) <= 1
    views = world.instances(job, 6)
    again = [view for view in views if view.run == 2]
    assert len(again) == len(old), "each lost instance has a new run"
    assert all(past.outcome.end == End.LOST for view in again for past in view.runs)
    assert dict(Counter(view.failures for view in views)) == {0: 6}, "free tries"
    world.mend(lost)
    starts: list[bool] = []
    world.check = lambda w: (checks.always(w), starts.append(room_is_real(w, lost)))  # type: ignore[assignment,func-returns-value]
    world.run_for(30.0)
    assert all(starts), "new runs began while the old ones still took the room"
    assert not [run for run in old if run in world.machines.running]
    assert dict(world.job(job).summary.counts) == {"RUNNING": 6}


def room_is_real(world: World, host: Key) -> bool:
    """Whether what really runs on a machine fits it."""
    return world.machines.used(host).within(world.room)


def test_overrides_come_in_pieces() -> None:
    world = World()
    pool, job = world.make_pool(), job_id("pieces")
    own = TaskConfig(resources=Resources(2 * UNIT, UNIT), command=Command("own"))
    default = TaskConfig(resources=NEED, command=Command("x"))
    whole = JobSpec("j", "me", pool, 2010, default)
    for number in (0, 2):
        world.ask(job, AddOverrides(number, (Override(number * 1000 + 3, own),)))
    assert world.ask(job, CreateJob(whole, pieces=2)) == JobCreated(job)
    world.run_until(lambda: checks.over(world))
    views = {view.instance: view for view in world.instances(job, 2010)}
    assert len(views) == 2010
    changed = [number for number, view in views.items() if view.config.command == own.command]
    assert changed == [3, 2003]
    assert world.job(job).summary.state == JobStates.SUCCEEDED


def test_pieces_of_an_attempt_that_was_given_up_are_in_nobodys_way() -> None:
    world = World()
    whole = JobSpec("j", "me", world.make_pool(), 2010, TaskConfig(command=Command("x")))
    own = TaskConfig(command=Command("own"))
    repeated, late = job_id("repeated"), job_id("late")

    def said(job: Key) -> object:
        for piece in (0, 2):
            world.ask(job, AddOverrides(piece, (Override(piece * 1000, own),)))
        return world.ask(job, CreateJob(whole, pieces=2))

    for job in (repeated, late):
        world.ask(job, AddOverrides(1, (Override(1003, own),)))
    assert isinstance(said(repeated), Refused), "there is one piece too many"
    assert said(repeated) == JobCreated(repeated)
    world.run_for(PIECES_TIMEOUT_S + 1.0)
    assert late not in world.cells("job")
    assert said(late) == JobCreated(late)


def test_an_ended_job_is_still_found_stopped_and_deleted() -> None:
    """Its slices have left memory: they come back from their final states."""
    world = World()
    job = world.create(spec(world.make_pool(), 5))
    world.run_until(lambda: checks.over(world))
    world.run_for(20.0)
    assert not world.cells("slice"), "ended slices leave memory"
    assert [view.state for view in world.instances(job, 5)] == ["SUCCEEDED"] * 5
    world.ask(job, StopJob(((0, 3),)))
    world.run_for(20.0)
    assert [view.state for view in world.instances(job, 5)] == ["SUCCEEDED"] * 5
    world.ask(job, DeleteJob())
    world.run_for(20.0)
    checks.nothing_is_left(world, job)


@pytest.mark.parametrize("crash", [False, True])
def test_who_fits_no_host_leaves_its_pools_room_to_others_until_one_does(crash: bool) -> None:
    world = World(hosts=2, fates=lambda run: Fate(1.0))
    pool = world.make_pool()
    big = Resources(ROOM.cpu + UNIT, NEED.memory, 0, 0)
    first = world.create(spec(pool, 1, resources=big), "a")
    world.run_for(5.0)
    held = [lot for lot in world.cells("lot").values() if lot.admitted or lot.waiting]
    assert held == [], "it holds nothing, and stands in nobody's way"
    second = world.create(spec(pool, 30), "b")
    world.run_until(lambda: world.job(second).summary.state == JobStates.SUCCEEDED, within_s=120.0)
    if crash:
        world.crash(world.sharding.shard_of(first))
        world.run_for(3.0)
    (view,) = world.instances(first, 1)
    assert (view.state, view.code, view.run) == ("PENDING", "NEVER", 1)
    frames = sum(len(disk.frames) for disk in world.disks.values())
    world.run_for(60.0)
    assert sum(len(disk.frames) for disk in world.disks.values()) == frames, "looking is free"
    larger = Resources(ROOM.cpu * 2, ROOM.memory, ROOM.disk, 0)
    world.tell(world.hosts[0], ConfigureHost(larger, (), BACKEND))
    world.run_until(lambda: world.job(first).summary.state == JobStates.SUCCEEDED, within_s=20.0)
    world.run_for(5.0)
    checks.quiet(world)
