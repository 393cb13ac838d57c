"""Plans of pools: what they say is what the tree then does, and the tree that was copied stays.

States are put into trees by hand.
"""

from __future__ import annotations

import random

import msgspec
import pytest

from peloton.actors.respool.admission import admissions
from peloton.actors.respool.blockers import ExplainedTree
from peloton.actors.respool.copies import CopyPools, PoolsCopy, copy_pools, fork
from peloton.actors.respool.lot.messages import LotShape
from peloton.actors.respool.messages import ROOT, Within
from peloton.actors.respool.planning import NewLot, PoolPlan, plan_lots, plan_pool
from peloton.actors.respool.reclaims import PreemptionPolicy
from peloton.actors.respool.state import Pool
from peloton.runtime.core.entities.encoding import encode
from peloton.runtime.vocabulary import At, Bits, Key, Refused
from tests.actors.pools.test_pool import A1, A, B, admit, config, cpus, lot, put, root, tree

PLAN = Key("lot/plan/0/0")


def copied(of: ExplainedTree, most: int = 1000) -> PoolsCopy:
    at = At(now=0.0, key=ROOT, index=of)
    return copy_pools(of.pools[ROOT], CopyPools(most), at)


def new(pool: Key, count: int, size: float = 1, *, gang: int = 0) -> NewLot:
    shape = LotShape(pool, cpus(size), gang=bool(gang))
    return NewLot(PLAN, shape, Key("task/plan/0"), Bits.span(0, count), gang)


def drawn(seed: int) -> ExplainedTree:
    """Pools of several depths with work that runs and waits."""
    chance = random.Random(seed)
    found = tree(
        a=config("a", limit=60, reserved=20),
        b=config("b", limit=chance.choice([30, 80]), reserved=10),
        a1=config("a1", A, limit=40, reserved=5),
        a2=config("a2", A, limit=40),
    )
    pools = [B, A1, Key("respool/a2")]
    for number in range(30):
        each = lot(
            chance.choice(pools),
            chance.randint(1, 8),
            size=chance.choice([0.5, 1, 3]),
            priority=chance.randint(0, 2),
            arrived=float(number),
        )
        put(found, f"j{number:02}/0/0", each)
        if chance.random() < 0.5:
            admit(found)
    while admit(found):
        pass
    return found


@pytest.mark.parametrize("seed", range(40))
def test_a_plan_comes_true_and_changes_nothing(seed: int) -> None:
    found = drawn(seed)
    chance = random.Random(seed)
    pool = chance.choice([B, A1])
    wanted = new(pool, chance.randint(1, 30), chance.choice([0.5, 1, 2]))
    before, whole = encode(copied(found)), copied(found)
    plan = plan_lots(whole, [wanted], now=100.0)
    assert encode(copied(found)) == before == encode(whole)
    assert admissions(found) == [], "nothing of it reached the tree"
    real = lot(pool, len(wanted.members), size=wanted.shape.resources.cpu / 1e6, arrived=100.0)
    put(found, "plan/0/0", real)
    admitted = Bits()
    while batches := admit(found):
        assert {name for name, _ in batches} == {"plan/0/0"}
        admitted = found.lots[PLAN].admitted
    assert plan.admitted.get(PLAN, Bits()) == admitted
    if admitted != wanted.members:
        real_waits = found.waits(PLAN, 100.0)
        assert plan.waits[PLAN].blockers == real_waits.blockers
        assert plan.waits[PLAN].because == real_waits.because


@pytest.mark.parametrize("seed", range(40))
def test_a_planned_config_comes_true(seed: int) -> None:
    found = drawn(seed)
    chance = random.Random(seed)
    wanted = config("b", limit=chance.randint(10, 100), reserved=chance.randint(0, 10))
    before = encode(copied(found))
    plan = plan_pool(copied(found), B, config=wanted, now=100.0)
    assert isinstance(plan, PoolPlan) and encode(copied(found)) == before
    old = {path: share for path, *share in plan.shares}
    assert old["/a"][0] == found.entitlement(A) and old["/b"][0] == found.entitlement(B)
    found.put(B, old=found.pools[B], new=msgspec.structs.replace(found.pools[B], config=wanted))
    tasks = 0
    while batches := admit(found):
        tasks += sum(count for _, count in batches)
    assert sum(each.tasks for each in plan.admitted) == tasks
    assert old["/a"][1] == found.entitlement(A) and old["/b"][1] == found.entitlement(B)


def test_a_fork_has_all_that_follows_from_the_states() -> None:
    found = drawn(3)
    twin = fork(copied(found))
    for pool in found.pools:
        assert twin.use(pool) == found.use(pool) and twin.demand(pool) == found.demand(pool)
        assert twin.entitlement(pool) == found.entitlement(pool)
    found.releases.note(0.0, up=found.up)
    found.releases.add(A1, cpus(3), tasks=3)
    found.releases.note(10.0, up=found.up)
    twin = fork(copied(found))
    rates = [of.releases.rate(A, 0, now=20.0, up=of.up) for of in (found, twin)]
    assert rates[0] == rates[1] is not None


