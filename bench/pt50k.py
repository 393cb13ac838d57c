"""PT-50k (B1): tasks that sleep, on a cluster that holds a part of them at once.

    script/bench pt50k                 5,000 tasks of 2 s on 100 hosts: ideally 10 s
    script/bench pt50k --full          50,000 and 10,000 of 10 s on 1,000 hosts: ideally 50 and 10 s

As the original's own performance test: 0.1 CPU and 32 MB a task, hosts of 1 CPU and 1 GB. One job
holds all tasks, once with one config for all and once with a config of its own for each instance.
The cluster is a minicluster, a process of its own, and this process its client; hosts are
simulated. A run counts only if every task started and ended once. It must not gate a test.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.parts.client import TaskSize  # noqa: E402
from bench.parts.minicluster import Hosts  # noqa: E402
from bench.parts.session import Session, calibrated_run, session  # noqa: E402
from peloton.api.v0.job import job_pb2  # noqa: E402

TASK = TaskSize(cpu=0.1, memory_mb=32.0, disk_mb=32.0)
AT_ONCE = 10
"""Tasks that a host of one CPU holds."""
END_S_MAX = 900.0


def own_configs(request: job_pb2.CreateRequest) -> job_pb2.CreateRequest:
    """The same, with a config for each instance, as the original's test can have them."""
    made = job_pb2.CreateRequest()
    made.CopyFrom(request)
    for instance in range(request.config.instanceCount):
        made.config.instanceConfig[instance].name = f"bench-{instance}"
    return made


def one_job(at: Session, request: job_pb2.CreateRequest, *, duration_s: float) -> Iterator[str]:
    """From create to SUCCEEDED."""
    tasks = request.config.instanceCount
    before = at.cluster.used()
    begun = time.perf_counter()
    sent = at.create(request)
    create_s = time.perf_counter() - begun
    ((job, due_s),) = sent.due_s.items()
    at.client.wait(job, END_S_MAX)
    used = at.cluster.used().since(before)
    at.wait_ended()
    found = at.check(sent)
    ideal_s = math.ceil(tasks / (at.cluster.hosts.count * AT_ONCE)) * duration_s
    first_s = min(one.started_s for one in found.times) - due_s
    own = "own configs" if request.config.instanceConfig else "one config"
    yield (
        f"{tasks:,} x {duration_s:g} s, {own}: {used.at_s:.1f} s to SUCCEEDED, "
        f"{used.at_s / ideal_s:.2f} x the ideal {ideal_s:g} s; first start {first_s:.2f} s "
        f"(Create {create_s:.2f} s, {request.ByteSize() / 1e6:.2f} MB); "
        f"{tasks / used.at_s:,.0f} tasks/s; {used.each(tasks)}; {found}"
    )


def run(chosen: argparse.Namespace) -> Iterator[str]:
    """Each number of tasks, with and without configs of their own, on one cluster."""
    with calibrated_run() as made:
        yield made.lines[0]
        hosts = Hosts(chosen.hosts, 1.0, memory_mb=1024.0, disk_mb=1024.0)
        with session(made.folder / "at", hosts, duration_s=chosen.duration_s) as at:
            for tasks in chosen.tasks:
                request = at.client.request(at.pool, tasks, size=TASK)
                yield from one_job(at, request, duration_s=chosen.duration_s)
                request = own_configs(request)
                yield from one_job(at, request, duration_s=chosen.duration_s)
    yield from made.lines[1:]


def options(args: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--tasks", type=int, nargs="+", default=[5000])
    add("--hosts", type=int, default=100)
    add("--duration-s", type=float, default=2.0, help="of a task")
    add("--full", action="store_true", help="the sizes of the original")
    found = parser.parse_args(args)
    if found.full:
        found.tasks, found.hosts, found.duration_s = [10_000, 50_000], 1000, 10.0
    return found


if __name__ == "__main__":
    for line in run(options()):
        print(line, flush=True)
