"""HostService: hosts by state, maintenance that moves what runs. Clusters of their own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from peloton.api.v0.host import host_pb2
from peloton.api.v0.host.svc import host_svc_pb2, host_svc_pb2_grpc
from peloton.api.v1alpha.host.svc import host_svc_pb2 as host_svc_v1_pb2
from peloton.api.v1alpha.host.svc import host_svc_pb2_grpc as host_svc_v1_pb2_grpc
from peloton.backends import simulated
from peloton.backends.port import Backend
from peloton.backends.process import ProcessBackend
from tests.gateway.fleet_fixture import (
    HOSTS,
    WAIT_S_MAX,
    Deployment,
    default_config,
    refused,
    running,
)

UP, DRAINING = host_pb2.HOST_STATE_UP, host_pb2.HOST_STATE_DRAINING
DOWN = host_pb2.HOST_STATE_DOWN
CODE = grpc.StatusCode
GENERATIONS = {
    "v0": (host_svc_pb2, host_svc_pb2_grpc),
    "v1alpha": (host_svc_v1_pb2, host_svc_v1_pb2_grpc),
}


@pytest.fixture(params=GENERATIONS)
def service(request: Any, tmp_path: Path) -> Iterator[tuple[Deployment, Any, Any]]:
    """A cluster, the stub of a generation and its messages."""
    svc, grpc_module = GENERATIONS[request.param]
    with running(tmp_path) as deployment:
        yield deployment, grpc_module.HostServiceStub(deployment.channel), svc


def states(stub: Any, svc: Any, *wanted: int) -> dict[str, int]:
    infos = stub.QueryHosts(svc.QueryHostsRequest(host_states=wanted)).host_infos
    assert len({info.hostname for info in infos}) == len(infos), "a host is listed once"
    return {info.hostname: info.state for info in infos}


def test_an_idle_host_goes_down_and_comes_back(service: tuple[Deployment, Any, Any]) -> None:
    deployment, stub, svc = service
    assert states(stub, svc) == states(stub, svc, UP) == dict.fromkeys(HOSTS, UP)
    assert stub.StartMaintenance(svc.StartMaintenanceRequest(hostname="a")).hostname == "a"
    deployment.until(lambda: states(stub, svc, DOWN) == {"a": DOWN})
    assert states(stub, svc, UP) == {"b": UP, "c": UP}
    (info,) = stub.QueryHosts(svc.QueryHostsRequest(host_states=[DOWN])).host_infos
    assert info.goal_state == DOWN
    assert stub.CompleteMaintenance(svc.CompleteMaintenanceRequest(hostname="a")).hostname == "a"
    assert states(stub, svc)["a"] == UP, "in the very next answer"


def test_refusals_have_the_texts_of_the_contract(service: tuple[Deployment, Any, Any]) -> None:
    _, stub, svc = service
    start, complete = stub.StartMaintenance, stub.CompleteMaintenance
    unknown = refused(start, svc.StartMaintenanceRequest(hostname="nobody"))
    assert unknown == (CODE.ABORTED, "host is not a Peloton agent")
    up = refused(complete, svc.CompleteMaintenanceRequest(hostname="a"))
    assert up == (CODE.NOT_FOUND, "Host is not DOWN")
    unknown = refused(complete, svc.CompleteMaintenanceRequest(hostname="nobody"))
    assert unknown[0] is CODE.NOT_FOUND
    assert refused(start, svc.StartMaintenanceRequest())[0] is CODE.INVALID_ARGUMENT


def test_of_a_list_all_are_tried_and_errors_are_combined(
    service: tuple[Deployment, Any, Any],
) -> None:
    deployment, stub, svc = service
    sent = svc.StartMaintenanceRequest(hostnames=["nobody", "a", "b", "a"])
    code, text = refused(stub.StartMaintenance, sent)
    assert (code, text) == (CODE.INTERNAL, "nobody: host is not a Peloton agent")
    deployment.until(lambda: states(stub, svc, DOWN) == {"a": DOWN, "b": DOWN})
    answer = stub.CompleteMaintenance(svc.CompleteMaintenanceRequest(hostnames=["a", "b"]))
    assert answer.hostname == ""
    assert states(stub, svc, UP).keys() == {*HOSTS}


def test_of_the_first_generation_a_host_says_its_pool(tmp_path: Path) -> None:
    with running(tmp_path) as deployment:
        stub = host_svc_pb2_grpc.HostServiceStub(deployment.channel)
        infos = stub.QueryHosts(host_svc_pb2.QueryHostsRequest()).host_infos
    assert {(info.current_pool, info.desired_pool) for info in infos} == {("default", "default")}


def backend_of(name: str, folder: Path) -> Backend:
    if name == "simulated":
        return simulated.SimulatedBackend(HOSTS)
    return ProcessBackend(folder / "keeper", HOSTS)


@pytest.mark.parametrize("name", ["simulated", "process"])
def test_what_runs_is_moved_and_not_charged(name: str, tmp_path: Path) -> None:
    backend = backend_of(name, tmp_path.resolve())
    with running(tmp_path, backend=backend) as deployment:
        stub = host_svc_pb2_grpc.HostServiceStub(deployment.channel)
        lasting = default_config(600.0)
        lasting.command.value = "sleep 600"
        job = deployment.create(deployment.request(6, defaultConfig=lasting))
        deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 6)
        used = {at: deployment.task(job, at).result.runtime.host for at in range(6)}
        moved = [at for at, host in used.items() if host == used[0]]
        stub.StartMaintenance(host_svc_pb2.StartMaintenanceRequest(hostname=used[0]))
        deployment.until(lambda: states(stub, host_svc_pb2, DOWN) == {used[0]: DOWN})
        deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 6)
        for at in range(6):
            answer = deployment.task(job, at)
            assert answer.result.runtime.host != used[0]
            assert answer.result.runtime.failureCount == 0
            if at in moved:
                (past,) = answer.results[1:]
                assert past.runtime.reason == "host maintenance", past
        assert not isinstance(backend, ProcessBackend) or backend.stop_all(WAIT_S_MAX)
    backend.close()
    while (tmp_path / "keeper").exists():  # without its folder the keeper leaves
        shutil.rmtree(tmp_path / "keeper", ignore_errors=True)
