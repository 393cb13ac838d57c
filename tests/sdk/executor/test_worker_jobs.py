"""The jobs of workers, and what is taken up of them, against a cluster of dictionaries."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence

import pytest

from peloton.ops.v1 import ops_pb2 as ops
from peloton.sdk.client import Client
from peloton.sdk.executor.answers import CallAnswer
from peloton.sdk.executor.futures import WorkerId
from peloton.sdk.executor.options import WorkerSettings
from peloton.sdk.executor.resuming import resume
from peloton.sdk.executor.worker_jobs import WorkerJobs
from tests.sdk.fakes import JOB, Cluster, serving

WITHIN_S = 60.0


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with serving(cluster) as address, Client(address) as made:
        yield made


@pytest.fixture
def jobs(cluster: Cluster, client: Client) -> Iterator[WorkerJobs]:
    over = threading.Event()
    settings = WorkerSettings.of({"pool": "/hello"})
    cluster.waits = [ops.WaitJobResponse(state="RUNNING")]
    yield WorkerJobs(client, settings, name="mine", over=lambda why: over.set())
    cluster.waits = [ops.WaitJobResponse(state="SUCCEEDED", done=True)]
    assert over.wait(WITHIN_S), "its thread is not left behind"


def test_a_worker_that_comes_before_its_job_is_followed_is_not_absent(
    cluster: Cluster, jobs: WorkerJobs
) -> None:
    cluster.add_job("RUNNING", "RUNNING", "RUNNING")
    jobs.arrived(WorkerId(JOB, 0, "run"))
    jobs.follow(JOB, [0, 1])
    assert jobs.absent() == [(JOB, 1)] and jobs.live == 2


class Heir:
    """Who has the calls of the client before; every worker has come."""

    def __init__(self) -> None:
        self.followed: list[int] = []
        self.asked: list[set[tuple[str, int]]] = []
        self.ran_again = False

    def answered(self, answers: Sequence[CallAnswer], worker: WorkerId) -> None:
        raise AssertionError(f"{worker} has left {answers}")

    def follow(self, job: str, instances: Sequence[int]) -> None:
        self.followed += instances

    def absent(self, instances: Collection[tuple[str, int]]) -> bool:
        self.asked.append({*instances})
        return False

    def nobody_has(self) -> None:
        self.ran_again = True


def test_calls_do_not_wait_for_instances_that_have_no_host(
    cluster: Cluster, client: Client
) -> None:
    cluster.add_job("RUNNING", "RUNNING", "PENDING")
    cluster.tasks[JOB][0].runtime.host = "host-1"
    heir = Heir()
    resume(heir, client, jobs=[JOB])
    assert heir.asked == [{(JOB, 0)}] and heir.ran_again
    assert heir.followed == [0, 1], "it counts as a worker, and is stopped at the end"
