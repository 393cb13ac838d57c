"""What some tasks of a pool may hold in all: its controllers, and those that may not be preempted.

States are put into the tree by hand, as in `test_pool.py`.
"""

from __future__ import annotations

import immutables
import msgspec
import pytest

from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool.blockers import ExplainedTree, explained
from peloton.actors.respool.copies import CopyPools, copy_pools
from peloton.actors.respool.lot.messages import LotShape
from peloton.actors.respool.messages import ROOT, PoolConfig, Within
from peloton.actors.respool.planning import NewLot, plan_lots
from peloton.actors.respool.reclaims import PreemptionPolicy
from peloton.actors.respool.state import InventorySum, Pool
from peloton.runtime.vocabulary import At, Bits, Key
from tests.actors.pools.test_pool import A, B, admit, config, lot, put, root, tree

WITHIN = PreemptionPolicy(within_reservation=Within.ALWAYS)

# ---- controllers ----


def with_controllers(percent: float | None = 50.0, **amounts: float) -> PoolConfig:
    """4 cpus reserved, of which controllers may hold 2; 8 in all."""
    given = {"reserved": 4.0, "limit": 8.0} | amounts
    return config("a", controller_percent=percent, **given)


def test_controllers_beyond_their_limit_wait_and_block_nobody() -> None:
    found = tree(a=with_controllers())
    for number in range(4):
        put(found, f"c{number}", lot(A, 1, arrived=float(number), controller=True))
    put(found, "work", lot(A, 3, arrived=9.0))
    assert admit(found) == [("c0", 1), ("c1", 1), ("work", 3)]
    assert admit(found) == []
    waits = found.waits(Key("lot/c2"))
    assert waits.because == (
        "limit of <pool /a> for controllers reached: cpu requested 1, 0 of 2 free"
    )
    assert (waits.rule, waits.never) == ("limit", False)


def test_a_controller_that_lacks_room_is_admitted_once_there_is() -> None:
    found = tree(a=with_controllers(), b=config("b", limit=99))
    found.put(ROOT, old=found.pools[ROOT], new=root(2))
    put(found, "held", lot(B, 2))
    assert admit(found) == [("held", 2)]
    put(found, "c", lot(A, 1, arrived=1.0, controller=True))
    assert admit(found) == []
    put(found, "held", None)
    assert admit(found) == [("c", 1)], "what was freed elsewhere reaches it"


def test_a_controller_that_ends_makes_room_for_the_next_in_order() -> None:
    found = tree(a=with_controllers())
    for number in range(4):
        put(found, f"c{number}", lot(A, 1, arrived=float(number), controller=True))
    assert admit(found) == [("c0", 1), ("c1", 1)]
    assert admit(found) == []
    put(found, "c0", None)
    assert admit(found) == [("c2", 1)]
    assert admit(found) == []


@pytest.mark.parametrize(
    "new", [with_controllers(100.0), with_controllers(None), with_controllers(reserved=8.0)]
)
def test_a_higher_limit_for_controllers_lets_them_in(new: PoolConfig) -> None:
    found = tree(a=with_controllers())
    put(found, "all", lot(A, 4, controller=True))
    assert admit(found) == [("all", 2)]
    assert admit(found) == []
    found.put(A, old=found.pools[A], new=Pool(new))
    assert admit(found) == [("all", 2)]


def test_a_lower_limit_for_controllers_ends_nothing_and_admits_nothing() -> None:
    found = tree(a=with_controllers())
    put(found, "all", lot(A, 1, admitted=2, controller=True))
    found.put(A, old=found.pools[A], new=Pool(with_controllers(25.0)))
    assert admit(found) == []
    assert "-" not in found.waits(Key("lot/all")).because
    put(found, "all", lot(A, 2, admitted=0, controller=True))
    assert admit(found) == [("all", 1)]


def test_a_controller_above_the_limit_for_controllers_never_runs() -> None:
    found = tree(a=with_controllers())
    put(found, "big", lot(A, 1, size=3, controller=True))
    put(found, "work", lot(A, 1, size=3, arrived=1.0))
    assert admit(found) == [("work", 1)]
    waits = found.waits(Key("lot/big"))
    assert waits.never and "limit of <pool /a> for controllers is 2: it can never" in waits.because


def test_without_a_reservation_a_limit_for_controllers_admits_none() -> None:
    found = tree(a=with_controllers(reserved=0.0))
    put(found, "c", lot(A, 1, controller=True))
    put(found, "free", lot(A, 1, size=0, controller=True))
    assert admit(found) == [("free", 1)]


# ---- tasks that may not be preempted ----


def with_memory(amount: int) -> Pool:
    """A root that has so much of cpu and memory."""
    capacity = Resources(cpu=amount * UNIT, memory=amount * UNIT)
    return Pool(root().config, immutables.Map({Key("inventory/0"): InventorySum(1, capacity)}))


def lending(policy: PreemptionPolicy = WITHIN) -> ExplainedTree:
    """A pool with 10 cpus reserved, which may use 50."""
    return tree(policy, a=config("a", reserved=10, limit=50))


def test_the_eleventh_waits_and_those_that_may_be_preempted_go_on() -> None:
    found = lending()
    for number in range(11):
        put(found, f"firm{number:02}", lot(A, 1, arrived=float(number), preemptible=False))
    put(found, "soft", lot(A, 60, arrived=99.0))
    assert admit(found) == [*((f"firm{number:02}", 1) for number in range(10)), ("soft", 40)]
    assert admit(found) == []
    waits = found.waits(Key("lot/firm10"))
    assert waits.because == (
        "reservation of <pool /a>, within which tasks that may not be preempted have to stay, "
        "reached: cpu requested 1, 0 of 10 free"
    )
    assert (waits.rule, waits.never) == ("limit", False)
    put(found, "firm03", None)
    assert admit(found) == [("firm10", 1)], "before those of the others, in its old place"


