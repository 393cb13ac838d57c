"""What it costs to be many: the same load on one daemon and on two, on real servers.

    script/bench fleet                         three clusters by turns, twice: about five minutes
    script/bench fleet --pairs 1 --singles 200 --jobs 4
    script/bench fleet --shapes sqlite cassandrax2 --shards jobmgr=16,resmgr=1,hostmgr=8

Daemons are processes as `peloton daemon` starts them, runs are simulated. One daemon on SQLite is
the anchor; one and two on Cassandra and ZooKeeper have the same number of shards. CPU is of every
process, servers and the client that makes the load included, for on few cores they all share. A
run counts only if each task succeeded. It must not gate a test, and what it
prints can be compared within one run only.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.parts import servers  # noqa: E402
from bench.parts.daemons import (  # noqa: E402
    Cluster,
    Daemon,
    Shape,
    Sizes,
    Used,
    parse_shards,
    shapes_of,
    until,
)
from bench.parts.measure import machine, quantile, ratio, spread  # noqa: E402
from peloton.actors.job.messages import job_key  # noqa: E402
from peloton.api.v0 import peloton_pb2  # noqa: E402
from peloton.api.v0.job import job_pb2  # noqa: E402
from peloton.api.v0.task import task_pb2  # noqa: E402
from peloton.backends.simulated import DURATION_VARIABLE  # noqa: E402
from peloton.settings.daemon import FLEET_SHARDS  # noqa: E402

CALL_S_MAX = 30.0
END_S_MAX = 300.0
LOAD_THREADS = 8
POLL_S = 1.0
WARM_UP = 100
SHARDS = ",".join(f"{group}={count}" for group, count in FLEET_SHARDS.items())
QUICK_S = 0.2
"""How long the runs of single-task jobs last."""
EVER = task_pb2.InstanceRange(**{"from": 0, "to": 2**31 - 1})

Figures = dict[str, float]


class Ran(NamedTuple):
    """What a load came to."""

    used: Used
    starts: int
    again: int  # tasks that a host refused once, so that they started as a later run
    start_s: list[float]  # from the first create of the load to each start
    starts_per_s: float
    frames: int
    resident_bytes: int  # more than before, with all tasks running; 0: not measured
    of: Counter[str]  # tasks by the daemon that owns them


class Load:
    """The client: creates at all daemons by turns, waits, and reads what became of it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._turns = itertools.cycle(cluster.daemons)
        self._tasks = 0

    def run(self, jobs: int, size: int, *, duration_s: float, memory_too: bool = False) -> Ran:
        """So many jobs to their end; `memory_too`: measured while all of it runs."""
        cluster, memory = self._cluster, 0
        frames = cluster.frames()
        resident, before = cluster.resident_bytes(), cluster.used()
        begun_s = time.time()
        with ThreadPoolExecutor(LOAD_THREADS) as pool:
            some = list(itertools.islice(self._turns, jobs))
            ids = list(pool.map(lambda daemon: self.create(daemon, size, duration_s), some))
        if memory_too:
            self._wait(("RUNNING", "SUCCEEDED"), self._tasks + jobs * size)
            memory = cluster.resident_bytes() - resident
            time.sleep(duration_s)
        self._tasks += jobs * size
        self._wait(("SUCCEEDED",), self._tasks)
        used = cluster.used().since(before)
        starts = [found for job_id in ids for found in self._starts(job_id)]
        last_s = max(at for at, _ in starts)
        of: Counter[str] = Counter()
        for job_id in ids:
            of[cluster.owner(job_key(job_id))] += size
        took = [at - begun_s for at, _ in starts]
        frames = cluster.frames() - frames
        again = sum(not run.endswith("-1") for _, run in starts)
        per_s = len(starts) / (last_s - begun_s)
        return Ran(used, len(starts), again, took, per_s, frames, memory, of)

    def create(self, daemon: Daemon, size: int, duration_s: float) -> str:
        """One job; its id."""
        request = job_pb2.CreateRequest(config=self._config(size, duration_s))
        answer = daemon.jobs.Create(request, timeout=CALL_S_MAX)
        if answer.HasField("error"):
            raise SystemExit(f"{daemon.name}: {answer.error}")
        return str(answer.jobId.value)

    def latencies(self, count: int) -> dict[str, list[float]]:
        """Creates and Gets, each sent to the job's owner or to another daemon; seconds."""
        found: dict[str, list[float]] = defaultdict(list)
        ids = []
        for _ in range(count):
            daemon = next(self._turns)
            begun = time.perf_counter()
            ids.append(self.create(daemon, 1, QUICK_S))
            took_s = time.perf_counter() - begun
            found[f"Create {self._relation(daemon, ids[-1])}"].append(took_s)
        self._tasks += count
        self._wait(("SUCCEEDED",), self._tasks)
        for job_id in ids:
            for daemon in self._cluster.daemons:
                request = job_pb2.GetRequest(id=peloton_pb2.JobID(value=job_id))
                begun = time.perf_counter()
                answer = daemon.jobs.Get(request, timeout=CALL_S_MAX)
                found[f"Get {self._relation(daemon, job_id)}"].append(time.perf_counter() - begun)
                if answer.jobInfo.runtime.state != job_pb2.SUCCEEDED:
                    raise SystemExit(f"job {job_id}: {answer}")
        return found

    def _relation(self, daemon: Daemon, job_id: str) -> str:
        return "owner" if self._cluster.owner(job_key(job_id)) == daemon.name else "other"

    def _config(self, size: int, duration_s: float) -> job_pb2.JobConfig:
        config = job_pb2.JobConfig(name="bench", instanceCount=size, respoolID=self._cluster.pool)
        task = config.defaultConfig
        task.name = "bench"
        task.resource.cpuLimit, task.resource.memLimitMb = 1.0, 100.0
        task.command.shell, task.command.value = True, "true"
        task.command.environment.variables.add(name=DURATION_VARIABLE, value=str(duration_s))
        return config

    def _wait(self, states: Sequence[str], count: int) -> None:
        """Until so many tasks are there. Read seldom: a listing queries every shard."""

        def there() -> bool:
            found = self._cluster.daemons[0].instances()
            if found.get("FAILED", 0) or found.get("LOST", 0) or found.get("KILLED", 0):
                raise SystemExit(f"{self._cluster.shape}: tasks went wrong: {found}")
            return sum(found.get(state, 0) for state in states) >= count

        what = f"{self._cluster.shape}: {count} tasks {' or '.join(states)}"
        until(there, what, limit_s=END_S_MAX, again_s=POLL_S)

    def _starts(self, job_id: str) -> Iterator[tuple[float, str]]:
        """When each task started, by its own stamp, and as which run."""
        request = task_pb2.ListRequest(jobId=peloton_pb2.JobID(value=job_id), range=EVER)
        listed = self._cluster.daemons[0].tasks.List(request, timeout=CALL_S_MAX)
        for number, task in listed.result.value.items():
            run = task.runtime.mesosTaskId.value
            if not task.runtime.startTime:
                raise SystemExit(f"job {job_id}, task {number} succeeded and never started")
            yield datetime.fromisoformat(task.runtime.startTime).timestamp(), run


