"""Two million tasks (B5): large jobs at once until all of them run.

    script/bench c2m                              20 jobs x 1,000 on 200 hosts
    script/bench c2m --full                       200 jobs x 10,000 on 6,100 hosts
    script/bench c2m --jobs 20 --hosts 610 --size 10000

The cluster is a minicluster, a process of its own, and this process its client; hosts are
simulated, and the tasks stay. Flatness is the rate of the last tenth to start over that of the
first. A run counts only if each task started once, by the change feed; of each twentieth job every
task is listed. It must not gate a test.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.parts.follower import Start  # noqa: E402
from bench.parts.minicluster import Hosts  # noqa: E402
from bench.parts.session import END_S_MAX, Session, calibrated_run, session  # noqa: E402

EVER_S = 1e7
LISTED_EACH = 20


def flatness(starts: Sequence[Start], begun_s: float) -> float:
    """Rate of the last tenth of the tasks over that of the first."""
    ordered = sorted(starts, key=lambda one: one.at_s)
    tasks = sum(one.count for one in ordered)
    seen, passed = 0, {}
    for one in ordered:
        seen += one.count
        for share in (0.1, 0.9):
            if seen >= share * tasks:
                passed.setdefault(share, one.at_s)
    last_s = ordered[-1].at_s - passed[0.9]
    return (passed[0.1] - begun_s) / last_s if last_s > 0 else math.inf


def measure(at: Session, chosen: argparse.Namespace) -> Iterator[str]:
    """All jobs at once."""
    resident, before = at.cluster.resident_bytes(), at.cluster.used()
    begun_s = time.time()
    sent = at.burst(at.client.request(at.pool, chosen.size), chosen.jobs)
    created_s = time.time() - begun_s
    at.wait_started(END_S_MAX * 2)
    used = at.cluster.used().since(before)
    peak, more = at.cluster.peak_bytes(), at.cluster.resident_bytes() - resident
    tally = at.follower.tally
    took_s = max(one.at_s for one in tally.starts) - begun_s
    at.follower.tally.check()
    for number, job in enumerate(sent.due_s):
        if tally.started(job) != chosen.size:
            raise SystemExit(f"job {job}: {tally.started(job)} of {chosen.size} tasks started")
        if number % LISTED_EACH == 0:
            at.client.running(job, chosen.size)
    yield (
        f"{chosen.jobs} jobs x {chosen.size:,} on {chosen.hosts:,} hosts: all RUNNING after "
        f"{took_s:.1f} s, {sent.tasks / took_s:,.0f}/s (created after {created_s:.1f} s); "
        f"flatness {flatness(tally.starts, begun_s):.2f}; {used.each(sent.tasks)}; "
        f"peak {peak / 1e6:,.0f} MB, {more / sent.tasks:,.0f} B more for each task; "
        f"checked: {sent.tasks:,} tasks, each started once"
    )


def run(chosen: argparse.Namespace) -> Iterator[str]:
    """One cluster."""
    with calibrated_run() as made:
        yield made.lines[0]
        hosts = Hosts(chosen.hosts, math.ceil(chosen.jobs * chosen.size / chosen.hosts))
        with session(made.folder / "at", hosts, duration_s=EVER_S) as at:
            yield from measure(at, chosen)
    yield from made.lines[1:]


def options(args: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--jobs", type=int, default=20)
    add("--size", type=int, default=1000, help="tasks of a job")
    add("--hosts", type=int, default=200)
    add("--full", action="store_true", help="the sizes of the row")
    found = parser.parse_args(args)
    if found.full:
        found.jobs, found.size, found.hosts = 200, 10_000, 6100
    return found


if __name__ == "__main__":
    for line in run(options()):
        print(line, flush=True)
