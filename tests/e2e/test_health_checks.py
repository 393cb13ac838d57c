"""Health checks on a real cluster: by HTTP, by commands, and across a killed daemon."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path
from typing import Any

from peloton.actors.task.run_messages import UNHEALTHY, over_text
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v1alpha.job.stateless import stateless_pb2 as stateless
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2 as svc
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2_grpc
from tests.channels import channel_to
from tests.e2e import cluster as c

SOON = {"enabled": True, "initial_interval_secs": 1, "interval_secs": 1, "timeout_secs": 10}


def service(pool: str, *pods: dict[str, Any]) -> stateless.JobSpec:
    """A service of one instance for each of these containers."""
    resource = {"cpu_limit": 0.01, "mem_limit_mb": 1.0, "disk_limit_mb": 1.0}
    return stateless.JobSpec(
        name="checked",
        owning_team="team",
        instance_count=len(pods),
        respool_id={"value": pool},
        sla={"preemptible": True},
        default_spec={"containers": [{**pods[0], "resource": resource}]},
        instance_spec={
            number: {"containers": [{**pod, "resource": resource}]}
            for number, pod in enumerate(pods)
        },
    )


def free_port() -> int:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as found:
        return int(found.getsockname()[1])


def by_command(text: str, failures: int) -> dict[str, Any]:
    check = {"type": "HEALTH_CHECK_TYPE_COMMAND", "command_check": {"command": text}}
    return {"liveness_check": {**SOON, **check, "max_consecutive_failures": failures}}


def test_what_is_not_well_is_ended_and_runs_again(tmp_path: Path) -> None:
    port, bad = free_port(), tmp_path / "bad"
    http = {"type": "HEALTH_CHECK_TYPE_HTTP", "http_check": {"port": port, "path": "/page"}}
    server = {
        "entrypoint": {"value": f"touch page; exec python3 -m http.server {port}"},
        "liveness_check": {**SOON, **http, "max_consecutive_failures": 1000},
    }
    named = {
        "entrypoint": {"value": "echo here > mine; sleep 1000"},
        "environment": [{"name": "BAD", "value": str(bad)}],
        **by_command('grep here mine && ! cat "$BAD"', 2),
    }
    unchecked = {"entrypoint": {"value": "sleep 1000"}, "liveness_check": {"enabled": False}}
    with c.running(tmp_path) as cluster:
        with cluster.client() as client, channel_to(cluster.address) as channel:
            pool = str(client.pools.lookup(c.pool(client)))
            jobs = stateless_svc_pb2_grpc.JobServiceStub(channel)
            sent = svc.CreateJobRequest(spec=service(pool, server, named, unchecked))
            job = jobs.CreateJob(sent).job_id.value
            _await_health(client, job, "HEALTHY", "HEALTHY", "DISABLED")
            _events_say(client, job, 0, "HEALTHY: GET http://127.0.0.1")
        cluster.kill()
        bad.write_text("it is broken\n")
        cluster.start()
        with cluster.client() as client:
            c.wait_for(lambda: _last_end(client, job, 1), "the run that is not well to end")
            text = over_text("exit status 1: it is broken")
            assert _last_end(client, job, 1) == (UNHEALTHY, text)
            found = client.tasks.get(job, 1).result.runtime
            assert (found.failureCount, found.healthy) == (1, task.HealthState.INVALID)
            bad.unlink()
            client.tasks.restart(job, [(1, 2)])
            _await_health(client, job, "HEALTHY", "HEALTHY", "DISABLED")
            client.jobs.stop(job)
            _await_health(client, job, "INVALID", "INVALID", "INVALID")


def _await_health(client: Any, job: str, *wanted: str) -> None:
    try:
        c.wait_for(lambda: _health(client, job) == wanted, "the health of each", within_s=60.0)
    except AssertionError:
        assert _health(client, job) == wanted, client.tasks.list(job)
        raise


def _health(client: Any, job: str) -> tuple[str, ...]:
    found = client.tasks.list(job).result.value
    return tuple(task.HealthState.Name(found[number].runtime.healthy) for number in sorted(found))


def _events_say(client: Any, job: str, instance: int, text: str) -> None:
    events = client.tasks.events(job, instance).result
    assert text in [f"{event.healthy}: {event.message}"[: len(text)] for event in events], events


def _last_end(client: Any, job: str, instance: int) -> tuple[str, str] | None:
    for event in client.tasks.events(job, instance).result:
        if event.reason == UNHEALTHY:
            return event.reason, event.message
    return None
