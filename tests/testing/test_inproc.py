"""The executor over a cluster of a test: its calls are tasks there, and its futures are futures."""

from __future__ import annotations

import concurrent.futures
from operator import add

import pytest

from peloton.sdk.errors import CanNeverRun
from peloton.sdk.executor.executor import PelotonExecutor
from peloton.testing.cluster import Cluster
from peloton.testing.inproc import InProcessWorkers

WAIT_S = 60.0


def test_calls_run_as_tasks_of_the_cluster(cluster: Cluster) -> None:
    cluster.add_hosts(2, cpu=2)
    with PelotonExecutor(backend=InProcessWorkers(cluster, most=3)) as executor:
        assert [*executor.map(pow, range(20), [2] * 20)] == [n * n for n in range(20)]
        future = executor.submit(add, 1, 2)
        assert future.result(WAIT_S) == 3
    counts = cluster.client.jobs.get(future.job).jobInfo
    assert counts.config.name == "executor" and counts.config.instanceCount <= 3


def test_what_a_call_raises_is_raised_to_who_waits(cluster: Cluster) -> None:
    cluster.add_host()

    def fail() -> None:
        raise LookupError("nothing here")

    with PelotonExecutor(backend=InProcessWorkers(cluster)) as executor:
        futures = [executor.submit(fail), executor.submit(add, 1, 1)]
        done, _ = concurrent.futures.wait(futures, WAIT_S)
        assert len(done) == 2
        with pytest.raises(LookupError, match="nothing here"):
            futures[0].result(0)


def test_calls_wait_for_room_and_say_so(cluster: Cluster) -> None:
    cluster.add_host(cpu=1)
    with PelotonExecutor(backend=InProcessWorkers(cluster, shape={"cpu": 2})) as executor:
        future = executor.submit(add, 1, 1)
        with pytest.raises(CanNeverRun, match="2 cpu"):
            future.result(WAIT_S)


def test_a_callback_may_submit_another_call(cluster: Cluster) -> None:
    cluster.add_host()
    second: concurrent.futures.Future[int] = concurrent.futures.Future()
    with PelotonExecutor(backend=InProcessWorkers(cluster)) as executor:

        def again(first: concurrent.futures.Future[int]) -> None:
            executor.submit(add, first.result(), 1).add_done_callback(
                lambda done: second.set_result(done.result())
            )

        executor.submit(add, 1, 1).add_done_callback(again)
        assert second.result(WAIT_S) == 3
