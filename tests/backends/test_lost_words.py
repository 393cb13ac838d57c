"""Words between hosts and backends that a crash swallowed: somebody asks again.

Must not use storms: each test loses one word by hand.
"""

from __future__ import annotations

import pytest

from peloton.actors.host import messages as m
from peloton.actors.host.state import HostStates
from peloton.actors.resources import Resources
from peloton.chaos.cluster.machines import Fate
from tests.worlds import checks
from tests.worlds.harness import World, spec


def state(world: World) -> HostStates:
    return world.cells("host")[world.hosts[0]].state  # type: ignore[no-any-return]


@pytest.mark.parametrize("away_s", [5.0, 100.0])
def test_a_backend_that_came_back_while_the_shard_was_away(away_s: float) -> None:
    """Its word that it is up found nobody: the host would have stayed lost for good."""
    world = World(hosts=1, fates=lambda run: Fate(None))
    job = world.create(spec(world.make_pool(), 2))
    world.run_for(1.0)
    world.cut(world.hosts[0])
    world.run_for(away_s)
    assert state(world) == (HostStates.UNREACHABLE if away_s < 60 else HostStates.LOST)
    world.machines.cut_off.clear()
    world.crash(world.sharding.shard_of(world.hosts[0]))
    world.run_for(60.0)
    assert state(world) == HostStates.UP
    assert world.job(job).summary.counts == (("RUNNING", 2),)
    checks.ledgers_equal_the_machines(world)


def test_a_backend_that_went_away_while_the_shard_was_away() -> None:
    """Its word that it is down found nobody: its runs would have been taken for running."""
    world = World(hosts=2, fates=lambda run: Fate(None))
    job = world.create(spec(world.make_pool(), 4))
    world.run_for(1.0)
    world.machines.cut_off[world.hosts[0]] = None
    world.crash(world.sharding.shard_of(world.hosts[0]))
    world.run_for(1.0)
    assert state(world) == HostStates.UNREACHABLE
    world.run_for(70.0)
    assert state(world) == HostStates.LOST
    assert world.job(job).summary.counts == (("RUNNING", 4),)


def test_a_shard_that_dies_while_its_host_is_out_of_reach_keeps_counting() -> None:
    """To look again must not begin the time limit anew."""
    world = World(hosts=1, fates=lambda run: Fate(None))
    world.cut(world.hosts[0])
    for _ in range(7):
        world.run_for(9.0)
        world.crash(world.sharding.shard_of(world.hosts[0]))
    assert state(world) == HostStates.LOST


def test_a_host_that_is_no_more_is_no_room_for_anybody() -> None:
    world = World(hosts=2, fates=lambda run: Fate(None))
    job = world.create(spec(world.make_pool(), 8))
    world.run_for(1.0)
    gone = world.hosts[0]
    world.tell(gone, m.HostGone())
    world.run_for(5.0)
    assert dict(world.job(job).summary.counts) == {"RUNNING": 4, "PENDING": 4}
    assert world.machines.used(gone) == Resources(), "what it ran is killed"
    reasons = {view.because for view in world.instances(job, 8) if view.state != "RUNNING"}
    assert all("2" not in reason for reason in reasons), reasons
    placed = world.placers[0].index
    assert int(placed.has_host.sum()) == 1, "the placer has heard of it"
    world.crash(world.sharding.shard_of(gone))
    world.run_for(5.0)
    assert int(placed.has_host.sum()) == 1, "and does not again"


def test_kills_that_were_lost_with_the_shard_are_given_again() -> None:
    """The host was removed, and its shard died before the order to kill left."""
    world = World(hosts=1, fates=lambda run: Fate(None))
    world.create(spec(world.make_pool(), 2))
    world.run_for(1.0)
    host = world.hosts[0]
    world.machines.cut_off[host] = None
    world.tell(host, m.HostGone())
    world.run_for(1.0)
    assert len(world.machines.running) == 2, "the order was lost"
    world.machines.cut_off.clear()
    world.crash(world.sharding.shard_of(host))
    world.run_for(1.0)
    assert not world.machines.running


def test_an_end_that_nobody_heard_has_its_own_time() -> None:
    """The machine could not be asked when the run ended: clients see when it did, for good."""
    world = World(hosts=1, fates=lambda run: Fate(3.0))
    job = world.create(spec(world.make_pool(), 2))
    world.run_for(1.0)
    began = world.now
    world.cut(world.hosts[0])
    world.run_for(30.0)
    world.mend(world.hosts[0])
    world.run_until(lambda: checks.over(world), within_s=5.0)
    ends = [view.ended_at for view in world.instances(job, 2)]
    assert all(began + 1.9 < at < began + 2.2 for at in ends if at), (began, ends)
    world.crash(world.sharding.shard_of(job))
    world.run_for(5.0)
    assert [view.ended_at for view in world.instances(job, 2)] == ends
