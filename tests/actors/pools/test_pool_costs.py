"""What one pool's change costs in a small and in a large tree: instructions, not time.

The instructions that Python executes are counted, so a loop over pools, lots or heads shows as it
would at any size. A large tree may cost a little more by the depth of a tree of minima, and
nothing more.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import immutables
import msgspec
import pytest

from peloton.actors.resources import COUNT_MAX, UNIT, Resources
from peloton.actors.respool.admission import admissions
from peloton.actors.respool.blockers import ExplainedTree
from peloton.actors.respool.goals import HEADS_PER_TURN_MAX, pursue
from peloton.actors.respool.lot.messages import LotShape
from peloton.actors.respool.lot.state import Lot, with_admitted
from peloton.actors.respool.messages import ROOT, GetPool, ListPools, OpenRoot, PoolConfig, pool_key
from peloton.actors.respool.queries import get_pool, list_pools
from peloton.actors.respool.rules import check, check_delete
from peloton.actors.respool.state import InventorySum, Pool
from peloton.runtime.vocabulary import WAITING, At, Bits, Decision, Key, Send

SMALL, LARGE = 10, 2000
SLACK = 1.1
"""What a large tree may cost more: its minima stand two levels higher."""
ONE = Resources(UNIT)
WIDE = Resources(10**6 * UNIT)
PARENT, FREE = pool_key("parent"), pool_key("free")


class Counter:
    """Instructions executed."""

    def __init__(self) -> None:
        self.count = 0

    def trace(self, frame: Any, event: str, arg: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.count += event == "opcode"
        return self.trace


@contextmanager
def counted() -> Iterator[Counter]:
    found, before = Counter(), sys.gettrace()
    sys.settrace(found.trace)
    try:
        yield found
    finally:
        sys.settrace(before)


def put_pool(tree: ExplainedTree, key: Key, *, parent: Key, limit: Resources) -> None:
    config = PoolConfig(key.partition("/")[2], parent, Resources(), limit)
    tree.put(key, old=tree.pools.get(key), new=Pool(config))


def put_root(tree: ExplainedTree, capacity: Resources) -> None:
    sums = immutables.Map({Key("inventory/0"): InventorySum(1, capacity)})
    config = PoolConfig("root", ROOT, Resources(), Resources())
    tree.put(ROOT, old=tree.pools.get(ROOT), new=Pool(config, sums))


def put_lot(
    tree: ExplainedTree, name: str, *, pool: Key, waiting: int = 0, admitted: int = 0
) -> None:
    key = Key(f"lot/{name}/0/0")
    new = None
    if waiting or admitted:
        bits = Bits.span(0, waiting), Bits.span(waiting, waiting + admitted)
        new = Lot(LotShape(pool, ONE), Key("task/j/0"), 0.0, immutables.Map(), *bits)
    tree.put(key, old=tree.lots.get(key), new=new)


def serve(tree: ExplainedTree) -> list[Key]:
    """Admit what fits, as the root does."""
    served: list[Key] = []
    while found := admissions(tree):
        for key, members in found:
            old = tree.lots[key]
            new = msgspec.structs.replace(
                old, waiting=old.waiting - members, admitted=old.admitted | members
            )
            tree.put(key, old=old, new=new)
            served.append(key)
    return served


def leaf(number: int) -> Key:
    return pool_key(f"leaf{number}")


def deployment(leaves: int, *, full: str) -> ExplainedTree:
    """Leaves below one pool; each holds a task, and one more waits for `full`."""
    tree = ExplainedTree()
    put_root(tree, WIDE)
    put_pool(tree, PARENT, parent=ROOT, limit=WIDE)
    for number in range(leaves):
        limit = ONE if full == "leaf" else ONE.times(SMALL)
        put_pool(tree, leaf(number), parent=PARENT, limit=limit)
        put_lot(tree, f"held{number}", pool=leaf(number), admitted=1)
    if full == "parent":
        put_pool(tree, PARENT, parent=ROOT, limit=ONE.times(leaves))
    if full == "cluster":
        put_root(tree, ONE.times(leaves))
    for number in range(leaves):
        put_lot(tree, f"waits{number}", pool=leaf(number), waiting=1)
    assert serve(tree) == []
    put_pool(tree, FREE, parent=ROOT, limit=WIDE)
    return tree


# ---- what is done, and whom it may reach ----


def create(tree: ExplainedTree) -> None:
    config = PoolConfig("new", PARENT, Resources(), ONE)
    assert check(tree, pool_key("new"), config=config) is None
    put_pool(tree, pool_key("new"), parent=PARENT, limit=ONE)
    assert serve(tree) == []


def update(tree: ExplainedTree) -> None:
    config = tree.pools[leaf(1)].config
    assert check(tree, leaf(1), config=config) is None
    for limit in (Resources(), config.limit):
        put_pool(tree, leaf(1), parent=PARENT, limit=limit)
        assert serve(tree) == []


def delete(tree: ExplainedTree) -> None:
    assert check_delete(tree, FREE) is None
    tree.put(FREE, old=tree.pools[FREE], new=None)
    assert serve(tree) == []


def release(tree: ExplainedTree) -> None:
    """The leaf's own head is served where the leaf was full, else that of the first that waits."""
    put_lot(tree, "held3", pool=leaf(3))
    assert len(serve(tree)) == 1


