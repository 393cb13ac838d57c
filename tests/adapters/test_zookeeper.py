"""The ZooKeeper adapter where a real service is at its worst: frozen, killed, emptied, parted."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from peloton.runtime.adapters.zookeeper_lease import Lease, now_s
from peloton.runtime.adapters.zookeeper_membership import Config, ZooKeeperMembership
from peloton.runtime.adapters.zookeeper_nodes import Leader, Paths
from peloton.runtime.ports import MemberNode, NodeOutcome, SessionState, ShardId
from tests.contracts.memberships import SHARD, Daemon, expire, rest, wait
from tests.servers import zookeeper
from tests.servers.proxy import Proxy
from tests.servers.zookeeper import Ensemble, ZooKeeper

HELD, TAKEN, GONE, UNSURE = NodeOutcome
CONNECTED, SUSPENDED, LOST = SessionState
MEMBER = Path(__file__).parent / "zookeeper_member.py"
SESSION_S = 1.2
LEADERS = {"a": ("jobmanager", Leader("west-1", "10.0.0.1", 5292, 5392))}


class Bench:
    """Clients of some service, in a cluster of their own."""

    _clusters = itertools.count(1)

    def __init__(self, address: str) -> None:
        self.address = address
        self.session_s = SESSION_S
        self.cluster = f"cluster-{next(self._clusters)}"
        self.paths = Paths(self.cluster, root=f"/{self.cluster}")
        self.clients: list[ZooKeeperMembership] = []
        self.operator = KazooClient(address)
        self.operator.start()

    def client(self, address: str = "", *, session_s: float = 0) -> ZooKeeperMembership:
        config = Config(
            address or self.address,
            self.cluster,
            session_s=session_s or self.session_s,
            root=f"/{self.cluster}",
            leaders=LEADERS,
        )
        self.clients.append(ZooKeeperMembership(config))
        return self.clients[-1]

    def daemon(self, name: str, address: str = "", *, session_s: float = 0) -> Daemon:
        client = self.client(address, session_s=session_s)
        return Daemon(self, name, client=client).join()

    def wait(self, until: Callable[[], bool]) -> None:
        wait(until)

    def rest(self, seconds: float) -> None:
        rest(seconds)

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.operator.stop()
        self.operator.close()


@pytest.fixture
def bench() -> Iterator[Bench]:
    """On the server that all tests share."""
    made = Bench(zookeeper.shared().address)
    yield made
    made.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeper]:
    """One to be paused and killed."""
    started = ZooKeeper.start(tmp_path_factory.mktemp("zookeeper"))
    yield started
    started.kill()


@pytest.fixture
def alone(server: ZooKeeper) -> Iterator[Bench]:
    made = Bench(server.address)
    yield made
    server.go_on()
    made.close()


class Watched:
    """For how long a member called itself sure, by the clock."""

    def __init__(self, daemon: Daemon) -> None:
        self.until_s: list[float] = []
        self._daemon = daemon
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._stop.wait(0.005):
            at_s, for_s = now_s(), self._daemon.client.sure_for_s()
            if for_s > 0:
                self.until_s.append(at_s + for_s)

    def stop(self) -> float:
        """The latest moment it ever called sure."""
        self._stop.set()
        self._thread.join()
        return max(self.until_s)


# ---- arithmetic ----


def test_a_lease_counts_from_what_was_sent_and_from_what_the_leader_can_have_heard():
    lease = Lease()
    lease.committed(100.0, 12.0)
    assert lease.until_s == 0.0, "nothing is known of when the session began"
    lease.reopened(100.0)
    for sent_s in (100.0, 101.0, 102.0, 103.0, 104.0, 105.0):
        lease.committed(sent_s, 12.0)
        assert lease.until_s == sent_s + 8.0
    # It stood still for 9 s. That the write of 114.0 came through says that the leader had heard
    # of us at 105.0, and perhaps no later.
    lease.committed(114.0, 12.0)
    assert lease.until_s == 105.0 + 12.0
    lease.end()
    assert lease.until_s == 0.0


# ---- the session ----


def test_the_server_decides_how_long_a_session_lasts(bench: Bench):
    a = bench.daemon("a", session_s=100.0)
    sure_s = a.client.sure_for_s()
    assert 5.0 < sure_s <= 10.0 * 2 / 3, "the server allows 10 s"


def test_a_process_that_stood_still_past_its_session_is_never_sure_meanwhile(bench: Bench):
    a = bench.daemon("a")
    said: list[str] = []
    process = subprocess.Popen(
        [sys.executable, str(MEMBER), bench.address, bench.cluster, str(SESSION_S)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    reader = threading.Thread(target=lambda: said.extend(process.stdout), daemon=True)
    reader.start()
    owner = Paths(bench.cluster).owner(SHARD)

    def stands() -> bool:
        return bench.operator.exists(owner) is not None

    try:
        wait(stands)
        bench.rest(0.5)
        process.send_signal(signal.SIGSTOP)
        wait(lambda: not stands())
        vanished_s = now_s()
        bench.rest(0.5)
        process.send_signal(signal.SIGCONT)
        wait(lambda: "session LOST\n" in said)
    finally:
        process.kill()
        process.wait()
    reader.join()
    samples = [line.split()[1:] for line in said if line.startswith("sure")]
    until = [float(at_s) + float(for_s) for at_s, for_s in samples if float(for_s) > 0]
    assert max(until) <= vanished_s
    late = [float(for_s) for at_s, for_s in samples if float(at_s) > vanished_s]
    assert late and max(late) <= 0
    assert [line.split()[1] for line in said if "session" in line] == [
        "CONNECTED", "SUSPENDED", "LOST",
    ]  # fmt: skip
    assert a.states() == [CONNECTED]


def test_no_threads_are_left_behind(bench: Bench):
    before = threading.active_count()
    a, b = bench.daemon("a"), bench.daemon("b")
    a.create()
    expire(b.client, bench.address)
    wait(lambda: b.states()[-1] is LOST)
    b.join(2)
    for daemon in (a, b):
        daemon.client.close()
    wait(lambda: threading.active_count() <= before)


# ---- the server ----


def test_a_frozen_server_suspends_and_then_all_goes_on(alone: Bench, server: ZooKeeper):
    a = alone.daemon("a")
    a.create()
    watched = Watched(a)
    server.pause()
    frozen_s = now_s()
    wait(lambda: a.states()[-1] is SUSPENDED)
    assert now_s() - frozen_s < SESSION_S * 2 / 3
    wait(lambda: a.client.sure_for_s() <= 0)
    server.go_on()
    assert watched.stop() <= frozen_s + SESSION_S * 2 / 3 + 0.01
    wait(lambda: a.states()[-1] is not SUSPENDED)
    if a.states()[-1] is LOST:
        a.join(2)
        assert a.create().outcome is HELD
    else:
        wait(lambda: a.owners() == {SHARD: "a.1"} and a.client.sure_for_s() > 0)


def test_a_server_that_is_killed_and_started_again_keeps_sessions_or_ends_them(
    alone: Bench, server: ZooKeeper
):
    a = alone.daemon("a", session_s=6.0)
    a.create()
    server.kill()
    wait(lambda: a.states()[-1] is SUSPENDED)
    a.client.create_owner(ShardId("a", 1))
    wait(lambda: a.outcomes(ShardId("a", 1)) == [UNSURE])
    server.restart()
    wait(lambda: a.states()[-1] is CONNECTED)
    a.client.look()
    wait(lambda: a.owners() == {SHARD: "a.1"})
    assert a.create(ShardId("a", 1)).outcome is HELD


# ---- an operator ----


def empty(bench: Bench, *, folders: bool) -> None:
    for folder in (bench.paths.members, bench.paths.owners):
        for name in bench.operator.get_children(folder):
            bench.operator.delete(f"{folder}/{name}")
        if folders:
            bench.operator.delete(folder)


@pytest.mark.parametrize("folders", [False, True])
def test_an_emptied_service_shows_a_view_without_us_and_is_joined_anew(
    bench: Bench, *, folders: bool
):
    a, b = bench.daemon("a"), bench.daemon("b")
    a.create()
    b.create(ShardId("a", 1))
    empty(bench, folders=folders)
    for daemon in (a, b):
        wait(lambda d=daemon: d.members() == {} and d.owners() == {})
        assert daemon.states() == [CONNECTED], "the session itself stands"
    assert a.create().outcome is UNSURE, "an owner must be a member"
    a.join(2)
    b.join(2)
    assert b.create().outcome is HELD
    wait(lambda: sorted(a.members()) == ["a.2", "b.2"] and a.owners() == {SHARD: "b.2"})


def test_what_an_operator_writes_is_no_member_and_no_owner(bench: Bench):
    a = bench.daemon("a")
    for path, data in {
        bench.paths.member("rubbish"): b"\xff{",
        bench.paths.member("half"): b'{"address": 3}',
        f"{bench.paths.owners}/nothing": b"x",
        f"{bench.paths.owners}/a--1x": b"x",
        bench.paths.owner(ShardId("a", 7)): b"\xff",
    }.items():
        bench.operator.create(path, data)
    a.create()
    wait(lambda: SHARD in a.owners())
    assert sorted(a.members()) == ["a.1"]
    assert sorted(a.owners()) == [SHARD, ShardId("a", 7)]
    assert a.create(ShardId("a", 7)).outcome is TAKEN


def test_a_later_version_may_say_more_of_itself(bench: Bench):
    a = bench.daemon("a")
    said = json.dumps({"address": "n:1", "roles": ["a"], "colour": "blue"}).encode()
    bench.operator.create(bench.paths.member("newer"), said)
    wait(lambda: a.members().get("newer") == MemberNode("n:1", ("a",)))


# ---- leader nodes ----


def leader(bench: Bench) -> str | None:
    path = f"/{bench.cluster}/jobmanager/leader"
    if bench.operator.exists(path) is None:
        return None
    return str(bench.operator.get(path)[1].ephemeralOwner)


def session_of(daemon: Daemon) -> str:
    return str(daemon.client._session._line.session_id)


def test_the_owner_of_a_first_shard_writes_what_existing_clients_look_for(bench: Bench):
    a, b = bench.daemon("a"), bench.daemon("b")
    a.create(ShardId("a", 1))
    a.create(SHARD)
    wait(lambda: leader(bench) == session_of(a))
    said = json.loads(bench.operator.get(f"/{bench.cluster}/jobmanager/leader")[0])
    assert said == {
        "hostname": "west-1", "ip": "10.0.0.1", "http": 5292, "grpc": 5392, "version": "",
    }  # fmt: skip
    b.create(SHARD)
    assert leader(bench) == session_of(a)
    a.remove(SHARD)
    wait(lambda: leader(bench) is None)
    b.create(SHARD)
    wait(lambda: leader(bench) == session_of(b))


def test_a_leader_node_that_somebody_left_behind_is_replaced(bench: Bench):
    bench.operator.create(f"/{bench.cluster}/jobmanager/leader", b"old", makepath=True)
    a = bench.daemon("a")
    a.create(SHARD)
    wait(lambda: leader(bench) == session_of(a))


def test_whose_owner_node_an_operator_removed_leads_no_more(bench: Bench):
    a = bench.daemon("a")
    a.create(SHARD)
    wait(lambda: leader(bench) == session_of(a))
    bench.operator.delete(bench.paths.owner(SHARD))
    wait(lambda: leader(bench) is None)


# ---- three servers ----


@pytest.fixture
def ensemble(tmp_path: Path) -> Iterator[Ensemble]:
    started = Ensemble.start(tmp_path)
    yield started
    started.stop()


def test_one_of_three_may_die_or_freeze_and_no_session_ends(ensemble: Ensemble):
    bench = Bench(ensemble.address)
    try:
        daemons = [bench.daemon(name, session_s=3.0) for name in "abcd"]
        for number, daemon in enumerate(daemons):
            assert daemon.create(ShardId("a", number)).outcome is HELD
        frozen = ensemble.followers()[0]
        frozen.pause()
        everybody_goes_on(daemons, ShardId("b", 0))
        frozen.go_on()
        wait(lambda: frozen.mode() == "follower")
        ensemble.leader().kill()
        everybody_goes_on(daemons, ShardId("b", 1))
        for daemon in daemons:
            assert LOST not in daemon.states()
            wait(lambda d=daemon: {ShardId("a", at) for at in range(4)} <= set(d.owners()))
    finally:
        bench.close()


def everybody_goes_on(daemons: list[Daemon], shard: ShardId) -> None:
    """Each is asked until it knows whose the node is: all say the same."""
    for daemon in daemons:
        wait(lambda d=daemon: d.create(shard).outcome is not UNSURE)
        wait(lambda d=daemon: d.client.sure_for_s() > 0)
    held = [daemon.member for daemon in daemons if HELD in daemon.outcomes(shard)]
    assert len(held) == 1
    assert {daemon.answers(shard)[-1].owner or daemon.member for daemon in daemons} == set(held)


def test_a_server_that_lost_its_leader_and_still_answers_makes_nobody_sure(tmp_path: Path):
    ensemble = Ensemble(tmp_path)
    # The first server reaches the others through proxies, so that it can be cut off from them.
    proxies = [Proxy(seat.quorum_port) for seat in ensemble.servers[0].seats[1:]]
    seats = ensemble.servers[0].seats
    parted, *others = ensemble.servers
    parted.seats = [
        seats[0],
        *(seat._replace(quorum_port=p.port) for seat, p in zip(seats[1:], proxies, strict=True)),
    ]
    ensemble.launch()
    try:
        if parted.mode() == "leader":  # seldom: the others were slow
            parted.kill()
            wait(lambda: "leader" in [server.mode() for server in others])
            parted.restart()
        leader = ensemble.leader()
        bench = Bench(leader.address)
        member = bench.daemon("a", parted.address)
        member.create()
        rest(SESSION_S)
        watched = Watched(member)
        for proxy in proxies:
            proxy.silence()
        wait(lambda: bench.operator.exists(bench.paths.owner(SHARD)) is None)
        vanished_s = now_s()
        assert parted.mode() == "follower", "so it still believes"
        assert watched.stop() <= vanished_s
        bench.close()
    finally:
        ensemble.stop()
        for proxy in proxies:
            proxy.close()
