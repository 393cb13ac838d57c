"""Every pool is entitled to what is defined, and is found where it uses more, however trees change.

Amounts are large and odd, pools are missing and come later, shares and reservations may be none.
"""

from __future__ import annotations

import random

import immutables
import pytest

from peloton.actors.resources import EPSILON, UNIT, Resources
from peloton.actors.respool.lot.messages import LotShape
from peloton.actors.respool.lot.state import Lot
from peloton.actors.respool.messages import ROOT, PoolConfig, Within, pool_key
from peloton.actors.respool.state import InventorySum, Pool
from peloton.actors.respool.tree import Tree
from peloton.runtime.vocabulary import Bits, Key
from tests.actors.pools.pool_reference import Reference, entitlements

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


@pytest.mark.parametrize("size", [1, 999_983])
@pytest.mark.parametrize("seed", range(12))
def test_pools_are_entitled_to_what_is_defined_and_found_where_they_use_more(
    seed: int, size: int
) -> None:
    town = Town(seed, size=size)
    for number in range(150):
        town.step()
        if number % 3:
            continue
        tree = town.tree
        for key, exact in entitlements(town.reference, set()).items():
            pairs = zip(tree.entitlement(key).amounts(), exact.amounts(), strict=True)
            assert all(abs(amount - at) < CENT for amount, at in pairs)
        for parent in tree.pools:
            excess = {key: tree.use(key) - tree.entitlement(key) for key in tree.below(parent)}
            some = {
                key: [each if each >= EPSILON else 0 for each in more.amounts()]
                for key, more in excess.items()
                if max(more.amounts()) >= EPSILON
            }
            assert [*tree.excess(parent).items()] == [*some.items()]
