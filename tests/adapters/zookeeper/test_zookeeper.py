"""The ZooKeeper adapter on a healthy server: sessions, operators, leader nodes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from peloton.chaos.nemesis.proxy import Door
from peloton.runtime.adapters.zookeeper_connection import Lease, Then, now_s
from peloton.runtime.adapters.zookeeper_membership import ZooKeeperMembership
from peloton.runtime.adapters.zookeeper_nodes import Leader, Paths
from peloton.runtime.adapters.zookeeper_owners import Leaders, NodeStatus, OnNodeStatus, Writes
from peloton.runtime.ports import (
    MemberNode,
    MembershipView,
    NodeOutcome,
    Session,
    SessionState,
    ShardId,
)
from tests.adapters.zookeeper.zookeeper_bench import SHORT_SESSION_S, Bench
from tests.contracts.memberships import (
    SHARD,
    WAIT_S_MAX,
    Daemon,
    expire,
    node,
    rest,
    wait,
)
from tests.servers import zookeeper

HELD, TAKEN, GONE, UNKNOWN = NodeOutcome
CONNECTED, SUSPENDED, LOST = SessionState
MEMBER = Path(__file__).parent / "zookeeper_member.py"
MOMENT_S = 0.3


@pytest.fixture
def bench() -> Iterator[Bench]:
    """On the server that all tests share."""
    made = Bench(zookeeper.shared().address)
    yield made
    made.close()


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
    wait(lambda: a.client.sure_for_s() > 5.0)
    assert a.client.sure_for_s() <= 10.0 * 2 / 3, "the server allows 10 s"


def test_a_process_that_stood_still_past_its_session_is_never_sure_meanwhile(bench: Bench):
    a = bench.daemon("a")
    said: list[str] = []
    process = subprocess.Popen(
        [sys.executable, str(MEMBER), bench.address, bench.cluster, str(SHORT_SESSION_S)],
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
        bench.rest(MOMENT_S)
        process.send_signal(signal.SIGSTOP)
        wait(lambda: not stands())
        vanished_s = now_s()
        bench.rest(MOMENT_S)
        process.send_signal(signal.SIGCONT)
        wait(lambda: "session LOST\n" in said)
        known = len(said)
        wait(lambda: any(line.startswith("sure") for line in said[known:]))
    finally:
        process.kill()
        process.wait()
    reader.join()
    samples = [line.split()[1:] for line in said if line.startswith("sure")]
    until = [float(at_s) + float(for_s) for at_s, for_s in samples if float(for_s) > 0]
    assert max(until) <= vanished_s
    late = [float(for_s) for at_s, for_s in samples if float(at_s) > vanished_s]
    assert late and max(late) <= 0
    states = [line.split()[1] for line in said if "session" in line]
    # A server that stood still may have suspended it before, and it was connected again.
    assert states[-3:] == ["CONNECTED", "SUSPENDED", "LOST"]
    assert LOST.name not in states[:-1]
    assert LOST not in a.states()


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


def test_it_is_counted_from_when_a_request_was_sent_not_from_its_answer(bench: Bench):
    proxy = Door(zookeeper.shared().port)
    a = bench.daemon("a", proxy.address)
    session = a.client._session
    committed: list[float] = []
    answers: list[NodeStatus] = []
    writes = Writes(session._connection, committed=committed.append)
    proxy.silence()
    asked_s = now_s()
    session._put(lambda: writes.heartbeat(bench.paths.nowhere, answers.append))
    rest(MOMENT_S)
    mended_s = now_s()
    proxy.mend()
    wait(lambda: bool(answers))
    assert asked_s <= committed[0] < mended_s, "no answer came before"
    assert a.states() == [CONNECTED]
    a.client.close()
    proxy.close()


def test_a_lost_session_dials_no_more_however_late_it_is_noticed(bench: Bench):
    proxy = Door(zookeeper.shared().port)
    client = bench.client(proxy.address)
    states: list[SessionState] = []

    def told(news: object) -> None:
        if isinstance(news, Session):
            states.append(news.state)
            rest(0.3 if news.state is SUSPENDED else 0)

    client.listen(told)
    client.join("a.1", node("a"))
    wait(lambda: states == [CONNECTED])
    expire(client, bench.address)
    wait(lambda: states == [CONNECTED, SUSPENDED, LOST])
    assert proxy.accepted == 2, "its first connection, and the one on which it was told"
    client.close()
    proxy.close()


def test_what_is_announced_at_any_moment_of_joining_is_what_stands(bench: Bench):
    for wait_ms in (0, 2, 4, 8, 16):
        a = Daemon(bench, f"a{wait_ms}", client=bench.client())
        a.member = f"{a.name}.1"
        a.client.join(a.member, node(a.name))
        rest(wait_ms / 1000)
        a.client.announce(node(a.name, leaving=True))
        wait(lambda a=a: a.members().get(a.member) == node(a.name, leaving=True))
        a.client.leave()


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
        assert LOST not in daemon.states(), "the session itself stands"
    assert a.create().outcome is UNKNOWN, "an owner must be a member"
    a.join(2)
    b.join(2)
    assert b.create().outcome is HELD
    wait(lambda: sorted(a.members()) == ["a.2", "b.2"] and a.owners() == {SHARD: "b.2"})


def test_only_the_owner_nodes_removed_with_their_folder_are_made_again(bench: Bench):
    a, b = bench.daemon("a"), bench.daemon("b")
    a.create()
    bench.operator.delete(bench.paths.owner(SHARD))
    bench.operator.delete(bench.paths.owners)
    wait(lambda: a.owners() == b.owners() == {} and "a.1" in a.members())
    wait(lambda: a.create().outcome is HELD)
    wait(lambda: b.owners() == {SHARD: "a.1"})
    a.remove()
    wait(lambda: b.owners() == {})


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
    node = bench.operator.exists(path)
    return None if node is None else str(node.ephemeralOwner)


def session_of(daemon: Daemon) -> str:
    return str(daemon.client._session._connection.session_id)


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
    # A leader is told of a moment before its owner node is seen by all: wait for what is removed.
    wait(lambda: bench.operator.exists(bench.paths.owner(SHARD)))
    bench.operator.delete(bench.paths.owner(SHARD))
    wait(lambda: leader(bench) is None)


class Folders:
    """A connection on which every folder is made at once."""

    def request(self, request: object, then: Then) -> None:
        then(SimpleNamespace(exception=None))  # type: ignore[arg-type]


class SlowWrites:
    """Writes of leader nodes that arrive when told to; what is removed before them is not there."""

    def __init__(self) -> None:
        self.nodes: set[str] = set()
        self.under_way: list[tuple[str, OnNodeStatus]] = []

    def put(self, path: str, data: bytes, *, on_done: OnNodeStatus) -> None:
        self.under_way.append((path, on_done))

    def remove(self, path: str, on_done: OnNodeStatus) -> None:
        self.nodes.discard(path)

    def arrive(self) -> None:
        while self.under_way:
            path, on_done = self.under_way.pop(0)
            self.nodes.add(path)
            on_done(NodeStatus(ours=True))


def test_a_leader_node_leaves_with_its_leader_whatever_is_under_way():
    """To replace another's node takes several requests, and its leader may be none meanwhile."""
    writes, paths = SlowWrites(), Paths("none")
    led = ("jobmanager", Leader("west-1", "10.0.0.1", 5292, 5392))
    leaders = Leaders(Folders(), writes=writes, paths=paths, roles={SHARD.group: led})  # type: ignore[arg-type]
    node_of = {paths.leader("jobmanager")}
    leaders.ours(SHARD, 1)
    leaders.not_ours(SHARD)
    writes.arrive()
    assert writes.nodes == set(), "it was under way"
    leaders.write_all()
    writes.arrive()
    assert writes.nodes == set(), "it is not written again after a reconnect"
    leaders.ours(SHARD, 2)
    writes.arrive()
    leaders.seen(MembershipView("a.1", 1, {}, {}))
    assert writes.nodes == node_of, "an older view says nothing"
    leaders.seen(MembershipView("a.1", 2, {}, {SHARD: "b.1"}))
    assert writes.nodes == set()


