"""Which lots give back, how much and when: plans over a tree, and the lots that carry them out.

Slices are played by the test: whoever is chosen queues anew at once. `test_evicting.py` tests which
members of a slice are chosen.
"""

from __future__ import annotations

from collections.abc import Sequence

import immutables
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peloton.actors.resources import EPSILON, UNIT, Resources
from peloton.actors.respool.admission import admissions
from peloton.actors.respool.blockers import ExplainedTree
from peloton.actors.respool.lot.decide import owed
from peloton.actors.respool.lot.kind import KIND as LOT
from peloton.actors.respool.lot.messages import (
    Admit,
    Enqueue,
    LotShape,
    Reclaim,
    Yielded,
)
from peloton.actors.respool.lot.state import last_tickets
from peloton.actors.respool.messages import ROOT, PoolConfig, Within
from peloton.actors.respool.node import KINDS
from peloton.actors.respool.reclaims import PreemptionPolicy
from peloton.actors.respool.state import InventorySum, Pool
from peloton.actors.respool.taking_back import (
    NO_GAIN,
    NONE_OVER,
    NOT_PREEMPTIBLE,
    ON_THE_WAY,
    take_back,
)
from peloton.chaos.cluster.rules.conserving import ConservationCheck
from peloton.runtime.core.turning.turn import take_turn
from peloton.runtime.vocabulary import At, Bits, Key, Message

AFTER_S = 5.0
POLICY = PreemptionPolicy(sustained_s=AFTER_S, within_reservation=Within.NEVER)
"""Here pools lend to tasks that may not be preempted as well."""
A, B, C = (Key(f"respool/{name}") for name in "abc")


def size_of(cpu: float, memory: float = 0.0) -> Resources:
    return Resources(round(cpu * UNIT), round(memory * UNIT))


class World:
    """A tree, its lots, and slices that carry out what they are told."""

    def __init__(self, capacity: Resources, policy: PreemptionPolicy = POLICY) -> None:
        self.tree, self.now = ExplainedTree(policy), 0.0
        sums = immutables.Map({Key("inventory/0"): InventorySum(1, capacity)})
        root = Pool(PoolConfig("root", ROOT, Resources(), Resources()), sums)
        self.tree.put(ROOT, old=None, new=root)
        self.capacity = capacity
        self.ordered: list[tuple[Key, Reclaim]] = []
        self.sums = ConservationCheck()

    def pool(
        self, key: Key, reserved: Resources, *, parent: Key = ROOT, share: float = 1.0
    ) -> None:
        name = key.partition("/")[2]
        config = PoolConfig(name, parent, reserved, self.capacity, share=(share,) * 4)
        self.tree.put(key, old=None, new=Pool(config))

    def lot(self, name: str, pool: Key, size: Resources, *, tasks: int, **shape: bool | int) -> Key:
        """A lot whose tasks all wait."""
        key = Key(f"lot/{name}/0/0")
        found = LotShape(pool, size, **shape)
        self._turn(key, Enqueue(1, found), members=Bits.span(0, tasks), crowd=name)
        return key

    def settle(self) -> None:
        """Admit all that can be admitted."""
        while found := admissions(self.tree):
            for key, members in found:
                self._turn(key, Admit(members))

    def serve(self, seconds: float = 0.0, *, going: bool = True) -> list[tuple[str, int]]:
        """After so much time: who is told to give back, as (job, tasks); they do, if `going`."""
        self.now += seconds
        self.settle()
        found: list[tuple[str, int]] = []
        for key, order in take_back(self.tree, self.now):
            self.check(key, order)
            self.ordered.append((key, order))
            self._turn(key, order)
            lot = self.tree.lots[key]
            assert lot.order is not None
            found.append((key.split("/")[1], lot.order.count))
            if going:
                self.answer(key)
                self.leave(key)
        self.settle()
        return found

    def check(self, key: Key, order: Reclaim) -> None:
        check(self.tree, key, order)

    def answer(self, key: Key, most: int = 1000) -> None:
        """The slice chooses the first members."""
        lot = self.tree.lots[key]
        assert lot.order is not None and len(owed(lot)) == 1
        members = (lot.admitted - lot.leaving).lowest(min(lot.order.count, most))
        going = tuple(last_tickets(lot, members)) if members else ()
        because = "no more" if len(members) < lot.order.count else ""
        self._turn(key, Yielded(lot.order.number, going, because))

    def leave(self, key: Key) -> None:
        """Those that were chosen queue anew."""
        lot = self.tree.lots[key]
        for ticket, members in last_tickets(lot, lot.leaving):
            self.release(key, ticket, members)

    def release(self, key: Key, ticket: int, members: Bits) -> None:
        """Some that have a ticket queue anew."""
        self._turn(key, Enqueue(ticket + 1), members=members)

    def verdict(self, pool: Key) -> str:
        return self.tree.verdict(pool)

    def admitted(self, key: Key) -> int:
        return len(self.tree.lots[key].admitted)

    def _turn(
        self, key: Key, message: Message, *, members: Bits | None = None, crowd: str = ""
    ) -> None:
        old = self.tree.lots.get(key)
        sender = Key(f"task/{crowd or key.split('/')[1]}/0")
        at = At(
            now=self.now, key=key, sender=sender, members=members,
            index=self.tree,
        )  # fmt: skip
        new = take_turn(LOT, old, message=message, at=at).state
        self.tree.put(key, old=old, new=new)
        self.sums.follow(self.tree)


