"""How a daemon reports its troubles: in health, in the log and in answers.

Nothing here needs a server: a journal that does not answer is simulated in this process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.adapters.system_clock import SystemClock
from peloton.runtime.core.health import (
    CASSANDRA,
    DISK,
    ZOOKEEPER,
    DaemonHealth,
    ranges,
    why_unowned,
)
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.ports import Answer, MemberNode, MembershipView, ShardId, Unclear, Work
from peloton.runtime.shells.claim import MembershipStatus
from peloton.runtime.shells.root import start
from peloton.runtime.shells.routing import RoutingTable
from peloton.runtime.shells.status import REPORT_AGAIN_S, SLOW_WRITE_S, Status
from peloton.runtime.simulation.memory_rows import MemoryRows
from peloton.runtime.vocabulary import ShardDamaged, Unavailable, key
from tests.toy import messages as w
from tests.toy.kinds import KINDS

SIZES = {"house": 4}
SHARDS = [ShardId("house", at) for at in range(4)]
ONE = SHARDS[1]
WAIT_S_MAX = 60.0


class Watched:
    """A status, its time and its log."""

    def __init__(self) -> None:
        self.routes = RoutingTable(KINDS, Sharding(KINDS, SIZES))
        self.status = Status(self.routes, SIZES)
        self.at_s = 1000.0
        self.log: list[str] = []
        self.status.now = lambda: self.at_s
        self.status.report = self.log.append
        for shard in SHARDS:
            self.routes.shards[shard] = None  # type: ignore[assignment]

    def lines(self) -> list[str]:
        return [str(reason) for reason in self.status.daemon_health().reasons]

    def among(
        self, *nodes: MemberNode, owners: dict[ShardId, str] | None = None, **more: Any
    ) -> None:
        """From now on the daemon is in a fleet, as member `m0`."""
        members = {f"m{at}": node for at, node in enumerate(nodes)}
        owners = dict.fromkeys(SHARDS, "m0") if owners is None else owners
        self.routes.membership_status = MembershipStatus(
            "m0", True, MembershipView("m0", 1, members, owners), "", **more
        )


def node(address: str, **more: object) -> MemberNode:
    return MemberNode(address, ("house",), **more)  # type: ignore[arg-type]


def test_all_is_well_when_every_shard_is_here_and_open() -> None:
    watched = Watched()
    assert watched.status.daemon_health() == DaemonHealth(True, True)
    watched.status.problems["house-2"] = "recovering"
    assert watched.lines() == ["shard house/2: recovering"]


def test_a_damaged_shard_of_an_optional_group_is_told_and_the_daemon_ready() -> None:
    watched = Watched()
    watched.status.damaged[ONE] = "it has an unknown fact"
    del watched.routes.shards[ONE]
    (reason,) = watched.status.daemon_health().damaged
    watched.status.optional = ("house",)
    assert watched.status.daemon_health() == DaemonHealth(True, True, remarks=(reason,))
    del watched.routes.shards[SHARDS[2]]
    assert watched.lines() == ["shards without an owner: it is being claimed (house/2)"]


def test_a_shard_without_an_owner_makes_the_daemon_not_ready() -> None:
    watched = Watched()
    del watched.routes.shards[SHARDS[0]], watched.routes.shards[SHARDS[3]]
    condition = watched.status.daemon_health()
    assert condition.live and not condition.ready
    assert watched.lines() == ["shards without an owner: it is being claimed (house/0,3)"]


def test_in_a_fleet_every_shard_must_have_an_owner_somewhere() -> None:
    watched = Watched()
    watched.routes.shards.clear()
    others = [node("a:1"), node("b:1")]
    watched.among(*others, owners=dict.fromkeys(SHARDS, "m1"))
    assert watched.status.daemon_health().ready, "it owns nothing itself, and need not"
    watched.among(*others, owners=dict.fromkeys(SHARDS[1:], "m1"))
    assert watched.lines() == ["shards without an owner: it is being claimed (house/0)"]
    watched.among(*others, owners=dict.fromkeys(SHARDS, "m0"))
    assert not watched.status.daemon_health().ready, "the nodes are ours, and nothing is open yet"


def test_a_server_that_is_away_is_named_with_its_shards_and_logged_twice() -> None:
    watched = Watched()
    for shard in SHARDS[:3]:
        watched.status.away(CASSANDRA, "no answer in 3 s", shard=shard)
    watched.at_s += 12
    for _ in range(1000):
        watched.status.away(CASSANDRA, "no answer in 3 s", shard=ONE)
    assert watched.lines() == ["Cassandra: unreachable since 12 s: no answer in 3 s (house/0-2)"]
    assert watched.log == ["Cassandra is unreachable since 0 s: no answer in 3 s"]
    for shard in SHARDS[:3]:
        watched.status.answered(CASSANDRA, shard)
    assert watched.status.daemon_health().ready
    assert watched.log[1:] == ["Cassandra answers again, after 12 s"]


def test_a_server_that_comes_and_goes_does_not_flood_the_log() -> None:
    watched = Watched()
    for _ in range(1000):
        watched.status.away(DISK, "full", shard=ONE)
        watched.status.answered(DISK, ONE)
        watched.at_s += 0.1
    assert len(watched.log) <= 2 * (1000 * 0.1 / REPORT_AGAIN_S + 1)
    assert watched.log[0] == "the disk is not writable since 0 s: full"


def test_a_write_that_waits_or_fails_is_a_reason_at_once_and_until_one_is_answered() -> None:
    watched = Watched()
    watched.among(node("a:1"))
    status = watched.status
    status.probing(CASSANDRA)
    assert watched.lines() == []
    watched.at_s += SLOW_WRITE_S
    text = "Cassandra: unreachable since 3 s: it does not answer a write"
    assert watched.lines() == [text]
    status.probed(CASSANDRA, "no host answers")
    status.probing(CASSANDRA)
    watched.at_s += 2.0
    assert watched.lines() == ["Cassandra: unreachable since 5 s: no host answers"]
    assert not status.wrote_lately(CASSANDRA, within_s=60.0)
    status.probed(CASSANDRA, "")
    assert watched.lines() == [] and status.wrote_lately(CASSANDRA, within_s=2.0)


def test_no_write_is_needed_where_commits_are_answered() -> None:
    watched = Watched()
    status = watched.status
    assert not status.wrote_lately(CASSANDRA, within_s=2.0)
    status.answered(CASSANDRA, ONE)
    watched.at_s += 1.0
    assert status.wrote_lately(CASSANDRA, within_s=2.0)
    watched.at_s += 1.0
    assert not status.wrote_lately(CASSANDRA, within_s=2.0)


def test_a_daemon_that_leaves_shards_to_others_serves_all_the_same() -> None:
    watched = Watched()
    watched.among(node("a:1", unfit=("house",)), unfit=("house",))
    condition = watched.status.daemon_health()
    assert condition.ready and [one.component for one in condition.remarks] == ["shards of house"]


def test_a_peer_out_of_reach_is_a_reason_only_while_it_owns_a_shard() -> None:
    watched = Watched()
    watched.status.peer_down("m1", "the daemon at b:1 (m1) is out of reach: refused")
    watched.among(node("a:1"), node("b:1"), owners={ONE: "m1", SHARDS[0]: "m0"})
    text = "peer: the daemon at b:1 (m1) is out of reach: refused"
    assert f"{text} (house/1)" in watched.lines()
    watched.among(node("a:1"), node("b:1"))
    assert watched.lines() == []
    assert [str(remark) for remark in watched.status.daemon_health().remarks] == [text]
    watched.status.peer_down("m1", "")
    assert not watched.status.daemon_health().remarks
    assert watched.log == [text.removeprefix("peer: "), "m1 is in reach again"]


def test_a_shard_given_up_because_of_an_outage_names_the_server() -> None:
    watched = Watched()
    watched.status.away(CASSANDRA, "no answer", shard=ONE)
    watched.status.left(ONE)
    watched.routes.shards.pop(ONE)
    watched.at_s += 12
    assert watched.status.refusal(ONE) == Unavailable(
        "shard house/1 has no owner: Cassandra is unreachable since 12 s"
    )
    watched.status.answered(CASSANDRA, SHARDS[0])
    assert watched.status.refusal(ONE).text == "shard house/1 has no owner: it is being claimed"


def test_our_outage_does_not_affect_shards_that_another_daemon_owns() -> None:
    watched = Watched()
    watched.status.away(CASSANDRA, "no answer", shard=ONE)
    watched.status.left(ONE)
    watched.routes.shards.clear()
    watched.among(node("a:1"), node("b:1"), owners=dict.fromkeys(SHARDS, "m1"))
    watched.status.moved()
    assert watched.status.daemon_health().ready


def test_a_lost_session_names_zookeeper() -> None:
    watched = Watched()
    watched.among(node("a:1"))
    watched.status.away(ZOOKEEPER, "the session is suspended")
    watched.at_s += 3
    assert "ZooKeeper is unreachable since 3 s" in watched.status.doubt()
    assert watched.lines()[0] == (
        "ZooKeeper: unreachable since 3 s: the session is suspended (house/0-3)"
    )
    watched.routes.membership_status = MembershipStatus("m0", False, None, "")
    assert "ZooKeeper is unreachable since 3 s" in watched.status.refusal(ONE).text


def test_a_damaged_shard_is_final() -> None:
    watched = Watched()
    watched.routes.shards.pop(ONE)
    watched.status.damaged[ONE] = "recovery: KeyError: 'task/1'"
    watched.status.problems["house-1"] = "recovery: KeyError: 'task/1'"
    text = "shard house/1 is damaged: recovery: KeyError: 'task/1'"
    assert watched.status.refusal(ONE) == ShardDamaged(text)
    (reason,) = watched.status.daemon_health().reasons
    assert reason.damaged and reason.shards == (ONE,)
    assert str(reason) == "shard house/1: damaged: recovery: KeyError: 'task/1'"


def test_in_a_fleet_damage_is_final_when_all_have_tried() -> None:
    watched = Watched()
    watched.routes.shards.pop(ONE)
    watched.status.damaged[ONE] = "chain break at 7"
    owners = dict.fromkeys([one for one in SHARDS if one != ONE], "m0")
    damaged = node("a:1", damaged=(ONE,))
    watched.among(damaged, node("b:1"), owners=owners)
    answer = watched.status.refusal(ONE)
    assert type(answer) is Unavailable and "another daemon has yet to try" in answer.text
    assert not watched.status.daemon_health().damaged
    watched.among(damaged, node("b:1", damaged=(ONE,)), owners=owners)
    answer = watched.status.refusal(ONE)
    assert type(answer) is ShardDamaged
    assert "chain break at 7" in answer.text and "a:1, b:1" in answer.text
    assert [reason.shards for reason in watched.status.daemon_health().damaged] == [(ONE,)]
    watched.among(damaged, node("b:1"), owners=dict.fromkeys(SHARDS, "m1"))
    watched.routes.shards.clear()
    assert watched.status.daemon_health().ready, "another could recover it"


def test_an_unreadable_row_is_damage() -> None:
    watched = Watched()
    watched.status.problems["house-1-rows"] = "note/x: bad digest"
    assert watched.lines() == ["shard house/1: unreadable row: note/x: bad digest"]
    assert watched.status.daemon_health().damaged


@pytest.mark.parametrize(
    ("members", "text", "damaged"),
    [
        ({}, "no daemon with role house is there", False),
        ({"m": node("a:1", leaving=True)}, "no daemon with role house is there", False),
        ({"m": node("a:1", unfit=("house",))}, "a:1 could not reach the store", False),
        ({"m": node("a:1")}, "it is being claimed", False),
        ({"m": node("a:1", damaged=(ONE,))}, "/health of a:1 name the cause", True),
    ],
)
def test_members_say_why_a_shard_has_no_owner(
    members: dict[str, MemberNode], text: str, damaged: bool
) -> None:
    found = why_unowned(ONE, MembershipView("m", 1, members, {}))
    assert (text in found.text, found.damaged) == (True, damaged), found


def test_ranges_are_short() -> None:
    some = [ShardId("b", 0), ShardId("a", 3), ShardId("a", 1), ShardId("a", 2), ShardId("a", 9)]
    assert ranges(some) == "a/1-3,9 b/0"


class Silent(FencedRows):
    """A store whose answers are lost while `lost` is set."""

    lost = False

    def commit(self, works: Sequence[Work]) -> list[Answer]:
        if self.lost:
            return [Unclear("no answer")] * len(works)
        return super().commit(works)

    def settle(self, shards: Sequence[ShardId]) -> list[Answer]:
        if self.lost:
            return [Unclear("no answer")] * len(shards)
        return super().settle(shards)


def until(wanted: Callable[[], object]) -> None:
    end_s = time.monotonic() + WAIT_S_MAX
    while not wanted():
        assert time.monotonic() < end_s
        time.sleep(0.01)


def test_a_store_that_does_not_answer_is_named_while_it_is_away() -> None:
    journal = Silent(MemoryRows(), process=b"s" * 16)
    root = start(KINDS, journal, sizes={**SIZES, "meter": 1}, clock=SystemClock())
    log: list[str] = []
    root.region.status.report = log.append
    try:
        root.opened.result(WAIT_S_MAX)
        assert root.region.daemon_health().ready
        journal.lost = True
        root.region.ask(key("note", "x"), w.Add(1))
        until(lambda: log)
        reasons = root.region.daemon_health().reasons
        assert [reason.component for reason in reasons if reason.component == DISK] == [DISK]
        assert reasons[0].shards and "no answer" in reasons[0].text
        assert root.region.daemon_health().live
        journal.lost = False
        until(lambda: root.region.daemon_health().ready)
        assert [line.split(" is ")[0].split(" answers ")[0] for line in log] == [DISK, DISK]
    finally:
        root.stop(drain=False)
