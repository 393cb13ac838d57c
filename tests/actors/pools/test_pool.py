"""Pools: the rules of the tree in their order, who is admitted, what is reported.

States are put into the tree by hand, as the runtime puts them.
"""

from __future__ import annotations

from typing import Any

import immutables
import pytest

from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool import messages as m
from peloton.actors.respool.admission import LOTS_PER_PASS_MAX, admissions
from peloton.actors.respool.blockers import ExplainedTree
from peloton.actors.respool.kind import kind as pool_kind
from peloton.actors.respool.lot.messages import LotShape
from peloton.actors.respool.lot.state import Lot
from peloton.actors.respool.messages import ROOT, PoolConfig, Queueing
from peloton.actors.respool.queue import Queue
from peloton.actors.respool.reclaims import PreemptionPolicy
from peloton.actors.respool.rules import check, check_delete, check_forced
from peloton.actors.respool.shortage import why_head_waits
from peloton.actors.respool.state import InventorySum, Pool
from peloton.actors.respool.walks import find_pool
from peloton.runtime.core.turning.turn import take_turn
from peloton.runtime.vocabulary import At, Bits, Key, Refused, Unavailable

KIND = pool_kind()

A, B, A1, NEW = (Key(f"respool/{name}") for name in ("a", "b", "a1", "new"))


def cpus(count: float) -> Resources:
    return Resources(round(count * UNIT))


def config(
    name: str = "new", parent: Key = ROOT, *, reserved: float = 0, limit: float = 0, **rest: Any
) -> PoolConfig:
    return PoolConfig(name, parent, cpus(reserved), cpus(limit), **rest)


def root(capacity: float = 100) -> Pool:
    sums = immutables.Map({Key("inventory/0"): InventorySum(1, cpus(capacity))})
    return Pool(PoolConfig("root", ROOT, Resources(), Resources()), sums)


def tree(policy: PreemptionPolicy = PreemptionPolicy(), **pools: PoolConfig) -> ExplainedTree:  # noqa: B008
    """The root with 100 cpus, and these."""
    found = ExplainedTree(policy)
    found.put(ROOT, old=None, new=root())
    for name, each in pools.items():
        found.put(Key(f"respool/{name}"), old=None, new=Pool(each))
    return found


def lot(
    pool: Key,
    waiting: int = 0,
    admitted: int = 0,
    *,
    priority: int = 0,
    arrived: float = 0.0,
    size: float = 1,
    controller: bool = False,
    preemptible: bool = True,
) -> Lot:
    """Members of one cpu, or `size`: the first `admitted` are in, the next `waiting` wait."""
    shape = LotShape(pool, cpus(size), priority, preemptible, controller=controller)
    return Lot(
        shape,
        Key("task/j/0"),
        arrived,
        immutables.Map(),
        waiting=Bits.span(admitted, admitted + waiting),
        admitted=Bits.span(0, admitted),
    )


def too_big(pool: Key = A, size: float = 9, arrived: float = 2.0) -> Lot:
    """One member that wants more than its pool may ever use."""
    shape = LotShape(pool, cpus(size))
    return Lot(shape, Key("task/k/0"), arrived, immutables.Map(), Bits.of(0))


def put(into: ExplainedTree, name: str, new: Lot | None) -> None:
    key = Key(f"lot/{name}")
    into.put(key, old=into.lots.get(key), new=new)


def admit(into: ExplainedTree) -> list[tuple[str, int]]:
    """Admit as the root does, and say whom."""
    found = admissions(into)
    for key, members in found:
        old = into.lots[key]
        new = Lot(
            old.shape, old.crowd, old.arrived, old.tickets,
            old.waiting - members, old.admitted | members,
        )  # fmt: skip
        into.put(key, old=old, new=new)
    return [(key.partition("/")[2], len(members)) for key, members in found]


# ---- rules, in the original's order: each config breaks its rule and the ones after it ----

