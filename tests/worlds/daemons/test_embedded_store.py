"""One daemon with a store of its own: whole rounds, kills that lose nothing, power cuts that may.

What the journal promises is in `tests/contracts`; here it lives through deaths at every kind of
step, and through power cuts behind them, in a whole cluster with all its checks.
"""

from __future__ import annotations

import itertools

import pytest

from peloton.actors.job.messages import JobStates
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.storm import alone, draw, play
from peloton.chaos.cluster.world.cluster import ClusterSetup
from peloton.chaos.cluster.world.machines import Fate
from peloton.runtime.ports import ShardId
from peloton.runtime.shells.daemon_context import DaemonLimits
from peloton.runtime.simulation.daemon import Moment, PortCall
from peloton.runtime.simulation.embedded_store import EmbeddedStore
from peloton.runtime.simulation.world import World

SIZES = {"jobmgr": 2, "resmgr": 1, "hostmgr": 2}
SETUP = ClusterSetup(
    DaemonLimits(checkpoint_bytes_min=300),
    lambda run: Fate(1.0),
    finished_jobs_max=0,
    embedded=True,
)


def begun(seed: int) -> tuple[CheckedCluster, EmbeddedStore]:
    cluster = CheckedCluster(seed=seed, sizes=SIZES, setup=SETUP)
    store = cluster.world.store
    assert isinstance(store, EmbeddedStore)
    return cluster, store


def positions(store: EmbeddedStore) -> dict[ShardId, int]:
    """Of what is surely kept."""
    return {shard: row.last_position for shard, row in store.registers.registers.items()}


def dies_at(world: World, name: str, *, moment: Moment, count: int) -> list[PortCall]:
    """The process dies at the so-manieth of these calls; the list has it once it did."""
    counted, died = itertools.count(1), list[PortCall]()

    def strikes(call: PortCall) -> bool:
        if (call.port, call.name, call.moment) != ("store", name, moment):
            return False
        if died or next(counted) != count:
            return False
        died.append(call)
        return True

    world.on_call = strikes
    return died


def finish(cluster: CheckedCluster, job: str) -> None:
    cluster.calm()
    cluster.run_until(cluster.over, within_s=200)
    cluster.run_for(40)
    found = next(each for each in cluster.jobs if each == job)
    assert cluster.job(found).summary.state == JobStates.SUCCEEDED
    cluster.check_quiet()


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("name", ["append", "parts", "floor", "cut", "ended", "claim", "read_tail"])
def test_a_death_at_any_step_loses_nothing(name: str, moment: Moment) -> None:
    cluster, _ = begun(seed=3)
    died = dies_at(cluster.world, name, moment=moment, count=1)
    made = cluster.create(12)
    if name in ("claim", "read_tail"):
        cluster.kill()
    cluster.run_until(lambda: made.known, within_s=100)
    cluster.run_until(cluster.over, within_s=300)
    finish(cluster, made.job)
    assert died, "it died there"


def test_a_power_cut_takes_a_whole_round_or_nothing_of_it() -> None:
    """The process died after it had written, and before it knew."""
    outcomes = [cut_off(seed) for seed in range(12)]
    assert {kept for kept, _ in outcomes} == {True, False}
    assert max(shards for _, shards in outcomes) > 1


def cut_off(seed: int) -> tuple[bool, int]:
    """Whether the round was kept, and how many shards it had."""
    cluster, store = begun(seed)
    died = dies_at(cluster.world, "append", moment=Moment.AFTER, count=1 + seed % 4)
    made = cluster.create(4)
    cluster.run_until(lambda: bool(died), within_s=60)
    before = positions(store)
    written = {shard: each.register.last_position for shard, each in store.disk.shards.items()}
    moved = [shard for shard in before if written[shard] > before[shard]]
    assert moved
    store.power_cut()
    after = positions(store)
    assert after in (before, written)
    cluster.run_until(lambda: made.known, within_s=100)
    finish(cluster, made.job)
    return after == written, len(moved)


def test_what_was_acknowledged_survives_every_power_cut() -> None:
    cluster, store = begun(seed=5)
    for number in range(6):
        made = cluster.create(1)
        cluster.run_until(lambda made=made: made.known, within_s=100)
        before = positions(store)
        store.power_cut()
        assert positions(store) == before, number
        cluster.kill()
    finish(cluster, cluster.jobs[0])


@pytest.mark.parametrize("seed", [12, 25, 31])
def test_a_storm_of_a_fleet_over_one_daemon_with_a_store_of_its_own(seed: int) -> None:
    plan = alone(draw(seed))
    assert plan.embedded and plan.daemons == 1
    play(plan)
