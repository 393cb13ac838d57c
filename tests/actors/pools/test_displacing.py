"""Room inside of a pool: whose tasks end for others of a higher priority, how many, and when.

Slices are played by the test, as in `test_reclaiming.py`. `test_evicting.py` tests which members of
a slice are chosen.
"""

from __future__ import annotations

import msgspec
import pytest

from peloton.actors.job.slice.messages import AskLeavers, ProveGang
from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool.goals import pursue
from peloton.actors.respool.lot.messages import (
    Displacement,
    Enqueue,
    GangTerms,
    LotShape,
    Reclaim,
)
from peloton.actors.respool.messages import ROOT, LeaversFound, PoolConfig
from peloton.actors.respool.proving import hear
from peloton.actors.respool.reclaims import PreemptionPolicy
from peloton.actors.respool.state import InventorySum, Pool, PoolNotes
from peloton.actors.respool.taking_back import (
    GIVE_BACK,
    IN_VAIN,
    NONE_LOWER,
    OFTEN,
    OTHERS_FIRST,
    TOO_YOUNG,
)
from peloton.placement.messages import GangRoomFound
from peloton.runtime.vocabulary import WAITING, At, Bits, Decision, Key, Rest
from tests.actors.pools.test_reclaiming import AFTER_S, A, B, World, size_of

MIN_RUN_S = 20.0
POLICY = PreemptionPolicy(sustained_s=AFTER_S, inside=(("/a", MIN_RUN_S),))


class PoolWithRanks(World):
    """A tree in which pool /a ends tasks of its own."""

    def __init__(self, cpus: float, policy: PreemptionPolicy = POLICY) -> None:
        super().__init__(size_of(cpus, cpus), policy)
        self.pool(A, Resources())

    def check(self, key: Key, order: Reclaim) -> None:
        if order.inside is None:
            super().check(key, order)
            return
        lot, asks = self.tree.lots[key], self.tree.lots[order.inside.lot]
        on_slack = lot.shape.on_slack and not asks.shape.on_slack
        assert lot.shape.preemptible
        assert on_slack or lot.shape.priority < asks.shape.priority
        assert lot.shape.pool == asks.shape.pool and asks.waiting

    def gang(self, name: str, pool: Key, size: Resources, *, tasks: int, priority: int) -> Key:
        """A lot whose tasks are admitted together."""
        key = Key(f"lot/{name}/0/0")
        members = Bits.span(0, tasks)
        terms = GangTerms(1, 1, 1, members)
        shape = LotShape(pool, size, priority, gang=True)
        self._turn(key, Enqueue(1, shape, terms), members=members, crowd=name)
        return key


def full(cpus: int = 10, policy: PreemptionPolicy = POLICY, **low: bool | int) -> PoolWithRanks:
    """A pool whose tasks of priority 1 hold all there is."""
    world = PoolWithRanks(cpus, policy)
    world.lot("low", A, size_of(1), tasks=cpus, **{"priority": 1, **low})
    world.settle()
    return world


def test_the_lower_priority_gives_what_is_missing_after_the_time() -> None:
    world = full()
    high = world.lot("high", A, size_of(2), tasks=2, priority=7)
    assert world.serve() == [] and world.serve(AFTER_S - 0.1) == []
    said = world.tree.lot_verdict(high)
    assert said == "tasks of its pool are asked to give it back once it has waited for 5 s"
    assert world.serve(0.1) == [("low", 4)]
    (_, order) = world.ordered[0]
    assert order.inside == Displacement(high, 7, MIN_RUN_S)
    assert order.reason == (
        "preempted: a task of priority 7 waits in <pool /a>, this one has priority 1; for "
        "<job high>: room for 2 tasks"
    )
    assert world.admitted(high) == 2
    for _ in range(10):
        assert world.serve(AFTER_S) == [], "their new tickets move nobody"


def test_what_is_on_its_way_is_not_asked_for_again() -> None:
    world = full()
    high = world.lot("high", A, size_of(1), tasks=3, priority=7)
    world.serve()
    assert world.serve(AFTER_S, going=False) == [("low", 3)]
    world.answer(Key("lot/low/0/0"))
    for _ in range(5):
        assert world.serve(AFTER_S) == []
    world.leave(Key("lot/low/0/0"))
    assert world.serve() == [] and world.admitted(high) == 3


def test_it_is_off_unless_the_pool_is_named() -> None:
    world = full(policy=PreemptionPolicy(sustained_s=AFTER_S, inside=(("/b", 0.0),)))
    world.lot("high", A, size_of(1), tasks=1, priority=7)
    world.serve()
    for _ in range(5):
        assert world.serve(AFTER_S) == []
    assert world.verdict(A) == "" and world.tree.reclaims.wake_at is None