def check(tree: ExplainedTree, key: Key, order: Reclaim) -> None:
    """Nobody is told in vain: the last task of an order still is beyond the entitlement."""
    lot = tree.lots[key]
    pool, size = lot.shape.pool, lot.shape.resources
    assert lot.shape.preemptible and order.count <= len(lot.admitted - lot.leaving)
    coming = tree.reclaims.coming.get(pool, Resources())
    before = tree.use(pool) - coming - size.times(order.count - 1)
    over = before - tree.entitlement(pool)
    assert any(over.amounts()[kind] >= EPSILON and size.amounts()[kind] for kind in KINDS)
    assert any(map(tree.waiting.awaits, tree.pending)), "somebody who is entitled waits"


def two_pools(tasks: int = 10, **shape: bool | int) -> tuple[World, Key, Key]:
    """A holds all of ten cpus, of which six are its own; B asks for four."""
    world = World(size_of(10))
    world.pool(A, size_of(6))
    world.pool(B, size_of(4))
    lent = world.lot("lent", A, size_of(1), tasks=tasks, **shape)
    world.settle()
    assert world.admitted(lent) == tasks
    asks = world.lot("asks", B, size_of(1), tasks=4)
    return world, lent, asks


def test_four_of_ten_are_given_back_where_six_are_entitled() -> None:
    """The conformance numbers: nothing in cycles 1 to 4, four tasks in the fifth."""
    world, lent, asks = two_pools()
    world.serve()
    said = world.tree.lot_verdict(asks)
    assert said == "others are asked to give it back once it has waited for 5 s"
    for _ in range(5):
        assert world.serve(AFTER_S / 5 - 0.01) == []
    assert world.serve(0.05) == [("lent", 4)]
    assert (world.admitted(lent), world.admitted(asks)) == (6, 4)
    for _ in range(10):
        assert world.serve(AFTER_S) == [], "their new tickets move nobody"


def test_what_is_on_its_way_is_not_asked_for_again() -> None:
    world, lent, asks = two_pools()
    world.serve()
    assert world.serve(AFTER_S, going=False) == [("lent", 4)]
    assert world.verdict(B) == ON_THE_WAY
    assert world.serve(AFTER_S) == []
    world.answer(lent)
    for _ in range(5):
        assert world.serve(AFTER_S) == []
    world.leave(lent)
    assert world.serve() == [] and world.admitted(asks) == 4
    assert world.verdict(B) == "" and not world.tree.reclaims.coming


