"""Services, and updates of many of them at once, a batch of instances at a time.

    script/bench rollouts                              100 services of 90 instances, batch 10
    script/bench rollouts --services 20 --batch 5

The cluster is a minicluster, a process of its own, and this process its client; hosts are
simulated, and their CPU is stated apart. Each instance may be down by the update, so many of a
service at once as its batch and its SLA say: the most that were, by the change feed, is printed,
and the run is void if it is more. The ratio is that of an update to the creation, which starts as
many instances and ends none. It must not gate a test.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.parts.client import Client  # noqa: E402
from bench.parts.follower import ENDED, STARTED, Follower  # noqa: E402
from bench.parts.minicluster import Hosts, Minicluster, Used  # noqa: E402
from bench.parts.session import THREADS, calibrated_run, until  # noqa: E402
from bench.parts.up import UpTally  # noqa: E402
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless  # noqa: E402
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc  # noqa: E402
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2_grpc  # noqa: E402
from peloton.backends.simulated import DURATION_VARIABLE  # noqa: E402

FOR_EVER_S = 1e9
CALL_S_MAX = 60.0
LIMIT_S = 600.0
OVER = (stateless.WORKFLOW_STATE_SUCCEEDED, stateless.WORKFLOW_STATE_FAILED)


class Services:
    """So many services of one cluster, all alike."""

    def __init__(self, cluster: Minicluster, chosen: argparse.Namespace) -> None:
        self.tally = UpTally(chosen.instances)
        self.follower = Follower(cluster.channel, self.tally)
        self._calls = stateless_svc_pb2_grpc.JobServiceStub(cluster.channel)
        self._pool = Client(cluster.channel, cluster.hosts).whole_pool()
        self._chosen = chosen
        self._jobs: list[Any] = []

    @property
    def instances(self) -> int:
        """Of all services together."""
        return int(self._chosen.services * self._chosen.instances)

    def create(self) -> None:
        """All of them; returns once every instance runs."""
        requests = [svc.CreateJobRequest(spec=self._spec("1"))] * self._chosen.services
        self._jobs = [answer.job_id for answer in self._all(self._calls.CreateJob, requests)]
        self._started(self.instances)

    def update(self, word: str) -> None:
        """Give all instances another variable, and so another run; returns once all are through."""
        asked = [svc.GetJobRequest(job_id=job, summary_only=True) for job in self._jobs]
        versions = [one.summary.status.version for one in self._all(self._calls.GetJob, asked)]
        before = self.tally.totals[STARTED]
        requests = [
            svc.ReplaceJobRequest(
                job_id=job,
                version=version,
                spec=self._spec(word),
                update_spec={"batch_size": self._chosen.batch},
            )
            for job, version in zip(self._jobs, versions, strict=True)
        ]
        self._all(self._calls.ReplaceJob, requests)
        self._started(before + self.instances)
        until(lambda: all(state in OVER for state in self._states(asked)), "the updates to end")
        if set(self._states(asked)) != {stateless.WORKFLOW_STATE_SUCCEEDED}:
            raise SystemExit("an update has failed")

    def _states(self, asked: list[svc.GetJobRequest]) -> list[int]:
        found = self._all(self._calls.GetJob, asked)
        return [one.summary.status.workflow_status.state for one in found]

    def _started(self, runs: int) -> None:
        if not self.follower.wait_started(runs, LIMIT_S):
            raise SystemExit(f"the change feed had {self.follower.gaps} gaps")

    def _all(self, call: Any, requests: Sequence[Any]) -> list[Any]:
        with ThreadPoolExecutor(THREADS) as threads:
            return [*threads.map(lambda one: call(one, timeout=CALL_S_MAX), requests)]

    def _spec(self, word: str) -> stateless.JobSpec:
        variables = [
            {"name": DURATION_VARIABLE, "value": str(FOR_EVER_S)}, {"name": "WORD", "value": word},
        ]  # fmt: skip
        container = {
            "resource": {"cpu_limit": 1.0, "mem_limit_mb": 1.0},
            "entrypoint": {"value": "serve"},
            "environment": variables,
        }
        return stateless.JobSpec(
            name="bench",
            owning_team="bench",
            instance_count=self._chosen.instances,
            respool_id={"value": self._pool.value},
            sla={"preemptible": True, "maximum_unavailable_instances": self._chosen.batch},
            default_spec={"containers": [container]},
        )


def timed(services: Services, cluster: Minicluster, name: str, work: Any) -> tuple[str, Used]:
    """What a step came to, as a line, and what it used."""
    before = cluster.used()
    work()
    used = cluster.used().since(before)
    count = services.instances
    line = f"{name}: {used.at_s:.2f} s, {count / used.at_s:,.0f} instances/s; "
    return line + used.each(count, "instance"), used


def lines_of(cluster: Minicluster, chosen: argparse.Namespace) -> Iterator[str]:
    """Create the services, and update all of them so many times."""
    services = Services(cluster, chosen)
    with contextlib.closing(services.follower):
        many = f"{chosen.services} services of {chosen.instances}"
        line, made = timed(services, cluster, f"create {many}", services.create)
        yield line
        services.tally.worst = 0
        for round_ in range(chosen.rounds):
            name = f"update {many}, batch {chosen.batch}"
            begun_s = time.time()
            line, used = timed(
                services,
                cluster,
                name,
                lambda: services.update(f"of {begun_s}"),  # noqa: B023
            )
            ratio = used.daemon_s / made.daemon_s if made.daemon_s else 0.0
            worst = services.tally.worst
            yield f"{line}; at most {worst} of a service down at once"
            yield f"# round {round_ + 1}: daemon's CPU of an update / of the creation {ratio:.2f}"
            if worst > chosen.batch:
                raise SystemExit(f"{worst} were down at once, {chosen.batch} may be")
        if services.tally.totals[ENDED] < services.instances * chosen.rounds:
            raise SystemExit(f"runs that ended: {services.tally.totals[ENDED]}")


def run(chosen: argparse.Namespace) -> Iterator[str]:
    """All on one cluster."""
    with calibrated_run() as made:
        yield made.lines[0]
        folder = made.folder / "at"
        folder.mkdir()
        slots = max(1.0, 2.0 * chosen.services * chosen.instances / chosen.hosts)
        with contextlib.closing(Minicluster(folder, Hosts(chosen.hosts, slots))) as cluster:
            yield from lines_of(cluster, chosen)
    yield from made.lines[1:]


def options(args: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    add = parser.add_argument
    add("--services", type=int, default=100)
    add("--instances", type=int, default=90, help="of each service")
    add("--batch", type=int, default=10, help="instances under way, and down, at once")
    add("--hosts", type=int, default=1000)
    add("--rounds", type=int, default=2, help="updates of all services")
    return parser.parse_args(args)


if __name__ == "__main__":
    for line in run(options()):
        print(line, flush=True)
