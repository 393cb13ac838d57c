"""A cluster that mostly stands (B6): memory of hosts and running tasks, CPU of rest, and of churn.

    script/bench standing                        2,000 hosts and 20,000 tasks
    script/bench standing --full                 50,000 hosts and 1,000,000 tasks

The cluster is a minicluster, a process of its own, and this process its client; hosts are
simulated, and their memory is part of the daemon's. Churn: each minute one in a thousand tasks
comes and ends again, as jobs of ten. The worst stall is what a client sees of it: the slowest of
Gets that come every few milliseconds. Simulated hosts send no heartbeats. A run counts only if all
tasks that stay still run, and those of the churn ended once. It must not gate a test.
"""

from __future__ import annotations

import argparse
import math
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.parts.client import TaskSize  # noqa: E402
from bench.parts.measure import spread  # noqa: E402
from bench.parts.minicluster import Hosts, Minicluster  # noqa: E402
from bench.parts.session import END_S_MAX, Session, calibrated_run, session  # noqa: E402

SIZE, CHURN_SIZE = 1000, 10
CHURN_A_MINUTE = 0.001
EVER_S = 1e7
PROBE_S = 0.005
SETTLE_S = 3.0
LISTED_EACH = 20


class Prober:
    """Gets of one job all the time; how long each took."""

    def __init__(self, at: Session, job: str) -> None:
        self.took_s: list[float] = []
        self._at, self._job = at, job
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._probe)
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self._ended.set()
        self._thread.join()

    def _probe(self) -> None:
        while not self._ended.wait(PROBE_S):
            begun = time.perf_counter()
            self._at.client.state(self._job)
            self.took_s.append(time.perf_counter() - begun)


def rest(at: Session, what: str, *, for_s: float) -> str:
    """CPU while nothing is asked."""
    time.sleep(min(SETTLE_S, for_s))
    before = at.cluster.used()
    time.sleep(for_s)
    used = at.cluster.used().since(before)
    return f"at rest with {what}: {used.daemon_s / used.at_s:.1%} of a core"


def churn(at: Session, tasks: int, *, for_s: float) -> Iterator[str]:
    """Tasks that come and end beside those that stay, and a prober."""
    per_s = max(tasks * CHURN_A_MINUTE / 60 / CHURN_SIZE, 1 / for_s)
    request = at.client.request(at.pool, CHURN_SIZE, size=TaskSize(duration_s=1.0))
    before, job = at.cluster.used(), at.follower.tally.starts[0].job
    prober = Prober(at, job)
    try:
        sent = at.steady(request, per_s, for_s=for_s)
        time.sleep(max(0.0, for_s - (time.perf_counter() - before.at_s)))
        used = at.cluster.used().since(before)
    finally:
        prober.close()
    # Those that stay have started and not ended.
    at.follower.wait_ended(sent.tasks, END_S_MAX)
    worst_ms = max(prober.took_s) * 1e3
    yield (
        f"churn of {per_s * CHURN_SIZE * 60:,.0f} tasks a minute: {used.daemon_s / used.at_s:.1%} "
        f"of a core, {len(prober.took_s) / used.at_s:,.0f} Gets/s included; create to RUNNING "
        f"{spread(at.start_s(sent))}; Get {spread(prober.took_s)}, worst {worst_ms:.0f} ms; "
        f"{at.check(sent)}"
    )


def measure(at: Session, chosen: argparse.Namespace, *, empty_bytes: int) -> Iterator[str]:
    """Hosts, tasks, rest, churn."""
    hosts_bytes = at.cluster.resident_bytes()
    per_host = (hosts_bytes - empty_bytes) / chosen.hosts
    yield f"{chosen.hosts:,} hosts: {hosts_bytes / 1e6:,.0f} MB, {per_host:,.0f} B each"
    yield rest(at, "hosts alone", for_s=chosen.idle_s)
    hosts_bytes = at.cluster.resident_bytes()
    size = min(SIZE, chosen.tasks)
    request = at.client.request(at.pool, size)
    stay = at.burst(request, chosen.tasks // size)
    at.wait_started()
    yield rest(at, f"{stay.tasks:,} running tasks", for_s=chosen.idle_s)
    bytes_now = at.cluster.resident_bytes()
    per_task = (bytes_now - hosts_bytes) / stay.tasks
    yield f"{stay.tasks:,} running tasks: {bytes_now / 1e6:,.0f} MB, {per_task:,.0f} B each"
    yield from churn(at, stay.tasks, for_s=chosen.for_s)
    for number, job in enumerate(stay.due_s):
        if at.follower.tally.ended(job):
            raise SystemExit(f"job {job}: tasks that were to stay have ended")
        if number % LISTED_EACH == 0:
            at.client.running(job, size)
    yield f"checked: {stay.tasks:,} tasks still run"


def run(chosen: argparse.Namespace) -> Iterator[str]:
    """One cluster, beside an empty one."""
    with calibrated_run() as made:
        yield made.lines[0]
        (made.folder / "empty").mkdir()
        empty = Minicluster(made.folder / "empty", Hosts(1, 1))
        empty_bytes = empty.resident_bytes()
        empty.close()
        yield f"a cluster of one host: {empty_bytes / 1e6:,.0f} MB"
        hosts = Hosts(chosen.hosts, 1 + math.ceil(chosen.tasks / chosen.hosts))
        with session(made.folder / "at", hosts, duration_s=EVER_S) as at:
            yield from measure(at, chosen, empty_bytes=empty_bytes)
    yield from made.lines[1:]


def options(args: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--hosts", type=int, default=2000)
    add("--tasks", type=int, default=20_000, help="that run all the time")
    add("--idle-s", type=float, default=5.0, help="of each rest")
    add("--for-s", type=float, default=10.0, help="of the churn")
    add("--full", action="store_true", help="the sizes of the row")
    found = parser.parse_args(args)
    if found.full:
        found.hosts, found.tasks, found.for_s = 50_000, 1_000_000, 60.0
    return found


if __name__ == "__main__":
    for line in run(options()):
        print(line, flush=True)