def test_who_would_give_back_and_what_would_be_given_anyway() -> None:
    found = tree(a=config("a", limit=100), b=config("b", limit=100))
    put(found, "lent/0/0", lot(B, 100))
    admit(found)
    plan = plan_lots(copied(found), [new(A, 80)], now=5.0)
    assert plan.admitted == {}
    (given,) = plan.given_back
    assert (given.pool, given.job, given.tasks, given.amount) == ("/b", "lent", 50, cpus(50))
    assert len(plan.later[PLAN]) == 50 and plan.sustained_s == found.policy.sustained_s
    put(found, "waits/0/0", lot(A, 80, arrived=1.0))
    admit(found)
    again = plan_lots(copied(found), [new(A, 80)], now=5.0)
    assert again.given_back == [], "the other one gets it anyway"


def test_as_many_lots_give_back_as_it_takes() -> None:
    """One order goes to a thousand lots at most; the plan goes on as the pools would."""
    found = tree(a=config("a", limit=5000), b=config("b", limit=5000))
    found.put(ROOT, old=found.pools[ROOT], new=root(5000))
    for number in range(4000):
        put(found, f"lent{number}/0/0", lot(B, 1, arrived=float(number)))
    while admit(found):
        pass
    plan = plan_lots(copied(found, 5000), [new(A, 2500)], now=1e6)
    assert len(plan.admitted[PLAN]) == 1000, "these are free"
    assert sum(each.tasks for each in plan.given_back) == 1500 == len(plan.later[PLAN])


def test_nobody_gives_back_and_why() -> None:
    found = tree(a=config("a", limit=100), b=config("b", limit=100))
    held = lot(B, 100)
    put(found, "k/0/0", msgspec.structs.replace(
        held, shape=msgspec.structs.replace(held.shape, preemptible=False)
    ))  # fmt: skip
    admit(found)
    plan = plan_lots(copied(found), [new(A, 80)], now=5.0)
    assert plan.given_back == [] and "not preemptible" in plan.verdict


def test_a_gang_is_all_or_nothing() -> None:
    found = tree(a=config("a", limit=5))
    assert plan_lots(copied(found), [new(A, 6, gang=1)], now=1.0).waits[PLAN].never
    assert len(plan_lots(copied(found), [new(A, 5, gang=1)], now=1.0).admitted[PLAN]) == 5
    put(found, "holds/0/0", lot(A, 1))
    admit(found)
    plan = plan_lots(copied(found), [new(A, 5, gang=1)], now=1.0)
    assert plan.admitted == {} and plan.waits[PLAN].rule == "limit"


def test_a_config_that_breaks_a_rule_is_refused() -> None:
    found = drawn(1)
    plan = plan_pool(copied(found), B, config=config("b", limit=1, reserved=2), now=1.0)
    assert isinstance(plan, Refused) and plan.field == "config.resources[cpu].reservation"


def test_a_new_pool_is_entitled_to_its_part() -> None:
    found = tree(a=config("a", limit=100))
    put(found, "x/0/0", lot(A, 100))
    admit(found)
    fresh = Key("respool/fresh")
    plan = plan_pool(copied(found), fresh, config=config("n", limit=50, reserved=30), now=1.0)
    assert isinstance(plan, PoolPlan)
    assert {share.path: share.after.cpu // 10**6 for share in plan.shares}["/a"] == 100
    assert fresh not in found.pools and isinstance(found.pools[A], Pool)


def test_a_copy_is_bounded() -> None:
    found = drawn(2)
    part = copied(found, 4)
    assert len(part.lots) == 4 and part.more_lots == len(found.lots) - 4


@pytest.mark.parametrize("seed", range(40))
def test_whoever_waits_is_told_at_least_one_reason_and_never_only_with_proof(seed: int) -> None:
    found = drawn(seed)
    put(found, "huge/0/0", lot(A1, 1, size=500, arrived=0.5))
    while admit(found):
        pass
    waiting = [key for key, each in found.lots.items() if each.waiting]
    for key in waiting:
        answer = found.waits(key, 50.0)
        assert answer.blockers, key
        assert answer.never == any(each.never for each in answer.blockers)
        for each in answer.blockers:
            if each.never:
                assert each.wanted > each.limit and each.rule in ("limit", "controllers")
            elif each.rule != "queue":
                assert each.missing == each.wanted - (each.limit - each.used) > 0
        if not answer.never:
            assert answer.outlook is not None and answer.outlook.basis
    assert Key("lot/huge/0/0") in waiting


def test_a_plan_keeps_tasks_that_may_not_be_preempted_to_the_reservation() -> None:
    found = tree(a=config("a", limit=10, reserved=2))
    found.put(ROOT, old=found.pools[ROOT], new=root(10))
    policy = PreemptionPolicy(within_reservation=Within.ALWAYS)
    kept = msgspec.structs.replace(copied(found), policy=policy)
    wanted = new(A, 5)._replace(shape=LotShape(A, cpus(1), preemptible=False))
    plan = plan_lots(kept, [wanted], now=1.0)
    assert len(plan.admitted[PLAN]) == 2 and plan.waits[PLAN].blockers[0].rule == "reservation"
    policy = PreemptionPolicy(within_reservation=Within.NEVER)
    lent = msgspec.structs.replace(kept, policy=policy)
    assert len(plan_lots(lent, [wanted], now=1.0).admitted[PLAN]) == 5