# ---- one cluster ----


def measure(cluster: Cluster, chosen: argparse.Namespace) -> Iterator[tuple[str, Figures]]:
    """Lines, and the figures that ratios are made of."""
    load = Load(cluster)
    load.run(1, WARM_UP, duration_s=QUICK_S)
    load.run(chosen.warm_up, 1, duration_s=QUICK_S)
    before = cluster.used()
    time.sleep(chosen.idle_s)
    idle = cluster.used().since(before)
    shares = {name: s / idle.at_s for name, s in idle.cpu_s.items() if name != "client"}
    shown = ", ".join(f"{name} {share:.1%}" for name, share in shares.items())
    yield f"idle, of a core: {shown}", {"idle": sum(_daemons(cluster, idle))}
    several = load.run(chosen.jobs, chosen.size, duration_s=chosen.duration_s, memory_too=True)
    yield (
        _line(cluster, several, f"{chosen.jobs} jobs of {chosen.size}"),
        _figures(cluster, several, "batch"),
    )
    per_task = several.resident_bytes / several.starts
    yield f"memory: {per_task:,.0f} B more for each running task, all daemons", {"memory": per_task}
    singles = load.run(chosen.singles, 1, duration_s=QUICK_S)
    yield (
        _line(cluster, singles, f"{chosen.singles} jobs of 1"),
        _figures(cluster, singles, "single"),
    )
    for name, took in sorted(load.latencies(chosen.calls).items()):
        yield f"{name:<13} {spread(took)} ({len(took)} calls)", {name: quantile(took, 0.5)}
    owned = ", ".join(f"{name} {count}" for name, count in sorted(cluster.shards().items()))
    yield f"shards: {owned}", {}


