"""Hand-over in storms: sessions cut, ended and late, daemons that come, go and fail to open."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from peloton.runtime.core.handoff import FAIL_S_MAX, UNFIT_S
from peloton.runtime.core.ownership import ranked
from peloton.runtime.ports import NodeAnswer, NodeOutcome, ShardId
from peloton.runtime.shells.shell_messages import ShardLost, send
from peloton.runtime.simulation.membership import MembershipFaults
from tests.worlds.daemons import Town

SETTLED_S_MAX = 30.0
SEEDS = range(100)


def settle(town: Town, seconds: float = SETTLED_S_MAX) -> float:
    return town.run_until(town.settled, seconds=seconds)


def test_every_shard_finds_its_owner_with_one_order():
    town = Town(1, sizes={"a": 8, "b": 3}, daemons=3)
    settle(town)
    town.run(60)
    assert town.orders() == {"JOIN": 3, "CREATE": 11, "OWN": 11}


def test_a_newcomer_moves_its_own_share_and_no_more():
    town = Town(2, sizes={"a": 64}, daemons=3)
    settle(town)
    before = dict(town.ensemble.owners)
    town.start()
    settle(town)
    town.run(60)
    moved = [shard for shard in town.shards if town.ensemble.owners[shard] != before[shard]]
    assert 4 <= len(moved) <= 32
    assert all(town.ensemble.owners[shard].startswith("d4") for shard in moved)
    assert town.orders() == {
        "JOIN": 4, "CREATE": 64 + len(moved), "OWN": 64 + len(moved),
        "DRAIN": len(moved), "REMOVE": len(moved),
    }  # fmt: skip
    assert town.fenced == 0


def storm(seed: int) -> Town:
    draw = random.Random(seed)
    sizes = {"a": draw.randint(1, 5), "b": draw.randint(0, 3)}
    town = Town(seed, sizes=sizes, daemons=draw.randint(1, 7))
    faults = MembershipFaults(
        way_s_max=draw.choice([0.01, 0.5]),
        watch_s_max=draw.choice([0.1, 5.0]),
        unsure=draw.choice([0.0, 0.3]),
        cuts_per_s=draw.choice([0.0, 0.02, 0.1]),
        expiries_per_s=draw.choice([0.0, 0.02]),
        pauses_per_s=draw.choice([0.0, 0.02]),
    )
    town.ensemble.storm(faults)
    failing = draw.choice([0.0, 0.02])

    def trouble(shard: ShardId) -> ShardLost | None:
        if draw.random() >= failing:
            return None
        return ShardLost(shard, "by lot", gave_up=draw.random() < 0.5)

    for daemon in town.daemons.values():
        daemon.root.trouble = trouble
    for _ in range(12):
        town.run(draw.random() * 10)
        what, names = draw.random(), sorted(town.daemons)
        if what < 0.3 and len(names) < 7:
            town.start(draw.choice([("a", "b"), ("a",), ("b",)])).root.trouble = trouble
        elif what < 0.5 and len(names) > 1:
            town.kill(draw.choice(names))
        elif what < 0.75:
            daemon = town.daemons[draw.choice(names)]
            daemon.freeze()
            town.run(draw.random() * 25)
            daemon.thaw()
        elif what < 0.85 and len(names) > 1:
            name = draw.choice(names)
            town.drain(name)
            town.run_until(town.daemons[name].gone.done, seconds=200)
            town.finish(name)
    for daemon in town.daemons.values():
        daemon.root.trouble = lambda shard: None
    return town


@pytest.mark.parametrize("seed", SEEDS)
def test_after_a_storm_every_shard_is_with_its_first_in_rank(seed: int):
    town = storm(seed)
    town.ensemble.calm()
    town.run(UNFIT_S + FAIL_S_MAX)
    settle(town)
    before = town.orders()
    town.run(60)
    assert town.settled() and town.orders() == before, "at rest nobody orders anything"


def test_storms_reach_the_rare_branches_and_replay_alike():
    struck: Counter[str] = Counter()
    for seed in range(16):
        struck += storm(seed).ensemble.struck
    rare = ["cut", "expired", "pause", "timed out", "request lost", "answer lost", "suspended"]
    assert all(struck[name] for name in [*rare, "lost", "changes seen as one"]), struck
    assert storm(3).stepper.trace() == storm(3).stepper.trace()


def test_a_daemon_that_cannot_open_is_passed_over_and_comes_back():
    town = Town(5, sizes={"a": 6}, daemons=3)
    settle(town)
    bad = town.daemons["d1"]
    mine = [*bad.root.running]
    assert mine
    bad.root.trouble = lambda shard: ShardLost(shard, "unclear for 15 s", gave_up=True)
    town.run(20)
    node = town.ensemble.members["d1.1"]
    assert node.unfit == ("a",) and not bad.root.running
    settle(town)
    for shard in mine:
        assert town.ensemble.owners[shard] == ranked(shard, town.ensemble.members)[0]
    bad.root.trouble = lambda shard: None
    town.run_until(lambda: sorted(bad.root.running) == sorted(mine), seconds=UNFIT_S + 10)


def test_one_that_gives_up_once_lets_others_try_for_a_while():
    town = Town(19, sizes={"a": 6}, daemons=2)
    settle(town)
    bad = town.daemons["d1"].root
    bad.lose(min(bad.running), ShardLost(min(bad.running), "unclear for 15 s", gave_up=True))
    town.run_until(lambda: town.ensemble.members["d1.1"].unfit == ("a",), seconds=1)
    settle(town)
    assert not bad.running


def test_claims_that_fail_over_and_over_make_unfit_though_the_store_answers():
    town = Town(6, sizes={"a": 6}, daemons=2)
    bad = town.daemons["d2"]
    bad.root.trouble = lambda shard: ShardLost(shard, "raised", broken=True)
    town.run_until(lambda: town.settled() and not bad.root.running, seconds=30)
    assert town.ensemble.members["d2.1"].unfit == ("a",)


def test_where_nobody_can_open_all_go_on_trying_with_growing_pauses():
    town = Town(7, sizes={"a": 2}, daemons=2)
    for daemon in town.daemons.values():
        daemon.root.trouble = lambda shard: ShardLost(shard, "unreachable", gave_up=True)
    town.run(120)
    first = town.orders()["OWN"]
    town.run(300)
    assert 10 <= town.orders()["OWN"] - first <= 2 * 2 * 300 / FAIL_S_MAX
    for daemon in town.daemons.values():
        daemon.root.trouble = lambda shard: None
    settle(town, UNFIT_S + FAIL_S_MAX + 10)


def test_a_damaged_shard_is_left_to_a_person():
    town = Town(8, sizes={"a": 3}, daemons=1)
    bad = ShardId("a", 1)
    root = town.daemons["d1"].root
    root.trouble = lambda shard: ShardLost(shard, "chain", damaged=True) if shard == bad else None
    town.run(120)
    assert sorted(root.running) == [ShardId("a", 0), ShardId("a", 2)]
    assert root.orders == {"own": 3} and bad not in town.ensemble.owners
    assert root.standing.damaged == {bad: "chain"}


def test_a_shard_that_one_finds_damaged_is_tried_by_each_of_the_others_once():
    """They may be of a later version, which can read what the first one could not."""
    town = Town(8, sizes={"a": 3}, daemons=3)
    bad = ShardId("a", 1)
    for daemon in town.daemons.values():
        daemon.root.trouble = lambda shard: (
            ShardLost(shard, "no such fact", damaged=True) if shard == bad else None
        )
    town.run(60)
    assert bad not in town.ensemble.owners
    tried = town.orders()["OWN"]
    town.run(120)
    assert town.orders()["OWN"] == tried, "nobody goes round and round"
    later = town.start()
    town.run(60)
    assert bad in later.root.running


def test_draining_leaves_no_node_and_moves_each_shard_once():
    town = Town(9, sizes={"a": 30}, daemons=3)
    settle(town)
    held = len(town.daemons["d2"].root.running)
    gone = town.drain("d2")
    took_s = town.run_until(gone.done, seconds=30)
    assert took_s < 5
    assert sum(town.epochs.values()) > 30, "others begin before the last is given back"
    assert town.daemons["d2"].root.orders["drain"] == held
    town.finish("d2")
    town.run_until(lambda: "d2.1" not in town.ensemble.members, seconds=5)
    settle(town)
    town.run(30)
    orders = {"JOIN": 2, "CREATE": 30, "OWN": 30}
    assert town.orders() == orders, "those that stay moved nothing else"
    assert not [owner for owner in town.ensemble.owners.values() if owner.startswith("d2")]


def test_the_last_daemon_can_drain_too():
    town = Town(10, sizes={"a": 5}, daemons=1)
    settle(town)
    gone = town.drain("d1")
    town.run_until(gone.done, seconds=30)
    assert not town.ensemble.owners
    town.finish("d1")


def test_one_that_is_cut_off_goes_on_but_calls_nothing_current():
    town = Town(11, sizes={"a": 4}, daemons=2)
    settle(town)
    daemon = town.daemons["d1"]
    mine = sorted(daemon.root.running)
    assert mine and daemon.root.standing.current
    daemon.client.cut()
    town.run_until(lambda: not daemon.root.standing.current, seconds=10)
    asked = daemon.claim.obeyed["CREATE"]
    assert sorted(daemon.root.running) == mine, "it goes on writing: the fence is enough"
    town.run_until(lambda: town.fenced == len(mine), seconds=30)
    town.run(10)
    assert not daemon.root.running and daemon.root.orders["own"] == len(mine), "no takeover back"
    assert daemon.claim.obeyed["CREATE"] == asked, "and nothing is asked of nobody"
    daemon.client.heal()
    settle(town)
    assert daemon.handoff.member == "d1.2" and daemon.root.standing.current


def test_one_that_stood_still_past_its_session_is_fenced_and_owns_nothing_by_what_it_believed():
    town = Town(16, sizes={"a": 6}, daemons=2)
    settle(town)
    daemon = town.daemons["d1"]
    mine = sorted(daemon.root.running)
    daemon.freeze()
    town.run(30)
    assert sorted(daemon.root.running) == mine and daemon.root.standing.current, "so it believes"
    assert set(town.ensemble.owners.values()) == {"d2.1"}
    daemon.thaw()
    settle(town)
    assert daemon.handoff.member == "d1.2"
    assert daemon.root.orders["own"] == len(mine) + len(daemon.root.running)


def test_a_short_cut_changes_nothing():
    town = Town(12, sizes={"a": 4}, daemons=2)
    settle(town)
    daemon, before = town.daemons["d1"], town.orders()
    for _ in range(20):
        daemon.client.cut()
        town.run(4)
        daemon.client.heal()
        town.run(2)
    assert daemon.handoff.member == "d1.1" and town.orders() == before and town.fenced == 0


def test_a_session_that_ends_drops_everything_at_once():
    town = Town(13, sizes={"a": 6}, daemons=2)
    settle(town)
    daemon = town.daemons["d1"]
    mine = len(daemon.root.running)
    daemon.client.expire()
    town.run_until(lambda: daemon.root.orders["drop"] == mine, seconds=5)
    settle(town)


def test_the_dead_are_followed_when_their_session_has_ended():
    town = Town(14, sizes={"a": 6}, daemons=3)
    settle(town)
    town.kill("d2")
    assert 5 < settle(town) < 15


def test_a_service_that_answers_twice_ends_the_daemon():
    town = Town(17, sizes={"a": 1}, daemons=1)
    settle(town)
    daemon = town.daemons["d1"]
    send(daemon.claim.ref, NodeAnswer("d1.1", ShardId("a", 0), NodeOutcome.HELD, 99))
    with pytest.raises(AssertionError, match="UnexpectedAnswer"):
        town.run(1)


def test_an_emptied_service_is_joined_anew():
    town = Town(15, sizes={"a": 6}, daemons=3)
    settle(town)
    town.ensemble.members.clear()
    town.ensemble.owners.clear()
    town.ensemble.changed()
    settle(town)
    for daemon in town.daemons.values():
        assert daemon.handoff.member.endswith(".2")
        assert daemon.root.orders["dropped while current"] == 0


def test_an_owner_node_removed_by_hand_ends_the_shard_and_it_is_claimed_anew():
    town = Town(18, sizes={"a": 6}, daemons=2)
    settle(town)
    shard = town.shards[0]
    daemon = town.daemons[town.ensemble.owners.pop(shard).split(".")[0]]
    town.check = lambda: None
    town.ensemble.changed()
    town.run_until(lambda: daemon.root.orders["drop"] == 1, seconds=5)
    settle(town)
    assert town.epochs[shard] == 2
