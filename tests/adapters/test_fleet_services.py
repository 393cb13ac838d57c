"""A daemon of a real fleet dies in the middle of updates of services; the other carries them on.

The services' own notes say what became of them: who ran when. Of what the daemons say of themselves
only the ends of the workflows are used.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2_grpc
from tests.adapters.test_daemon_servers import Cluster, cluster, owners, patiently
from tests.adapters.test_daemon_wiring import until
from tests.channels import channel_to
from tests.cli.terminal import typed
from tests.e2e.cluster import until_there
from tests.gateway.fleet_fixture import Deployment
from tests.service_notes import BEGUN, SAY, TOLD, ServiceNotes

__all__ = ["cluster"]
SERVICES, INSTANCES, DOWN_MAX = 3, 6, 2
SCRIPT = f"""{SAY}
trap '{TOLD}; if grep -q "^up .* new " NOTES; then GATE; fi; exit 0' TERM
{BEGUN}
sleep 1000 & wait
"""
"""Once an instance has begun anew, others end only when the gate is open: no update is over before
that."""


def spec_of(pool: str, notes: ServiceNotes, word: str, *, gate: Path) -> stateless.JobSpec:
    """A service whose instances note when they begin and when they are told to end."""
    script = notes.script(SCRIPT).replace("GATE", until_there(gate))
    container = {
        "resource": {"cpu_limit": 0.01, "mem_limit_mb": 1.0, "disk_limit_mb": 1.0},
        "entrypoint": {"value": script},
        "environment": [{"name": "WORD", "value": word}],
    }
    return stateless.JobSpec(
        name="service",
        owning_team="team",
        instance_count=INSTANCES,
        respool_id={"value": pool},
        sla={"preemptible": True, "maximum_unavailable_instances": DOWN_MAX},
        default_spec={"containers": [container]},
    )


class Services:
    """The services, as a client of one daemon sees them."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._calls = stateless_svc_pb2_grpc.JobServiceStub(channel)

    def create(self, spec: stateless.JobSpec) -> Any:
        """The id of a new one; daemons refuse it until they have read that the level was raised."""

        def once() -> Any:
            try:
                return patiently(lambda: self._calls.CreateJob(svc.CreateJobRequest(spec=spec)))
            except AssertionError as refused:
                assert "services need feature level" in str(refused)
                return None

        return until(once).job_id

    def update(self, job: Any, spec: stateless.JobSpec) -> None:
        """Give all its instances this spec, two at a time."""
        version = self._status(job).version
        request = svc.ReplaceJobRequest(
            job_id=job, version=version, spec=spec, update_spec={"batch_size": DOWN_MAX}
        )
        patiently(lambda: self._calls.ReplaceJob(request))

    def is_running(self, job: Any) -> bool:
        """Whether all its instances run."""
        return dict(self._status(job).pod_stats) == {"POD_STATE_RUNNING": INSTANCES}

    def is_updated(self, job: Any) -> bool:
        """Whether its update is over; it must have succeeded."""
        state = self._status(job).workflow_status.state
        going_on = (
            stateless.WORKFLOW_STATE_INITIALIZED,
            stateless.WORKFLOW_STATE_ROLLING_FORWARD,
        )
        assert state in (*going_on, stateless.WORKFLOW_STATE_SUCCEEDED)
        return state not in going_on

    def _status(self, job: Any) -> Any:
        asked = svc.GetJobRequest(job_id=job, summary_only=True)
        return patiently(lambda: self._calls.GetJob(asked, timeout=5)).summary.status


def raised_level(cluster: Cluster) -> None:
    """Services need a feature level that a new fleet does not have."""
    printed = typed("features", "raise", "--config", str(cluster.folder / "two.yaml"))
    assert printed.code == 0, printed.err


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_updates_go_on_where_a_daemon_dies_and_floors_hold(cluster: Cluster) -> None:
    one, at_one = cluster.start("one")
    _, at_two = cluster.start("two")
    until(lambda: len(set(owners(cluster.zookeeper))) == 2)
    raised_level(cluster)
    gate = cluster.folder / "gate"
    with channel_to(at_one) as first, channel_to(at_two) as second:
        pool = patiently(lambda: Deployment(None, first, http=None)).pool  # type: ignore[arg-type]
        services = Services(second)
        notes = [
            ServiceNotes(cluster.folder / f"notes{number}", INSTANCES) for number in range(SERVICES)
        ]

        jobs = [services.create(spec_of(pool, said, "old", gate=gate)) for said in notes]
        until(lambda: all(services.is_running(job) for job in jobs))
        for job, said in zip(jobs, notes, strict=True):
            services.update(job, spec_of(pool, said, "new", gate=gate))
        until(lambda: all(said.began("new") for said in notes))
        unfinished = sum(INSTANCES - len(said.began("new")) for said in notes)
        one.kill()
        assert unfinished, "all updates were over before the daemon died"
        gate.touch()
        until(lambda: all(services.is_updated(job) for job in jobs))
        until(lambda: all(services.is_running(job) for job in jobs))
        until(lambda: all(len(said.began("new")) == INSTANCES for said in notes))
    for said in notes:
        for word in ("old", "new"):
            assert said.began(word) == dict.fromkeys(range(INSTANCES), 1), word
        assert len(said.most_down()) <= DOWN_MAX