def test_an_order_that_was_decided_before_the_last_one_is_void() -> None:
    world, lent, _ = two_pools()
    world.serve()
    world.serve(AFTER_S)
    key, order = world.ordered[0]
    world._turn(key, order)
    lot = world.tree.lots[lent]
    assert lot.order is None and not lot.leaving


def test_an_answer_counts_only_for_the_tickets_it_names() -> None:
    world, lent, _ = two_pools()
    world.serve()
    world.serve(AFTER_S, going=False)
    order = world.tree.lots[lent].order
    assert order is not None
    world._turn(lent, Yielded(order.number, ((7, Bits.of(0)), (1, Bits.of(1)))))
    assert world.tree.lots[lent].leaving == Bits.of(1)


def test_who_stops_waiting_in_time_costs_nobody_anything() -> None:
    """Demand that flaps: each time it begins anew, so nobody is told, let alone twice."""
    world, lent, asks = two_pools()
    for _ in range(20):
        assert world.serve() == [] and world.serve(AFTER_S - 0.5) == []
        gone = world.tree.lots[asks]
        world.tree.put(asks, old=gone, new=None)
        assert world.serve(1.0) == []
        world.tree.put(asks, old=None, new=gone)
    assert world.admitted(lent) == 10


def test_a_slice_that_gives_less_is_left_alone_and_others_are_asked() -> None:
    world = World(size_of(10))
    world.pool(A, size_of(6))
    world.pool(B, size_of(4))
    first = world.lot("first", A, size_of(1), tasks=5, priority=1)
    other = world.lot("other", A, size_of(1), tasks=5, priority=2)
    world.settle()
    world.lot("asks", B, size_of(1), tasks=4)
    world.serve()
    assert world.serve(AFTER_S, going=False) == [("first", 4)]
    world.answer(first, most=1)
    assert world.ordered[0][1].reason == (
        "preempted: <pool /a> is entitled to 6 cpu and uses 10; <pool /b> waits for what it is "
        "entitled to: room for 4 tasks; 1 other lot is spared"
    )
    assert world.serve(0.1, going=False) == [("other", 3)]
    world.answer(other)
    world.leave(other)
    world.leave(first)
    world.settle()
    assert world.admitted(Key("lot/asks/0/0")) == 4


@pytest.mark.parametrize(
    ("lots", "expected"),
    [
        ([("low", {}), ("high", {"priority": 5})], ["low"]),
        ([("high", {"priority": 5}), ("low", {"priority": -5})], ["low"]),
        ([("older", {}), ("newer", {})], ["newer"]),
        ([("plain", {"priority": -9}), ("spare", {"priority": 9, "revocable": True})], ["spare"]),
        ([("kept", {"preemptible": False, "priority": -9}), ("free", {})], ["free"]),
        ([("kept", {"preemptible": False}), ("other", {"preemptible": False})], []),
    ],
)
def test_who_comes_first(
    lots: Sequence[tuple[str, dict[str, bool | int]]], expected: list[str]
) -> None:
    world = World(size_of(10))
    world.pool(A, size_of(5))
    world.pool(B, size_of(5))
    for name, shape in lots:
        world.lot(name, A, size_of(1), tasks=5, **shape)
        world.settle()
        world.now += 1.0
    world.lot("asks", B, size_of(1), tasks=3)
    world.serve()
    assert [name for name, _ in world.serve(AFTER_S)] == expected
    assert world.verdict(B) == ("" if expected else NOT_PREEMPTIBLE)


