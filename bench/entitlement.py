"""What pools are entitled to (B8): all, a changed one, and who uses more; 4 kinds, all contended.

    script/bench entitlement                  1,000 and 11,000 pools
    script/bench entitlement --full           and 111,000

Every pool has a reservation, a limit and a share of each kind, every leaf a drawn number of tasks;
the cluster has three quarters of what these need. Measured are, after the capacity changed: every
pool by its path, and the same in plain Python from its definition (needs up, then each division by
its sorted claims), in the same run; who uses more than its entitlement, from the root down; and one
leaf that changes until it knows its entitlement. No shard, journal or network. It must not gate a
test.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import immutables  # noqa: E402

from peloton.actors.resources import UNIT, Resources  # noqa: E402
from peloton.actors.respool.lot.messages import LotShape  # noqa: E402
from peloton.actors.respool.lot.state import Lot  # noqa: E402
from peloton.actors.respool.messages import ROOT, PoolConfig, pool_key  # noqa: E402
from peloton.actors.respool.state import InventorySum, Pool  # noqa: E402
from peloton.actors.respool.tree import Tree  # noqa: E402
from peloton.runtime.vocabulary import Bits, Key  # noqa: E402

SHAPES = {111: (1, 10, 10), 1_000: (10, 9, 10), 11_000: (10, 100, 10), 111_000: (10, 100, 110)}
"""Number of pools, about → children of the root, of each of them, and of each of those."""
KINDS = range(4)


class Forest:
    """A tree in which every leaf uses something."""

    def __init__(self, pools: int) -> None:
        self.chance = random.Random(3)
        self.tree = Tree()
        self.leaves: list[Key] = []
        self.needs: dict[Key, Resources] = {}
        self.capacity(Resources())
        leaves = SHAPES[pools][0] * SHAPES[pools][1] * SHAPES[pools][2]
        above = [ROOT]
        for depth, count in enumerate(SHAPES[pools]):
            below = []
            leaves //= count
            for parent in above:
                below += [self.pool(parent, number, each=leaves) for number in range(count)]
            above = below
            self.leaves = below if depth == len(SHAPES[pools]) - 1 else []
        for leaf in self.leaves:
            self.need(leaf)
        self.total = [sum(each.amounts()[kind] for each in self.needs.values()) for kind in KINDS]

    def amounts(self, most: int) -> Resources:
        """Of four kinds, drawn in millionths."""
        return Resources(*(self.chance.randrange(1, most * UNIT) for _ in KINDS))

    def pool(self, parent: Key, number: int, *, each: int) -> Key:
        """One with so many leaves below."""
        name = f"{parent.partition('/')[2]}-{number}"
        share = tuple(self.chance.choice((0.5, 1.0, 2.0, 3.0)) for _ in KINDS)
        reservation, limit = self.amounts(max(1, each)), self.amounts(40).times(max(1, each))
        config = PoolConfig(name, parent, reservation, limit, share)
        self.tree.put(pool_key(name), old=None, new=Pool(config))
        return pool_key(name)

    def capacity(self, room: Resources) -> None:
        """What the cluster has."""
        sums = immutables.Map({Key("inventory/0"): InventorySum(1, room)})
        config = PoolConfig("root", ROOT, Resources(), Resources())
        self.tree.put(ROOT, old=self.tree.pools.get(ROOT), new=Pool(config, sums))

    def draw_capacity(self) -> None:
        """About three quarters of what is needed."""
        part = self.chance.randrange(70, 80)
        self.capacity(Resources(*(amount * part // 100 for amount in self.total)))

    def need(self, leaf: Key) -> None:
        """A leaf holds another number of tasks than it did."""
        name = Key(f"lot/{leaf.partition('/')[2]}/0/0")
        old = self.tree.lots.get(name)
        shape = old.shape if old is not None else LotShape(leaf, self.amounts(4))
        was = len(old.admitted) if old is not None else 0
        count = self.chance.choice([each for each in (1, 2, 3) if each != was])
        self.needs[leaf] = shape.resources.times(count)
        new = Lot(shape, Key("task/j/0"), 0.0, immutables.Map(), Bits(), Bits.span(0, count))
        self.tree.put(name, old=old, new=new)


def naive(forest: Forest) -> dict[Key, list[float]]:
    """Every entitlement from its definition, in plain Python, in fractions of machine words."""
    tree = forest.tree
    order = [ROOT]
    for pool in order:
        order += [key for _, key in tree.siblings(pool)]
    found: dict[Key, list[float]] = {key: [] for key in order}
    terms = {key: tree.pools[key].config for key in order}
    for kind in KINDS:
        needs: dict[Key, float] = {}
        for pool in reversed(order):
            own = forest.needs[pool].amounts()[kind] if pool in forest.needs else 0
            need = own + sum(needs[key] for _, key in tree.siblings(pool))
            needs[pool] = min(need, tree.limit(pool).amounts()[kind])
        found[ROOT].append(tree.limit(ROOT).amounts()[kind])
        for pool in order:
            children = [key for _, key in tree.siblings(pool)]
            claims = [
                (needs[key], terms[key].reservation.amounts()[kind],
                 tree.limit(key).amounts()[kind], terms[key].share[kind])
                for key in children
            ]  # fmt: skip
            for key, amount in zip(children, _divided(found[pool][kind], claims), strict=True):
                found[key].append(amount)
    return found


def _divided(
    entitled: float, claims: Sequence[tuple[float, float, float, float]]
) -> Iterator[float]:
    reserved = [min(need, reservation) for need, reservation, _, _ in claims]
    weights = [reservation for _, reservation, _, _ in claims]
    if sum(reserved) > entitled:
        yield from _filled(entitled, reserved, weights)
        return
    shares = [share for _, _, _, share in claims]
    beyond = [max(0.0, need - reservation) for need, reservation, _, _ in claims]
    left = entitled - sum(reserved)
    more = _filled(left, beyond, shares)
    each = max(0.0, left - sum(beyond)) / (sum(shares) or 1)
    for had, got, (_, _, limit, share) in zip(reserved, more, claims, strict=True):
        yield max(had + got, min(limit, had + got + share * each))


def _filled(amount: float, wants: list[float], weights: list[float]) -> list[float]:
    got = [0.0] * len(wants)
    weight = sum(weights)
    for at in sorted(range(len(wants)), key=lambda at: wants[at] / weights[at]):
        got[at] = min(wants[at], amount * weights[at] / weight)
        amount, weight = amount - got[at], weight - weights[at]
    return got


def best_ms(act: Callable[[], object], *, before: Callable[[], object], runs: int) -> float:
    """The least of a few runs, the collector at rest."""
    took = []
    gc.collect()
    gc.disable()
    for _ in range(runs):
        before()
        begun = time.perf_counter()
        act()
        took.append(time.perf_counter() - begun)
    gc.enable()
    return min(took) * 1e3


def leaf_us(forest: Forest, count: int) -> float:
    """The median of leaves that change, each until it knows what it is entitled to; the best of
    five turns."""
    medians = []
    for _ in range(5):
        took = []
        for leaf in forest.chance.choices(forest.leaves, k=count):
            begun = time.perf_counter()
            forest.need(leaf)
            forest.tree.entitlement(leaf)
            took.append(time.perf_counter() - begun)
        medians.append(statistics.median(took))
    return min(medians) * 1e6


def overdrawn(tree: Tree) -> list[Key]:
    """The pools that use more than they are entitled to, below the root and below such pools."""
    found = [ROOT]
    for pool in found:
        found += tree.excess(pool)
    return found[1:]


def measure(pools: int, *, runs: int) -> Iterator[str]:
    """All figures of one tree."""
    forest = Forest(pools)
    tree = forest.tree
    forest.draw_capacity()
    tree.entitlement(forest.leaves[0])
    naive_ms = best_ms(lambda: naive(forest), before=forest.draw_capacity, runs=min(runs, 3))
    keys = [*tree.pools]
    paths_ms = best_ms(
        lambda: [*map(tree.entitlement, keys)], before=forest.draw_capacity, runs=min(runs, 3)
    )
    exact = naive(forest)
    off = max(
        abs(one - other)
        for key in keys
        for one, other in zip(tree.entitlement(key).amounts(), exact[key], strict=False)
    )
    over: list[Key] = []
    over_ms = best_ms(lambda: over.extend(overdrawn(tree)), before=forest.draw_capacity, runs=runs)
    yield (
        f"{len(keys):,} pools: all by their paths {paths_ms:.1f} ms, naive {naive_ms:.1f} ms, at "
        f"most {off / UNIT:.6f} apart; the {len(over) // runs:,} that use more {over_ms:.2f} ms"
    )
    yield f"{len(keys):,} pools: one changed leaf {leaf_us(forest, 200):.0f} us"


def run(chosen: argparse.Namespace) -> Iterator[str]:
    """Every tree."""
    for pools in chosen.pools:
        yield from measure(pools, runs=chosen.runs)


def options(args: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    default = [1_000, 11_000]
    add("--pools", type=int, nargs="+", default=default, choices=sorted(SHAPES))
    add("--runs", type=int, default=10)
    add("--full", action="store_true", help="the sizes of the row")
    found = parser.parse_args(args)
    if found.full:
        found.pools = [1_000, 11_000, 111_000]
    return found


if __name__ == "__main__":
    for line in run(options()):
        print(line, flush=True)