def test_one_crowd_is_let_in_as_far_as_the_reservation_goes() -> None:
    found = lending()
    put(found, "firm", lot(A, 30, preemptible=False))
    assert admit(found) == [("firm", 10)]
    assert admit(found) == []
    found.put(A, old=found.pools[A], new=Pool(config("a", reserved=12, limit=50)))
    assert admit(found) == [("firm", 2)], "a higher reservation lets more in"


@pytest.mark.parametrize(
    ("policy", "own", "reserved", "admitted"),
    [
        (PreemptionPolicy(), Within.CLUSTER, 10, 10),
        (PreemptionPolicy(), Within.CLUSTER, 0, 50),
        (PreemptionPolicy(), Within.NEVER, 10, 50),
        (PreemptionPolicy(), Within.ALWAYS, 0, 0),
        (PreemptionPolicy(within_reservation=Within.NEVER), Within.CLUSTER, 10, 50),
        (PreemptionPolicy(within_reservation=Within.NEVER), Within.RESERVED, 10, 10),
        (PreemptionPolicy(enabled=False, within_reservation=Within.ALWAYS), Within.CLUSTER, 10, 50),
        (PreemptionPolicy(enabled=False), Within.ALWAYS, 10, 10),
    ],
)
def test_a_pool_or_the_cluster_says_how_much_firm_tasks_may_hold(
    policy: PreemptionPolicy, own: Within, reserved: float, admitted: int
) -> None:
    """Where nothing is given back nothing is kept apart, unless the pool says so itself."""
    found = tree(policy, a=config("a", reserved=reserved, limit=50, within=own))
    put(found, "firm", lot(A, 60, preemptible=False))
    assert sum(count for _, count in admit(found)) == admitted


def test_kinds_that_are_not_reserved_are_lent_for_good() -> None:
    """4 cpus are reserved and no memory: two such tasks of 2 cpus and 9 of memory run."""
    reserved, limit = Resources(cpu=4 * UNIT), Resources(cpu=12 * UNIT, memory=90 * UNIT)
    found = tree(a=PoolConfig("a", ROOT, reserved, limit))
    found.put(ROOT, old=found.pools[ROOT], new=with_memory(100))
    shape = LotShape(A, Resources(cpu=2 * UNIT, memory=9 * UNIT), preemptible=False)
    put(found, "firm", msgspec.structs.replace(lot(A, 4), shape=shape))
    assert admit(found) == [("firm", 2)]
    assert "cpu requested 2, 0 of 4 free" in found.waits(Key("lot/firm")).because


def test_more_than_the_reservation_is_never_admitted_and_says_so() -> None:
    found = lending()
    put(found, "big", lot(A, 1, size=11, preemptible=False))
    put(found, "soft", lot(A, 1, size=11, arrived=1.0))
    assert admit(found) == [("soft", 1)]
    waits = found.waits(Key("lot/big"))
    assert waits.never and waits.because == (
        "requested 11 cpu, but the reservation of <pool /a>, within which tasks that may not be "
        "preempted have to stay, is 10: it can never be admitted"
    )


def test_who_only_waits_for_the_reservation_entitles_the_pool_to_nothing() -> None:
    found = tree(WITHIN, a=config("a", limit=100), b=config("b", limit=100))
    put(found, "firm", lot(A, 100, preemptible=False))
    assert admit(found) == []
    put(found, "soft", lot(B, 100))
    assert admit(found) == [("soft", 100)], "nothing is kept free for what may not come"


def test_a_controller_that_may_not_be_preempted_keeps_to_both() -> None:
    found = tree(WITHIN, a=config("a", reserved=4, limit=20, controller_percent=75))
    put(found, "held", lot(A, 2, preemptible=False))
    put(found, "both", lot(A, 4, arrived=1.0, preemptible=False, controller=True))
    put(found, "one", lot(A, 4, arrived=2.0, controller=True))
    assert admit(found) == [("held", 2), ("both", 2)]
    assert admit(found) == [("one", 1)]
    assert admit(found) == []


def test_the_reservation_is_a_blocker_with_its_numbers() -> None:
    found = lending()
    put(found, "firm", lot(A, 30, preemptible=False))
    assert admit(found) == [("firm", 10)]
    assert admit(found) == []
    key = Key("lot/firm")
    waits = explained(found, key, found=found.waits(key), now=0.0)
    (only,) = waits.blockers
    assert (only.rule, only.pool, only.kind) == ("reservation", "/a", "cpu")
    numbers = only.limit, only.used, only.wanted, only.missing, only.in_all
    assert numbers == (10 * UNIT, 10 * UNIT, UNIT, UNIT, 20 * UNIT)


def test_a_plan_knows_what_may_not_be_borrowed() -> None:
    """With the rule a plan admits no more than the tree does, and says why others wait."""
    found = tree(WITHIN, a=config("a", reserved=2, limit=8))
    at = At(now=0.0, key=ROOT, index=found)
    copied = copy_pools(found.pools[ROOT], CopyPools(10), at)
    key, shape = Key("lot/plan/0/0"), lot(A, preemptible=False).shape
    plan = plan_lots(copied, [NewLot(key, shape, Key("task/plan/0"), Bits.span(0, 5))], now=0.0)
    put(found, "plan/0/0", lot(A, 5, preemptible=False))
    assert admit(found) == [("plan/0/0", 2)] and len(plan.admitted[key]) == 2
    assert admit(found) == [] and plan.waits[key].because == found.waits(key).because
