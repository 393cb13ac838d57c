"""Hosts that are no more: by a person's word, and back by a config's. In a cluster of its own."""

from __future__ import annotations

import grpc
import pytest

from peloton.actors.host.messages import AskBackend, ConfigureHost
from peloton.backends import simulated
from peloton.ops.v1 import ops_pb2 as ops
from peloton.runtime.core.envelope import Envelope
from peloton.runtime.vocabulary import key
from tests.gateway.town import ROOM, Town, default_config


def hosts(town: Town) -> dict[str, ops.Host]:
    return {host.name: host for host in town.ops.ListHosts(ops.ListHostsRequest()).hosts}


def forget(town: Town, name: str, *, lose_runs: bool = False) -> ops.ForgetHostResponse:
    request = ops.ForgetHostRequest(name=name, lose_runs=lose_runs)
    # A client may give a key with whatever it says.
    return town.ops.ForgetHost(request, metadata=[("peloton-request-key", name)])


def refused(town: Town, name: str) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        forget(town, name)
    return caught.value.code(), caught.value.details()


def test_a_host_is_forgotten_its_runs_only_if_they_may_be_and_it_comes_back(town: Town) -> None:
    job = town.create(town.request(3, defaultConfig=default_config(600.0)))
    town.until(lambda: town.job(job).runtime.taskStats["RUNNING"] == 3)
    (name, host), *_ = ((name, host) for name, host in hosts(town).items() if host.runs)
    code, text = refused(town, name)
    assert code is grpc.StatusCode.FAILED_PRECONDITION and f"holds {host.runs} runs" in text
    assert hosts(town)[name].runs == host.runs, "a refusal changes nothing"
    assert forget(town, name, lose_runs=True).runs_lost == host.runs
    town.until(lambda: name not in hosts(town))
    assert refused(town, name) == (grpc.StatusCode.NOT_FOUND, f"no host is called {name}")
    for at in range(3):
        town.until(lambda at=at: town.task(job, at).result.runtime.host != name)
    back = ConfigureHost(ROOM, (), simulated.BACKEND)
    town.region.tell([Envelope(key("host", name), back)])
    town.region.tell([Envelope(simulated.BACKEND, AskBackend(key("host", name)))])
    town.until(lambda: name in hosts(town) and hosts(town)[name].state == "UP")
    assert len(hosts(town)) == 3


def test_nobody_forgets_what_never_was(town: Town) -> None:
    assert refused(town, "nobody")[0] is grpc.StatusCode.NOT_FOUND
