"""Which lots give in nested pools and on slack, and that lanes that lack room are tried again.

Slices are played by the test, as in `test_reclaiming.py`. `test_reclaiming.py` tests the order.
"""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool.giving import TaskBatch, missing_of
from peloton.actors.respool.goals import pursue
from peloton.actors.respool.lot.state import last_tickets
from peloton.actors.respool.messages import ROOT
from peloton.actors.respool.node import KINDS
from peloton.actors.respool.reclaims import PreemptionPolicy
from peloton.actors.respool.state import InventorySum, PoolNotes
from peloton.actors.respool.taking_back import LANES_PER_TURN_MAX, NOT_PREEMPTIBLE, take_back
from peloton.runtime.vocabulary import WAITING, At, Bits, Decision, Key
from tests.actors.pools.test_displacing import full
from tests.actors.pools.test_reclaiming import AFTER_S, POLICY, A, B, C, World, size_of

A1, A2 = Key("respool/a1"), Key("respool/a2")
SLACK = Resources(slack=UNIT)


def resize(world: World, capacity: Resources) -> None:
    """The cluster has other hosts."""
    root = world.tree.pools[ROOT]
    known = root.inventories.set(Key("inventory/0"), InventorySum(2, capacity))
    world.tree.put(ROOT, old=root, new=msgspec.structs.replace(root, inventories=known))


def nested(cpus: int, *, lent_by: Key = A1) -> World:
    """Pools /a/a1 and /a/a2, whose limits are beyond what the cluster has; one holds all of it."""
    world = World(size_of(cpus))
    world.capacity = size_of(100)
    world.pool(A, size_of(cpus))
    for child in (A1, A2):
        world.pool(child, size_of(cpus / 2), parent=A)
    world.lot("lent", lent_by, size_of(1), tasks=cpus)
    world.settle()
    return world


# ---- who gives ----


def test_a_sibling_gives_though_their_parent_uses_no_more_than_its_own() -> None:
    """What is used up is the cluster, far above the pool in which both are."""
    world = nested(10)
    asks = world.lot("asks", A2, size_of(1), tasks=5)
    world.serve()
    assert world.serve(AFTER_S) == [("lent", 5)]
    assert world.admitted(asks) == 5
    for _ in range(5):
        assert world.serve(AFTER_S) == []


def test_who_asks_gives_nothing_for_itself_though_its_parent_is_beyond_its_own() -> None:
    world = World(size_of(12))
    world.pool(A, size_of(4))
    world.pool(B, size_of(8))
    for child in (A1, A2):
        world.pool(child, size_of(2), parent=A)
    world.lot("lent", A1, size_of(1), tasks=12)
    world.settle()
    asks = [world.lot("in", A2, size_of(1), tasks=2), world.lot("out", B, size_of(1), tasks=8)]
    world.serve()
    found = [each for _ in range(5) for each in world.serve(AFTER_S)]
    assert {job for job, _ in found} == {"lent"} and sum(tasks for _, tasks in found) == 10
    assert [world.admitted(each) for each in asks] == [2, 8]


@settings(max_examples=100, deadline=None)
@given(
    own=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), min_size=4, max_size=4),
    tasks=st.permutations([(0, 16), (1, 5), (2, 6), (3, 7)]),
)
def test_in_nested_pools_all_that_are_entitled_get_it(
    own: list[tuple[int, int]], tasks: list[tuple[int, int]]
) -> None:
    """All that hold anything may be ended, so at last nobody waits for what it is entitled to."""
    world = World(size_of(16))
    world.capacity = size_of(100)
    leaves = [Key(f"respool/leaf{number}") for number in range(4)]
    for parent in (A, B):
        world.pool(parent, size_of(6))
    for number, (leaf, (reserved, _)) in enumerate(zip(leaves, own, strict=True)):
        world.pool(leaf, size_of(min(reserved, 3)), parent=(A, B)[number % 2])
    for number, count in tasks:
        world.lot(f"l{number}", leaves[number], size_of(1), tasks=count)
        world.serve(1.0)
    for _ in range(30):
        if not world.serve(AFTER_S) and not world.serve(AFTER_S):
            break
    else:
        raise AssertionError(f"it never comes to rest: {world.ordered[-4:]}")
    assert not any(map(world.tree.waiting.awaits, world.tree.pending))


def test_nobody_gives_for_a_millionth_by_which_an_entitlement_is_rounded() -> None:
    world = World(size_of(10))
    world.pool(A, Resources(3 * UNIT - 7))
    world.pool(B, Resources(UNIT + 1).times(7))
    for name in ("older", "newer"):
        world.lot(name, A, size_of(1), tasks=5)
        world.serve(1.0)
    asks = world.lot("asks", B, Resources(UNIT + 1), tasks=7)
    world.serve()
    assert sorted(world.serve(AFTER_S)) == [("newer", 5), ("older", 2)]
    assert world.admitted(asks) == 7


