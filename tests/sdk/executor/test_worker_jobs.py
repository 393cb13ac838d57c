"""The jobs of workers, and what is taken up of them, against a cluster of dictionaries."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from peloton.ops.v1 import ops_pb2 as ops
from peloton.sdk.client import Client
from peloton.sdk.executor.futures import WorkerId
from peloton.sdk.executor.options import WorkerSettings
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
