"""Hosts that drain, as tools ask for them: which they are, what runs there, and their marks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import grpc

from peloton.actors.host.messages import PingBackend, StopRuns
from peloton.api.v0.host import host_pb2
from peloton.api.v0.host.svc import host_svc_pb2, host_svc_pb2_grpc
from peloton.backends.simulated import SimulatedBackend
from peloton.private.hostmgr.hostsvc import hostsvc_pb2 as hostsvc
from peloton.private.hostmgr.hostsvc import hostsvc_pb2_grpc
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.vocabulary import key
from tests.gateway.fleet_fixture import HOSTS, Deployment, default_config, refused, running

CODE = grpc.StatusCode


class LateBackend(SimulatedBackend):
    """Orders to stop runs wait until they are let through."""

    def __init__(self) -> None:
        super().__init__(HOSTS)
        self.holds = True
        self._held: list[Envelope] = []

    def receive(self, envelopes: Sequence[Envelope], now: float) -> Iterable[Any]:
        self._held += [one for one in envelopes if isinstance(one.message, StopRuns)]
        if self.holds:
            return super().receive([one for one in envelopes if one not in self._held], now)
        late, self._held = [one for one in self._held if one not in envelopes], []
        return super().receive([*late, *envelopes], now)


def test_a_host_is_draining_while_its_runs_end(tmp_path: Path) -> None:
    backend = LateBackend()
    with running(tmp_path, backend=backend) as deployment:
        hosts = hostsvc_pb2_grpc.InternalHostServiceStub(deployment.channel)
        maintenance = host_svc_pb2_grpc.HostServiceStub(deployment.channel)

        def draining(limit: int = 0) -> list[str]:
            asked = hostsvc.GetDrainingHostsRequest(limit=limit, timeout=60_000)
            return list(hosts.GetDrainingHosts(asked).hostnames)

        def tasks_in(state: int, limit: int = 0) -> list[str]:
            asked = hostsvc.GetTasksByHostStateRequest(host_state=state, limit=limit)  # type: ignore[arg-type]
            return [one.value for one in hosts.GetTasksByHostState(asked).task_ids]

        def mark(name: str) -> hostsvc.MarkHostDrainedRequest:
            return hostsvc.MarkHostDrainedRequest(hostname=name)

        whole = default_config(600.0)
        whole.resource.cpuLimit = 4.0
        job = deployment.create(deployment.request(2, defaultConfig=whole))
        deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 2)
        used = [deployment.task(job, at).result.runtime.host for at in range(2)]
        runs = [f"{job}-{at}-1" for at in range(2)]
        deployment.until(lambda: tasks_in(host_pb2.HOST_STATE_UP) == runs)
        assert len(tasks_in(host_pb2.HOST_STATE_UP, limit=1)) == 1
        assert draining() == [] and tasks_in(host_pb2.HOST_STATE_DRAINING) == []
        for name in used:
            maintenance.StartMaintenance(host_svc_pb2.StartMaintenanceRequest(hostname=name))
        deployment.until(lambda: draining() == sorted(used))
        assert draining(limit=1) == sorted(used)[:1]
        assert sorted(tasks_in(host_pb2.HOST_STATE_DRAINING)) == runs
        code, text = refused(hosts.MarkHostDrained, mark(used[0]))
        assert code is CODE.FAILED_PRECONDITION, text
        assert text == "1 runs have not ended: the host is drained by itself once they have"
        (idle,) = {*HOSTS} - {*used}
        for name in (idle, "nobody"):
            found = refused(hosts.MarkHostDrained, mark(name))
            assert found == (CODE.NOT_FOUND, "Host not in DRAINING state")
        backend.holds = False
        deployment.region.tell([Envelope(backend.key, PingBackend(key("host", idle)))])
        deployment.until(lambda: draining() == [])
        assert refused(hosts.MarkHostDrained, mark(used[0]))[0] is CODE.NOT_FOUND


def test_a_query_without_a_state_is_wrong(deployment: Deployment) -> None:
    hosts = hostsvc_pb2_grpc.InternalHostServiceStub(deployment.channel)
    code, text = refused(hosts.GetTasksByHostState, hostsvc.GetTasksByHostStateRequest())
    assert (code, text) == (CODE.INVALID_ARGUMENT, "host_state: no state is named")


def test_there_is_no_mesos(deployment: Deployment) -> None:
    hosts = hostsvc_pb2_grpc.InternalHostServiceStub(deployment.channel)
    found = refused(hosts.GetMesosMasterHostPort, hostsvc.MesosMasterHostPortRequest())
    assert found == (CODE.UNKNOWN, "unable to fetch leader mesos master hostname & port")
