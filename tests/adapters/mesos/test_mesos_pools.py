"""Pools of hosts on the agents of a real Mesos, by the calls of both generations.

A move drains a host, and leaves its machine alone: the master hears nothing of it, and its agent
goes on.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.mesos.mesos_daemon import job_file, on_mesos, operated, said
from tests.adapters.mesos.test_mesos_maintenance import running, state
from tests.adapters.test_daemon_wiring import until
from tests.channels import channel_to
from tests.e2e.cluster import until_there
from tests.gateway.v0.test_host_moves import move
from tests.gateway.v0.test_host_pools import change, pools
from tests.gateway.v0.test_host_service import GENERATIONS
from tests.servers import mesos_home

HOSTS = ["mesos.h1", "mesos.h2"]


def in_pool(name: str) -> dict[str, Any]:
    """The constraint that names a pool of hosts."""
    label = {"key": "host_pool", "value": name}
    equal = {"kind": "HOST", "condition": "CONDITION_EQUAL", "label": label, "requirement": 1}
    return {"type": "LABEL_CONSTRAINT", "labelconstraint": equal}


@pytest.mark.timeout(300)
def test_hosts_of_mesos_are_pooled_and_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mesos_home.needed_home()
    gate = tmp_path / "gate"
    with on_mesos(tmp_path, monkeypatch) as mesos, channel_to(os.environ["PELOTON_API"]) as channel:
        for svc, grpc_module in GENERATIONS.values():
            stub = grpc_module.HostServiceStub(channel)
            assert pools(stub, svc) == {"default": HOSTS}
            stub.CreateHostPool(svc.CreateHostPoolRequest(name="shared"))
            stub.ChangeHostPool(change(svc, HOSTS[0], "default", "shared"))
            assert pools(stub, svc) == {"default": HOSTS[1:], "shared": HOSTS[:1]}
            stub.DeleteHostPool(svc.DeleteHostPoolRequest(name="shared"))
        svc, grpc_module = GENERATIONS["v0"]
        stub = grpc_module.HostServiceStub(channel)
        for name in ("shared", "stateless"):
            stub.CreateHostPool(svc.CreateHostPoolRequest(name=name))
        for host in HOSTS:
            stub.ChangeHostPool(change(svc, host, "default", "shared"))
        said("respool", "create", "/HelloWorldPool", "examples/hello_world_pool.yaml")
        file = job_file(tmp_path, until_there(gate), task={"constraint": in_pool("shared")})
        job = said("job", "create", "/HelloWorldPool", file).split()[1]
        until(lambda: sum(running(job, host) for host in HOSTS) == 4)
        stub.MoveHosts(move("shared", 1, "stateless", 1))
        (moved,) = until(lambda: pools(stub, svc)["stateless"])
        (left,) = pools(stub, svc)["shared"]
        until(lambda: (state(moved), running(job, left)) == ("UP", 4))
        assert operated(mesos, "GET_MAINTENANCE_SCHEDULE") == {"schedule": {}}
        assert len(mesos.registered()) == 2, "the agent goes on"
        gate.touch()
        assert "4 SUCCEEDED" in said("job", "wait", job)
        agent = next(one for one in mesos.agents if moved == f"mesos.{one.hostname}")
        agent.kill()
        mesos.restart(agent, recover=False)
        until(lambda: state(moved) == "UP")
        assert pools(stub, svc) == {"default": [], "shared": [left], "stateless": [moved]}
