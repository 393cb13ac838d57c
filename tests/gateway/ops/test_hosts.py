"""Hosts that come and go: by a person's word, a config's, or a backend's. Clusters of their own."""

from __future__ import annotations

import shutil
from pathlib import Path

import grpc
import pytest

from peloton.actors.host.machine_messages import AddHost, RemoveHost
from peloton.actors.host.messages import ConfigureHost, PingBackend
from peloton.backends import simulated
from peloton.backends.port import Backend
from peloton.backends.process import ProcessBackend
from peloton.ops.v1 import ops_pb2 as ops
from peloton.placement.messages import Label
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.vocabulary import key
from tests.gateway.fleet_fixture import HOSTS, ROOM, WAIT_S_MAX, Deployment, default_config, running


def hosts(deployment: Deployment) -> dict[str, ops.Host]:
    return {host.name: host for host in deployment.ops.ListHosts(ops.ListHostsRequest()).hosts}


def forget(deployment: Deployment, name: str, *, lose_runs: bool = False) -> ops.ForgetHostResponse:
    request = ops.ForgetHostRequest(name=name, lose_runs=lose_runs)
    # A client may give a key with whatever it says.
    return deployment.ops.ForgetHost(request, metadata=[("peloton-request-key", name)])


def refused(deployment: Deployment, name: str) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        forget(deployment, name)
    return caught.value.code(), caught.value.details()


def back_again(deployment: Deployment, name: str) -> None:
    """A forgotten host is configured again."""
    labels = (Label("rack", "r1"),)
    back = ConfigureHost(ROOM, labels, simulated.SIMULATED_BACKEND)
    deployment.region.tell([Envelope(key("host", name), back)])
    deployment.region.tell([Envelope(simulated.SIMULATED_BACKEND, PingBackend(key("host", name)))])
    deployment.until(lambda: name in hosts(deployment) and hosts(deployment)[name].state == "UP")


def test_a_host_is_forgotten_its_runs_only_if_they_may_be_and_it_comes_back(
    deployment: Deployment,
) -> None:
    job = deployment.create(deployment.request(3, defaultConfig=default_config(600.0)))
    deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 3)
    (name, host), *_ = ((name, host) for name, host in hosts(deployment).items() if host.runs)
    code, text = refused(deployment, name)
    assert code is grpc.StatusCode.FAILED_PRECONDITION and f"holds {host.runs} runs" in text
    assert hosts(deployment)[name].runs == host.runs, "a refusal changes nothing"
    assert forget(deployment, name, lose_runs=True).runs_lost == host.runs
    deployment.until(lambda: name not in hosts(deployment))
    assert refused(deployment, name) == (grpc.StatusCode.NOT_FOUND, f"no such host: {name}")
    for at in range(3):
        deployment.until(lambda at=at: deployment.task(job, at).result.runtime.host != name)
    back_again(deployment, name)
    assert len(hosts(deployment)) == 3


def test_nobody_forgets_what_never_was(deployment: Deployment) -> None:
    assert refused(deployment, "nobody")[0] is grpc.StatusCode.NOT_FOUND


def backend_of(name: str, folder: Path) -> Backend:
    if name == "simulated":
        return simulated.SimulatedBackend(HOSTS)
    return ProcessBackend(folder / "keeper", HOSTS)


@pytest.mark.parametrize("name", ["simulated", "process"])
def test_hosts_come_and_go_while_the_cluster_runs(name: str, tmp_path: Path) -> None:
    """Through the backend alone: what waits for room runs on the new host, and outlasts it."""
    backend = backend_of(name, tmp_path.resolve())
    new = AddHost(key("host", "new"), ROOM)
    with running(tmp_path, backend=backend) as deployment:
        whole = default_config(600.0)
        whole.resource.cpuLimit, whole.command.value = 3.0, "sleep 600"  # one fits on a host
        job = deployment.create(deployment.request(4, defaultConfig=whole))
        deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 3)
        assert hosts(deployment).keys() == {*HOSTS}
        deployment.region.tell([Envelope(backend.key, new)])
        deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 4)
        assert (hosts(deployment)["new"].state, hosts(deployment)["new"].runs) == ("UP", 1)
        deployment.region.tell([Envelope(backend.key, RemoveHost(new.host, "unplugged"))])
        deployment.until(lambda: hosts(deployment)["new"].state == "UNREACHABLE")
        assert deployment.job(job).runtime.taskStats["RUNNING"] == 4, "its run may go on"
        deployment.region.tell([Envelope(backend.key, new)])
        deployment.until(lambda: hosts(deployment)["new"].state == "UP")
        assert hosts(deployment)["new"].runs == 1
        assert deployment.job(job).runtime.taskStats["RUNNING"] == 4
        assert backend.stop_all(WAIT_S_MAX)
    backend.close()
    while (tmp_path / "keeper").exists():  # without its folder the keeper leaves
        shutil.rmtree(tmp_path / "keeper", ignore_errors=True)
