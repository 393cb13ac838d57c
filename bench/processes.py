"""Real processes (B12): arrays of `true`, and one job at a time, beside bare spawns of the same.

    script/bench processes                            small arrays, about a minute
    script/bench processes --full                     5,000 at each size of cluster; 1,000 and 3,000
    script/bench processes --slots 20x64 --hyperqueue ../hq/bin/python

The cluster is a minicluster, a process of its own; this process is its client. Of each array: tasks
a second from the create to the answer that the job has ended, and CPU of the daemon, of the keeper
and of the tasks themselves. Rounds alternate with bare spawns, and ratios are of neighbours in
time. HyperQueue is a peer in the same turns, where a Python is named that has it (from PyPI). A run
counts only if every task started and ended once. It must not gate a test.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.parts.measure import ratio, spread  # noqa: E402
from bench.parts.minicluster import Hosts, Used  # noqa: E402
from bench.parts.session import Session, calibrated_run, session  # noqa: E402
from bench.parts.spawn import PROGRAM, BareSpawner, Spawned  # noqa: E402

END_S_MAX = 900.0


class Ran(NamedTuple):
    """One array."""

    tasks: int
    took_s: float
    used: Used | None  # None: a peer's, which is not looked into

    @property
    def own_s(self) -> float:
        """CPU of the daemon and the keeper for each task, without what the program itself took."""
        assert self.used is not None
        return (self.used.daemon_s + self.used.keeper_s) / self.tasks

    @property
    def all_s(self) -> float:
        """That of the tasks included."""
        assert self.used is not None
        return self.own_s + self.used.children_s / self.tasks


def array(at: Session, tasks: int) -> Ran:
    """One job of so many tasks to its end, checked."""
    request = at.client.request(at.pool, tasks)
    before = at.cluster.used()
    sent = at.create(request)
    (job,) = sent.due_s
    at.client.wait(job, END_S_MAX)
    used = at.cluster.used().since(before)
    at.wait_ended()
    at.check(sent)
    return Ran(tasks, used.at_s, used)


# One worker of as many cores as its argument says; an array for each line, answered with seconds.
PEER = f"""
import sys, time
from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig
with LocalCluster(None, WorkerConfig(cores=int(sys.argv[1]))) as cluster:
    client = cluster.client()
    for line in sys.stdin:
        job = Job()
        for _ in range(int(line)):
            job.program([{PROGRAM!r}])
        begun = time.perf_counter()
        if not client.wait_for_jobs([client.submit(job)]):
            raise SystemExit("a task failed")
        print("took", time.perf_counter() - begun, flush=True)
"""


class HyperQueue:
    """A server and one worker of HyperQueue, the peer, as a process in a folder of its own."""

    def __init__(self, python: str, folder: Path, *, slots: int) -> None:
        folder.mkdir()
        self._errors = (folder / "log").open("w+")
        self._process = subprocess.Popen(
            [str(Path(python).absolute()), "-c", PEER, str(slots)],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def run(self, tasks: int) -> Ran:
        """One array to its end."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(tasks, file=self._process.stdin, flush=True)
        for line in self._process.stdout:  # it greets first
            if line.startswith("took "):
                return Ran(tasks, float(line.split()[1]), None)
        self._errors.seek(0)
        raise SystemExit(f"HyperQueue: {self._errors.read()}")

    def close(self) -> None:
        """End it."""
        self._process.communicate()
        self._errors.close()