def _line(cluster: Cluster, ran: Ran, what: str) -> str:
    per_task = {name: s / ran.starts * 1e3 for name, s in ran.used.cpu_s.items()}
    names = [daemon.name for daemon in cluster.daemons]
    each = ", ".join(
        f"{name} {ms:.2f}" + (f" ({ran.of[name]} tasks)" if name in names else "")
        for name, ms in per_task.items()
    )
    daemons = sum(_daemons(cluster, ran.used)) / ran.starts * 1e3
    return (
        f"{what}: {ran.starts_per_s:,.0f} starts/s, first create to start {spread(ran.start_s)}, "
        f"{ran.again} after a refusal, {ran.frames / ran.starts:.2f} frames a task; "
        f"cpu ms a task: daemons {daemons:.2f}; {each}"
    )


def _figures(cluster: Cluster, ran: Ran, name: str) -> Figures:
    return {
        f"{name}, daemons' cpu a task": sum(_daemons(cluster, ran.used)) / ran.starts,
        f"{name}, all cpu a task": ran.used.cpu_s.total() / ran.starts,
        f"{name}, starts/s": ran.starts_per_s,
        f"{name}, frames a task": ran.frames / ran.starts,
    }


def _daemons(cluster: Cluster, used: Used) -> Iterator[float]:
    return (used.cpu_s[daemon.name] for daemon in cluster.daemons)


# ---- all of them ----


def run(chosen: argparse.Namespace) -> Iterator[str]:
    """Clusters by turns, each from nothing; then ratios."""
    shapes = shapes_of(chosen.shapes)
    found: dict[Shape, list[Figures]] = defaultdict(list)
    sizes = Sizes(chosen.hosts, parse_shards(chosen.shards))
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(tempfile.TemporaryDirectory(prefix="peloton-bench-"))
        outside = stack.enter_context(servers.outside(chosen, Path(made)))
        yield from machine(Path(made))
        for turn in range(chosen.pairs):
            for shape in shapes if turn % 2 == 0 else reversed(shapes):
                folder = Path(made) / f"{chosen.name}_{turn}_{shape.journal}_{shape.daemons}"
                folder.mkdir()
                with contextlib.closing(
                    Cluster(shape, sizes, outside=outside, folder=folder)
                ) as cluster:
                    begun = time.perf_counter()
                    cluster.begin()
                    yield f"{shape}  ready after {time.perf_counter() - begun:.1f} s"
                    figures: Figures = {}
                    for line, some in measure(cluster, chosen):
                        yield f"{shape}  {line}"
                        figures |= some
                    found[shape].append(figures)
    yield from compare(found)


def compare(found: Mapping[Shape, Sequence[Figures]]) -> Iterator[str]:
    """Each shape but the first, as a multiple of the one before it."""
    for base, shape in itertools.pairwise(found):
        for name in found[base][0]:
            both = [(a[name], b[name]) for a, b in zip(found[shape], found[base], strict=True)]
            if all(name in figures for figures in found[shape]) and all(b > 0 for _, b in both):
                yield f"# {shape} / {base}  {name}: {ratio(both)}"


def options(args: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--shapes", nargs="+", default=["sqlite", "cassandrax1", "cassandrax2"])
    add("--shards", default=SHARDS, help="of each cluster  [default: %(default)s]")
    add("--hosts", type=int, default=1000)
    add("--jobs", type=int, default=5)
    add("--size", type=int, default=1000, help="tasks of each of these jobs")
    add("--duration-s", type=float, default=8.0, help="of their tasks: all run at once for a while")
    add("--singles", type=int, default=500, help="jobs of one task")
    add("--warm-up", type=int, default=300, help="jobs of one task before it begins")
    add("--calls", type=int, default=200)
    add("--idle-s", type=float, default=5.0)
    add("--pairs", type=int, default=2, help="how often each shape has its turn")
    add("--name", default="bench_fleet", help="of clusters and keyspaces; each is made anew")
    servers.options(parser, zookeeper=True)
    return parser.parse_args(args)


if __name__ == "__main__":
    for line in run(options()):
        print(line, flush=True)
