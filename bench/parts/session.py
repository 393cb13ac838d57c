"""A minicluster under load: the cluster, its client, its pool, and the follower of its tasks.

Loads are bursts, or steady and open: a job is due at its time whether or not the last one is
through, and what it waits is counted. It must not judge a time.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from bench.parts.calibration import calibrating
from bench.parts.client import Client, Times
from bench.parts.follower import Follower, TaskTally
from bench.parts.measure import spread
from bench.parts.minicluster import Hosts, Minicluster
from peloton.api.v0.job import job_pb2

THREADS = 16
END_S_MAX = 600.0
LOOK_S = 0.1


def until(holds: Callable[[], bool], what: str) -> None:
    """Look again and again; ends the run when it takes too long."""
    late = time.monotonic() + END_S_MAX
    while not holds():
        if time.monotonic() > late:
            raise SystemExit(f"{what}: not within {END_S_MAX:g} s")
        time.sleep(LOOK_S)


class Run(NamedTuple):
    """A folder for everything, and the calibration's lines: the first, and the rest at the end."""

    folder: Path
    lines: list[str]


@contextlib.contextmanager
def calibrated_run() -> Iterator[Run]:
    """What every benchmark of the front door begins and ends with."""
    with contextlib.ExitStack() as stack:
        made = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="peloton-bench-")))
        yield Run(made, stack.enter_context(calibrating(made)))


class Sent(NamedTuple):
    """The jobs of a load, and when each was due, by the clock that the daemon has too."""

    due_s: dict[str, float]
    instances: int

    @property
    def tasks(self) -> int:
        """Of all jobs together."""
        return len(self.due_s) * self.instances


class Checked(NamedTuple):
    """When each task of a load started and ended, and how that was checked, in words."""

    times: list[Times]
    text: str

    def __str__(self) -> str:
        return self.text


class Session:
    """From a started cluster to its end."""

    def __init__(self, cluster: Minicluster) -> None:
        self.cluster = cluster
        self._connect()
        self.pool = self.client.whole_pool()

    def restart(self) -> None:
        """SIGKILL the cluster and start it again; returns when it is ready.

        The follower begins anew, and what was sent before counts no more for `wait_…`.
        """
        self.cluster.kill()
        self.close()
        self.cluster.start()
        self._connect()

    def _connect(self) -> None:
        self.client = Client(self.cluster.channel, self.cluster.hosts)
        self.follower = Follower(self.cluster.channel, TaskTally())
        self._sent, self._jobs = 0, list[str]()

    def close(self) -> None:
        """End the follower."""
        self.follower.close()

    def create(self, request: job_pb2.CreateRequest) -> Sent:
        """One job."""
        begun_s = time.time()
        made = Sent({self.client.create(request): begun_s}, request.config.instanceCount)
        self._note(made)
        return made

    def burst(self, request: job_pb2.CreateRequest, jobs: int, *, threads: int = THREADS) -> Sent:
        """So many jobs as fast as they are taken. Each is due when its call begins."""
        return self._send(request, [0.0] * jobs, threads=threads)

    def steady(self, request: job_pb2.CreateRequest, per_s: float, *, for_s: float) -> Sent:
        """So many jobs a second for a while, whatever becomes of them."""
        begun_s = time.time()
        due = [begun_s + number / per_s for number in range(int(per_s * for_s))]
        return self._send(request, due, threads=THREADS * 2)

    def wait_started(self, limit_s: float = END_S_MAX) -> None:
        """Until all tasks that were sent have started. Ends the benchmark where nobody can know."""
        if not self.follower.wait_started(self._sent, limit_s):
            raise SystemExit(f"the change feed had {self.follower.gaps} gaps")

    def wait_ended(self, limit_s: float = END_S_MAX) -> None:
        """Until all tasks that were sent have ended."""
        if not self.follower.wait_ended(self._sent, limit_s):
            for job in self._jobs:
                self.client.wait(job, limit_s)

    def check(self, sent: Sent) -> Checked:
        """That each task of a load started and ended once, by the feed and by lists."""
        self.follower.tally.check()
        tally, gaps = self.follower.tally, self.follower.gaps
        for job in sent.due_s:
            counts = tally.started(job), tally.ended(job)
            if not gaps and counts != (sent.instances, sent.instances):
                raise SystemExit(f"job {job}: started and ended {counts} of {sent.instances}")
        times = self.client.check_ended(sent.due_s, sent.instances)
        how = f"SUCCEEDED, by lists alone: the feed had {gaps} gaps"
        how = how if gaps else "each started and ended once"
        return Checked(times, f"checked: {len(times)} tasks, {how}")

    def start_s(self, sent: Sent) -> list[float]:
        """Of each task of a load, seconds from when its job was due until it ran."""
        found: list[float] = []
        for start in self.follower.tally.starts:
            if start.job in sent.due_s:
                found += [start.at_s - sent.due_s[start.job]] * start.count
        return found

    def started_per_s(self, sent: Sent) -> float:
        """Tasks of a load that came to run, from the first due job to the last start."""
        starts = [one.at_s for one in self.follower.tally.starts if one.job in sent.due_s]
        return sent.tasks / (max(starts) - min(sent.due_s.values()))

    def line(self, sent: Sent) -> str:
        """What a load came to."""
        return (
            f"{self.started_per_s(sent):,.0f} tasks/s RUNNING, "
            f"create to RUNNING {spread(self.start_s(sent))}"
        )

    def _note(self, made: Sent) -> None:
        self._sent += made.tasks
        self._jobs += made.due_s

    def _send(self, request: job_pb2.CreateRequest, due: list[float], *, threads: int) -> Sent:
        sent: dict[str, float] = {}
        lock, rest = threading.Lock(), iter(due)

        def work() -> None:
            while True:
                with lock:
                    due_s = next(rest, None)
                if due_s is None:
                    return
                time.sleep(max(0.0, due_s - time.time()))
                begun_s = due_s or time.time()
                sent[self.client.create(request)] = begun_s

        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(work) for _ in range(min(threads, len(due)))]:
                done.result()
        if len(sent) != len(due):
            raise SystemExit(f"{len(due)} creates made {len(sent)} jobs")
        made = Sent(sent, request.config.instanceCount)
        self._note(made)
        return made


@contextlib.contextmanager
def session(
    folder: Path, hosts: Hosts, *, backend: str = "simulated", duration_s: float = 1.0
) -> Iterator[Session]:
    """A cluster in this folder, which is made."""
    folder.mkdir()
    cluster = Minicluster(folder, hosts, backend=backend, duration_s=duration_s)
    with contextlib.closing(cluster):
        found = Session(cluster)
        with contextlib.closing(found):
            yield found
