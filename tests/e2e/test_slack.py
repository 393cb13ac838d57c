"""Revocable jobs on real processes: on cpu that others hold and do not use, until they use it."""

from __future__ import annotations

from pathlib import Path

import pytest

from peloton.sdk.client import Client
from tests.e2e import cluster as c

INSTANCES = 8
BUSY = "while :; do :; done & " * 2 + "wait"
"""In all more than the host has cpu, also where others use most of the machine: a kernel may divide
that among sessions, of which each run is one, however many processes they have."""
WANTED_CPUS = 0.3
"""The less, the sooner it is believed that so much is not used."""


def create(client: Client, cpus: float, command: str, *, instances: int = 1, **sla: bool) -> str:
    spec = c.job(instances, command, config={"resource": {"cpuLimit": cpus}}, sla=sla)
    return str(client.jobs.create("/tests", spec).jobId.value)


def states(client: Client, job: str) -> dict[str, int]:
    return c.counts(client, job)[1]


@pytest.mark.slow
def test_a_job_runs_on_slack_of_a_full_host_until_that_is_used(tmp_path: Path) -> None:
    begin = tmp_path / "begin"
    size = ("--host-cpus", "1", "--host-memory-mb", "8000", "--host-disk-mb", "60000")
    slack = {"process": {"measured_slack": True}}
    with (
        c.running(tmp_path, "--hosts", "1", *size, backend=slack) as cluster,
        cluster.client() as client,
    ):
        c.pool(client, cpus=1.0)
        wait = f"until [ -e {begin} ]; do sleep 0.1; done"
        full = create(client, 1.0 / INSTANCES, f"{wait}; {BUSY}", instances=INSTANCES)
        all_run = {"RUNNING": INSTANCES}
        c.wait_for(lambda: states(client, full) == all_run, "the job that fills the host")
        job = create(client, WANTED_CPUS, "sleep 1000", revocable=True, preemptible=True)
        c.wait_for(lambda: states(client, job) == {"RUNNING": 1}, "the job on slack")
        (host,) = client.ops.hosts().hosts
        assert host.capacity.slack - host.free.slack == pytest.approx(WANTED_CPUS)
        assert f"{WANTED_CPUS}" in cluster.cli("host", "show", host.name).stdout
        begin.touch()
        c.wait_for(lambda: states(client, job) == {"PENDING": 1}, "the end of its run")
        assert "slack" in str(client.ops.why(job))
        (run, *_) = client.jobs.get(job).jobInfo.runtime.taskStats.items()
        assert run == ("PENDING", 1)
        assert states(client, full) == all_run
        for each in (full, job):
            client.jobs.stop(each)
            c.ended(client, each)
