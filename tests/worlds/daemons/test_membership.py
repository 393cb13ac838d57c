"""Hand-over in storms: sessions cut, ended and late, daemons that come, go and fail to open."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from peloton.runtime.core.owning.handoff import FAIL, UNFIT_S
from peloton.runtime.core.owning.ownership import ranked
from peloton.runtime.ports import NodeAnswer, NodeOutcome, ShardId
from peloton.runtime.shells.shell_messages import ShardLost, send
from peloton.runtime.simulation.membership import MembershipFaults
from tests.worlds.daemons.claim_deployment import Deployment

SETTLED_S_MAX = 30.0
SEEDS = range(100)


def settle(deployment: Deployment, seconds: float = SETTLED_S_MAX) -> float:
    return deployment.run_until(deployment.settled, seconds=seconds)


def test_every_shard_finds_its_owner_with_one_order():
    deployment = Deployment(1, sizes={"a": 8, "b": 3}, daemons=3)
    settle(deployment)
    deployment.run(60)
    assert deployment.orders() == {"JOIN": 3, "CREATE": 11, "OWN": 11}


def test_a_newcomer_moves_its_own_share_and_no_more():
    deployment = Deployment(2, sizes={"a": 64}, daemons=3)
    settle(deployment)
    before = dict(deployment.ensemble.owners)
    deployment.start()
    settle(deployment)
    deployment.run(60)
    moved = [
        shard for shard in deployment.shards if deployment.ensemble.owners[shard] != before[shard]
    ]
    assert 4 <= len(moved) <= 32
    assert all(deployment.ensemble.owners[shard].startswith("d4") for shard in moved)
    assert deployment.orders() == {
        "JOIN": 4, "CREATE": 64 + len(moved), "OWN": 64 + len(moved),
        "DRAIN": len(moved), "REMOVE": len(moved),
    }  # fmt: skip
    assert deployment.fenced == 0


def storm(seed: int) -> Deployment:
    draw = random.Random(seed)
    sizes = {"a": draw.randint(1, 5), "b": draw.randint(0, 3)}
    deployment = Deployment(seed, sizes=sizes, daemons=draw.randint(1, 7))
    faults = MembershipFaults(
        way_s_max=draw.choice([0.01, 0.5]),
        watch_s_max=draw.choice([0.1, 5.0]),
        inconclusive=draw.choice([0.0, 0.3]),
        cuts_per_s=draw.choice([0.0, 0.02, 0.1]),
        expiries_per_s=draw.choice([0.0, 0.02]),
        pauses_per_s=draw.choice([0.0, 0.02]),
    )
    deployment.ensemble.storm(faults)
    failing = draw.choice([0.0, 0.02])

    def trouble(shard: ShardId) -> ShardLost | None:
        if draw.random() >= failing:
            return None
        return ShardLost(shard, "by lot", gave_up=draw.random() < 0.5)

    for daemon in deployment.daemons.values():
        daemon.root.trouble = trouble
    for _ in range(12):
        deployment.run(draw.random() * 10)
        what, names = draw.random(), sorted(deployment.daemons)
        if what < 0.3 and len(names) < 7:
            deployment.start(draw.choice([("a", "b"), ("a",), ("b",)])).root.trouble = trouble
        elif what < 0.5 and len(names) > 1:
            deployment.kill(draw.choice(names))
        elif what < 0.75:
            daemon = deployment.daemons[draw.choice(names)]
            daemon.freeze()
            deployment.run(draw.random() * 25)
            daemon.thaw()
        elif what < 0.85 and len(names) > 1:
            name = draw.choice(names)
            deployment.drain(name)
            deployment.run_until(deployment.daemons[name].gone.done, seconds=200)
            deployment.finish(name)
    for daemon in deployment.daemons.values():
        daemon.root.trouble = lambda shard: None
    return deployment


@pytest.mark.parametrize("seed", SEEDS)
def test_after_a_storm_every_shard_is_with_its_first_in_rank(seed: int):
    deployment = storm(seed)
    deployment.ensemble.calm()
    deployment.run(UNFIT_S + FAIL.most_s)
    settle(deployment)
    before = deployment.orders()
    deployment.run(60)
    assert deployment.settled() and deployment.orders() == before, "at rest nobody orders anything"


def test_storms_reach_the_rare_branches_and_replay_alike():
    struck: Counter[str] = Counter()
    for seed in range(16):
        struck += storm(seed).ensemble.struck
    rare = ["cut", "expired", "pause", "timed out", "request lost", "answer lost", "suspended"]
    assert all(struck[name] for name in [*rare, "lost", "changes seen as one"]), struck
    assert storm(3).stepper.trace() == storm(3).stepper.trace()


def test_a_daemon_that_cannot_open_is_passed_over_and_comes_back():
    deployment = Deployment(5, sizes={"a": 6}, daemons=3)
    settle(deployment)
    bad = deployment.daemons["d1"]
    mine = [*bad.root.running]
    assert mine
    bad.root.trouble = lambda shard: ShardLost(shard, "unclear for 15 s", gave_up=True)
    deployment.run(20)
    node = deployment.ensemble.members["d1.1"]
    assert node.unfit == ("a",) and not bad.root.running
    settle(deployment)
    for shard in mine:
        assert deployment.ensemble.owners[shard] == ranked(shard, deployment.ensemble.members)[0]
    bad.root.trouble = lambda shard: None
    deployment.run_until(lambda: sorted(bad.root.running) == sorted(mine), seconds=UNFIT_S + 10)


def test_one_that_gives_up_once_lets_others_try_for_a_while():
    deployment = Deployment(19, sizes={"a": 6}, daemons=2)
    settle(deployment)
    bad = deployment.daemons["d1"].root
    bad.lose(min(bad.running), ShardLost(min(bad.running), "unclear for 15 s", gave_up=True))
    deployment.run_until(lambda: deployment.ensemble.members["d1.1"].unfit == ("a",), seconds=1)
    settle(deployment)
    assert not bad.running


def test_claims_that_fail_over_and_over_make_unfit_though_the_store_answers():
    deployment = Deployment(6, sizes={"a": 6}, daemons=2)
    bad = deployment.daemons["d2"]
    bad.root.trouble = lambda shard: ShardLost(shard, "raised", broken=True)
    deployment.run_until(lambda: deployment.settled() and not bad.root.running, seconds=30)
    assert deployment.ensemble.members["d2.1"].unfit == ("a",)


def test_where_nobody_can_open_all_go_on_trying_with_growing_pauses():
    deployment = Deployment(7, sizes={"a": 2}, daemons=2)
    for daemon in deployment.daemons.values():
        daemon.root.trouble = lambda shard: ShardLost(shard, "unreachable", gave_up=True)
    deployment.run(120)
    first = deployment.orders()["OWN"]
    deployment.run(300)
    assert 10 <= deployment.orders()["OWN"] - first <= 2 * 2 * 300 / FAIL.most_s
    for daemon in deployment.daemons.values():
        daemon.root.trouble = lambda shard: None
    settle(deployment, UNFIT_S + FAIL.most_s + 10)


def test_a_damaged_shard_is_left_to_a_person():
    deployment = Deployment(8, sizes={"a": 3}, daemons=1)
    bad = ShardId("a", 1)
    root = deployment.daemons["d1"].root
    root.trouble = lambda shard: ShardLost(shard, "chain", damaged=True) if shard == bad else None
    deployment.run(120)
    assert sorted(root.running) == [ShardId("a", 0), ShardId("a", 2)]
    assert root.orders == {"own": 3} and bad not in deployment.ensemble.owners
    assert root.status.damaged == {bad: "chain"}


def test_a_shard_that_one_finds_damaged_is_tried_by_each_of_the_others_once():
    """They may be of a later version, which can read what the first one could not."""
    deployment = Deployment(8, sizes={"a": 3}, daemons=3)
    bad = ShardId("a", 1)
    for daemon in deployment.daemons.values():
        daemon.root.trouble = lambda shard: (
            ShardLost(shard, "no such fact", damaged=True) if shard == bad else None
        )
    deployment.run(60)
    assert bad not in deployment.ensemble.owners
    tried = deployment.orders()["OWN"]
    deployment.run(120)
    assert deployment.orders()["OWN"] == tried, "nobody goes round and round"
    later = deployment.start()
    deployment.run(60)
    assert bad in later.root.running


def test_draining_leaves_no_node_and_moves_each_shard_once():
    deployment = Deployment(9, sizes={"a": 30}, daemons=3)
    settle(deployment)
    held = len(deployment.daemons["d2"].root.running)
    gone = deployment.drain("d2")
    took_s = deployment.run_until(gone.done, seconds=30)
    assert took_s < 5
    assert sum(deployment.epochs.values()) > 30, "others begin before the last is given back"
    assert deployment.daemons["d2"].root.orders["drain"] == held
    deployment.finish("d2")
    deployment.run_until(lambda: "d2.1" not in deployment.ensemble.members, seconds=5)
    settle(deployment)
    deployment.run(30)
    orders = {"JOIN": 2, "CREATE": 30, "OWN": 30}
    assert deployment.orders() == orders, "those that stay moved nothing else"
    assert not [owner for owner in deployment.ensemble.owners.values() if owner.startswith("d2")]


def test_the_last_daemon_can_drain_too():
    deployment = Deployment(10, sizes={"a": 5}, daemons=1)
    settle(deployment)
    gone = deployment.drain("d1")
    deployment.run_until(gone.done, seconds=30)
    assert not deployment.ensemble.owners
    deployment.finish("d1")


def test_one_that_is_cut_off_goes_on_but_calls_nothing_current():
    deployment = Deployment(11, sizes={"a": 4}, daemons=2)
    settle(deployment)
    daemon = deployment.daemons["d1"]
    mine = sorted(daemon.root.running)
    assert mine and daemon.root.status.current
    daemon.client.cut()
    deployment.run_until(lambda: not daemon.root.status.current, seconds=10)
    asked = daemon.claim.obeyed["CREATE"]
    assert sorted(daemon.root.running) == mine, "it goes on writing: the fence is enough"
    deployment.run_until(lambda: deployment.fenced == len(mine), seconds=30)
    deployment.run(10)
    assert not daemon.root.running and daemon.root.orders["own"] == len(mine), "no takeover back"
    assert daemon.claim.obeyed["CREATE"] == asked, "and nothing is asked of nobody"
    daemon.client.heal()
    settle(deployment)
    assert daemon.handoff.member == "d1.2" and daemon.root.status.current


def test_one_that_stood_still_past_its_session_is_fenced_and_owns_nothing_by_what_it_believed():
    deployment = Deployment(16, sizes={"a": 6}, daemons=2)
    settle(deployment)
    daemon = deployment.daemons["d1"]
    mine = sorted(daemon.root.running)
    daemon.freeze()
    deployment.run(30)
    assert sorted(daemon.root.running) == mine and daemon.root.status.current, "so it believes"
    assert set(deployment.ensemble.owners.values()) == {"d2.1"}
    daemon.thaw()
    settle(deployment)
    assert daemon.handoff.member == "d1.2"
    assert daemon.root.orders["own"] == len(mine) + len(daemon.root.running)


def test_a_short_cut_changes_nothing():
    deployment = Deployment(12, sizes={"a": 4}, daemons=2)
    settle(deployment)
    daemon, before = deployment.daemons["d1"], deployment.orders()
    for _ in range(20):
        daemon.client.cut()
        deployment.run(4)
        daemon.client.heal()
        deployment.run(2)
    assert (
        daemon.handoff.member == "d1.1" and deployment.orders() == before and deployment.fenced == 0
    )


def test_a_session_that_ends_drops_everything_at_once():
    deployment = Deployment(13, sizes={"a": 6}, daemons=2)
    settle(deployment)
    daemon = deployment.daemons["d1"]
    mine = len(daemon.root.running)
    daemon.client.expire()
    deployment.run_until(lambda: daemon.root.orders["drop"] == mine, seconds=5)
    settle(deployment)


def test_the_dead_are_followed_when_their_session_has_ended():
    deployment = Deployment(14, sizes={"a": 6}, daemons=3)
    settle(deployment)
    deployment.kill("d2")
    assert 5 < settle(deployment) < 15


def test_a_service_that_answers_twice_ends_the_daemon():
    deployment = Deployment(17, sizes={"a": 1}, daemons=1)
    settle(deployment)
    daemon = deployment.daemons["d1"]
    send(daemon.claim.ref, NodeAnswer("d1.1", ShardId("a", 0), NodeOutcome.OURS, 99))
    with pytest.raises(AssertionError, match="UnexpectedAnswer"):
        deployment.run(1)


def test_an_emptied_service_is_joined_anew():
    deployment = Deployment(15, sizes={"a": 6}, daemons=3)
    settle(deployment)
    deployment.ensemble.members.clear()
    deployment.ensemble.owners.clear()
    deployment.ensemble.changed()
    settle(deployment)
    for daemon in deployment.daemons.values():
        assert daemon.handoff.member.endswith(".2")
        assert daemon.root.orders["dropped while current"] == 0


def test_an_owner_node_removed_by_hand_ends_the_shard_and_it_is_claimed_anew():
    deployment = Deployment(18, sizes={"a": 6}, daemons=2)
    settle(deployment)
    shard = deployment.shards[0]
    daemon = deployment.daemons[deployment.ensemble.owners.pop(shard).split(".")[0]]
    deployment.check = lambda: None
    deployment.ensemble.changed()
    deployment.run_until(lambda: daemon.root.orders["drop"] == 1, seconds=5)
    settle(deployment)
    assert deployment.epochs[shard] == 2