BROKEN = [
    (ROOT, {"name": ""}, "cannot change the root resource pool"),
    (NEW, {"problem": "share of cpu is negative", "name": ""}, "share of cpu is negative"),
    (NEW, {"name": ""}, "resource pool name is empty"),
    (NEW, {"name": "a/b"}, "has a slash"),
    (NEW, {"name": "a", "reserved": 9, "limit": 1, "parent": NEW}, "exceeds limit 1"),
    (NEW, {"name": "a", "parent": NEW}, "resource pool cannot be its own parent"),
    (NEW, {"name": "a", "parent": Key("respool/x")}, "parent resource pool x not found"),
    (B, {"name": "a", "parent": A, "limit": 999}, "parent override not allowed"),
    (NEW, {"name": "a1", "parent": A, "limit": 999}, "limit 999 exceeds limit 50 of parent /a"),
    (NEW, {"name": "a", "reserved": 99, "limit": 99}, "resource pool /a already exists"),
    (NEW, {"name": "c", "reserved": 71, "limit": 99, "controller_percent": 101.0},
     "reservations of all children 101 exceed reservation 100 of parent /"),
    (NEW, {"name": "a2", "parent": A, "reserved": 21, "limit": 50},
     "reservations of all children 31 exceed reservation 30 of parent /a"),
    (NEW, {"name": "c", "controller_percent": 101.0}, "controller limit 101 exceeds 100 percent"),
]  # fmt: skip


def standing() -> ExplainedTree:
    return tree(
        a=config("a", reserved=30, limit=50),
        b=config("b", limit=50),
        a1=config("a1", A, reserved=10, limit=50),
    )


@pytest.mark.parametrize(("pool", "fields", "text"), BROKEN)
def test_the_first_broken_rule_is_reported(pool: Key, fields: dict[str, Any], text: str) -> None:
    refused = check(standing(), pool, config=config(**fields))
    assert refused is not None and text in refused.text, refused


def test_a_cluster_that_has_shrunk_takes_what_reserves_no_more() -> None:
    shrunk = standing()
    shrunk.put(ROOT, old=None, new=root(capacity=20))
    assert check(shrunk, NEW, config=config("c", limit=20)) is None
    assert check(shrunk, B, config=config("b", limit=20)) is None
    assert check(shrunk, A, config=config("a", reserved=10, limit=20)) is None, "less than before"
    refused = check(shrunk, NEW, config=config("c", reserved=1, limit=20))
    assert refused is not None and refused.text == (
        "resource cpu: reservations of all children 31 exceed reservation 20 of parent /: "
        "the cluster has shrunk below the 30 that are reserved"
    )
    own = check(standing(), NEW, config=config("c", reserved=71, limit=99))
    assert own is not None and "shrunk" not in own.text


def test_before_a_host_is_up_no_limit_can_be_checked() -> None:
    young = ExplainedTree()
    young.put(ROOT, old=None, new=root(capacity=0))
    early = check(young, NEW, config=config("a", limit=1))
    assert isinstance(early, Unavailable) and "no host is up yet" in early.text
    assert check(young, NEW, config=config("a", limit=0)) is None
    broken = check(young, NEW, config=config("a/b", limit=1))
    assert isinstance(broken, Refused), "what is wrong stays wrong"


@pytest.mark.parametrize(
    ("pool", "fields"),
    [
        (NEW, {"name": "a1"}),  # the name of a cousin
        (NEW, {"name": "c", "reserved": 70, "limit": 100}),
        (A1, {"name": "a1", "parent": A, "reserved": 30, "limit": 50}),  # its own old part is free
        (NEW, {"name": "c", "controller_percent": 100.0}),
    ],
)
def test_what_breaks_no_rule_may_be(pool: Key, fields: dict[str, Any]) -> None:
    assert check(standing(), pool, config=config(**fields)) is None


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize(("waiting", "admitted"), [(1, 0), (0, 1)])
def test_a_leaf_that_holds_tasks_stays_a_leaf(waiting: int, admitted: int, size: float) -> None:
    found = tree(a=config("a", limit=50))
    put(found, "j/0/0", lot(A, waiting, admitted, size=size))
    refused = check(found, NEW, config=config("c", A))
    assert refused is not None and "it stays a leaf" in refused.text


