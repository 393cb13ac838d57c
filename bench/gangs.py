"""Gangs on a nearly full cluster: 100 gangs of 100 on 10,000 hosts of which 95 % is used.

    script/bench gangs                    10 gangs of 20 on 500 hosts
    script/bench gangs --full             100 gangs of 100 on 10,000 hosts

Two numbers: what the tree of pools needs to admit all gangs, and what a placer needs to find hosts
for all members of each; each with its ratio to as many single instances of the same shape, in the
same run. No shard, journal or network, so it is the deciding alone. Gangs that found no hosts are
counted: there must be none. It must not gate a test.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import immutables  # noqa: E402

from peloton.actors.resources import UNIT, Resources  # noqa: E402
from peloton.actors.respool.admission import admissions  # noqa: E402
from peloton.actors.respool.lot.messages import GangTerms, LotShape  # noqa: E402
from peloton.actors.respool.lot.state import Lot  # noqa: E402
from peloton.actors.respool.messages import ROOT, PoolConfig, pool_key  # noqa: E402
from peloton.actors.respool.state import InventorySum, Pool  # noqa: E402
from peloton.actors.respool.tree import Tree  # noqa: E402
from peloton.placement.messages import (  # noqa: E402
    GangPart,
    GangPlaced,
    GangWish,
    HostDeltas,
    HostSummary,
    Placed,
    Shape,
    Wish,
)
from peloton.placement.placer import Placer  # noqa: E402
from peloton.runtime.vocabulary import Bits, Key, Message  # noqa: E402

ONE = Resources(UNIT, UNIT)
SLOTS = 10
USED = 0.95
INVENTORY = Key("inventory/0")
POOL = pool_key("p")


def hosts(count: int) -> HostDeltas:
    """Hosts with 10 slots, of which a drawn 95 % are used."""
    chance = random.Random(7)
    room = ONE.times(SLOTS)
    found = []
    for number in range(count):
        used = sum(chance.random() < USED for _ in range(SLOTS))
        found.append(HostSummary(Key(f"host/{number}"), 1, room, ONE.times(SLOTS - used)))
    return HostDeltas(INVENTORY, 0, tuple(found), snapshot=True)


def placed(chosen: argparse.Namespace, *, gangs: bool) -> tuple[float, int]:
    """Seconds until all were answered, and how many members have hosts."""
    placer = Placer(Key("placer/1"), inventories=(INVENTORY,))
    placer.receive([(INVENTORY, hosts(chosen.hosts))], 0.0)
    shape, members = Shape(ONE), Bits.span(0, chosen.size)
    begun, got = time.perf_counter(), 0
    for number in range(chosen.gangs):
        slice_ = Key(f"slice/{number}/0")
        wish: Message = Wish(slice_, 1, members, shape, keeps=True)
        if gangs:
            wish = GangWish(slice_, 1, (GangPart(members, shape),))
        for send in placer.receive([(slice_, wish)], 1.0):
            said = send.message
            if isinstance(said, GangPlaced):
                got += sum(len(part.members) for part in said.parts)
            elif isinstance(said, Placed):
                got += len(said.members)
    return time.perf_counter() - begun, got


def admitted(chosen: argparse.Namespace, *, gangs: bool) -> tuple[float, int]:
    """Seconds until all were admitted, and how many members are."""
    tree = Tree()
    room = ONE.times(chosen.gangs * chosen.size)
    sums = immutables.Map({INVENTORY: InventorySum(1, room)})
    tree.put(ROOT, old=None, new=Pool(PoolConfig("root", ROOT, Resources(), Resources()), sums))
    tree.put(POOL, old=None, new=Pool(PoolConfig("p", ROOT, Resources(), room)))
    members = Bits.span(0, chosen.size)
    terms = GangTerms(0, 1, 1, members) if gangs else None
    begun = time.perf_counter()
    for number in range(chosen.gangs):
        shape = LotShape(POOL, ONE, gang=gangs)
        lot = Lot(shape, Key(f"task/{number}/0"), float(number), immutables.Map({1: members}))
        came = Lot(shape, lot.crowd, lot.arrived, lot.tickets, members, gang=terms, joined=members)
        tree.put(Key(f"lot/{number}/0/0"), old=None, new=came)
    got = sum(len(batch.members) for batch in admissions(tree))
    return time.perf_counter() - begun, got


def compared(
    name: str, measure: Callable[..., tuple[float, int]], chosen: argparse.Namespace
) -> str:
    """One line: gangs, singles, and the ratio; the better of a few runs each."""
    wanted = chosen.gangs * chosen.size
    alike = [[measure(chosen, gangs=gangs) for _ in range(chosen.runs)] for gangs in (True, False)]
    gangs, singles = (min(each) for each in alike)
    return (
        f"{name}: {chosen.gangs} gangs of {chosen.size}: {gangs[0] * 1000:.1f} ms "
        f"({gangs[1]:,} of {wanted:,} members); as singles {singles[0] * 1000:.1f} ms "
        f"({singles[1]:,}); ratio {gangs[0] / singles[0]:.2f}"
    )


def run(chosen: argparse.Namespace) -> Iterator[str]:
    """Both measures."""
    yield f"# {chosen.hosts:,} hosts of {SLOTS} slots, {USED:.0%} used"
    yield compared("placing", placed, chosen)
    yield compared("admission", admitted, chosen)


def options(args: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--hosts", type=int, default=500)
    add("--gangs", type=int, default=10)
    add("--size", type=int, default=20)
    add("--runs", type=int, default=3)
    add("--full", action="store_true", help="the sizes of the row")
    found = parser.parse_args(args)
    if found.full:
        found.hosts, found.gangs, found.size = 10_000, 100, 100
    return found


if __name__ == "__main__":
    for line in run(options()):
        print(line, flush=True)
