"""From create to RUNNING to SUCCEEDED: how many tasks a second one process carries, and for what.

    .venv/bin/python bench/end_to_end.py                        10,000 tasks on 1,000 hosts
    .venv/bin/python bench/end_to_end.py --jobs 100 --hosts 10000    100,000 on 10,000
    .venv/bin/python bench/end_to_end.py --jobs 2000 --size 1        jobs of one task

Simulated runs, the journal in SQLite with fsync, no gRPC: what is measured is the control plane,
without what a client pays; that is measured by `bench/steady.py`.
Prints figures of one run; compare only figures of one run. It must not gate a test.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from peloton.actors.host.inventory.messages import OpenInventory, inventory_key
from peloton.actors.host.messages import ConfigureHost
from peloton.actors.job.messages import CreateJob, job_key
from peloton.actors.job.slice.messages import ListInstances, slice_key
from peloton.actors.job.slice.task_config import Command, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool.messages import (
    ROOT,
    CreatePool,
    ListPools,
    OpenRoot,
    PoolConfig,
    pool_key,
)
from peloton.actors.respool.reclaims import PreemptionPolicy
from peloton.assembly.kinds import kinds
from peloton.assembly.placer_service import PlacerService
from peloton.backends.simulated import SIMULATED_BACKEND, RunScript, SimulatedBackend
from peloton.runtime.adapters.sqlite_store import SqliteJournal
from peloton.runtime.adapters.system_clock import SystemClock
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.ports import Answer, ShardId, Work
from peloton.runtime.shells.root import Root, start
from peloton.runtime.vocabulary import Key, key
from peloton.settings.daemon import ALONE_SHARDS

HOST = Resources(10 * UNIT, 100_000 * UNIT, 100_000 * UNIT, 0)
TASK = Resources(UNIT, 100 * UNIT, 0, 0)
POOL = pool_key("bench")
WAIT_S = 300.0


class CountingJournal(SqliteJournal):
    """The SQLite journal, counting rounds (one fsync each), frames and bytes."""

    rounds = frames = bytes = 0

    def commit(self, works: Sequence[Work]) -> list[Answer]:
        """One round."""
        self.rounds += 1
        for work in works:
            if work.frame is not None:
                self.frames += 1
                self.bytes += len(work.frame.body)
        return super().commit(works)


class Bench:
    """A cluster of simulated hosts in this process."""

    def __init__(
        self,
        folder: Path,
        hosts: int,
        duration_s: float,
        *,
        capacity: Resources = HOST,
        preemption: PreemptionPolicy = PreemptionPolicy(),  # noqa: B008
    ) -> None:
        self.preemption = preemption
        self.capacity = capacity  # of each host
        self.journal = CountingJournal(folder / "journal.sqlite")
        self.names = [f"host{number}" for number in range(hosts)]
        self.root = self._start(duration_s)

    def _start(self, duration_s: float) -> Root:
        inventories = [inventory_key(number) for number in range(ALONE_SHARDS["hostmgr"])]
        backend = SimulatedBackend(self.names, RunScript(duration_s=duration_s))
        services = {"placer": PlacerService(inventories), backend.key: backend}
        root = start(
            kinds(ALONE_SHARDS, preemption=self.preemption),
            self.journal,
            sizes=ALONE_SHARDS,
            clock=SystemClock(),
            services=services,
        )
        root.opened.result(WAIT_S)
        root.region.tell([Envelope(ROOT, OpenRoot())])
        root.region.tell([Envelope(inventory, OpenInventory()) for inventory in inventories])
        configured = ConfigureHost(self.capacity, (), SIMULATED_BACKEND)
        root.region.tell([Envelope(key("host", name), configured) for name in self.names])
        backend.start(root.region.tell)
        return root

    def wait_for_capacity(self) -> None:
        """All hosts are up, and the root pool knows."""
        whole = self.capacity.times(len(self.names))
        while True:
            pools = self.root.region.ask(ROOT, ListPools()).result(WAIT_S)
            # Absent until the root is committed: a query may overtake what was sent before it.
            if isinstance(pools, tuple) and pools and pools[0].config.limit == whole:
                break
            time.sleep(0.01)
        config = PoolConfig("bench", ROOT, Resources(), whole)
        self.root.region.ask(POOL, CreatePool(config)).result(WAIT_S)

    def create(self, jobs: int, size: int) -> list[Key]:
        """Create jobs as fast as they are taken."""
        keys = [job_key(str(uuid.uuid4())) for _ in range(jobs)]
        config = TaskConfig(resources=TASK, command=Command("true"))
        spec = JobSpec("bench", "bench", POOL, size, config)
        for answer in [self.root.region.ask(name, CreateJob(spec, drawn=True)) for name in keys]:
            answer.result(WAIT_S)
        return keys

    def wait_for(self, states: Sequence[str], tasks: int) -> float:
        """Until so many tasks are in these states; the moment."""
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            views: list[Any] = self.root.region.views("job").result(WAIT_S)
            if sum(dict(v.counts).get(name, 0) for v in views for name in states) >= tasks:
                return time.monotonic()
            time.sleep(0.01)
        raise SystemExit(f"not all tasks came to {states} within {WAIT_S:g} s")

    def counters(self) -> tuple[int, int]:
        """Messages taken and entries written, over all shards."""
        messages = entries = 0
        for group, count in ALONE_SHARDS.items():
            for number in range(count):
                future = self.root.region.inspect(ShardId(group, number), _counts)
                more = future.result(WAIT_S)
                messages, entries = messages + more[0], entries + more[1]
        return messages, entries

    def latencies(self, jobs: list[Key]) -> list[float]:
        """Seconds from create to RUNNING, of the tasks of some jobs."""
        found = []
        for name in jobs[:: max(1, len(jobs) // 50)]:
            query = ListInstances(0, 1000)
            job = name.partition("/")[2]
            for view in self.root.region.ask(slice_key(job, 0), query).result(WAIT_S):
                if view.started_at is not None and view.created_at is not None:
                    found.append(view.started_at - view.created_at)
        return found


def _counts(shard: Any) -> tuple[int, int]:
    return shard.delivered, shard.turns.written


def memory() -> int:
    """Bytes of this process that are resident."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def written() -> int:
    """Bytes that this process has written to files: pages of the journal's file and of its log."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["wchar"])


def main() -> None:
    """Run once and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--duration-s", type=float, default=5.0, help="of a simulated run")
    options = parser.parse_args()
    tasks = options.jobs * options.size
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), options.hosts, options.duration_s)
        bench.wait_for_capacity()
        gc.collect()
        before, messages0, journal = memory(), bench.counters(), bench.journal
        frames0, rounds0, bytes0 = journal.frames, journal.rounds, journal.bytes
        written0 = written()
        began, cpu = time.monotonic(), time.process_time()
        jobs = bench.create(options.jobs, options.size)
        running_s = bench.wait_for(("RUNNING", "SUCCEEDED"), tasks) - began
        cpu_s = time.process_time() - cpu
        per_task = (memory() - before) / tasks
        done_s = bench.wait_for(("SUCCEEDED",), tasks) - began
        messages, entries = bench.counters()
        spread = statistics.quantiles(bench.latencies(jobs) or [0.0, 0.0], n=100)
        print(f"{tasks} tasks, {options.jobs} jobs of {options.size}, {options.hosts} hosts")
        rate = f"{tasks / running_s:12,.0f} tasks/s"
        print(f"to RUNNING    {rate}   {running_s:.2f} s, cpu {cpu_s:.2f} s")
        print(f"to SUCCEEDED  {done_s:12.2f} s         of which {options.duration_s:g} s running")
        print(f"create to RUNNING, a task   p50 {spread[49]:.3f} s   p99 {spread[98]:.3f} s")
        print(
            f"per task, whole life: {(messages - messages0[0]) / tasks:.2f} messages, "
            f"{(entries - messages0[1]) / tasks:.2f} entries, "
            f"{(journal.bytes - bytes0) / tasks:.0f} B of journal, "
            f"{(written() - written0) / tasks:.0f} B written to files, "
            f"{(journal.frames - frames0) / tasks:.3f} frames, "
            f"{(journal.rounds - rounds0) / tasks:.3f} fsyncs"
        )
        print(f"memory per running task, all of the process's growth: {per_task:,.0f} B")
        bench.root.stop()


if __name__ == "__main__":
    main()