@pytest.mark.parametrize(
    ("pool", "code"),
    [(Key("respool/x"), "NOT_FOUND"), (ROOT, "INVALID_CONFIG"), (A, "NOT_LEAF"), (A1, None)],
)
def test_which_pools_may_be_deleted(pool: Key, code: str | None) -> None:
    refused = check_delete(standing(), pool)
    assert (refused.code if refused else None) == code


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize(("waiting", "admitted"), [(1, 0), (0, 1)])
def test_a_pool_in_use_is_busy(waiting: int, admitted: int, size: float) -> None:
    """Also by tasks that request nothing: without their pool they would wait for ever."""
    held = lot(B, waiting, admitted, size=size)
    found = standing()
    put(found, "j/0/0", held)
    refused = check_delete(found, B)
    assert refused is not None and refused.code == "BUSY"
    put(found, "j/0/0", lot(B, size=size))
    assert check_delete(found, B) is None, "all members of the lot have left"
    put(found, "j/0/0", None)
    assert check_delete(found, B) is None


def test_force_skips_all_rules_but_those_that_hold_the_tree() -> None:
    found = standing()
    assert check_forced(found, B, config=config("a", limit=999, reserved=500)) is None
    for pool, other in ((ROOT, config("r")), (B, config("b", A)), (B, config("b", B))):
        assert isinstance(check_forced(found, pool, config=other), Refused)


# ---- admission ----


def test_priority_comes_first_then_arrival() -> None:
    found = tree(a=config("a", limit=3))
    for name, priority, arrived in (("w", 0, 1.0), ("x", 1, 4.0), ("y", 2, 9.0), ("z", 1, 3.0)):
        put(found, name, lot(A, 1, priority=priority, arrived=arrived))
    assert admit(found) == [("y", 1), ("z", 1), ("x", 1)]
    assert admit(found) == []
    put(found, "y", None)
    assert admit(found) == [("w", 1)]


def test_a_head_that_does_not_fit_blocks_those_behind() -> None:
    found = tree(a=config("a", limit=5))
    put(found, "first", lot(A, 1, arrived=1.0))
    put(found, "big", too_big(size=5))
    put(found, "small", lot(A, 1, arrived=3.0))
    assert admit(found) == [("first", 1)]
    assert found.waits(Key("lot/small")).position == 1
    full = "limit of <pool /a> reached: cpu requested 5, 4 of 5 free; <job first> holds 1"
    assert why_head_waits(found, A) == full
    big_waits, small_waits = found.waits(Key("lot/big")), found.waits(Key("lot/small"))
    assert (big_waits.because, big_waits.rule, big_waits.never) == (full, "limit", False)
    assert small_waits.because == (
        "1 ticket is before it in the queue of its pool; the first of them waits: " + full
    )
    assert (small_waits.rule, small_waits.never) == ("turn", False)
    found.put(A, old=found.pools[A], new=Pool(config("a", limit=50)))
    assert admit(found) == [("big", 1), ("small", 1)]


def test_a_lot_is_admitted_as_far_as_it_fits() -> None:
    found = tree(a=config("a", limit=3))
    put(found, "j", lot(A, 10))
    assert admit(found) == [("j", 3)]
    assert found.lots[Key("lot/j")].admitted == Bits.of(0, 1, 2), "the lowest first"
    assert (found.use(A), found.demand(A)) == (cpus(3), cpus(7))
    assert (found.use(ROOT), found.demand(ROOT)) == (cpus(3), cpus(7))


def test_every_pool_above_must_have_enough() -> None:
    found = tree(a=config("a", limit=4), a1=config("a1", A, limit=3), a2=config("a2", A, limit=3))
    put(found, "x", lot(A1, 9, arrived=1.0))
    put(found, "y", lot(Key("respool/a2"), 9, arrived=2.0))
    assert admit(found) == [("x", 2), ("y", 2)], "by share"
    assert found.waits(Key("lot/y")).because.startswith("limit of <pool /a> reached")


