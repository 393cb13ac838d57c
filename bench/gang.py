"""Gangs on a nearly full cluster: 100 gangs of 100 on 10,000 hosts of which 95 % is used.

    script/bench gang                     10 gangs of 20 on 500 hosts
    script/bench gang --full              100 gangs of 100 on 10,000 hosts
    script/bench gang --shapes            600 tasks as 1, 2, 30 and 600 jobs, by a daemon
    script/bench gang --shapes --gangs    each job of 2 to 1,000 tasks also as a gang
    script/bench gang --shapes --full     10,000 tasks as 1, 20, 500 and 10,000 jobs

The deciding alone, without shards, journal and network, is two numbers: what the tree of pools
needs to admit all gangs, and what a placer needs to find hosts for all members of each; each with
its ratio to as many single instances of the same shape, in the same run. Members without hosts are
counted.

`--shapes` (B10) asks a minicluster, a process of its own, of simulated hosts. On a cluster that
fits all, it is the time until all run; on one that fits three in five, the time until it is full,
how many jobs run in part, and after it ends of its own accord, that all came to their turn. Of
gangs none may run in part; each is followed by the ratio to the same jobs without. A run counts
only if each task started and ended once. It must not gate a test.
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

from bench.parts.client import TaskSize  # noqa: E402
from bench.parts.minicluster import Hosts  # noqa: E402
from bench.parts.session import Session, calibrated_run, session  # noqa: E402
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
SHARES = {"fits all": 1.0, "fits 60 %": 0.6}
START_S_MAX = 600.0
GANG_MAX = 1000


# ---- the deciding alone ----


def full_hosts(count: int) -> HostDeltas:
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
    placer.receive([(INVENTORY, full_hosts(chosen.hosts))], 0.0)
    shape, members = Shape(ONE), Bits.span(0, chosen.size)
    begun, got = time.perf_counter(), 0
    for number in range(chosen.count):
        slice_ = Key(f"slice/{number}/0")
        wish: Message = Wish(slice_, 1, members, shape)
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
    room = ONE.times(chosen.count * chosen.size)
    sums = immutables.Map({INVENTORY: InventorySum(1, room)})
    tree.put(ROOT, old=None, new=Pool(PoolConfig("root", ROOT, Resources(), Resources()), sums))
    tree.put(POOL, old=None, new=Pool(PoolConfig("p", ROOT, Resources(), room)))
    members = Bits.span(0, chosen.size)
    terms = GangTerms(0, 1, 1, members) if gangs else None
    begun = time.perf_counter()
    for number in range(chosen.count):
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
    wanted = chosen.count * chosen.size
    alike = [[measure(chosen, gangs=gangs) for _ in range(chosen.runs)] for gangs in (True, False)]
    gangs, singles = (min(each) for each in alike)
    return (
        f"{name}: {chosen.count} gangs of {chosen.size}: {gangs[0] * 1000:.1f} ms "
        f"({gangs[1]:,} of {wanted:,} members); as singles {singles[0] * 1000:.1f} ms "
        f"({singles[1]:,}); ratio {gangs[0] / singles[0]:.2f}"
    )


# ---- jobs of many sizes, by a daemon ----


def measure(at: Session, jobs: int, *, size: int, chosen: argparse.Namespace) -> Iterator[str]:
    """One shape on one cluster, and the same as gangs."""
    alone_s, line = _measured(at, jobs, size=size, chosen=chosen, gangs=False)
    yield line
    room = int(at.cluster.hosts.count * SLOTS)
    if chosen.gangs and 1 < size <= min(GANG_MAX, room):
        gangs_s, line = _measured(at, jobs, size=size, chosen=chosen, gangs=True)
        yield f"as gangs: {line}; ratio {gangs_s / alone_s:.2f}"


def _measured(
    at: Session, jobs: int, *, size: int, chosen: argparse.Namespace, gangs: bool
) -> tuple[float, str]:
    room = int(at.cluster.hosts.count * SLOTS)
    request = at.client.request(at.pool, size, size=TaskSize(duration_s=chosen.duration_s))
    if gangs:
        request.config.sla.minimumRunningInstances = size
    begun = len(at.follower.tally.starts)
    before = at.cluster.used()
    sent = at.burst(request, jobs)
    at.wait_ended(START_S_MAX)
    used = at.cluster.used().since(before)
    begun_s, room = min(sent.due_s.values()), min(room, sent.tasks)
    starts = sorted(at.follower.tally.starts[begun:], key=lambda one: one.at_s)
    running: dict[str, int] = {}
    full_s, placed = 0.0, 0
    for one in starts:
        if placed >= room:
            break
        placed += one.count
        running[one.job] = running.get(one.job, 0) + one.count
        full_s = one.at_s - begun_s
    partial = sum(count < size for count in running.values())
    late = "" if full_s < chosen.duration_s else " (the first had ended by then)"
    return full_s, (
        f"{jobs:,} jobs x {size:,}, room for {room:,}: full after {full_s:.2f} s{late}, "
        f"{room / full_s:,.0f} tasks/s; {partial} jobs run in part; all ended after "
        f"{at.follower.tally.last_end_s - begun_s:.1f} s; {used.each(sent.tasks)}; {at.check(sent)}"
    )


def decided(chosen: argparse.Namespace) -> Iterator[str]:
    """Both measures of the deciding alone."""
    yield f"# {chosen.hosts:,} hosts of {SLOTS} slots, {USED:.0%} used"
    yield compared("placing", placed, chosen)
    yield compared("admission", admitted, chosen)


def shapes(chosen: argparse.Namespace) -> Iterator[str]:
    """Every shape of jobs on every cluster."""
    with calibrated_run() as made:
        yield made.lines[0]
        for number, (what, share) in enumerate(SHARES.items()):
            hosts = Hosts(max(1, int(chosen.tasks * share / SLOTS)), SLOTS)
            with session(made.folder / f"{number}", hosts) as at:
                yield f"# a cluster that {what}: {hosts.count:,} hosts x {SLOTS}"
                for jobs in chosen.jobs:
                    yield from measure(at, jobs, size=chosen.tasks // jobs, chosen=chosen)
    yield from made.lines[1:]


def run(chosen: argparse.Namespace) -> Iterator[str]:
    """What was chosen."""
    yield from shapes(chosen) if chosen.shapes else decided(chosen)


def options(args: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--hosts", type=int, default=500)
    add("--count", type=int, default=10, help="of gangs")
    add("--size", type=int, default=20, help="of a gang")
    add("--runs", type=int, default=3)
    add("--shapes", action="store_true", help="jobs of many sizes, by a daemon")
    add("--tasks", type=int, default=600)
    add("--jobs", type=int, nargs="+", default=[1, 2, 30, 600], help="into which they are divided")
    add("--duration-s", type=float, default=2.0, help="of a task")
    add("--gangs", action="store_true", help="measure each job of several tasks as a gang, too")
    add("--full", action="store_true", help="the sizes of the row")
    found = parser.parse_args(args)
    if found.full:
        found.hosts, found.count, found.size = 10_000, 100, 100
        found.tasks, found.jobs, found.duration_s = 10_000, [1, 20, 500, 10_000], 60.0
    return found


if __name__ == "__main__":
    for line in run(options()):
        print(line, flush=True)