# ---- whose root it is ----


@pytest.mark.parametrize("name", ["east", ""], ids=["another name", "another journal of the name"])
def test_a_root_of_another_cluster_is_refused_and_nothing_there_is_touched(bench: Bench, name: str):
    root = f"/{bench.cluster}"
    a = Daemon(bench, "a", client=bench.client(cluster_id="01")).join()
    assert a.create().outcome is HELD
    wait(lambda: leader(bench) == session_of(a))
    before = sorted(bench.operator.get_children(root))
    b = Daemon(bench, "b", client=bench.client(cluster=name, cluster_id="02"))
    b.member = "b.1"
    b.client.join("b.1", node("b"))
    assert isinstance(b.client, ZooKeeperMembership)
    why = b.client.refused.result(WAIT_S_MAX)
    for word in (root, repr(bench.cluster), "01", repr(name or bench.cluster), "02", ".cluster"):
        assert word in why
    b.client.create_owner(ShardId("a", 1))
    rest(MOMENT_S)
    assert b.news == [] and sorted(bench.operator.get_children(root)) == before
    assert leader(bench) == session_of(a) and sorted(a.members()) == ["a.1"]


def test_a_root_without_a_mark_is_taken_and_kept_for_the_next_daemon(bench: Bench):
    Daemon(bench, "old", client=bench.client()).join()  # of a version that wrote no mark
    for name in ("a", "b"):
        Daemon(bench, name, client=bench.client(cluster_id="01")).join()
    said = json.loads(bench.operator.get(f"/{bench.cluster}/.cluster")[0])
    assert said == {"id": "01", "name": bench.cluster}


def test_a_root_is_free_again_when_a_person_removes_the_mark(bench: Bench):
    a = Daemon(bench, "a", client=bench.client(cluster_id="01")).join()
    a.client.leave()
    bench.operator.delete(f"/{bench.cluster}/.cluster")
    Daemon(bench, "b", client=bench.client(cluster_id="02")).join()