@pytest.mark.parametrize(
    ("low", "priority", "verdict"),
    [
        ({"preemptible": False}, 7, NONE_LOWER),
        ({}, 1, NONE_LOWER),
        ({}, 0, NONE_LOWER),
    ],
)
def test_who_may_not_be_ended_is_not(low: dict[str, bool], priority: int, verdict: str) -> None:
    world = full(**low)
    world.lot("high", A, size_of(1), tasks=1, priority=priority)
    world.serve()
    for _ in range(3):
        assert world.serve(AFTER_S) == []
    assert world.verdict(A) == verdict


def test_nobody_is_ended_where_it_is_not_enough() -> None:
    world = PoolWithRanks(10)
    world.lot("kept", A, size_of(1), tasks=6, priority=1, preemptible=False)
    world.lot("low", A, size_of(1), tasks=4, priority=1)
    world.settle()
    world.lot("high", A, size_of(5), tasks=1, priority=7)
    world.serve()
    assert world.serve(AFTER_S) == [] and world.verdict(A) == IN_VAIN


def test_the_lowest_comes_first_and_the_same_priority_never() -> None:
    world = PoolWithRanks(10)
    for name, priority in (("mid", 3), ("low", 1), ("same", 7)):
        world.lot(name, A, size_of(1), tasks=3, priority=priority)
    world.settle()
    world.lot("high", A, size_of(1), tasks=9, priority=7)
    world.serve()
    assert sorted(world.serve(AFTER_S)) == [("low", 3), ("mid", 3)]
    assert world.admitted(Key("lot/same/0/0")) == 3 and world.admitted(Key("lot/high/0/0")) == 7


def test_a_gang_gets_room_for_all_or_nobody_is_ended() -> None:
    world = full(4)
    world.gang("gang", A, size_of(1), tasks=5, priority=7)
    world.serve()
    assert world.serve(AFTER_S) == []
    world = full(6)
    gang, host = world.gang("gang", A, size_of(1), tasks=5, priority=7), Key("host/h")
    world.serve()
    assert world.serve(AFTER_S) == [], "it is to be proven first that all go on the hosts then"
    (ask,) = world.tree.proofs.asks
    assert isinstance(ask.message, AskLeavers) and ask.message.count == 5
    hear(world.tree, LeaversFound(ask.message.lot, ask.message.number, 0, (host,) * 5))
    (ask,) = world.tree.proofs.asks
    assert isinstance(ask.message, ProveGang)
    hear(world.tree, GangRoomFound(ask.message.number, True, (host,), (size_of(5),)))
    assert world.serve() == [("low", 5)]
    assert world.admitted(gang) == 5


def test_a_question_of_a_proof_is_sent_until_a_turn_has_sent_it() -> None:
    world = full(6)
    world.gang("gang", A, size_of(1), tasks=5, priority=7)
    world.settle()
    root = world.tree.pools[ROOT]

    def step(notes: PoolNotes) -> Decision | Rest:
        return pursue(root, At(now=world.now, key=ROOT, index=world.tree, notes=notes))

    begun = step(PoolNotes())
    assert isinstance(begun, Decision)
    world.now += AFTER_S
    lost, again = (step(begun.notes) for _ in range(2))
    assert isinstance(again, Decision) and again == lost
    assert [type(send.message) for send in again.sends] == [AskLeavers]
    assert step(again.notes) is WAITING


def test_what_others_owe_to_the_pool_comes_first() -> None:
    world = PoolWithRanks(10)
    world.pool(B, Resources())
    world.lot("lent", B, size_of(1), tasks=8)
    world.lot("low", A, size_of(1), tasks=2, priority=1)
    world.settle()
    world.lot("high", A, size_of(1), tasks=3, priority=7)
    world.serve()
    assert world.serve(AFTER_S, going=False) == [("lent", 3)]
    for _ in range(5):
        assert world.serve(AFTER_S) == [], "they are on their way"


def test_nobody_is_ended_for_what_another_pool_would_get() -> None:
    world = PoolWithRanks(10)
    world.pool(B, size_of(10, 10))
    world.lot("kept", A, size_of(1), tasks=9, priority=1, preemptible=False)
    world.lot("low", A, size_of(1), tasks=1, priority=1)
    world.settle()
    asks = world.lot("asks", B, size_of(2), tasks=1)
    world.lot("high", A, size_of(1), tasks=1, priority=7)
    world.serve()
    assert world.serve(AFTER_S) == [] and world.admitted(asks) == 0
    assert OTHERS_FIRST in world.verdict(A)


def test_a_lot_whose_runs_are_too_young_is_asked_again_once_they_are_not() -> None:
    world = full(4)
    world.lot("high", A, size_of(1), tasks=2, priority=7)
    world.serve()
    assert world.serve(AFTER_S, going=False) == [("low", 2)]
    assert world.verdict(A) == GIVE_BACK
    world.answer(Key("lot/low/0/0"), most=0)
    assert world.serve(0.1) == []
    assert world.verdict(A) == TOO_YOUNG.format("20")
    assert world.serve(AFTER_S / 2) == []
    assert world.serve(AFTER_S) == [("low", 2)]


