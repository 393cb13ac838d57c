"""The ZooKeeper adapter where its servers are at their worst: frozen, killed, parted."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from peloton.chaos.nemesis.proxy import Door
from peloton.runtime.adapters.zookeeper_connection import now_s
from peloton.runtime.ports import NodeOutcome, SessionState, ShardId
from tests.adapters.zookeeper.zookeeper_bench import Bench, Watched
from tests.contracts.memberships import SHARD, Daemon, rest, wait
from tests.servers import zookeeper
from tests.servers.zookeeper import Ensemble, ZooKeeper

HELD, TAKEN, GONE, UNKNOWN = NodeOutcome
CONNECTED, SUSPENDED, LOST = SessionState
FROZEN_SESSION_S, PARTED_SESSION_S = 6.0, 3.0
"""The second: well below the time for which a server believes in a leader that it does not hear."""


@pytest.fixture
def alone() -> Iterator[Bench]:
    """The shared server, which may be paused: nobody else asks meanwhile."""
    made = Bench(zookeeper.shared().address)
    yield made
    zookeeper.shared().go_on()
    made.close()


# ---- the server ----


def test_a_frozen_server_suspends_and_then_all_goes_on(alone: Bench):
    server = zookeeper.shared()
    a = alone.daemon("a", session_s=FROZEN_SESSION_S)
    a.create()
    watched = Watched(a)
    server.pause()
    frozen_s = now_s()
    numbers = itertools.count(1)

    def suspended() -> bool:
        # Requests put off kazoo's own pings: by these alone it would never notice.
        a.client.create_owner(ShardId("a", next(numbers)))
        return a.states()[-1] is SUSPENDED

    wait(suspended)
    wait(lambda: a.client.sure_for_s() <= 0)
    server.go_on()
    assert watched.stop() <= frozen_s + FROZEN_SESSION_S * 2 / 3 + 0.01
    wait(lambda: a.states()[-1] is not SUSPENDED)
    if a.states()[-1] is LOST:
        a.join(2)
        assert a.create().outcome is HELD
    else:
        wait(lambda: a.owners().get(SHARD) == "a.1" and a.client.sure_for_s() > 0)


@pytest.mark.slow
def test_a_server_that_is_killed_and_started_again_keeps_sessions(tmp_path: Path):
    server = ZooKeeper.start(tmp_path)
    alone = Bench(server.address)
    try:
        a = alone.daemon("a")
        a.create()
        server.kill()
        wait(lambda: a.states()[-1] is SUSPENDED)
        a.client.create_owner(ShardId("a", 1))
        wait(lambda: a.outcomes(ShardId("a", 1)) == [UNKNOWN])
        server.restart()
        wait(lambda: a.states()[-1] is CONNECTED)
        a.client.request_view()
        wait(lambda: a.owners() == {SHARD: "a.1"})
        assert a.create(ShardId("a", 1)).outcome is HELD
    finally:
        alone.close()
        server.kill()


# ---- three servers ----


class Parted(NamedTuple):
    """Three servers, of which the first reaches the others through doors."""

    ensemble: Ensemble
    doors: list[Door]


@pytest.fixture(scope="module")
def parted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parted]:
    ensemble = Ensemble(tmp_path_factory.mktemp("ensemble"))
    first = ensemble.servers[0]
    doors = [Door(seat.quorum_port) for seat in first.seats[1:]]
    others = zip(first.seats[1:], doors, strict=True)
    first.seats = [first.seats[0], *(seat._replace(quorum_port=to.port) for seat, to in others)]
    ensemble.launch()
    yield Parted(ensemble, doors)
    ensemble.stop()
    for door in doors:
        door.close()


@pytest.mark.nightly
def test_one_of_three_may_die_or_freeze_and_no_session_ends(parted: Parted):
    ensemble = parted.ensemble
    bench = Bench(ensemble.address)
    try:
        daemons = [bench.daemon(name) for name in "abcd"]
        for number, daemon in enumerate(daemons):
            assert daemon.create(ShardId("a", number)).outcome is HELD
        frozen = ensemble.followers()[0]
        frozen.pause()
        everybody_goes_on(daemons, ShardId("b", 0))
        frozen.go_on()
        wait(lambda: frozen.mode() == "follower")
        killed = ensemble.leader()
        killed.kill()
        everybody_goes_on(daemons, ShardId("b", 1))
        for daemon in daemons:
            assert LOST not in daemon.states(), daemon.news
            wait(lambda d=daemon: {ShardId("a", at) for at in range(4)} <= set(d.owners()))
        killed.restart()
        wait(lambda: killed.mode() == "follower")
    finally:
        bench.close()


def everybody_goes_on(daemons: list[Daemon], shard: ShardId) -> None:
    """Each is asked until it knows whose the node is: all say the same."""
    for daemon in daemons:
        wait(lambda d=daemon: d.create(shard).outcome is not UNKNOWN)
        wait(lambda d=daemon: d.client.sure_for_s() > 0)
    held = [daemon.member for daemon in daemons if HELD in daemon.outcomes(shard)]
    assert len(held) == 1
    assert {daemon.answers(shard)[-1].owner or daemon.member for daemon in daemons} == set(held)


@pytest.mark.slow
def test_a_server_that_lost_its_leader_and_still_answers_makes_nobody_sure(parted: Parted):
    cut_off, *others = parted.ensemble.servers
    if cut_off.mode() == "leader":
        cut_off.kill()
        wait(lambda: "leader" in [server.mode() for server in others])
        cut_off.restart()
    bench = Bench(parted.ensemble.leader().address)
    try:
        member = bench.daemon("a", cut_off.address, session_s=PARTED_SESSION_S)
        member.create()
        rest(PARTED_SESSION_S)
        watched = Watched(member)
        wait(lambda: bool(watched.until_s))
        for door in parted.doors:
            door.silence()
        wait(lambda: bench.operator.exists(bench.paths.owner(SHARD)) is None)
        vanished_s = now_s()
        assert cut_off.mode() == "follower", "so it still believes"
        assert watched.stop() <= vanished_s
    finally:
        for door in parted.doors:
            door.mend()
        bench.close()