def test_a_task_that_gives_nothing_of_what_is_missing_is_spared() -> None:
    """The original goes on with the full target: a task without memory is ended for memory."""
    world = World(size_of(10, 10))
    world.pool(A, size_of(5, 5))
    world.pool(B, size_of(5, 5))
    world.lot("memory", A, size_of(0, 1), tasks=10, priority=1)
    world.lot("cpu", A, size_of(1, 0), tasks=10)
    world.settle()
    world.lot("asks", B, size_of(0, 1), tasks=3)
    world.serve()
    assert world.serve(AFTER_S) == [("memory", 3)]


def test_nobody_gives_what_is_not_enough_for_one_task() -> None:
    world = World(size_of(10))
    world.pool(A, size_of(4))
    world.pool(B, size_of(6))
    kept = world.lot("kept", A, size_of(1), tasks=7, preemptible=False)
    world.lot("free", A, size_of(1), tasks=3)
    world.settle()
    world.lot("asks", B, size_of(5), tasks=1)
    world.serve()
    assert world.serve(AFTER_S) == []
    assert world.verdict(B) == NO_GAIN
    lot = world.tree.lots[kept]
    world.tree.put(kept, old=lot, new=None)
    assert world.serve(AFTER_S) == []
    assert world.admitted(Key("lot/asks/0/0")) == 1, "what is free is enough now"


def test_of_what_is_not_enough_for_all_whole_tasks_are_made() -> None:
    world = World(size_of(10))
    world.pool(A, size_of(4))
    world.pool(B, size_of(6))
    world.lot("kept", A, size_of(1), tasks=5, preemptible=False)
    world.lot("free", A, size_of(1), tasks=5)
    world.settle()
    world.lot("asks", B, size_of(3), tasks=2)
    world.serve()
    assert world.serve(AFTER_S) == [("free", 3)], "five are there, but the second needs six"


def test_the_pool_with_the_most_beyond_its_own_gives_first() -> None:
    world = World(size_of(12))
    for pool, own in ((A, 2), (B, 2), (C, 6)):
        world.pool(pool, size_of(own))
    world.lot("little", A, size_of(1), tasks=4)
    world.lot("much", B, size_of(1), tasks=8)
    world.settle()
    world.lot("asks", C, size_of(1), tasks=5)
    world.serve()
    orders = dict(world.serve(AFTER_S))
    assert orders["much"] >= 4 and sum(orders.values()) == 5


def test_a_pool_gives_no_more_at_once_than_it_may() -> None:
    policy = PreemptionPolicy(sustained_s=AFTER_S, in_flight_max=2, evictions_max=3)
    world = World(size_of(10), policy)
    world.pool(A, size_of(5))
    world.pool(B, size_of(5))
    lent = world.lot("lent", A, size_of(1), tasks=10)
    world.settle()
    world.lot("asks", B, size_of(1), tasks=5)
    world.serve()
    assert world.serve(AFTER_S, going=False) == [("lent", 2)]
    world.answer(lent)
    assert world.serve(60.0) == []
    world.leave(lent)
    assert world.serve(60.0) == [("lent", 1)], "the third and last of this hour"
    assert world.serve(60.0) == []
    assert "as often as it may" in world.verdict(B)
    assert world.serve(3600.0) == [("lent", 2)]


def test_a_pool_gives_no_more_within_each_window_than_it_may() -> None:
    """However many windows there were: demand that lasts takes all of one at its begin."""
    window_s, most, gives = 50.0, 2, list[tuple[float, int]]()
    policy = PreemptionPolicy(sustained_s=AFTER_S, evictions_max=most, window_s=window_s)
    world = World(size_of(20), policy)
    world.pool(A, size_of(5))
    world.pool(B, size_of(15))
    world.lot("lent", A, size_of(1), tasks=20)
    world.settle()
    world.lot("asks", B, size_of(1), tasks=15)
    world.serve()
    for _ in range(80):
        gives += [(world.now, count) for _, count in world.serve(AFTER_S)]
    for since, _ in gives:
        within = sum(count for at, count in gives if since <= at < since + window_s)
        assert within <= most, f"{within} within {window_s:g} s of {since:g}"
    assert len({at for at, _ in gives}) == 8, "each window is used"


