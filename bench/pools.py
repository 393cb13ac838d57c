"""Benchmark of the pool tree: what one pool's change costs in small and in large trees.

Run `python bench/pools.py`. Each operation is what the deciding thread does for it: the rules, the
change of the tree, and the admissions that follow. All leaves have a head that waits, either for
its own pool's limit or for the capacity of the cluster. The last column is the ratio of the
largest tree to the smallest, which a kept index holds near one. No shard, journal or network.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Iterator

import immutables
import msgspec

from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool.admission import admissions
from peloton.actors.respool.lot.messages import LotShape
from peloton.actors.respool.lot.state import Lot
from peloton.actors.respool.messages import ROOT, PoolConfig, pool_key
from peloton.actors.respool.queries import view
from peloton.actors.respool.rules import check
from peloton.actors.respool.state import InventorySum, Pool
from peloton.actors.respool.tree import Tree
from peloton.runtime.vocabulary import Bits, Key

SHAPES = {11: (1, 1, 8), 1_111: (10, 10, 10), 11_011: (10, 100, 10)}
"""Number of pools → children of the root, of each of them, and of each of those."""
ONE = Resources(UNIT)
NOBODY = Bits()
WIDE = Resources(10**9 * UNIT)


class Town:
    """A tree under load: every leaf holds one task, and another waits."""

    def __init__(self, pools: int, *, full: str) -> None:
        self.tree = Tree()
        self.leaves: list[Key] = []
        self._made = 0
        for parent, name, leaf in _names(SHAPES[pools]):
            limit = ONE if leaf and full == "leaf" else WIDE
            key = self.pool(name, parent=parent, limit=limit)
            if leaf:
                self.leaves.append(key)
        self.capacity(WIDE if full == "leaf" else ONE.times(len(self.leaves)))
        for number, leaf in enumerate(self.leaves):
            self.lot(f"lot/held{number}/0/0", pool=leaf, admitted=Bits.of(0))
            self.lot(f"lot/waits{number}/0/0", pool=leaf, waiting=Bits.of(0))
        self.serve()

    def capacity(self, amount: Resources) -> None:
        sums = immutables.Map({Key("inventory/0"): InventorySum(1, amount)})
        config = PoolConfig("root", ROOT, Resources(), Resources())
        self.tree.put(ROOT, old=self.tree.pools.get(ROOT), new=Pool(config, sums))

    def pool(self, name: str, *, parent: Key, limit: Resources = WIDE) -> Key:
        key = pool_key(name)
        self.tree.put(key, old=None, new=Pool(PoolConfig(name, parent, Resources(), limit)))
        return key

    def lot(self, name: str, *, pool: Key, waiting: Bits = NOBODY, admitted: Bits = NOBODY) -> None:
        self._made += 1
        key = Key(name)
        new = None
        if waiting or admitted:
            crowd, at = Key("task/j/0"), float(self._made)
            shape = LotShape(pool, ONE)
            new = Lot(shape, crowd, at, immutables.Map(), waiting, admitted)
        self.tree.put(key, old=self.tree.lots.get(key), new=new)

    def serve(self) -> int:
        """Admit what fits, as the root does."""
        served = 0
        while found := admissions(self.tree):
            for key, members in found:
                old = self.tree.lots[key]
                new = msgspec.structs.replace(
                    old, waiting=old.waiting - members, admitted=old.admitted | members
                )
                self.tree.put(key, old=old, new=new)
                served += len(members)
        return served

    # ---- operations ----

    def create(self, number: int) -> None:
        """A pool beside the first leaf."""
        parent = self.tree.pools[self.leaves[0]].config.parent
        config = PoolConfig(f"new{number}", parent, Resources(), ONE)
        key = pool_key(config.name)
        assert check(self.tree, key, config=config) is None
        self.tree.put(key, old=None, new=Pool(config))
        assert self.serve() == 0

    def release(self, number: int) -> None:
        """One task ends, and one of those that wait is admitted."""
        self.lot(f"lot/held{number}/0/0", pool=self.leaves[number])
        assert self.serve() == 1

    def admit(self, number: int) -> None:
        """A job of no resources comes and is admitted at once, beside all that wait."""
        key, pool = Key(f"lot/new{number}/0/0"), pool_key(f"new{number}")
        shape = LotShape(pool, Resources())
        lot = Lot(shape, Key("task/j/0"), 0.0, immutables.Map(), Bits.of(0))
        self.tree.put(key, old=None, new=lot)
        assert self.serve() == 1

    def explain(self, number: int) -> None:
        """One pool as clients see it, with why its first ask waits."""
        assert view(self.tree, self.leaves[-1 - number]).because


def _names(shape: tuple[int, ...]) -> Iterator[tuple[Key, str, bool]]:
    above = [(ROOT, "p")]
    for level, count in enumerate(shape):
        below = []
        for parent, prefix in above:
            for number in range(count):
                name = f"{prefix}{level}{number}"
                yield parent, name, level == len(shape) - 1
                below.append((pool_key(name), name + "x"))
        above = below


def median_us(act: Callable[[int], None], count: int) -> float:
    took = []
    for number in range(count):
        begun = time.perf_counter()
        act(number)
        took.append(time.perf_counter() - begun)
    return statistics.median(took) * 1e6


def rebuild_s(pools: int, lots_per_leaf: int) -> tuple[int, float]:
    """Lots, and seconds of CPU to derive the index of them anew, the collector at rest."""
    town = Town(pools, full="leaf")
    for number, leaf in enumerate(town.leaves):
        for slot in range(lots_per_leaf - 2):
            town.lot(f"lot/more{number}/{slot}/0", pool=leaf, waiting=Bits.of(0))
    cells = [*town.tree.pools.items(), *town.tree.lots.items()]
    gc.collect()
    gc.freeze()
    gc.disable()
    begun = time.process_time()
    tree = Tree()
    for key, state in cells:
        tree.put(key, old=None, new=state)
    took_s = time.process_time() - begun
    gc.enable()
    return len(tree.lots), took_s


def ration_us(waiting: int, *, ends: int) -> float:
    """A pool with a reservation of ten, a tenth of it for controllers, of which one holds that and
    so many wait: the median until the next one has it, and nobody else fits."""
    town = Town(11, full="leaf")
    key = pool_key("ration")
    config = PoolConfig("ration", ROOT, ONE.times(10), WIDE, controller_percent=10.0)
    town.tree.put(key, old=None, new=Pool(config))
    shape = LotShape(key, ONE, controller=True)
    for number in range(waiting + ends):
        new = Lot(shape, Key("task/j/0"), float(number), immutables.Map(), Bits.of(0))
        town.tree.put(Key(f"lot/c{number}/0/0"), old=None, new=new)
    town.serve()

    def end(number: int) -> None:
        town.lot(f"lot/c{number}/0/0", pool=key)
        assert town.serve() == 1

    return median_us(end, ends)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=4, help="runs of each operation, 4 at most")
    count = min(parser.parse_args().count, 4)
    print(f"{'microseconds':32}" + "".join(f"{pools:>12,} pools" for pools in SHAPES) + "  ratio")
    for full in ("leaf", "cluster"):
        towns = [Town(pools, full=full) for pools in SHAPES]
        for name in ("create", "release", "admit", "explain"):
            found = [median_us(getattr(town, name), count) for town in towns]
            line = "".join(f"{each:18,.0f}" for each in found)
            print(f"{name + ', all wait for ' + full:32}{line}{found[-1] / found[0]:7.1f}")
    for waiting in (10, 10_000):
        print(f"one of {waiting:,} controllers ends: {ration_us(waiting, ends=200):,.0f} us")
    for pools, each in ((1_111, 10), (11_011, 10)):
        lots, took_s = rebuild_s(pools, each)
        per_lot = took_s / lots * 1e6
        print(f"rebuild {pools:,} pools, {lots:,} lots: {took_s:.2f} s, {per_lot:.1f} us a lot")


if __name__ == "__main__":
    main()
