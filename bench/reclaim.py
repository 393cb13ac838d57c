"""A pool asks its half back (B9): how long until it has it, and whether anybody was ended in vain.

    script/bench reclaim                                   10,000 preemptible tasks on 1,000 hosts
    script/bench reclaim --jobs 100 --hosts 10000          100,000 on 10,000

Simulated runs, the journal in SQLite with fsync, no gRPC. The clock starts when the first task is
told to end: what a pool has to wait before (`--after-s`) is stated apart. It must not gate a test.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.end_to_end import POOL, TASK, WAIT_S, Bench  # noqa: E402
from peloton.actors.job.messages import CreateJob, job_key  # noqa: E402
from peloton.actors.job.slice.messages import ListInstances, slice_key  # noqa: E402
from peloton.actors.job.slice.task_config import (  # noqa: E402
    Command,
    TaskConfig,
)
from peloton.actors.job.spec import JobSpec
from peloton.actors.resources import Resources  # noqa: E402
from peloton.actors.respool.messages import ROOT, CreatePool, PoolConfig, pool_key  # noqa: E402
from peloton.actors.respool.reclaims import PreemptionPolicy  # noqa: E402
from peloton.runtime.vocabulary import Key  # noqa: E402

ASKS = pool_key("asks")
FOR_EVER_S = 100_000.0


def create(bench: Bench, pool: Key, *, jobs: int, size: int) -> list[Key]:
    """Create jobs as fast as they are taken."""
    keys = [job_key(str(uuid.uuid4())) for _ in range(jobs)]
    config = TaskConfig(resources=TASK, command=Command("true"))
    spec = JobSpec("bench", "bench", pool, size, config)
    for answer in [bench.root.region.ask(name, CreateJob(spec, drawn=True)) for name in keys]:
        answer.result(WAIT_S)
    return keys


def running(bench: Bench, jobs: set[Key]) -> int:
    """How many tasks of these jobs run."""
    views: list[Any] = bench.root.region.views("job").result(WAIT_S)
    return sum(dict(view.counts).get("RUNNING", 0) for view in views if view.job in jobs)


def until(bench: Bench, jobs: list[Key], *, least: int) -> float:
    """Until so many of them run; the moment."""
    names, end = {*jobs}, time.monotonic() + WAIT_S
    while time.monotonic() < end:
        if running(bench, names) >= least:
            return time.monotonic()
        time.sleep(0.01)
    raise SystemExit(f"{running(bench, names)} of {least} run after {WAIT_S:g} s")


def victims(bench: Bench, jobs: list[Key]) -> tuple[int, float]:
    """How many runs of these jobs were ended, and the seconds that they had run."""
    ended, seconds = 0, 0.0
    for name in jobs:
        query = ListInstances(0, 1000)
        for view in bench.root.region.ask(slice_key(name.partition("/")[2], 0), query).result(
            WAIT_S
        ):
            ended += len(view.runs)
            seconds += view.ran_s
    return ended, seconds


def main() -> None:
    """Run once and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--after-s", type=float, default=2.0)
    parser.add_argument("--at-once", type=int, default=PreemptionPolicy().in_flight_max)
    options = parser.parse_args()
    tasks = options.jobs * options.size
    policy = PreemptionPolicy(sustained_s=options.after_s, in_flight_max=options.at_once)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), options.hosts, FOR_EVER_S, preemption=policy)
        bench.wait_for_capacity()
        whole = bench.capacity.times(options.hosts)
        config = PoolConfig("asks", ROOT, Resources(), whole)
        bench.root.region.ask(ASKS, CreatePool(config)).result(WAIT_S)
        lent = create(bench, POOL, jobs=options.jobs, size=options.size)
        until(bench, lent, least=tasks)
        asked = create(bench, ASKS, jobs=options.jobs, size=options.size)
        began = time.monotonic()
        cpu = time.process_time()
        first_s = until(bench, asked, least=1) - began
        all_s = until(bench, asked, least=tasks // 2) - began
        cpu_s = time.process_time() - cpu
        time.sleep(2 * options.after_s)
        ended, lost_s = victims(bench, lent)
        print(
            f"{tasks} preemptible tasks, {options.jobs} jobs of {options.size}, on "
            f"{options.hosts} hosts; another pool asks for all and is entitled to half"
        )
        took = all_s - options.after_s
        print(f"waited        {options.after_s:12.2f} s    as it has to")
        print(f"first runs    {first_s - options.after_s:12.2f} s    after that")
        print(
            f"half runs     {took:12.2f} s    {tasks / 2 / took:,.0f} victims/s, cpu {cpu_s:.2f} s"
        )
        print(
            f"needless      {ended - tasks // 2:12d}      of {ended} victims, "
            f"which had run {lost_s:,.0f} s in all"
        )
        bench.root.stop()


if __name__ == "__main__":
    main()