def test_without_anybody_beyond_its_own_nobody_gives() -> None:
    world = World(size_of(10))
    world.pool(A, size_of(10))
    world.pool(B, size_of(10))
    world.lot("one", A, size_of(1), tasks=10)
    world.lot("other", B, size_of(1), tasks=10)
    world.settle()
    for _ in range(10):
        assert world.serve(AFTER_S) == []
    assert world.verdict(B) in ("", NONE_OVER)


def test_pools_below_one_give_for_another_below_it() -> None:
    """Only what is below the limit that is used up helps."""
    world = World(size_of(20))
    world.pool(A, size_of(10))
    world.pool(B, size_of(10))
    for name in ("a1", "a2"):
        config = PoolConfig(name, A, size_of(5), size_of(10))
        world.tree.put(Key(f"respool/{name}"), old=None, new=Pool(config))
    limited = PoolConfig("a", ROOT, size_of(10), size_of(10))
    world.tree.put(A, old=None, new=Pool(limited))
    world.lot("apart", B, size_of(1), tasks=10)
    world.lot("lent", Key("respool/a1"), size_of(1), tasks=10)
    world.settle()
    world.lot("asks", Key("respool/a2"), size_of(1), tasks=10)
    world.serve()
    assert world.serve(AFTER_S) == [("lent", 5)]
    assert world.ordered[0][1].need == Resources(), "what is short is a limit, not room on hosts"


SIZES = st.builds(size_of, st.sampled_from([0.5, 1, 2, 3]), st.sampled_from([0, 0.5, 1, 4]))
POOLS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 5), st.sampled_from([0.5, 1.0, 3.0])),
    min_size=2,
    max_size=4,
)
LOTS = st.lists(
    st.tuples(st.integers(0, 3), SIZES, st.integers(1, 12), st.integers(0, 2), st.booleans()),
    min_size=2,
    max_size=8,
)


@settings(max_examples=150, deadline=None)
@given(pools=POOLS, lots=LOTS)
def test_nobody_gives_in_vain_and_it_comes_to_rest(
    pools: list[tuple[int, int, float]], lots: list[tuple[int, Resources, int, int, bool]]
) -> None:
    """`check` looks at each order; and what was given admits others, until nothing moves."""
    world = World(size_of(16, 16))
    keys = [Key(f"respool/p{number}") for number in range(len(pools))]
    for key, (cpu, memory, share) in zip(keys, pools, strict=True):
        world.pool(key, size_of(min(cpu, 4), min(memory, 4)), share=share)
    for number, (pool, size, tasks, priority, preemptible) in enumerate(lots):
        key = keys[pool % len(keys)]
        shape = {"priority": priority, "preemptible": preemptible}
        world.lot(f"l{number}", key, size, tasks=tasks, **shape)
        world.serve(1.0)
    for _ in range(60):
        if not world.serve(AFTER_S) and not world.serve(AFTER_S):
            break
    else:
        raise AssertionError(f"it never comes to rest: {world.ordered[-4:]}")
    assert not world.tree.reclaims.coming and not world.tree.reclaims.in_flight
    for _ in range(4):
        assert world.serve(AFTER_S) == []


def test_nobody_gives_back_for_one_that_never_runs() -> None:
    world, _, asks = two_pools()
    never = world.lot("never", B, size_of(11), tasks=1)
    world.serve()
    assert world.tree.lot_verdict(asks) and world.tree.waits(never).never
    assert world.tree.lot_verdict(never) == ""


def test_what_was_ended_for_others_is_not_released_for_those_that_wait_here() -> None:
    world, lent, _ = two_pools()
    world.tree.note(world.now)
    world.serve()
    assert world.serve(AFTER_S) == [("lent", 4)]
    assert world.admitted(lent) == 6
    assert world.tree.releases.rate(A, 0, now=world.now, up=world.tree.up) is None