def arrays(at: Session, peer: HyperQueue | None, *, tasks: int, rounds: int) -> Iterator[str]:
    """Rounds of one size on one cluster, each beside bare spawns."""
    slots = int(at.cluster.hosts.count * at.cluster.hosts.slots)
    name = f"{tasks:,} x true on {at.cluster.hosts.count} x {at.cluster.hosts.slots:g}"
    pairs: list[tuple[Ran, Spawned]] = []
    peers: list[tuple[Ran, Ran]] = []
    with contextlib.closing(BareSpawner()) as bare:
        for _ in range(rounds):
            spawned = bare.run(min(tasks, 1000), in_flight=min(slots, 16))
            ran = array(at, tasks)
            pairs.append((ran, spawned))
            assert ran.used is not None
            yield (
                f"{name}: {tasks / ran.took_s:,.0f}/s, {ran.used.each(tasks)}; "
                f"bare spawn {1 / spawned.took_s:,.0f}/s, cpu {spawned.cpu_s * 1e3:.2f} ms"
            )
            if peer is not None:
                theirs = peer.run(tasks)
                peers.append((ran, theirs))
                yield f"{name}: HyperQueue {tasks / theirs.took_s:,.0f}/s"
    rates = [(spawned.took_s, ran.took_s / ran.tasks) for ran, spawned in pairs]
    cpu = [(ran.all_s, spawned.cpu_s) for ran, spawned in pairs]
    own = [(ran.own_s, spawned.cpu_s) for ran, spawned in pairs]
    yield f"# {name}: of the bare spawn rate {ratio(rates)}"
    yield f"# {name}: cpu / bare spawn's {ratio(cpu)}; daemon's and keeper's alone {ratio(own)}"
    if peers:
        faster = [(theirs.took_s, ours.took_s) for ours, theirs in peers]
        yield f"# {name}: times as fast as HyperQueue {ratio(faster)}"


def one_at_a_time(at: Session, jobs: int, *, backend: str) -> Iterator[str]:
    """Jobs of one task, each created when the one before has ended, as its client sees it."""
    request = at.client.request(at.pool, 1)
    before, took, created = at.cluster.used(), [], []
    for _ in range(jobs):
        begun = time.perf_counter()
        created.append(at.create(request))
        at.client.wait(next(iter(created[-1].due_s)), END_S_MAX)
        took.append(time.perf_counter() - begun)
    used = at.cluster.used().since(before)
    at.wait_ended()
    for sent in created:
        at.check(sent)
    cpu = used.each(jobs, "job")
    yield f"one job at a time, {backend}: {spread(took)} from Create to ended; {cpu}"


def run(chosen: argparse.Namespace) -> Iterator[str]:
    """All clusters, one after another."""
    with calibrated_run() as made:
        yield made.lines[0]
        if not chosen.hyperqueue:
            yield "# no HyperQueue beside it (--hyperqueue)"
        for number, shape in enumerate(chosen.slots):
            hosts, slots = map(int, shape.split("x"))
            with contextlib.ExitStack() as stack:
                place = session(made.folder / f"{number}", Hosts(hosts, slots), backend="process")
                at, peer = stack.enter_context(place), None
                if chosen.hyperqueue:
                    folder = made.folder / f"hq{number}"
                    peer = HyperQueue(chosen.hyperqueue, folder, slots=hosts * slots)
                    stack.enter_context(contextlib.closing(peer))
                array(at, min(chosen.tasks))  # to warm up
                for tasks in chosen.tasks:
                    yield from arrays(at, peer, tasks=tasks, rounds=chosen.rounds)
                if number == 0:
                    yield from one_at_a_time(at, chosen.jobs, backend="real")
        place = session(made.folder / "simulated", Hosts(1, 2), duration_s=0.0)
        with place as at:
            yield from one_at_a_time(at, chosen.jobs, backend="simulated")
    yield from made.lines[1:]


def options(args: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--slots", nargs="+", default=["1x2", "1x64", "20x64"], help="hosts x tasks at once")
    add("--tasks", type=int, nargs="+", default=[500], help="of an array")
    add("--rounds", type=int, default=2, help="of each array")
    add("--jobs", type=int, default=50, help="one at a time")
    add("--hyperqueue", help="a Python that has HyperQueue, as a peer")
    add("--full", action="store_true", help="the sizes of the issue and of the row")
    found = parser.parse_args(args)
    if found.full:
        found.tasks, found.rounds, found.jobs = [1000, 3000, 5000], 3, 300
    if found.hyperqueue and not shutil.which(found.hyperqueue):
        parser.error(f"--hyperqueue: {found.hyperqueue} is no program")
    return found


if __name__ == "__main__":
    for line in run(options()):
        print(line, flush=True)