def ticket(tree: ExplainedTree) -> None:
    put_lot(tree, "more", pool=leaf(2), waiting=5)
    assert serve(tree) == []


def leave(tree: ExplainedTree) -> None:
    """A waiting lot leaves, which makes nothing available to others."""
    put_lot(tree, "waits4", pool=leaf(4))
    assert serve(tree) == []


def host_comes_and_goes(tree: ExplainedTree) -> None:
    """More and less capacity than there was, by less than anybody waits for."""
    was = tree.limit(ROOT)
    put_root(tree, was + Resources(1000))
    assert serve(tree) == []
    put_root(tree, was)
    assert serve(tree) == []


def explain(tree: ExplainedTree) -> None:
    at = At(now=0.0, key=ROOT, index=tree)
    found = get_pool(tree.pools[ROOT], GetPool(leaf(5)), at)
    assert [view.pool for view in found] == [leaf(5), PARENT, ROOT] and found[0].because
    assert get_pool(tree.pools[ROOT], GetPool(path="/parent/leaf5"), at) == found


def why(tree: ExplainedTree) -> None:
    assert tree.waits(Key("lot/waits5/0/0")).because


def page(tree: ExplainedTree) -> None:
    at = At(now=0.0, key=ROOT, index=tree)
    after = (("parent", PARENT), ("leaf1", leaf(1)))
    views = list_pools(tree.pools[ROOT], ListPools(5, after), at)
    assert len(views) == 5


def edit_near_the_root(tree: ExplainedTree) -> None:
    """Less and more of what most pools share, by less than anybody waits for."""
    was = tree.pools[PARENT].config.limit
    for limit in (was - Resources(1000), was):
        put_pool(tree, PARENT, parent=ROOT, limit=limit)
        assert serve(tree) == []


DONE = (
    page, create, update, delete, release, ticket, leave, host_comes_and_goes, explain, why,
    edit_near_the_root,
)  # fmt: skip


@pytest.fixture(scope="module")
def costs() -> Callable[[int, str], dict[str, int]]:
    """Instructions of each operation, the trees being built once."""
    known: dict[tuple[int, str], dict[str, int]] = {}

    def of(leaves: int, full: str) -> dict[str, int]:
        if (leaves, full) not in known:
            tree = deployment(leaves, full=full)
            why(tree)  # who holds most is remembered once it was asked for
            found = known[leaves, full] = {}
            for act in DONE:
                with counted() as counter:
                    act(tree)
                found[act.__name__] = counter.count
        return known[leaves, full]

    return of


@pytest.mark.parametrize("full", ["leaf", "parent", "cluster"])
@pytest.mark.parametrize("act", DONE, ids=lambda act: act.__name__)
def test_one_pool_costs_the_same_in_a_large_tree(
    costs: Callable[[int, str], dict[str, int]], full: str, act: Callable[[ExplainedTree], None]
) -> None:
    small, large = (costs(leaves, full)[act.__name__] for leaves in (SMALL, LARGE))
    assert large <= small * SLACK, f"{act.__name__}: {small} instructions, then {large}"


def test_an_index_is_derived_in_time_that_grows_with_what_there_is() -> None:
    per_cell = []
    for leaves in (50, 1000):
        tree = deployment(leaves, full="leaf")
        cells = [*tree.lots.items(), *tree.pools.items()]
        again = ExplainedTree()
        with counted() as counter:
            for key, state in cells:
                again.put(key, old=None, new=state)
        per_cell.append(counter.count / len(cells))
    assert per_cell[1] <= per_cell[0] * 1.2, per_cell


