"""One pass over arrays entitles every pool as its path does, to the millionth, and as defined.

Random trees are changed step by step, so that the rows of the arrays are kept between the looks.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from fractions import Fraction

import immutables
import numpy as np
import pytest

from peloton.actors.resources import EPSILON, UNIT, Resources
from peloton.actors.respool.filling import WeightedFill
from peloton.actors.respool.lot.messages import LotShape
from peloton.actors.respool.lot.state import Lot
from peloton.actors.respool.messages import ROOT, PoolConfig, Within, pool_key
from peloton.actors.respool.pouring import Groups, levels, poured
from peloton.actors.respool.sharing import STALE_MAX
from peloton.actors.respool.state import InventorySum, Pool
from peloton.actors.respool.tree import Tree
from peloton.runtime.vocabulary import Bits, Key
from tests.actors.pool_reference import Reference, entitlements

NOWHERE = pool_key("nowhere")
CENT = UNIT // 100


class Town:
    """A tree, and the same by its definition; what happens is drawn."""

    def __init__(self, seed: int, *, size: int) -> None:
        self.chance = random.Random(seed)
        self.size = size
        self.tree, self.reference = Tree(), Reference(Within.RESERVED)
        self.made = 0
        self.capacity()

    def put(self, key: Key, new: Pool | Lot | None) -> None:
        of = self.tree.lots if key.startswith("lot/") else self.tree.pools
        old = of.get(key)
        self.tree.put(key, old=old, new=new)
        self.reference.put(key, old=old, new=new)

    def amount(self) -> int:
        """Whole, odd, none or a lot: what is equal and what is nearly so is frequent."""
        some = (0, UNIT, 2 * UNIT, 3 * UNIT, 10 * UNIT, self.chance.randrange(10 * UNIT))
        return self.chance.choice(some) * self.size

    def resources(self) -> Resources:
        return Resources(*(self.amount() for _ in range(4)), slack=self.amount())

    def capacity(self) -> None:
        room = self.resources().times(self.chance.choice((0, 1, 5, 30)))
        sums = immutables.Map({Key("inventory/0"): InventorySum(1, room)})
        self.put(ROOT, Pool(PoolConfig("root", ROOT, Resources(), Resources()), sums))

    def config(self, name: str, parent: Key) -> PoolConfig:
        draw = self.chance.choice
        reservation, limit = self.resources(), self.resources().times(draw((1, 3, 10)))
        share = draw(((1.0,) * 4, (2.0, 1.0, 0.5, 3.0), (0.0, 1.0, 1.0, 0.0), (0.25,) * 4))
        static = draw(((False,) * 4, (False,) * 4, (True, False, True, False)))
        return PoolConfig(
            name,
            parent,
            Resources(*reservation.amounts()[:4]),
            Resources(*limit.amounts()[:4]),
            share,
            static,
            slack_percent=draw((0.0, 50.0, 100.0)),
        )

    def pool(self) -> None:
        self.made += 1
        parent = self.chance.choice([*sorted(self.tree.pools), NOWHERE])
        name = f"p{self.made}"
        self.put(pool_key(name), Pool(self.config(name, parent)))

    def change(self) -> None:
        pools = sorted(set(self.tree.pools) - {ROOT})
        key = self.chance.choice(pools) if pools else NOWHERE
        if key in self.tree.pools:
            config = self.tree.pools[key].config
            self.put(key, Pool(self.config(config.name, config.parent)))

    def appear(self) -> None:
        """The pool that others were below before it existed, or not any more."""
        if NOWHERE in self.tree.pools:
            self.put(NOWHERE, None)
        else:
            self.put(NOWHERE, Pool(self.config("nowhere", ROOT)))

    def leave(self) -> None:
        below = self.tree.children
        free = [key for key in sorted(self.tree.pools) if key not in {ROOT, NOWHERE, *below}]
        if free:
            self.put(self.chance.choice(free), None)

    def lot(self) -> None:
        self.made += 1
        draw = self.chance.choice
        key = Key(f"lot/j{self.made % 9}/{self.made % 40}/0")
        known = self.tree.lots.get(key)
        if known is not None:
            self.put(key, None)
            return
        need, on_slack = self.resources(), draw((False, False, True))
        shape = LotShape(
            draw([*sorted(self.tree.pools), NOWHERE]),
            need.revocable() if on_slack else Resources(*need.amounts()[:4]),
            preemptible=True,
            revocable=on_slack,
        )
        waiting, admitted = Bits.span(0, draw((0, 1, 7))), Bits.span(7, 7 + draw((1, 2)))
        self.put(key, Lot(shape, Key("task/j/0"), 0.0, immutables.Map(), waiting, admitted))

    def step(self) -> None:
        acts = (self.pool, self.pool, self.lot, self.lot, self.lot, self.change, self.leave)
        self.chance.choice((*acts, self.appear, self.capacity))()


def equal(tree: Tree) -> Callable[[Key], Resources]:
    """What the arrays tell of all pools, which is what each is told by its path."""
    found, overdrawn = tree.overview()
    assert found.__name__ == "of"  # of the arrays
    assert {key: found(key) for key in tree.pools} == {
        key: tree.entitlement(key) for key in tree.pools
    }
    for parent in tree.pools:
        excess = {key: tree.use(key) - tree.entitlement(key) for key in tree.below(parent)}
        over = [key for key, more in excess.items() if max(more.amounts()) >= EPSILON]
        assert [*overdrawn(parent)] == over
    return found


@pytest.mark.parametrize("seed", range(2))
def test_pools_that_changed_are_read_before_a_look(seed: int) -> None:
    """With more pools than are read at once, and few looks."""
    town = Town(seed, size=1)
    for _ in range(2 * STALE_MAX):
        town.pool()
    again = Tree()
    for key, state in [*town.tree.lots.items(), *town.tree.pools.items()]:
        again.put(key, old=None, new=state)
    again.rebuilt()
    equal(again)
    town.tree = again
    for number in range(1500):
        town.step()
        if number % 9 == 0:
            town.tree.entitlement(ROOT)
        if number % 400 == 0:
            equal(town.tree)
    equal(town.tree)


@pytest.mark.parametrize("size", [1, 999_983])
@pytest.mark.parametrize("seed", range(12))
def test_a_pass_gives_what_the_paths_and_the_definition_give(seed: int, size: int) -> None:
    town = Town(seed, size=size)
    for number in range(150):
        town.step()
        if number % 3:
            continue
        found = equal(town.tree)
        defined = entitlements(town.reference, set())
        for key, exact in defined.items():
            pairs = zip(found(key).amounts(), exact.amounts(), strict=True)
            assert all(abs(amount - at) < CENT for amount, at in pairs)


def test_sums_that_are_too_large_for_words_are_not_told() -> None:
    town = Town(1, size=1)
    sums = immutables.Map({Key("inventory/0"): InventorySum(1, Resources(1 << 63))})
    town.put(ROOT, Pool(PoolConfig("root", ROOT, Resources(), Resources()), sums))
    town.pool()
    found = town.tree.overview().entitled
    for key in town.tree.pools:
        assert found(key) == town.tree.entitlement(key)
    assert found(ROOT).cpu == 1 << 63


@pytest.mark.parametrize("weight_max", [3, 10**6, 10**15])
@pytest.mark.parametrize("seed", range(10))
def test_many_groups_are_filled_as_each_alone(seed: int, weight_max: int) -> None:
    """Also where levels are hit exactly, and where weights need more than a word."""
    chance = random.Random(seed)
    sizes = [chance.choice((1, 2, 3, 10, 200)) for _ in range(30)]
    rows: list[list[tuple[int, int]]] = []
    available: list[int] = []
    for size in sizes:
        unit = chance.choice((1, UNIT, 10**9 + 7))
        claims = [
            (unit * chance.randrange(6), chance.choice((0, 1, weight_max, chance.randrange(9))))
            for _ in range(size)
        ]
        claims[0] = unit, weight_max
        total = sum(amount for amount, weight in claims if weight)
        rows.append(claims)
        available.append(chance.choice((0, total // 2, total - 1, total // 3)))
    groups = Groups.of(np.array(sizes))
    flat = np.array([claim for claims in rows for claim in claims])
    found = poured(
        groups, available=np.array(available), amounts=flat[:, 0], weights=flat[:, 1]
    ).tolist()
    for claims, amount in zip(rows, available, strict=True):
        fill = WeightedFill()
        for number, (need, weight) in enumerate(claims):
            fill.put(f"{number:04}", amount=need, weight=weight)
        level = fill.level(amount)
        alone = [fill.received(f"{number:04}", level) for number in range(len(claims))]
        assert found[: len(claims)] == alone
        del found[: len(claims)]


def test_levels_and_products_are_exact() -> None:
    chance = random.Random(5)
    cases = [(chance.randrange(1 << 60), chance.randrange(1, 1 << bits)) for bits in range(1, 62)]
    rises = levels(np.array([have for have, _ in cases]), np.array([by for _, by in cases]))
    risen = rises.times(np.array([(by + 1) // 2 for _, by in cases])).tolist()
    for (have, by), got in zip(cases, risen, strict=True):
        assert got == ((have << 64) // by * ((by + 1) // 2)) >> 64
        assert got <= Fraction(have * ((by + 1) // 2), by)
