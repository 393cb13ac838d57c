"""A change that is sent again under its request key has its first answer, and happens once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from peloton.sdk.client import Client
from peloton.sdk.schedules import Timing
from peloton.sdk.stateless import BatchOptions, is_over
from tests.gateway.fleet_fixture import Deployment, until
from tests.gateway.service_specs import service_spec

HOST = "c"
SPEC = {"name": "a", "instanceCount": 1, "defaultConfig": {"command": {"value": "true"}}}
POOL = {"resources": [{"kind": "cpu", "limit": 1}]}


@pytest.fixture(scope="module")
def client(deployment: Deployment) -> Iterator[Client]:
    with Client(deployment.api, timeout_s=60) as client:
        yield client


def ended_job(client: Client) -> str:
    job = str(client.jobs.create("/work", SPEC).jobId.value)
    assert client.ops.wait(job, timeout_s=60).done
    return job


def made_pool(client: Client) -> str:
    path = f"/p{uuid.uuid4().hex[:8]}"
    client.pools.create(path, {"name": path[1:], **POOL})
    return path


def made_schedule(client: Client) -> str:
    name = f"s{uuid.uuid4().hex[:8]}"
    client.schedules.create(name, "/work", config=SPEC, timing=Timing("0 0 1 1 *"))
    return name


def made_service(client: Client) -> tuple[str, str]:
    """Its id, and its version once all of its pods have been made."""
    job = client.stateless.create("/work", service_spec("")).job_id.value
    until(lambda: is_over(client.stateless.get(job).workflow_info.status))
    return job, client.stateless.version(job)


CHANGES: dict[str, tuple[Callable[[Client], Any], Callable[[Client, Any, str], Any]]] = {
    "jobs.delete": (ended_job, lambda c, job, key: c.jobs.delete(job, request_key=key)),
    "jobs.stop": (ended_job, lambda c, job, key: c.jobs.stop(job, request_key=key)),
    "tasks.restart": (ended_job, lambda c, job, key: c.tasks.restart(job, request_key=key)),
    "pods.delete_events": (
        ended_job,
        lambda c, job, key: c.pods.delete_events(f"{job}-0", f"{job}-0-1", request_key=key),
    ),
    "pools.update": (
        made_pool,
        lambda c, path, key: c.pools.update(path, {"name": path[1:], **POOL}, request_key=key),
    ),
    "schedules.pause": (
        made_schedule,
        lambda c, name, key: c.schedules.pause(name, request_key=key),
    ),
    "schedules.delete": (
        made_schedule,
        lambda c, name, key: c.schedules.delete(name, request_key=key),
    ),
    "hosts.create_pool": (
        lambda c: f"h{uuid.uuid4().hex[:8]}",
        lambda c, name, key: c.hosts.create_pool(name, request_key=key),
    ),
    "hosts.start_maintenance": (
        lambda c: None,
        lambda c, _, key: c.hosts.start_maintenance(HOST, request_key=key),
    ),
    "hosts.complete_maintenance": (
        lambda c: until(lambda: c.hosts.query(["down"]).host_infos),
        lambda c, _, key: c.hosts.complete_maintenance(HOST, request_key=key),
    ),
    "services.lock": (
        lambda c: None,
        lambda c, _, key: c.services.lock(["Launch"], request_key=key),
    ),
    "services.unlock": (
        lambda c: None,
        lambda c, _, key: c.services.unlock(["Launch"], request_key=key),
    ),
    "stateless.restart": (
        made_service,
        lambda c, made, key: c.stateless.restart(
            made[0], version=made[1], how=BatchOptions(request_key=key)
        ),
    ),
    "stateless.stop": (
        made_service,
        lambda c, made, key: c.stateless.stop(made[0], version=made[1], request_key=key),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_repeat_has_the_first_answer(client: Client, name: str) -> None:
    make, change = CHANGES[name]
    made, key = make(client), str(uuid.uuid4())
    first = change(client, made, key)
    assert change(client, made, key) == first
