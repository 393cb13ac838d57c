"""The pool tree as clients meet it (B8): pools made, and one limit changed until a task runs by it.

    script/bench limits                        11 and 111 pools, all leaves busy
    script/bench limits --full                 11, 1,111 and 11,011 pools

Every leaf has room for one task and a job of two, so that a task waits for its limit in each. Then
limits of single leaves are raised, and the time counts from the call until the task that waited
runs, by the change feed. A run counts only if just those tasks came to run. The last lines are
ratios of the largest tree to the smallest, near one where the cost of a change does not grow with
the tree. No pool reserves anything, so that limits alone bind. What the deciding thread alone needs
is measured by `bench/pools.py`. It must not gate a test.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.parts.client import CALL_S_MAX  # noqa: E402
from bench.parts.measure import quantile, spread  # noqa: E402
from bench.parts.minicluster import Hosts  # noqa: E402
from bench.parts.session import THREADS, Session, calibrated_run, session  # noqa: E402
from bench.pools import SHAPES as LARGE_SHAPES  # noqa: E402
from peloton.api.v0 import peloton_pb2  # noqa: E402
from peloton.api.v0.respool import respool_pb2  # noqa: E402

SHAPES = {**LARGE_SHAPES, 111: (1, 9, 11)}
"""Number of pools → children of the root, of each of them, and of each of those."""
HOSTS = 20
EVER_S = 1e6
START_S_MAX = 120.0


class Leaf(NamedTuple):
    """A pool that has jobs."""

    pool: peloton_pb2.ResourcePoolID
    name: str
    parent: str


class Found(NamedTuple):
    """Figures of one tree, in seconds."""

    create_s: list[float]
    run_s: list[float]  # from the call that raised a limit until the task ran
    change_cpu_s: float


def limits(at: Session, cpu: float | None = None) -> dict[str, float]:
    """Of a pool, of all kinds; only that of cpus binds, if any."""
    hosts = at.cluster.hosts
    whole = {"cpu": hosts.slots, "memory": hosts.memory_mb, "disk": hosts.disk_mb, "gpu": 0.0}
    found = {kind: amount * hosts.count for kind, amount in whole.items()}
    return found if cpu is None else found | {"cpu": cpu}


def plant(at: Session, shape: tuple[int, ...]) -> tuple[list[Leaf], list[float]]:
    """A tree of this shape, level by level: its leaves, and how long each pool took."""
    above, took = [Leaf(at.pool, "root", "")], []
    above[0].pool.value = "root"
    for level, count in enumerate(shape):
        last = level == len(shape) - 1
        wanted = [
            (parent.pool.value, f"{parent.name}-{number}")
            for parent in above
            for number in range(count)
        ]

        def make(one: tuple[str, str], last: bool = last) -> Leaf:
            begun = time.perf_counter()
            made = at.client.pool(one[1], limits(at, 1.0 if last else None), parent=one[0])
            took.append(time.perf_counter() - begun)
            if not made.value:
                raise SystemExit(f"pool {one[1]} was refused")
            return Leaf(made, one[1], one[0])

        with ThreadPoolExecutor(THREADS) as threads:
            above = list(threads.map(make, wanted))
    return above, took


def raise_limit(at: Session, leaf: Leaf) -> None:
    """Room for a second task."""
    config = respool_pb2.ResourcePoolConfig(name=leaf.name)
    config.parent.value = leaf.parent
    for kind, limit in limits(at, 2.0).items():
        config.resources.add(kind=kind, reservation=0, limit=limit, share=1)
    request = respool_pb2.UpdateRequest(id=leaf.pool, config=config)
    answer = at.client.pools.UpdateResourcePool(request, timeout=CALL_S_MAX)
    if answer.HasField("error"):
        raise SystemExit(f"pool {leaf.name}: {answer.error}")


def measure(at: Session, pools: int, *, changes: int) -> Iterator[str | Found]:
    """Lines, and the figures at the end."""
    before = at.cluster.used()
    leaves, created = plant(at, SHAPES[pools])
    used = at.cluster.used().since(before)
    yield f"{pools:,} pools: create {spread(created)}, {used.each(len(created), 'pool')}"
    busy: dict[str, Leaf] = {}
    with ThreadPoolExecutor(THREADS) as threads:
        requests = [at.client.request(leaf.pool, 2) for leaf in leaves]
        jobs = list(threads.map(at.client.create, requests))
        busy.update(zip(jobs, leaves, strict=True))
    at.follower.wait_started(len(jobs), START_S_MAX)
    before, took = at.cluster.used(), []
    for number, job in enumerate(jobs[:changes], 1):
        begun_s = time.time()
        raise_limit(at, busy[job])
        at.follower.wait_started(len(jobs) + number, START_S_MAX)
        took.append(at.follower.tally.starts[-1].at_s - begun_s)
    used = at.cluster.used().since(before)
    wrong = [
        job
        for number, job in enumerate(jobs)
        if at.follower.tally.started(job) != (2 if number < changes else 1)
    ]
    at.follower.tally.check()
    if wrong:
        raise SystemExit(f"{len(wrong)} jobs with another number of running tasks than their limit")
    yield (
        f"{pools:,} pools, each leaf with a task that waits: limit raised to RUNNING "
        f"{spread(took)}, {used.each(len(took), 'change')}; checked: {len(jobs)} leaves"
    )
    yield Found(created, took, used.daemon_s / len(took))


def run(chosen: argparse.Namespace) -> Iterator[str]:
    """Each tree on a cluster of its own."""
    trees: list[Found] = []
    with calibrated_run() as made:
        yield made.lines[0]
        for pools in chosen.pools:
            hosts = Hosts(HOSTS, 1.0 + pools // 4)
            with session(made.folder / f"{pools}", hosts, duration_s=EVER_S) as at:
                for found in measure(at, pools, changes=chosen.changes):
                    if isinstance(found, Found):
                        trees.append(found)
                    else:
                        yield found
        small, large = trees[0], trees[-1]
        creates, changes = (
            quantile(getattr(large, name), 0.5) / quantile(getattr(small, name), 0.5)
            for name in ("create_s", "run_s")
        )
        yield (
            f"# {chosen.pools[-1]:,} / {chosen.pools[0]:,} pools: create p50 {creates:.2f}, "
            f"limit raised to RUNNING p50 {changes:.2f}, "
            f"cpu a change {large.change_cpu_s / max(small.change_cpu_s, 1e-4):.2f}"
        )
    yield from made.lines[1:]


def options(args: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--pools", type=int, nargs="+", default=[11, 111], choices=sorted(SHAPES))
    add("--changes", type=int, default=8, help="limits that are raised, one after another")
    add("--full", action="store_true", help="the sizes of the row, but for the largest")
    found = parser.parse_args(args)
    if found.full:
        found.pools = [11, 1_111, 11_011]
    return found


if __name__ == "__main__":
    for line in run(options()):
        print(line, flush=True)
