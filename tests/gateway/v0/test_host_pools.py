"""Pools of hosts as clients make, list and change them, and what is placed there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from peloton.api.v0.host.svc import host_svc_pb2, host_svc_pb2_grpc
from peloton.api.v0.task import task_pb2
from peloton.private.hostmgr.hostsvc import hostsvc_pb2 as hostsvc
from peloton.private.hostmgr.hostsvc import hostsvc_pb2_grpc
from tests.cli.terminal import typed
from tests.gateway.fleet_fixture import HOSTS, Deployment, default_config, refused, running
from tests.gateway.v0.test_host_service import GENERATIONS

CODE = grpc.StatusCode


@pytest.fixture(params=GENERATIONS)
def service(request: Any, tmp_path: Path) -> Iterator[tuple[Deployment, Any, Any]]:
    """A cluster, the stub of a generation and its messages."""
    svc, grpc_module = GENERATIONS[request.param]
    with running(tmp_path) as deployment:
        yield deployment, grpc_module.HostServiceStub(deployment.channel), svc


def pools(stub: Any, svc: Any) -> dict[str, list[str]]:
    return {one.name: [*one.hosts] for one in stub.ListHostPools(svc.ListHostPoolsRequest()).pools}


def change(svc: Any, host: str, source: str, destination: str) -> Any:
    return svc.ChangeHostPoolRequest(
        hostname=host, sourcePool=source, destinationPool=destination
    )  # fmt: skip


def test_hosts_change_their_pool(service: tuple[Deployment, Any, Any]) -> None:
    _, stub, svc = service
    assert pools(stub, svc) == {"default": [*HOSTS]}
    stub.CreateHostPool(svc.CreateHostPoolRequest(name="x"))
    stub.CreateHostPool(svc.CreateHostPoolRequest(name="shared"))
    stub.ChangeHostPool(change(svc, "b", "default", "x"))
    assert pools(stub, svc) == {"default": ["a", "c"], "shared": [], "x": ["b"]}
    stub.ChangeHostPool(change(svc, "b", "x", "x"))
    stub.ChangeHostPool(change(svc, "c", "default", "x"))
    stub.ChangeHostPool(change(svc, "b", "x", "shared"))
    assert pools(stub, svc) == {"default": ["a"], "shared": ["b"], "x": ["c"]}
    stub.DeleteHostPool(svc.DeleteHostPoolRequest(name="x"))
    assert pools(stub, svc) == {"default": ["a", "c"], "shared": ["b"]}
    stub.CreateHostPool(svc.CreateHostPoolRequest(name="y"))
    assert pools(stub, svc)["y"] == []


def test_what_is_wrong_is_refused_by_its_code(service: tuple[Deployment, Any, Any]) -> None:
    _, stub, svc = service
    stub.CreateHostPool(svc.CreateHostPoolRequest(name="x"))
    create, delete = svc.CreateHostPoolRequest, svc.DeleteHostPoolRequest
    cases = [
        (stub.CreateHostPool, create(), CODE.INVALID_ARGUMENT, "name"),
        (stub.CreateHostPool, create(name="a b"), CODE.INVALID_ARGUMENT, "letters"),
        (stub.CreateHostPool, create(name="x"), CODE.ALREADY_EXISTS, "already exists"),
        (stub.CreateHostPool, create(name="default"), CODE.ALREADY_EXISTS, "already exists"),
        (stub.DeleteHostPool, delete(name="default"), CODE.INVALID_ARGUMENT, "default pool"),
        (stub.DeleteHostPool, delete(name="y"), CODE.NOT_FOUND, "not found"),
        (stub.DeleteHostPool, delete(), CODE.NOT_FOUND, "not found"),
        (stub.ChangeHostPool, change(svc, "z", "default", "x"), CODE.NOT_FOUND, "host not found"),
        (stub.ChangeHostPool, change(svc, "a", "x", "x"), CODE.INVALID_ARGUMENT,
         "source pool mismatch"),
        (stub.ChangeHostPool, change(svc, "a", "default", "y"), CODE.INVALID_ARGUMENT,
         "invalid dest pool"),
    ]  # fmt: skip
    for call, sent, wanted, part in cases:
        code, text = refused(call, sent)
        assert code is wanted and part in text, (sent, code, text)
    assert pools(stub, svc) == {"default": [*HOSTS], "x": []}


def test_a_task_goes_where_its_pool_says_and_no_other_goes_there(tmp_path: Path) -> None:
    svc = host_svc_pb2
    with running(tmp_path) as deployment:
        stub = host_svc_pb2_grpc.HostServiceStub(deployment.channel)
        stub.CreateHostPool(svc.CreateHostPoolRequest(name="mine"))
        stub.ChangeHostPool(change(svc, "b", "default", "mine"))

        def hosts_of(config: task_pb2.TaskConfig, count: int) -> list[str]:
            job = deployment.create(deployment.request(count, defaultConfig=config))
            deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == count)
            found = [deployment.task(job, at).result.runtime.host for at in range(count)]
            deployment.tasks.Stop(task_pb2.StopRequest(jobId={"value": job}))
            deployment.ended(job)
            return found

        plain, mine, either = (default_config(600.0) for _ in range(3))
        for config, requirement in ((mine, 0), (either, 2)):
            leaf = config.constraint.labelConstraint
            config.constraint.type = task_pb2.Constraint.LABEL_CONSTRAINT
            leaf.kind, leaf.requirement = task_pb2.LabelConstraint.HOST, requirement
            above = requirement == 0
            leaf.condition = (
                task_pb2.LabelConstraint.CONDITION_GREATER_THAN
                if above
                else task_pb2.LabelConstraint.CONDITION_LESS_THAN
            )
            leaf.label.key, leaf.label.value = "host_pool", "mine"
        plain.resource.cpuLimit = mine.resource.cpuLimit = either.resource.cpuLimit = 2.0
        # `a` and `c` have room for four of them, and "b" would have for two more.
        assert {*hosts_of(plain, 4)} == {"a", "c"}
        assert {*hosts_of(mine, 2)} == {"b"}
        assert {*hosts_of(either, 6)} == {*HOSTS}
        infos = stub.QueryHosts(svc.QueryHostsRequest()).host_infos
        assert [(one.current_pool, one.desired_pool) for one in infos] == [
            ("default", "default"), ("mine", "mine"), ("default", "default")
        ]  # fmt: skip
        assert {label.key for one in infos for label in one.labels} == {"rack"}
        # The pool is deleted while a task waits that may not use it.
        plain.resource.cpuLimit = 4.0
        job = deployment.create(deployment.request(3, defaultConfig=plain))
        deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 2)
        stub.DeleteHostPool(svc.DeleteHostPoolRequest(name="mine"))
        deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 3)


def test_each_pool_has_what_its_hosts_have(tmp_path: Path) -> None:
    with running(tmp_path) as deployment:
        stub = host_svc_pb2_grpc.HostServiceStub(deployment.channel)
        hosts = hostsvc_pb2_grpc.InternalHostServiceStub(deployment.channel)
        stub.CreateHostPool(host_svc_pb2.CreateHostPoolRequest(name="mine"))
        stub.ChangeHostPool(change(host_svc_pb2, "b", "default", "mine"))
        found = hosts.GetHostPoolCapacity(hostsvc.GetHostPoolCapacityRequest()).pools
        cpus = {
            one.poolName: [each.capacity for each in one.physicalCapacity if each.kind == "cpu"]
            for one in found
        }
        assert cpus == {"default": [8.0], "mine": [4.0]}
        assert {each.capacity for one in found for each in one.slackCapacity} == {0.0}


def test_commands_that_change_pools(tmp_path: Path) -> None:
    with running(tmp_path) as deployment:

        def said(*words: str) -> tuple[int, str]:
            printed = typed("--api", deployment.api, "hostmgr", "hostpool", *words)
            return printed.code, printed.out + printed.err

        assert said("create", "x", "--dry-run") == (0, "would create the host pool x\n")
        assert said("create", "x") == (0, 'Created host pool "x".\n')
        assert said("create", "x")[0] != 0
        assert said("change", "a", "x", "--dry-run") == (0, "would move host a from default to x\n")
        assert said("change", "a", "x") == (0, 'Pool for host "a" changed to "x".\n')
        code, text = said("change", "a", "default", "--source", "default")
        assert code != 0 and "source pool mismatch" in text
        assert said("change", "nobody", "x")[0] == 66
        assert said("list-hosts", "x") == (0, "a\n")
        text = "would delete the host pool x; its 1 hosts would be in default\n"
        assert said("delete", "x", "--dry-run") == (0, text)
        assert said("delete", "x") == (0, 'Deleted host pool "x".\n')
        assert said("delete", "x")[0] == 66
        assert said("list-hosts", "default") == (0, "a\nb\nc\n")
