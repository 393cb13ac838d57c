"""MoveHosts: hosts of `shared` drain, change their pool, and come back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from peloton.api.v0.host import host_pb2
from peloton.api.v0.host.svc import host_svc_pb2 as svc
from peloton.api.v0.host.svc import host_svc_pb2_grpc
from tests.gateway.fleet_fixture import HOSTS, Deployment, refused, running
from tests.gateway.private.test_holds import CODE, config
from tests.gateway.v0.test_host_pools import pools


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[tuple[Deployment, Any]]:
    """Every host in the pool `shared`, and an empty pool besides."""
    with running(tmp_path) as deployment:
        stub = host_svc_pb2_grpc.HostServiceStub(deployment.channel)
        for name in ("shared", "stateless"):
            stub.CreateHostPool(svc.CreateHostPoolRequest(name=name))
        for name in HOSTS:
            stub.ChangeHostPool(
                svc.ChangeHostPoolRequest(
                    hostname=name, sourcePool="default", destinationPool="shared"
                )
            )
        yield deployment, stub


def move(source: str, of_source: int, to: str, of_destination: int) -> svc.MoveHostsRequest:
    return svc.MoveHostsRequest(
        sourcePool=source,
        srcPoolDesiredHosts=of_source,
        destinationPool=to,
        destPoolDesiredHosts=of_destination,
    )


def states(stub: Any) -> dict[str, tuple[str, str, str]]:
    found = stub.QueryHosts(svc.QueryHostsRequest()).host_infos
    name = host_pb2.HostState.Name
    return {one.hostname: (name(one.state), one.current_pool, one.desired_pool) for one in found}


def test_the_cheapest_hosts_drain_and_move(fleet: tuple[Deployment, Any]) -> None:
    deployment, stub = fleet
    task = config(cpu=4.0)
    task.constraint.type = task.constraint.LABEL_CONSTRAINT
    leaf = task.constraint.labelConstraint
    leaf.kind, leaf.condition, leaf.requirement = leaf.HOST, leaf.CONDITION_EQUAL, 1
    leaf.label.key, leaf.label.value = "host_pool", "shared"
    job = deployment.create(deployment.request(3, defaultConfig=task, sla={"preemptible": True}))
    deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 3)
    stub.MoveHosts(move("shared", 2, "stateless", 1))
    deployment.until(lambda: len(pools(stub, svc)["stateless"]) == 1)
    (moved,) = pools(stub, svc)["stateless"]
    up = "HOST_STATE_UP"
    deployment.until(lambda: states(stub)[moved] == (up, "stateless", "stateless"))
    # One has no host any more.
    deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 2)
    before = pools(stub, svc)
    stub.MoveHosts(move("shared", 2, "stateless", 1))
    assert pools(stub, svc) == before, "there are enough already"
    assert {*states(stub).values()} == {(up, "shared", "shared"), (up, "stateless", "stateless")}


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (move("x", 0, "stateless", 1), "source pool doesn't exist"),
        (move("shared", 0, "x", 1), "destination pool doesn't exist"),
        (move("default", 0, "stateless", 1), "move Not supported for source pool"),
        (move("shared", 2, "stateless", 2), "the source would shrink by 1"),
        (move("shared", 0, "stateless", 4), "fewer hosts than are to be moved"),
    ],
)
def test_what_cannot_be_moved_is_said(
    fleet: tuple[Deployment, Any], request_: svc.MoveHostsRequest, text: str
) -> None:
    _, stub = fleet
    code, said = refused(stub.MoveHosts, request_)
    assert code is CODE.UNKNOWN and text in said
    assert pools(stub, svc)["shared"] == [*HOSTS]


def test_hosts_that_may_not_be_emptied_are_not_moved(fleet: tuple[Deployment, Any]) -> None:
    deployment, stub = fleet
    stub.StartMaintenance(svc.StartMaintenanceRequest(hostname="a"))
    deployment.until(lambda: states(stub)["a"][0] == "HOST_STATE_DOWN")
    code, said = refused(stub.MoveHosts, move("shared", 0, "stateless", 3))
    assert (code, said) == (CODE.UNKNOWN, "not enough hosts to move")
    stub.MoveHosts(move("shared", 1, "stateless", 2))
    deployment.until(lambda: pools(stub, svc)["stateless"] == ["b", "c"])
    assert states(stub)["a"] == ("HOST_STATE_DOWN", "shared", "shared")