def test_a_pool_that_is_entitled_waits_for_what_others_use_of_the_limit_above() -> None:
    found = tree(a=config("a", limit=4), a1=config("a1", A, limit=4), a2=config("a2", A, limit=4))
    put(found, "x", lot(A1, admitted=4, arrived=1.0))
    put(found, "y", lot(Key("respool/a2"), 9, arrived=2.0))
    assert found.entitlement(Key("respool/a2")) == cpus(2)
    assert admit(found) == [], "all that it is entitled to is used by another"


def test_the_cluster_is_a_limit_too() -> None:
    found = tree(a=config("a", limit=1000))
    found.put(ROOT, old=found.pools[ROOT], new=root(2))
    put(found, "x", lot(A, 9))
    assert admit(found) == [("x", 2)]
    waits = found.waits(Key("lot/x"))
    assert waits.because == (
        "cluster capacity reached: cpu requested 1, 0 of 2 free; <job x> holds 2"
    )
    assert (waits.rule, waits.never) == ("capacity", False)
    found.put(ROOT, old=found.pools[ROOT], new=root(3))
    assert admit(found) == [("x", 1)]


def test_a_lot_of_a_missing_pool_waits_for_it() -> None:
    found = tree()
    put(found, "x", lot(A, 1))
    assert admit(found) == [] and found.waits(Key("lot/x")).because == "pool deleted"
    found.put(A, old=None, new=Pool(config("a", limit=5)))
    assert admit(found) == [("x", 1)]


def test_a_pass_over_many_lots_is_bounded_and_continued() -> None:
    found = tree(a=config("a", limit=100))
    found.put(ROOT, old=found.pools[ROOT], new=root(10_000))
    found.put(A, old=found.pools[A], new=Pool(config("a", limit=10_000)))
    for number in range(LOTS_PER_PASS_MAX + 10):
        put(found, f"{number}", lot(A, 1, arrived=float(number)))
    assert len(admit(found)) == LOTS_PER_PASS_MAX
    assert len(admit(found)) == 10


def test_a_lot_that_waits_again_stands_behind() -> None:
    queue = Queue()
    one, two = Key("lot/1"), Key("lot/2")
    queue.put(one, priority=0, arrived=1.0)
    queue.put(two, priority=0, arrived=2.0)
    queue.drop(one)
    queue.put(one, priority=0, arrived=3.0)
    assert [*queue.in_order()] == [two, one]
    queue.put(one, priority=5, arrived=3.0)
    assert [*queue.in_order()] == [one, two] and len(queue) == 2


# ---- what the root receives ----


def test_an_older_sum_is_not_taken() -> None:
    state = root(100)
    at = At(now=0.0, key=ROOT, index=tree())
    inventory = Key("inventory/0")
    assert not take_turn(KIND, state, message=m.Capacity(1, inventory, cpus(7)), at=at).facts
    turn = take_turn(KIND, state, message=m.Capacity(2, inventory, cpus(7)), at=at)
    assert turn.state.capacity == cpus(7)
    other = take_turn(KIND, turn.state, message=m.Capacity(1, Key("inventory/1"), cpus(5)), at=at)
    assert other.state.capacity == cpus(12)


def test_pools_are_listed_parents_first() -> None:
    found = standing()
    at = At(now=0.0, key=ROOT, index=found)
    views = KIND.inspect[m.ListPools](root(), m.ListPools(), at)
    assert [view.path for view in views] == ["/", "/a", "/a/a1", "/b"]
    assert views[0].config.limit == cpus(100), "the root shows the cluster as its own"
    assert find_pool(found, "/a/a1") == A1 and find_pool(found, "/a/x") is None


def paths(tree_: ExplainedTree, query: Any) -> list[str]:
    at = At(now=0.0, key=ROOT, index=tree_)
    return [view.path for view in KIND.inspect[type(query)](root(), query, at)]


def wide() -> ExplainedTree:
    """Three pools with two children each."""
    found = tree()
    for name in "abc":
        found.put(Key(f"respool/{name}"), old=None, new=Pool(config(name)))
        for number in "12":
            child = config(name + number, Key(f"respool/{name}"))
            found.put(Key(f"respool/{name}{number}"), old=None, new=Pool(child))
    return found


