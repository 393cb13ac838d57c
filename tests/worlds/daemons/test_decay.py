"""Rows that rot or flicker, clocks that drift, and answers that come long after the effect."""

from __future__ import annotations

import random

import pytest

from peloton.actors.job.stages import JobStates
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.storm import ClusterScenario, StormRun
from peloton.chaos.cluster.world.cluster import ClusterSetup, job_id, job_spec
from peloton.chaos.cluster.world.machines import Fate
from peloton.runtime.core.journal.statements import FrameRow, InsertRow, ReadSegment, RowsFound
from peloton.runtime.ports import ShardId
from peloton.runtime.simulation.decay import ANSWERS, DRIFT
from peloton.runtime.simulation.process import SkewedClock
from peloton.runtime.simulation.quorum_reads import Late, is_needed
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.stepper import Stepper, VirtualClock
from peloton.runtime.simulation.store import NEVER_DONE, SimulatedStore, StoreFaults

FOREVER = ClusterSetup(fates=lambda run: Fate(None))
SIZES = {"jobmgr": 2, "resmgr": 1, "hostmgr": 1}


def jobs_apart(cluster: CheckedCluster) -> tuple[str, str]:
    """Names of two jobs in different shards."""
    by_shard = {cluster.world.sharding.shard_of(job_id(name)): name for name in "abcdefgh"}
    one, other = by_shard.values()
    return one, other


# ---- F17 ----


@pytest.mark.parametrize("seed", range(6))
def test_a_row_that_rots_halts_its_shard_by_name_and_no_other(seed: int) -> None:
    cluster = CheckedCluster(sizes=SIZES, setup=FOREVER, seed=seed)
    world, reads = cluster.world, cluster.world.store.reads
    one, other = jobs_apart(cluster)
    job = cluster.create_job(job_spec(1), one)
    shard = world.sharding.shard_of(job)
    only = {shard: world.store.registers.registers[shard]}
    assert reads.rot(world.store.cells, only, chance=random.Random(seed))
    cluster.kill()
    cluster.run_until(lambda: len(world.shards()) == 3, within_s=60)
    cluster.run_for(5)
    (daemon,) = world.living()
    ready, reasons = daemon.region.health()
    assert not ready
    (reason,) = [text for text in reasons if "damaged" in text]
    assert f"jobmgr/{shard.number}" in reason
    waits = cluster.clients.stop("c1", job)
    cluster.create_job(job_spec(1), other)
    assert shard not in world.shards() and not waits.known
    cluster.calm()
    cluster.run_until(lambda: waits.known and world.whole(), within_s=120)
    cluster.run_until(lambda: cluster.job(job).summary.state == JobStates.KILLED, within_s=60)


def test_damage_where_nothing_rots_is_found() -> None:
    cluster = CheckedCluster(sizes=SIZES, setup=FOREVER)
    job = cluster.create_job(job_spec(1))
    cells = next(
        cells
        for where, cells in cluster.world.store.cells.rows.items()
        if where.shard == cluster.world.sharding.shard_of(job) and where.table == "journal"
    )
    del cells[max(cells)]
    cluster.kill()
    with pytest.raises(Contradiction, match=r"^R4"):
        cluster.run_for(60)


def test_only_rows_that_a_recovery_reads_rot() -> None:
    cluster = CheckedCluster(sizes=SIZES, setup=FOREVER)
    cluster.create_job(job_spec(1))
    store = cluster.world.store
    for where, cells in store.cells.rows.items():
        register = store.registers.registers[where.shard]
        for cell in cells.values():
            assert is_needed(cell.row, register) and not is_needed(cell.row, None)
            if isinstance(cell.row, FrameRow):
                past = register.__replace__(floor=cell.row.position)
                assert not is_needed(cell.row, past)


# ---- flicker ----


def test_a_row_on_its_way_shows_in_some_reads_and_a_stored_one_in_all() -> None:
    clock = VirtualClock()
    store = SimulatedStore(random.Random(1), clock)
    rows, shard = store.rows("d1"), ShardId("a", 0)

    def frame(position: int) -> InsertRow:
        row = FrameRow(position, 1, 0, 1, b"op", b"", b"", b"body", b"s")
        return InsertRow(shard, row)

    rows.run([frame(1)])
    store._late.append(Late(clock.now() + 1e6, NEVER_DONE, frame(2), 1))
    store.faults = StoreFaults(flicker=0.5)
    shown = []
    for _ in range(60):
        (found,) = rows.run([ReadSegment(shard, b"s", 1, 9)])
        assert isinstance(found, RowsFound)
        shown.append([row.position for row in found.rows if isinstance(row, FrameRow)])
    assert 10 < shown.count([1]) < 50 and shown.count([1]) + shown.count([1, 2]) == 60


# ---- clocks ----


@pytest.mark.parametrize("rate", [-0.1, -0.001, 0.0, 0.03, 0.1])
def test_a_clock_that_drifts_wakes_at_its_own_time(rate: float) -> None:
    stepper = Stepper(1)
    clock = SkewedClock(stepper, 5.0)
    clock.drift(rate)
    before = clock.now()
    stepper.clock.now_s = clock.true_s(before + 30.0)
    assert 0.0 <= clock.now() - before - 30.0 < 1e-4
    at_s = clock.now()
    clock.drift(0.0)
    assert clock.now() == pytest.approx(at_s, abs=1e-6), "what it has gained stays"


def alone(fault: str) -> StormRun:
    """A storm of one fault, and two jobs."""
    actions = tuple(StormAction(at_s=at, name="create", count=5) for at in (0.5, 12.0))
    return StormRun(
        ClusterScenario(seed=5, sizes=SIZES, faults={fault: 1.0}, actions=actions, storm_s=30.0)
    )


def test_clocks_drift_apart_and_are_set_back() -> None:
    run = alone(DRIFT)
    world = run.cluster.world
    last: dict[str, float] = {}
    apart, back = 0.0, 0

    def look() -> None:
        nonlocal apart, back
        for daemon in world.daemons.values():
            if daemon.process is not None:
                now = daemon.process.clock.now()
                apart = max(apart, abs(now - world.now))
                back += now < last.get(daemon.process.name, 0.0)
                last[daemon.process.name] = now

    world.checks.append(look)
    run.play()
    assert 0.2 < apart < 4.0 and back


# ---- answers ----


def test_the_store_has_done_what_its_caller_does_not_know_yet() -> None:
    run = alone(ANSWERS)
    world = run.cluster.world
    unknown = 0

    def look() -> None:
        nonlocal unknown
        registers = world.store.registers.registers
        for shard, core in world.shards().items():
            unknown += core.busy and registers[shard].last_position == core.position

    world.checks.append(look)
    played = run.play()
    assert played.struck[ANSWERS] > 5
    assert unknown > 20
