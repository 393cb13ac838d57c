"""Where the instances of a service are: over gRPC, over HTTP, printed, and in a file."""

from __future__ import annotations

import http.client
import json
import threading
from pathlib import Path
from typing import Any

import grpc
import pytest

from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2 as task
from peloton.cli.shared import exits
from peloton.gateway.access.file_links import FileLinks
from peloton.gateway.cluster.files_anywhere import FileRoots
from peloton.gateway.http_server import HttpAccess, HttpServer
from peloton.ops.v1 import endpoints_pb2, endpoints_pb2_grpc
from peloton.settings.config import Address
from tests.cli.terminal import typed
from tests.gateway.fleet_fixture import (
    WAIT_S_MAX,
    Deployment,
    default_config,
    named,
    refused,
    until,
)

NOBODY = "8c95fa0c-d174-40cd-ac17-6a1a166ec1a8"
NOT_FOUND = (grpc.StatusCode.NOT_FOUND, "job not found")


def service(deployment: Deployment, instances: int = 2) -> str:
    """A service with a port that hosts pick."""
    config = default_config(600.0)
    config.ports.add(name="http", envName="PORT")
    request = deployment.request(instances, defaultConfig=config, name="web")
    request.config.type = job_pb2.SERVICE
    job = deployment.create(request)
    deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == instances)
    return job


def stop(deployment: Deployment, job: str, instance: int) -> None:
    sent = task.StopRequest(jobId=named(job), ranges=[{"from": instance, "to": instance + 1}])
    deployment.tasks.Stop(sent)
    deployment.until(lambda: deployment.job(job).runtime.taskStats["KILLED"] == 1)


def got(address: Address, path: str, **headers: str) -> tuple[int, Any]:
    link = http.client.HTTPConnection(address.host, address.port, timeout=WAIT_S_MAX)
    link.request("GET", path, headers=headers)
    answer = link.getresponse()
    body = answer.read()
    return answer.status, json.loads(body) if body.startswith(b"{") else body.decode()


def test_what_runs_is_found_with_its_ports(deployment: Deployment) -> None:
    job = service(deployment)
    stub = endpoints_pb2_grpc.EndpointsStub(deployment.channel)
    sent = endpoints_pb2.ListEndpointsRequest(job_id=job)
    found = stub.ListEndpoints(sent)
    assert (found.job_id, found.name, found.instances) == (job, "web", 2)
    assert [one.instance for one in found.endpoints] == [0, 1]
    for one in found.endpoints:
        assert one.pod == f"{job}-{one.instance}" and one.run == f"{one.pod}-1"
        assert one.host in ("a", "b", "c") and one.ports["http"] > 0 and one.health == "DISABLED"
    places = {(one.host, one.ports["http"]) for one in found.endpoints}
    assert len(places) == 2

    status, shown = got(deployment.http, f"/services/{job}/endpoints")
    assert status == 200 and shown["instances"] == 2
    assert {(one["host"], one["ports"]["http"]) for one in shown["endpoints"]} == places

    stop(deployment, job, 0)
    assert [one.instance for one in stub.ListEndpoints(sent).endpoints] == [1]


@pytest.mark.parametrize("job", ["", "x", NOBODY])
def test_of_a_job_that_does_not_exist(deployment: Deployment, job: str) -> None:
    stub = endpoints_pb2_grpc.EndpointsStub(deployment.channel)
    sent = endpoints_pb2.ListEndpointsRequest(job_id=job)
    assert refused(stub.ListEndpoints, sent) == NOT_FOUND
    if job:
        answer = got(deployment.http, f"/services/{job}/endpoints")
        assert answer == (404, {"error": "job not found"})


def test_over_http_they_are_for_who_has_the_token(deployment: Deployment, tmp_path: Path) -> None:
    job = service(deployment, 1)
    access = HttpAccess(FileLinks(b"k" * 32), lambda shown: shown == "Bearer t")
    here = Address("127.0.0.1", 0)
    server = HttpServer(here, deployment.region, sandboxes=FileRoots(tmp_path), access=access)
    try:
        path = f"/services/{job}/endpoints"
        assert got(server.address, path)[0] == 403
        assert got(server.address, path, Authorization="Bearer x")[0] == 403
        assert got(server.address, path, Authorization="Bearer t")[0] == 200
    finally:
        server.close()


def test_they_are_printed_and_written(deployment: Deployment, tmp_path: Path) -> None:
    job = service(deployment, 1)
    where = ("--api", deployment.api, "service", "endpoints")
    table = typed(*where, job)
    assert table.code == 0 and "http=" in table.out and f"{job}-0" in table.out
    shown = typed(*where, job, "-o", "json")
    assert json.loads(shown.out)["endpoints"][0]["pod"] == f"{job}-0"
    path = tmp_path / "endpoints.json"
    assert typed(*where, job, "--file", str(path)).code == 0
    assert json.loads(path.read_text()) == json.loads(shown.out)
    assert [*tmp_path.iterdir()] == [path], "nothing else is left there"
    wrong = typed(*where, job, "--follow")
    assert wrong.code == 64 and "--follow needs --file" in wrong.err
    assert typed(*where, NOBODY).code == exits.NOT_FOUND_EXIT


def test_a_file_follows_the_service(deployment: Deployment, tmp_path: Path) -> None:
    job = service(deployment)
    path = tmp_path / "endpoints.json"
    words = ("--api", deployment.api, "service", "endpoints", job, "--file", str(path), "--follow")
    printed: list[Any] = []
    follower = threading.Thread(target=lambda: printed.append(typed(*words)), daemon=True)
    follower.start()

    def instances() -> list[int]:
        if not path.exists():
            return []
        return [one["instance"] for one in json.loads(path.read_text())["endpoints"]]

    until(lambda: instances() == [0, 1])
    written = path.stat().st_ino
    stop(deployment, job, 1)
    until(lambda: instances() == [0])
    assert path.stat().st_ino != written, "it was replaced"
    deployment.tasks.Stop(task.StopRequest(jobId=named(job)))
    until(lambda: instances() == [])
    until(lambda: deployment.job(job).runtime.state == job_pb2.KILLED)
    deployment.jobs.Delete(job_pb2.DeleteRequest(id=named(job)))
    until(lambda: printed)
    assert printed[0].code == exits.NOT_FOUND_EXIT and "job not found" in printed[0].err
    assert instances() == []