def test_slack_that_a_host_took_back_is_not_missing_for_tasks_without_slack() -> None:
    world = World(size_of(10) + SLACK.times(4))
    for pool in (A, B):
        world.pool(pool, size_of(5))
    world.lot("slackers", A, size_of(1).revocable(), tasks=4, revocable=True)
    world.lot("lent", A, size_of(1), tasks=10)
    world.settle()
    resize(world, size_of(10) + SLACK)
    world.lot("asks", B, size_of(1), tasks=2)
    world.serve()
    assert world.serve(AFTER_S) == [("lent", 2)]


@pytest.mark.parametrize(
    ("need", "free", "missing"),
    [
        (size_of(1), SLACK.times(-3), (UNIT, 0, 0, 0, 0)),
        (size_of(1).revocable(), size_of(-3), (0, 0, 0, 0, UNIT)),
        # Of the other kinds there must not be less than none, whoever waits.
        (size_of(1), size_of(1, -3), (0, 3 * UNIT, 0, 0, 0)),
    ],
)
def test_what_is_missing(need: Resources, free: Resources, missing: tuple[int, ...]) -> None:
    assert missing_of([TaskBatch(need, 1)], free) == missing
    assert len(missing) == len(KINDS)


# ---- looked at again ----


def two_that_give(cpus: int, *others: Key) -> tuple[World, Key, Key]:
    """A task of two cpus waits, for which two of one cpu are ended, one after the other."""
    world = World(size_of(cpus))
    for pool in (A, B, *others):
        world.pool(pool, size_of(4))
    lent = world.lot("lent", A, size_of(1), tasks=cpus)
    world.settle()
    asks = world.lot("asks", B, size_of(2), tasks=1)
    world.serve()
    assert world.serve(AFTER_S, going=False) == [("lent", 2)]
    world.answer(lent)
    assert world.serve() == []
    return world, lent, asks


def test_hosts_that_are_lost_with_what_was_given_back() -> None:
    world, lent, asks = two_that_give(10)
    resize(world, size_of(8))
    world.leave(lent)
    assert world.serve() == [] and not world.tree.reclaims.coming
    assert world.serve(AFTER_S) == [("lent", 2)] and world.admitted(asks) == 1


def test_a_smaller_task_that_takes_what_was_given_back() -> None:
    world, lent, asks = two_that_give(12, C)
    small = world.lot("small", C, size_of(1), tasks=1)
    for one in [*world.tree.lots[lent].leaving]:
        ((ticket, members),) = last_tickets(world.tree.lots[lent], Bits.of(one))
        world.release(lent, ticket, members)
        world.settle()
    assert world.admitted(small) == 1 and world.admitted(asks) == 0
    assert world.serve(AFTER_S) == [("lent", 1)] and world.admitted(asks) == 1


def test_what_comes_for_one_that_is_not_entitled_to_it_any_more_is_for_others() -> None:
    world = World(size_of(12))
    for pool in (A, B, C, A1):
        world.pool(pool, Resources())
    lent = world.lot("lent", A, size_of(1), tasks=12)
    world.settle()
    world.lot("large", B, size_of(4), tasks=1)
    world.serve()
    world.now = 2.0
    asks = world.lot("asks", C, size_of(1), tasks=1)
    assert world.serve() == [] and world.serve(3.0, going=False) == [("lent", 4)]
    world.answer(lent)
    assert world.serve() == []
    # Now three share what was for two, and none is entitled to four.
    world.lot("more", A1, size_of(1), tasks=12)
    assert world.serve(1.0) == []
    assert world.serve(1.0) == [], "what it waits for comes already"
    world.leave(lent)
    assert world.serve() == [] and world.admitted(asks) == 1


def test_slow_ones_are_waited_for() -> None:
    world, lent, asks = two_that_give(10)
    for _ in range(5):
        assert world.serve(AFTER_S) == [], "they still are on their way"
    world.leave(lent)
    assert world.serve() == [] and world.admitted(asks) == 1


def test_an_order_inside_of_a_pool_that_nobody_answers() -> None:
    """The lot has ended before the order reached it."""
    world = full(4)
    world.lot("high", A, size_of(1), tasks=2, priority=7)
    world.serve()
    world.now += AFTER_S
    assert [key for key, _ in take_back(world.tree, world.now)] == [Key("lot/low/0/0")]
    assert world.serve(AFTER_S) == [("low", 2)]


