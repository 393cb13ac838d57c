"""Many tasks as few jobs or as many (B10): 10,000 tasks as 1, 20, 500 and 10,000 jobs.

    script/bench gang                     600 tasks as 1, 2, 30 and 600 jobs
    script/bench gang --full              10,000 tasks
    script/bench gang --gangs             each job of 2 to 1,000 tasks also as a gang

On a cluster that fits all, the time until all run; on one that fits three in five, the time until
it is full, how many jobs run in part, and after it ends of its own accord, that all came to their
turn. Of gangs none may run in part; each is followed by the ratio to the same jobs without. The
cluster is a minicluster, a process of its own, and this process its client; hosts are simulated. A
run counts only if each task started and ended once. It must not gate a test.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.parts.client import TaskSize  # noqa: E402
from bench.parts.minicluster import Hosts  # noqa: E402
from bench.parts.session import Session, calibrated_run, session  # noqa: E402

SLOTS = 10
SHARES = {"fits all": 1.0, "fits 60 %": 0.6}
START_S_MAX = 600.0
GANG_MAX = 1000


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


def run(chosen: argparse.Namespace) -> Iterator[str]:
    """Every shape on every cluster."""
    with calibrated_run() as made:
        yield made.lines[0]
        for number, (what, share) in enumerate(SHARES.items()):
            hosts = Hosts(max(1, int(chosen.tasks * share / SLOTS)), SLOTS)
            with session(made.folder / f"{number}", hosts) as at:
                yield f"# a cluster that {what}: {hosts.count:,} hosts x {SLOTS}"
                for jobs in chosen.jobs:
                    yield from measure(at, jobs, size=chosen.tasks // jobs, chosen=chosen)
    yield from made.lines[1:]


def options(args: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--tasks", type=int, default=600)
    add("--jobs", type=int, nargs="+", default=[1, 2, 30, 600], help="into which they are divided")
    add("--duration-s", type=float, default=2.0, help="of a task")
    add("--gangs", action="store_true", help="measure each job of several tasks as a gang, too")
    add("--full", action="store_true", help="the sizes of the row")
    found = parser.parse_args(args)
    if found.full:
        found.tasks, found.jobs, found.duration_s = 10_000, [1, 20, 500, 10_000], 60.0
    return found


if __name__ == "__main__":
    for line in run(options()):
        print(line, flush=True)
