"""Jobs of real processes on a real cluster: the whole way, there and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.sdk.client import Client
from peloton.sdk.errors import PelotonError
from tests.e2e import cluster as c


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[c.Cluster]:
    with c.running(tmp_path_factory.mktemp("cluster")) as running:
        with running.client() as client:
            c.pool(client)
        yield running


@pytest.fixture
def client(cluster: c.Cluster) -> Iterator[Client]:
    with cluster.client() as found:
        yield found


def create(client: Client, spec: dict[str, object]) -> str:
    return str(client.jobs.create("/tests", spec).jobId.value)


def test_hundreds_of_real_processes(client: Client) -> None:
    job = create(client, c.job(300, "exit 0"))
    assert c.ended(client, job) == ("SUCCEEDED", {"SUCCEEDED": 300})


def test_some_fail_and_are_tried_again_and_some_fail_for_good(client: Client) -> None:
    # Odd runs of instances below 5 fail; instances from 5 on fail always.
    again = 'case "$PELOTON_POD_ID" in *-1) exit 1;; esac'
    config = {"restartPolicy": {"maxFailures": 3}}
    own = {
        str(instance): {
            "command": {"shell": True, "value": "exit 7"},
            "restartPolicy": {"maxFailures": 3},
            "resource": {"cpuLimit": 0.01, "memLimitMb": 1.0, "diskLimitMb": 1.0},
        }
        for instance in range(5, 8)
    }
    job = create(client, c.job(8, again, config=config, instanceConfig=own))
    assert c.ended(client, job) == ("FAILED", {"SUCCEEDED": 5, "FAILED": 3})
    healed = client.tasks.get(job, 0)
    assert healed.result.runtime.mesosTaskId.value.endswith("-0-2")
    failed = client.tasks.get(job, 6)
    assert failed.result.runtime.failureCount == 3
    assert len(failed.results) == 3


def test_stopping_while_launching_leaves_exact_counts(client: Client) -> None:
    job = create(client, c.job(200, "sleep 600"))
    client.tasks.stop(job)
    state, found = c.ended(client, job)
    assert state == "KILLED"
    assert found == {"KILLED": 200}


def test_stopping_some_instances(client: Client, tmp_path: Path) -> None:
    go = tmp_path / "go"
    job = create(client, c.job(10, c.until_there(go)))
    client.tasks.stop(job, [(2, 5)])
    c.wait_for(lambda: c.counts(client, job)[1].get("KILLED") == 3, "3 to end")
    go.touch()
    state, found = c.ended(client, job)
    assert state == "KILLED"
    assert found == {"KILLED": 3, "SUCCEEDED": 7}


def test_a_job_is_deleted_once_it_has_ended_and_leaves_nothing(client: Client) -> None:
    job = create(client, c.job(20, "sleep 600"))
    with pytest.raises(PelotonError, match="not in a terminal state"):
        client.jobs.delete(job)
    client.tasks.stop(job)
    c.ended(client, job)
    client.jobs.delete(job)

    def gone() -> bool:
        try:
            client.jobs.get(job)
        except PelotonError:
            return True
        return False

    c.wait_for(gone, "the job to be gone")

    def unused() -> bool:
        pools = {p.path.value: p for p in client.pools.list().resourcePools}
        return [use.allocation for use in pools["/tests"].usage] == [0.0] * 4

    c.wait_for(unused, "its room to be free")


def test_why_a_job_waits_for_its_pool(client: Client) -> None:
    c.pool(client, "/narrow", cpus=1.0)
    config = {"resource": {"cpuLimit": 1.0, "memLimitMb": 1.0}}
    spec = c.job(3, "sleep 600", config=config)
    job = str(client.jobs.create("/narrow", spec).jobId.value)
    c.wait_for(lambda: c.counts(client, job)[1].get("RUNNING") == 1, "one to run")
    wanted = "limit of pool /narrow reached: cpu"
    c.wait_for(lambda: wanted in str(client.ops.why(job).reasons), "the reason of the others")
    client.tasks.stop(job)
    c.ended(client, job)


def test_why_a_job_finds_no_host(client: Client) -> None:
    config = {"resource": {"cpuLimit": 5.0, "memLimitMb": 1.0}}
    job = create(client, c.job(1, "true", config=config))
    reasons = c.wait_for(
        lambda: [r for r in client.ops.why(job).reasons if sum(r.counts.values()) == 3],
        "counts of all hosts",
    )
    assert dict(reasons[0].counts) == {"insufficient_offer_resources": 3}
    client.tasks.stop(job)
    c.ended(client, job)