def test_who_has_given_all_it_may_does_not_keep_others_from_being_asked() -> None:
    world = World(size_of(12), msgspec.structs.replace(POLICY, evictions_max=2, window_s=1000.0))
    for pool, reserved in ((A, 3), (B, 5), (C, 1)):
        world.pool(pool, size_of(reserved))
    spent = world.lot("spent", A, size_of(1), tasks=8)
    young = world.lot("young", C, size_of(1), tasks=4)
    world.settle()
    asks = world.lot("asks", B, size_of(1), tasks=3)
    world.serve()
    assert world.serve(AFTER_S, going=False) == [("spent", 2), ("young", 1)]
    world.answer(young, most=0)
    world.answer(spent)
    world.leave(spent)
    assert world.serve() == [] and "as often as it may" in world.verdict(B)
    assert world.serve(AFTER_S) == [("young", 1)] and world.admitted(asks) == 3


def test_all_that_are_due_at_once_are_looked_at_without_another_message() -> None:
    """A turn looks at some; the alarm that is to follow is the same moment as the last one."""
    pools = [Key(f"respool/p{number}") for number in range(3 * LANES_PER_TURN_MAX)]
    world = World(size_of(len(pools)), PreemptionPolicy(sustained_s=AFTER_S))
    world.pool(A, Resources())
    world.lot("stays", A, size_of(1), tasks=len(pools), preemptible=False)
    world.settle()
    for pool in pools:
        world.pool(pool, size_of(1))
        world.lot(pool.partition("/")[2], pool, size_of(1), tasks=1)
    world.settle()
    notes, turns = PoolNotes(), 0
    while True:
        now = 0.0 if notes.wake_at is None else AFTER_S
        at = At(now=now, key=ROOT, index=world.tree, notes=notes)
        step = pursue(world.tree.pools[ROOT], at)
        if step is WAITING or turns > 2 * len(pools):
            break
        assert isinstance(step, Decision) and isinstance(step.notes, PoolNotes)
        notes, turns = step.notes, turns + 1
    assert {world.verdict(pool) for pool in pools} == {NOT_PREEMPTIBLE}
    assert notes.wake_at == 2 * AFTER_S


# ---- a turn that fails ----


def test_an_order_is_given_until_its_lot_has_it() -> None:
    """A turn that gives it may fail, and is then as if it had not been taken."""
    world = nested(10)
    asks = world.lot("asks", A2, size_of(1), tasks=5)
    world.serve()
    world.now += AFTER_S
    at = At(now=world.now, key=ROOT, index=world.tree)
    lost, again = (pursue(world.tree.pools[ROOT], at) for _ in range(2))
    assert isinstance(again, Decision) and lost == again
    assert [send.to for send in again.sends] == [Key("lot/lent/0/0")]
    assert world.serve() == [("lent", 5)] and world.admitted(asks) == 5


def test_an_order_that_a_lot_fails_on_keeps_no_other_from_being_given() -> None:
    world, pools = World(size_of(12)), (A, B, C)
    for pool in pools:
        world.pool(pool, size_of(4))
    for name, tasks in (("older", 4), ("newer", 8)):
        world.lot(name, A, size_of(1), tasks=tasks)
        world.settle()
        world.now += 1.0
    world.lot("asks", B, size_of(1), tasks=4)
    world.serve()
    world.now += AFTER_S / 2
    world.lot("later", C, size_of(1), tasks=4)
    world.serve()
    world.now += AFTER_S / 2
    assert [key for key, _ in take_back(world.tree, world.now)] == [Key("lot/newer/0/0")]
    world.now += AFTER_S / 2
    (again,) = take_back(world.tree, world.now)
    assert "<pool /c> waits" in again[1].reason


# ---- what is kept of them ----


def test_nothing_is_kept_of_lots_and_pools_that_are_gone() -> None:
    world = World(size_of(10))
    for pool, reserved in ((A, 6), (B, 4)):
        world.pool(pool, size_of(reserved))
    lent = world.lot("lent", A, size_of(1), tasks=10)
    world.settle()
    world.lot("asks", B, size_of(1), tasks=4)
    world.serve()
    assert world.serve(AFTER_S, going=False) == [("lent", 4)]
    books, need = world.tree.reclaims, world.ordered[0][1].need
    assert books.budget(A, world.now) == POLICY.evictions_max - 4
    world.answer(lent, most=0)
    gone = world.tree.lots[lent]
    world.tree.put(lent, old=gone, new=None)
    world.serve()
    assert not books.rests(lent, need, inside=False, now=world.now), (
        "another one of that name is another"
    )
    world.tree.put(A, old=world.tree.pools[A], new=None)
    assert books.budget(A, world.now) == POLICY.evictions_max
