"""A cluster that keeps few bytes of ended jobs in memory; the others are found all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from peloton.sdk.jobs import JobQuery
from tests.e2e import cluster as c
from tests.e2e.health import figures, ready

JOBS = 40
KEEP_BYTES = 24_000
JOB_BYTES = 2_000
"""Of each, at least."""


@pytest.mark.timeout(240)
def test_the_bytes_of_ended_jobs_in_memory_are_bounded_over_lives(tmp_path: Path) -> None:
    quick, kept = {"simulated": {"duration_s": 0.1}}, {"keep_bytes": f"{KEEP_BYTES}B"}
    with c.running(tmp_path, backend=quick, archive=kept) as cluster:
        with cluster.client() as client:
            c.pool(client)
            spec = c.job(1, "#" * JOB_BYTES)
            made = [str(client.jobs.create("/tests", spec).jobId.value) for _ in range(JOBS)]
            for job in made:
                assert c.ended(client, job)[0] == "SUCCEEDED"
            c.wait_for(lambda: settled(cluster), "that only few are in memory")
        check(cluster, made)
        left = figures(cluster)
        assert left['peloton_ended_jobs_left_total{rule="bytes"}'] >= JOBS - KEEP_BYTES / JOB_BYTES
        assert left['peloton_ended_jobs_left_total{rule="age"}'] == 0
        cluster.kill()
        cluster.start()
        c.wait_for(lambda: settled(cluster), "the same after a restart")
        check(cluster, made)


def settled(cluster: c.Cluster) -> bool:
    found = figures(cluster)
    held, archived = found["peloton_ended_jobs_held"], found.get("peloton_jobs_archived", 0.0)
    return found["peloton_ended_job_held_bytes"] <= KEEP_BYTES and held + archived == JOBS


def check(cluster: c.Cluster, made: list[str]) -> None:
    """All are found, with their number, and nothing is said to lag."""
    with cluster.client() as client:
        page = client.jobs.query(JobQuery(states=("SUCCEEDED",), limit=2 * JOBS))
        assert sorted(line.id.value for line in page.results) == sorted(made)
    code, text = ready(cluster)
    assert code == 200 and "archive" not in text
