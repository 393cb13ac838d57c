"""From create to RUNNING (B4): a burst, then a steady load at half of what the burst gave.

    script/bench steady                                jobs of 100, 10 and 1 on 2,000 hosts
    script/bench steady --sizes 1 --for-s 30
    script/bench steady --full                         50,000 hosts, a minute of each steady load

The cluster is a minicluster, a process of its own, and this process its client; hosts are
simulated, and their CPU is stated apart. The steady load is open: a job is due at its time whether
or not earlier ones are through, and latencies count from then. A run counts only if every task
started and ended once, by the change feed and by lists. It must not gate a test.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.parts.client import TaskSize  # noqa: E402
from bench.parts.measure import quantile  # noqa: E402
from bench.parts.minicluster import Hosts  # noqa: E402
from bench.parts.session import Sent, Session, calibrated_run, session  # noqa: E402

LOAD = 0.5
"""Of the steady load, as a share of the burst's rate."""
SLOTS = 10


def loads(at: Session, size: int, chosen: argparse.Namespace) -> Iterator[str]:
    """Of jobs of one size: a burst, and the steady load."""
    request = at.client.request(at.pool, size, size=TaskSize(duration_s=chosen.duration_s))
    jobs = max(1, chosen.tasks // size) if size > 1 else chosen.singles
    before = at.cluster.used()
    sent = at.burst(request, jobs)
    at.wait_ended()
    used = at.cluster.used().since(before)
    burst_p50 = quantile(at.start_s(sent), 0.5)
    name = f"burst, {jobs} jobs of {size}"
    yield f"{name}: {at.line(sent)}; {used.each(sent.tasks)}; {at.check(sent)}"
    jobs_per_s = LOAD * at.started_per_s(sent) / size
    before = at.cluster.used()
    steady = at.steady(request, jobs_per_s, for_s=chosen.for_s)
    at.wait_ended()
    used = at.cluster.used().since(before)
    yield (
        f"steady, {jobs_per_s:,.1f} jobs of {size} a second for {chosen.for_s:g} s: "
        f"{at.line(steady)}; {used.each(steady.tasks)}; {at.check(steady)}"
    )
    yield f"# jobs of {size}: {_ratios(at, steady, burst_p50)}"


def _ratios(at: Session, steady: Sent, burst_p50: float) -> str:
    took = at.start_s(steady)
    p50, p99 = quantile(took, 0.5), quantile(took, 0.99)
    return f"steady p99 / p50 {p99 / p50:.1f}, burst p50 / steady p50 {burst_p50 / p50:.1f}"


def run(chosen: argparse.Namespace) -> Iterator[str]:
    """All sizes of jobs on one cluster."""
    with calibrated_run() as made:
        yield made.lines[0]
        with session(made.folder / "at", Hosts(chosen.hosts, SLOTS)) as at:
            yield f"# {chosen.hosts:,} hosts, {at.cluster.resident_bytes() / 1e6:,.0f} MB"
            at.burst(at.client.request(at.pool, 1, size=TaskSize(duration_s=0.1)), 20)
            at.wait_ended()
            for size in chosen.sizes:
                yield from loads(at, size, chosen)
    yield from made.lines[1:]


def options(args: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--sizes", type=int, nargs="+", default=[100, 10, 1], help="instances of a job")
    add("--tasks", type=int, default=5000, help="of a burst")
    add("--singles", type=int, default=500, help="of a burst of jobs of one task")
    add("--hosts", type=int, default=2000)
    add("--duration-s", type=float, default=0.5, help="of a task")
    add("--for-s", type=float, default=6.0, help="of the steady load")
    add("--full", action="store_true", help="the sizes of the row")
    found = parser.parse_args(args)
    if found.full:
        found.hosts, found.for_s, found.tasks, found.singles = 50_000, 60.0, 50_000, 2000
    return found


if __name__ == "__main__":
    for line in run(options()):
        print(line, flush=True)
