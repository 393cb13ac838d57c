"""Hosts that operators take down: who cannot be spared by name, and the room that is lacking."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from peloton.api.v0.host.svc import host_svc_pb2, host_svc_pb2_grpc
from peloton.api.v0.job import job_pb2
from peloton.ops.v1 import ops_pb2 as ops
from tests.gateway.fleet_fixture import Deployment, default_config, running


def hosts(deployment: Deployment) -> dict[str, ops.Host]:
    return {host.name: host for host in deployment.ops.ListHosts(ops.ListHostsRequest()).hosts}


def drain(deployment: Deployment, name: str) -> None:
    maintenance = host_svc_pb2_grpc.HostServiceStub(deployment.channel)
    maintenance.StartMaintenance(host_svc_pb2.StartMaintenanceRequest(hostname=name))


def large(cpu: float) -> Any:
    found = default_config(600.0)
    found.resource.cpuLimit = cpu
    return found


def test_a_host_names_the_jobs_that_cannot_spare_its_runs(tmp_path: Path) -> None:
    with running(tmp_path) as deployment:
        sla = job_pb2.SlaConfig(maximumUnavailableInstances=1)
        own = {1: large(100.0)}  # no host has so much: it is unavailable
        request = deployment.request(
            2, defaultConfig=default_config(600.0), instanceConfig=own, sla=sla
        )
        request.config.type = job_pb2.SERVICE
        request.config.name = "web"
        job = deployment.create(request)
        deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 1)
        name = deployment.task(job).result.runtime.host
        drain(deployment, name)
        wanted = f"1 run goes on until services can spare them: web ({job[:8]})"
        deployment.until(lambda: hosts(deployment)[name].text == wanted)
        shown = deployment.ops.ShowHost(ops.ShowHostRequest(name=name))
        assert shown.host.text == wanted


def test_a_full_cluster_names_the_hosts_that_operators_have_taken(tmp_path: Path) -> None:
    with running(tmp_path) as deployment:
        first, second, *_ = sorted(hosts(deployment))
        drain(deployment, first)
        deployment.until(lambda: hosts(deployment)[first].state.startswith("DOWN"))
        job = deployment.create(deployment.request(3, defaultConfig=large(4.0)))

        def blocker() -> Any:
            reasons = deployment.ops.Why(ops.WhyRequest(job_id=job)).reasons
            every = [one for reason in reasons for one in reason.blockers]
            return next((one for one in every if one.code == "cluster-full"), None)

        found = deployment.until(blocker)
        assert f"; 1 host is in maintenance, with 4 cpu: {first}" in found.text, found
        assert "peloton host maintenance" in found.change
        complete = host_svc_pb2.CompleteMaintenanceRequest(hostname=first)
        host_svc_pb2_grpc.HostServiceStub(deployment.channel).CompleteMaintenance(complete)
        deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 3)
        assert second in hosts(deployment)