@pytest.mark.parametrize("most", [1, 2, 3, 10])
def test_pages_together_are_the_list(most: int) -> None:
    found = wide()
    whole = paths(found, m.ListPools())
    assert len(whole) == 10
    pages: list[str] = []
    after = None
    while page := paths(found, m.ListPools(most, after)):
        assert len(page) <= most
        pages += page
        names = page[-1].split("/")[1:] if page[-1] != "/" else []
        after = tuple((name, Key(f"respool/{name}")) for name in names)
    assert pages == whole


def test_the_next_page_is_found_after_a_pool_that_is_gone() -> None:
    found = wide()
    a2, b = Key("respool/a2"), Key("respool/b")
    after = (("a", A), ("a2", a2))
    found.put(a2, old=found.pools[a2], new=None)
    assert paths(found, m.ListPools(2, after)) == ["/b", "/b/b1"]
    for key in (Key("respool/b1"), Key("respool/b2"), b):
        found.put(key, old=found.pools[key], new=None)
    assert paths(found, m.ListPools(1, (("b", b), ("b1", Key("respool/b1"))))) == ["/c"]


def test_children_alone_are_listed_by_name() -> None:
    assert paths(wide(), m.ListPools(parent=A)) == ["/a/a1", "/a/a2"]
    assert paths(wide(), m.ListPools(5, (("a", A),), ROOT)) == ["/b", "/c"]
    assert paths(wide(), m.ListPools(parent=Key("respool/x"))) == []


def test_one_pool_is_answered_with_those_above_it() -> None:
    found = wide()
    assert paths(found, m.GetPool(A1)) == ["/a/a1", "/a", "/"]
    assert paths(found, m.GetPool(path="/a/a1/")) == ["/a/a1", "/a", "/"]
    assert paths(found, m.GetPool()) == paths(found, m.GetPool(path="/")) == ["/"]
    assert paths(found, m.GetPool(Key("respool/x"))) == paths(found, m.GetPool(path="/a/x")) == []
    at = At(now=0.0, key=ROOT, index=found)
    views = KIND.inspect[m.GetPool](root(), m.GetPool(A, children=True), at)
    assert [view.child_count for view in views] == [2, 3]
    assert [view.children for view in views] == [(A1, Key("respool/a2")), ()]


def test_a_name_with_a_slash_is_found() -> None:
    """A forced update passes over the rule against it, and deletion is by path."""
    found = wide()
    found.put(A1, old=found.pools[A1], new=Pool(config("x/y", A)))
    assert found.path(A1) == "/a/x/y" and find_pool(found, "/a/x/y") == A1


def test_nothing_is_kept_of_pools_that_are_gone() -> None:
    found = wide()
    for number in range(5):
        put(found, f"{number}", lot(A1, 1))
        put(found, f"missing{number}", lot(Key("respool/x"), 1))
    assert admit(found) == []
    for number in range(5):
        put(found, f"{number}", None)
        put(found, f"missing{number}", None)
    for name in ("c1", "c2", "c", "b1", "b2", "b", "a1", "a2", "a", "root"):
        key = Key(f"respool/{name}")
        found.put(key, old=found.pools[key], new=None)
    kept = (found._nodes, found.queues, found.pools, found.lots, found.children, found.pending)
    waiting = found.waiting
    kept = (*kept, waiting.changed, waiting.blocked.items(), waiting._heads, waiting._needs)
    assert not any(kept), kept


# ---- who can never be admitted ----


def test_a_head_that_can_never_fit_blocks_nobody_and_keeps_its_reason() -> None:
    found = tree(a=config("a", limit=5))
    put(found, "big", too_big())
    put(found, "small", lot(A, 1, arrived=3.0))
    assert admit(found) == [("small", 1)]
    assert admit(found) == []
    waits = found.waits(Key("lot/big"))
    assert waits.never and "requested 9 cpu, but the limit of <pool /a> is 5: " in waits.because
    assert "requested 9 cpu" in why_head_waits(found, A), "no other lot waits there"
    assert len(found.queues[A]) == 1 and A in found.pending