@pytest.mark.parametrize("full", ["leaf", "parent", "cluster"])
def test_a_turn_after_a_recovery_costs_the_same_in_a_large_tree(full: str) -> None:
    """All heads have to be looked at: some a turn."""
    costs = []
    for leaves in (100, 1000):
        tree = deployment(leaves, full=full)
        again = ExplainedTree()
        for key, state in [*tree.lots.items(), *tree.pools.items()]:
            again.put(key, old=None, new=state)
        again.rebuilt()
        with counted() as counter:
            assert admissions(again, HEADS_PER_TURN_MAX) == []
        assert again.waiting.unfinished
        costs.append(counter.count)
        turns = 1
        while again.waiting.unfinished:
            assert admissions(again, HEADS_PER_TURN_MAX) == []
            turns += 1
        assert turns == -(-leaves // HEADS_PER_TURN_MAX)
        assert not again.waiting.changed and not again.settle()
    assert costs[1] <= costs[0] * SLACK, costs


def test_the_root_asks_itself_for_the_next_turn_until_all_heads_were_looked_at() -> None:
    tree = deployment(100, full="leaf")
    again = ExplainedTree()
    for key, state in [*tree.lots.items(), *tree.pools.items()]:
        again.put(key, old=None, new=state)
    root = again.pools[ROOT]
    steps = [pursue(root, At(now=0.0, key=ROOT, index=again)) for _ in range(5)]
    more = Decision(sends=(Send(ROOT, OpenRoot()),))
    assert steps == [more, more, more, WAITING, WAITING]


@pytest.mark.parametrize("heads", [1, 2, 3])
def test_a_few_heads_a_turn_admit_as_many_as_all_at_once(heads: int) -> None:
    found = []
    for at_once in (heads, COUNT_MAX):
        tree = deployment(7, full="cluster")
        put_root(tree, ONE.times(11))
        for number in (2, 5):
            put_lot(tree, f"held{number}", pool=leaf(number))
        came: list[Key] = []
        while True:
            batches = admissions(tree, at_once)
            for key, members in batches:
                old = tree.lots[key]
                tree.put(key, old=old, new=with_admitted(old, members))
                came.append(key)
            if not batches and not tree.waiting.unfinished:
                break
        found.append(sorted(came))
    assert found[0] == found[1] and len(found[0]) == 6


def test_a_turn_that_admits_nobody_does_not_ask_all_who_wait_for_what_others_hold() -> None:
    """They are entitled to room below their parent, or in the cluster."""
    costs = []
    for leaves in (SMALL, 500):
        tree = ExplainedTree()
        put_root(tree, WIDE)
        put_pool(tree, PARENT, parent=ROOT, limit=ONE.times(leaves))
        put_pool(tree, FREE, parent=PARENT, limit=WIDE)
        put_lot(tree, "held", pool=FREE, waiting=leaves)
        serve(tree)
        for number in range(leaves - 1):
            put_pool(tree, leaf(number), parent=PARENT, limit=WIDE)
            put_lot(tree, f"waits{number}", pool=leaf(number), waiting=1)
        assert serve(tree) == [] and all(map(tree.waiting.awaits, tree.pending))
        with counted() as counter:
            assert admissions(tree) == []
        costs.append(counter.count)
    assert costs[1] <= costs[0] * SLACK, costs


def test_the_place_of_a_lot_is_not_counted_one_by_one() -> None:
    """Neither is its pool's head found, nor a lot put into the middle, by a walk of the queue."""
    costs = []
    for lots in (600, 20_000):
        tree = deployment(3, full="leaf")
        for number in range(lots):
            put_lot(tree, f"more{number:05}", pool=leaf(1), waiting=2)
        with counted() as counter:
            assert tree.waits(Key(f"lot/more{lots - 1:05}/0/0")).position == 2 * lots - 2
            put_lot(tree, "more00007x", pool=leaf(1), waiting=1)
            assert serve(tree) == []
            put_lot(tree, "more00007x", pool=leaf(1))
        costs.append(counter.count)
    assert costs[1] <= costs[0] * SLACK, costs


def test_a_released_unit_goes_to_the_pool_that_is_entitled_to_it() -> None:
    """All are entitled to one unit: the pool that has none takes the next."""
    tree = deployment(300, full="cluster")
    for number in (299, 7, 150):
        put_lot(tree, f"held{number}", pool=leaf(number))
        assert serve(tree) == [Key(f"lot/waits{number}/0/0")]


@pytest.mark.parametrize("full", ["parent", "cluster"])
def test_a_released_unit_reaches_the_one_that_has_waited_longest(full: str) -> None:
    """Of those that are entitled to a part of it, and not each of the hundreds in turn."""
    tree, rich = deployment(300, full=full), pool_key("rich")
    wide = ONE.times(320)
    put_pool(tree, PARENT, parent=ROOT, limit=wide if full == "parent" else WIDE)
    put_pool(tree, rich, parent=PARENT, limit=WIDE)
    for number in range(20):
        put_lot(tree, f"rich{number}", pool=rich, admitted=1)
    if full == "cluster":
        put_root(tree, wide)
    assert serve(tree) == []
    for number in range(19):
        put_lot(tree, f"rich{number}", pool=rich)
        assert serve(tree) == [Key(f"lot/waits{number}/0/0")]


def test_more_of_a_limit_reaches_as_many_as_it_is_for() -> None:
    tree = deployment(300, full="cluster")
    put_root(tree, ONE.times(302))
    assert serve(tree) == [Key("lot/waits0/0/0"), Key("lot/waits1/0/0")]