def test_a_pool_ends_no_more_than_it_may() -> None:
    policy = msgspec.structs.replace(POLICY, evictions_max=1, window_s=100.0)
    world = full(4, policy)
    world.lot("high", A, size_of(1), tasks=2, priority=7)
    world.serve()
    assert world.serve(AFTER_S) == [("low", 1)]
    world.lot("higher", A, size_of(1), tasks=1, priority=8)
    assert world.serve(0.0) == [] and world.serve(AFTER_S) == []
    assert world.verdict(A) == OFTEN
    assert world.serve(100.0) == [("low", 1)]


def test_a_head_that_waits_no_more_costs_nobody_anything() -> None:
    world = full()
    high = world.lot("high", A, size_of(1), tasks=1, priority=7)
    for _ in range(20):
        assert world.serve() == [] and world.serve(AFTER_S - 0.5) == []
        gone = world.tree.lots[high]
        world.tree.put(high, old=gone, new=None)
        assert world.serve(1.0) == []
        world.tree.put(high, old=None, new=gone)


def test_tasks_on_slack_get_no_room_of_others() -> None:
    world = PoolWithRanks(10)
    root = world.tree.pools[ROOT]
    more = InventorySum(2, world.capacity + size_of(10).revocable())
    inventories = root.inventories.set(Key("inventory/0"), more)
    world.tree.put(ROOT, old=root, new=Pool(root.config, inventories))
    known = world.tree.pools[A]
    config = PoolConfig("a", ROOT, world.capacity, world.capacity)
    world.tree.put(A, old=known, new=Pool(config))
    world.lot("low", A, size_of(0, 1), tasks=10, priority=1)
    world.settle()
    asks = world.lot("high", A, size_of(1, 1).revocable(), tasks=1, priority=7, revocable=True)
    world.serve()
    for _ in range(3):
        assert world.serve(AFTER_S) == []
    assert world.tree.lot_verdict(asks).endswith(NONE_LOWER)


def with_slack(*, limit: float, policy: PreemptionPolicy = POLICY) -> PoolWithRanks:
    """Pool /a reserves 1000 of memory under this limit; the cluster has more, and slack."""
    world = PoolWithRanks(10, policy)
    root = world.tree.pools[ROOT]
    room = Resources(10 * UNIT, 10_000 * UNIT) + size_of(10).revocable()
    inventories = root.inventories.set(Key("inventory/0"), InventorySum(2, room))
    world.tree.put(ROOT, old=root, new=Pool(root.config, inventories))
    reserved = Resources(0, 1000 * UNIT)
    config = PoolConfig("a", ROOT, reserved, Resources(10 * UNIT, int(limit * UNIT)))
    world.tree.put(A, old=world.tree.pools[A], new=Pool(config))
    return world


OFF = PreemptionPolicy(sustained_s=AFTER_S)


@pytest.mark.parametrize("policy", [OFF, POLICY], ids=["off", "inside"])
@pytest.mark.parametrize("priority", [0, 9])
def test_work_on_slack_gives_way_to_other_work_at_the_limit_of_its_pool(
    policy: PreemptionPolicy, priority: int
) -> None:
    """Whatever its priority, and whether or not the pool ends other tasks of its own."""
    world = with_slack(limit=2000, policy=policy)
    mb = Resources(0, UNIT)
    first = world.lot("first", A, mb.times(100), tasks=10, priority=5)
    world.settle()
    small = mb.times(10) + size_of(1).revocable()
    slack = world.lot("slack", A, small, tasks=3, priority=priority, revocable=True)
    world.settle()
    late = world.lot("late", A, mb.times(100), tasks=10, priority=5, preemptible=False)
    assert world.serve() == [] and (world.admitted(slack), world.admitted(late)) == (3, 9)
    said = world.tree.lot_verdict(late)
    assert said == "tasks of its pool are asked to give it back once it has waited for 5 s"
    assert world.serve(AFTER_S) == [("slack", 3)]
    assert world.ordered[0][1].reason == (
        "preempted: a task that is not revocable waits in <pool /a>, this one is; for <job late>: "
        "room for 1 task; 1 other lot is spared"
    )
    assert (world.admitted(first), world.admitted(slack), world.admitted(late)) == (10, 0, 10)
    for _ in range(5):
        assert world.serve(AFTER_S) == []


def test_work_on_slack_is_spared_where_all_of_it_is_not_enough() -> None:
    world = with_slack(limit=1900, policy=OFF)
    mb = Resources(0, UNIT)
    world.lot("first", A, mb.times(100), tasks=10, priority=5)
    world.settle()
    small = mb.times(10) + size_of(1).revocable()
    slack = world.lot("slack", A, small, tasks=3, revocable=True)
    world.settle()
    late = world.lot("late", A, mb.times(200), tasks=5, priority=5, preemptible=False)
    world.serve()
    for _ in range(3):
        assert world.serve(AFTER_S) == []
    assert world.admitted(slack) == 3 and world.admitted(late) == 4
    assert world.tree.lot_verdict(late) == IN_VAIN