def test_it_keeps_its_position_once_the_limit_grows() -> None:
    found = tree(a=config("a", limit=5))
    put(found, "big", too_big())
    put(found, "small", lot(A, 20, arrived=3.0))
    assert admit(found) == [("small", 5)]
    assert [*found.queues[A].in_order()] == [Key("lot/big"), Key("lot/small")]
    assert found.waits(Key("lot/small")).position == 0, "nobody who can be admitted is before it"
    found.put(A, old=found.pools[A], new=Pool(config("a", limit=14)))
    assert admit(found) == [("big", 1)]
    assert admit(found) == []


def test_the_limit_of_a_pool_above_counts_too() -> None:
    found = tree(a=config("a", limit=5), a1=config("a1", A, limit=5))
    found.put(A, old=found.pools[A], new=Pool(config("a", limit=2)))  # as force may do it
    put(found, "big", too_big(A1, 4))
    put(found, "small", lot(A1, 1, arrived=3.0))
    assert admit(found) == [("small", 1)]


@pytest.mark.parametrize("shrinks", [A, ROOT])
def test_a_head_that_a_lower_limit_rules_out_blocks_nobody(shrinks: Key) -> None:
    """It waited for its own pool's limit when one further up fell below what it needs."""
    found = tree(a=config("a", limit=6), a1=config("a1", A, limit=3, queueing=Queueing.STRICT))
    put(found, "held", lot(A1, admitted=1))
    put(found, "big", too_big(A1, 3))
    put(found, "small", lot(A1, 1, arrived=3.0))
    assert admit(found) == []
    lower = root(2) if shrinks == ROOT else Pool(config("a", limit=2))
    found.put(shrinks, old=found.pools[shrinks], new=lower)
    assert admit(found) == [("small", 1)]


def test_a_pool_blocked_only_by_the_same_pass_is_served_once_it_is_free() -> None:
    found = tree(a=config("a", limit=9), b=config("b", limit=9))
    found.put(ROOT, old=found.pools[ROOT], new=root(1))
    put(found, "x", lot(A, 1, arrived=1.0))
    put(found, "y", lot(B, 1, arrived=2.0))
    assert [key for key, _ in admissions(found)] == [Key("lot/x")]
    put(found, "x", None)  # it left before it was admitted
    assert admit(found) == [("y", 1)]


def test_a_skipped_lot_may_leave() -> None:
    found = tree(a=config("a", limit=5))
    put(found, "big", too_big())
    assert admit(found) == []
    put(found, "big", None)
    assert A not in found.pending and not found.queues[A]
    found.put(A, old=found.pools[A], new=Pool(config("a", limit=14)))
    assert admit(found) == []


def test_the_job_that_holds_most_is_named() -> None:
    found = tree(a=config("a", limit=5))
    put(found, "many/0/0", lot(A, admitted=2))
    put(found, "many/1/0", lot(A, admitted=1))
    put(found, "few/0/0", lot(A, admitted=2))
    put(found, "k/0/0", lot(A, 1, arrived=4.0))
    assert found.waits(Key("lot/k/0/0")).because == (
        "limit of <pool /a> reached: cpu requested 1, 0 of 5 free; <job many> holds 3"
    )
    put(found, "many/0/0", None)
    put(found, "many/1/0", None)
    assert found.largest_user(ROOT, 0) == ("few", 2 * UNIT)


def test_a_cluster_that_is_too_small_is_waited_for() -> None:
    """Hosts come back: that there are none now is no proof that a task never runs."""
    found = tree(a=config("a", limit=200))
    put(found, "big", lot(A, 1, size=150))
    assert admit(found) == []
    waits = found.waits(Key("lot/big"))
    assert waits.because == (
        "requested 150 cpu, but the cluster capacity is 100: it waits for more hosts"
    )
    assert (waits.rule, waits.never) == ("capacity", False)
    found.put(ROOT, old=found.pools[ROOT], new=root(160))
    assert admit(found) == [("big", 1)]
