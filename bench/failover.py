"""A daemon is killed while tasks run (B7): from SIGKILL to the first correct placement.

    script/bench failover                    200 hosts x 10 running tasks, and 100 ended ones each
    script/bench failover --full             1,000, 10,000 and 40,000 hosts

The cluster is a minicluster, a process of its own, killed and started again on the same journal;
this process is its client. Correct: a job created after the restart runs, and every task that ran
before still runs as the same run. Then all are killed: each must end once, so none was lost, and
none launched twice. Beside it the same journal is read and decoded and nothing else: the least that
a recovery could take. A standby that takes over (a fleet) is not measured here. It must not gate a
test.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.parts.client import CALL_S_MAX, TaskSize  # noqa: E402
from bench.parts.follower import ENDED  # noqa: E402
from bench.parts.minicluster import Hosts  # noqa: E402
from bench.parts.raw import read_raw  # noqa: E402
from bench.parts.session import END_S_MAX, Sent, Session, calibrated_run, session, until  # noqa: E402
from peloton.api.v0 import peloton_pb2  # noqa: E402
from peloton.api.v0.task import task_pb2  # noqa: E402

ACTIVE, SLOTS = 10, 10
"""Tasks of a host that run all the time, and room for others."""
SIZE, JOBS_UNDER_WAY = 1000, 20
QUICK, EVER_S = TaskSize(duration_s=0.0), 1e7


def stop(at: Session, jobs: Iterable[str]) -> None:
    """Kill all tasks of some jobs."""
    for job in jobs:
        request = task_pb2.StopRequest(jobId=peloton_pb2.JobID(value=job))
        at.client.tasks.Stop(request, timeout=CALL_S_MAX)


def stop_active(at: Session, sent: Sent) -> None:
    """Each of the tasks that ran must end once, as killed."""
    ended = at.follower.tally.totals[ENDED]
    stop(at, sent.due_s)
    at.follower.wait_ended(ended + sent.tasks, END_S_MAX)
    at.follower.tally.check()
    for job in sent.due_s:
        tasks = at.client.runtimes(job, sent.instances).values()
        killed = sum(task.state == task_pb2.KILLED for task in tasks)
        if (killed, at.follower.tally.ended(job)) != (sent.instances, sent.instances):
            raise SystemExit(f"job {job}: {killed} of {sent.instances} tasks KILLED")


def settle_under_way(at: Session, sent: Sent) -> int:
    """Each task that was under way must run or have succeeded; how many run, which are then killed.

    A run whose start was reported before the kill runs for ever: of the environment that says how
    long, a simulated host knows nothing after a restart.
    """
    states = Counter[int]()

    def there(*wanted: int) -> bool:
        states.clear()
        for job in sent.due_s:
            states.update(one.state for one in at.client.runtimes(job, sent.instances).values())
        return sum(states[state] for state in wanted) == sent.tasks

    until(lambda: there(task_pb2.RUNNING, task_pb2.SUCCEEDED), "tasks under way")
    ran_on = states[task_pb2.RUNNING]
    stop(at, sent.due_s)
    until(lambda: there(task_pb2.KILLED, task_pb2.SUCCEEDED), "tasks under way")
    if states[task_pb2.KILLED] > ran_on:
        raise SystemExit(f"{ran_on} tasks ran, {states[task_pb2.KILLED]} were killed")
    return ran_on


def fill(at: Session, count: int, *, size: TaskSize) -> Sent:
    """So many tasks, in jobs of up to a thousand."""
    instances = min(count, SIZE)
    return at.burst(at.client.request(at.pool, instances, size=size), count // instances)


def measure(at: Session, *, ended: int) -> Iterator[str]:
    """Fill, kill, start again, and check."""
    hosts = at.cluster.hosts.count
    done = fill(at, hosts * ended, size=QUICK).tasks if ended else 0
    at.wait_ended()
    active = fill(at, hosts * ACTIVE, size=TaskSize())
    at.wait_started()
    before = {job: at.client.running(job, active.instances) for job in active.due_s}
    # Acknowledged, and somewhere between create and end when the daemon dies.
    under_way = at.burst(at.client.request(at.pool, SLOTS, size=QUICK), JOBS_UNDER_WAY)
    begun = time.perf_counter()
    at.restart()
    ready_s = time.perf_counter() - begun
    first = at.create(at.client.request(at.pool, 1, size=QUICK))
    at.client.wait(*first.due_s, END_S_MAX)
    placed_s = time.perf_counter() - begun
    cpu_s, peak_bytes = at.cluster.used().daemon_s, at.cluster.peak_bytes()
    if before != {job: at.client.running(job, active.instances) for job in active.due_s}:
        raise SystemExit("tasks run as other runs than before")
    ran_on = settle_under_way(at, under_way)
    raw_s, journal_bytes = read_raw(at.cluster.journal)
    stop_active(at, active)
    entities = hosts + active.tasks + done
    yield (
        f"{hosts:,} hosts x {ACTIVE} running, {ended} ended: ready {ready_s:.2f} s after SIGKILL, "
        f"a new task ended after {placed_s:.2f} s; {entities / ready_s:,.0f} entities/s; "
        f"cpu {cpu_s:.2f} s = {cpu_s / raw_s:.1f} x reading the journal "
        f"({journal_bytes / 1e6:.1f} MB in {raw_s:.2f} s); peak {peak_bytes / 1e6:,.0f} MB"
    )
    yield (
        f"checked: {active.tasks} tasks ran on as the same runs and ended once, "
        f"{under_way.tasks} under way came through ({ran_on} as running): 0 lost, 0 launched twice"
    )


def run(chosen: argparse.Namespace) -> Iterator[str]:
    """Each number of hosts, without and with ended tasks."""
    with calibrated_run() as made:
        yield made.lines[0]
        with session(made.folder / "empty", Hosts(1, 1)) as at:
            begun = time.perf_counter()
            at.restart()
            ready_s, cpu_s = time.perf_counter() - begun, at.cluster.used().daemon_s
            yield f"an empty cluster: ready {ready_s:.2f} s after SIGKILL; cpu {cpu_s:.2f} s"
        for count in chosen.hosts:
            for ended in chosen.ended:
                hosts = Hosts(count, SLOTS + ACTIVE)
                with session(made.folder / f"{count}-{ended}", hosts, duration_s=EVER_S) as at:
                    yield from measure(at, ended=ended)
    yield from made.lines[1:]


def options(args: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--hosts", type=int, nargs="+", default=[200])
    add("--ended", type=int, nargs="+", default=[0, 100], help="tasks of a host that have ended")
    add("--full", action="store_true", help="the sizes of the row")
    found = parser.parse_args(args)
    if found.full:
        found.hosts = [1000, 10_000, 40_000]
    return found


if __name__ == "__main__":
    for line in run(options()):
        print(line, flush=True)
