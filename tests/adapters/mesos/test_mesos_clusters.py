"""One daemon, and hosts of two clusters of Mesos: one tree of pools over both.

The masters are scripted, so that one can die at once and come back. What a real one does stands in
test_mesos_fleet.py.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from peloton.api.v0.host.svc import host_svc_pb2, host_svc_pb2_grpc
from peloton.api.v1alpha.host.svc import host_svc_pb2 as host_svc_v1_pb2
from peloton.api.v1alpha.host.svc import host_svc_pb2_grpc as host_svc_v1_pb2_grpc
from peloton.assembly.daemon import Daemon
from peloton.settings.daemon import parse
from tests.adapters.test_daemon_wiring import until
from tests.channels import channel_to
from tests.cli.terminal import typed
from tests.gateway.fleet_fixture import Deployment, default_config
from tests.servers.scripted_http import Reply
from tests.servers.scripted_master import ScriptedMaster

HOSTS = ("east.h1", "east.h2", "west.h1")
TOTAL = {"cpus": 4.0, "mem": 8192.0, "disk": 40_000.0}
"""Three of these have room for the pool of a deployment."""


@pytest.fixture
def masters() -> Iterator[dict[str, ScriptedMaster]]:
    with (
        ScriptedMaster(agents=2, total=TOTAL) as east,
        ScriptedMaster(agents=1, total=TOTAL) as west,
    ):
        yield {"east": east, "west": west}


@pytest.fixture
def daemon(
    masters: dict[str, ScriptedMaster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Daemon]:
    raw: dict[str, Any] = {
        "cluster": "test",
        "listen": dict.fromkeys(("grpc", "http"), "127.0.0.1:0"),
        "journal": {"sqlite": {"folder": "data"}},
        "backend": {
            "mesos": [
                {"name": name, "master": one.address, "batch_executor": "command"}
                for name, one in masters.items()
            ]
        },
        "shards": {"jobmgr": 1, "hostmgr": 2},
    }
    made = Daemon(parse(raw, tmp_path), failed=lambda: None)
    try:
        monkeypatch.setenv("PELOTON_API", str(made.grpc))
        until(lambda: all(up(name) for name in HOSTS))
        yield made
    finally:
        made.stop()


def up(host: str) -> bool:
    """Whether it is listed, and as one that can be used."""
    rows = [line.split("|") for line in typed("host", "list").out.splitlines()]
    return any([cell.strip() for cell in row[:2]] == [host, "UP"] for row in rows)


def noted(daemon: Daemon) -> str:
    """What /health says."""
    with urllib.request.urlopen(f"http://{daemon.http}/health") as answer:
        return str(answer.read().decode())


@pytest.fixture
def deployment(daemon: Daemon) -> Iterator[Deployment]:
    with channel_to(daemon.grpc) as channel:
        yield Deployment(daemon._region, channel, http=daemon.http)


def sleeping(seconds: int) -> Any:
    """A task that goes on, on a scripted master, or ends at once."""
    config = default_config()
    config.command.value = f"sleep {seconds}"
    config.resource.cpuLimit = 3.0  # one on each host
    return config


def states(deployment: Deployment, job: str) -> dict[str, int]:
    stats = deployment.job(job).runtime.taskStats
    return {state: count for state, count in stats.items() if count}


def running(deployment: Deployment) -> str:
    """A job with one instance on each host."""
    job = deployment.create(deployment.request(3, defaultConfig=sleeping(1000)))
    until(lambda: states(deployment, job) == {"RUNNING": 3})
    return job


def finish(master: ScriptedMaster) -> None:
    """All its tasks end well."""
    for task in master.model.tasks:
        master.exits(task, 0)


def test_hosts_have_the_addresses_of_their_agents(daemon: Daemon) -> None:
    with channel_to(daemon.grpc) as channel:
        for svc, stubs in (
            (host_svc_pb2, host_svc_pb2_grpc), (host_svc_v1_pb2, host_svc_v1_pb2_grpc)
        ):  # fmt: skip
            asked = stubs.HostServiceStub(channel).QueryHosts(svc.QueryHostsRequest())
            assert {info.hostname: info.ip for info in asked.host_infos} == dict.fromkeys(
                HOSTS, "127.0.0.1"
            )


def test_a_cluster_that_dies_takes_only_its_hosts(
    masters: dict[str, ScriptedMaster], daemon: Daemon, deployment: Deployment
) -> None:
    job = running(deployment)
    assert {name: len(one.model.tasks) for name, one in masters.items()} == {"east": 2, "west": 1}
    names = {str(one.framework_id) for one in masters.values()}
    assert {name[-5:] for name in names} == {"-east", "-west"}
    masters["west"].stop()
    until(lambda: not up("west.h1"))
    assert up("east.h1") and up("east.h2")
    until(lambda: "cluster west" in noted(daemon))
    assert "cluster east" not in noted(daemon)
    finish(masters["east"])
    until(lambda: states(deployment, job) == {"SUCCEEDED": 2, "RUNNING": 1})
    again = deployment.create(deployment.request(2, defaultConfig=sleeping(0)))
    assert deployment.ended(again).done, "the other cluster takes more"


def test_what_ran_in_a_cluster_that_was_away_goes_on(
    masters: dict[str, ScriptedMaster], daemon: Daemon, deployment: Deployment
) -> None:
    job, west = running(deployment), masters["west"]
    west.reply("SUBSCRIBE", *[Reply(503, "No leader elected")] * 3)
    west.drop_stream()
    until(lambda: not up("west.h1"))
    assert up("east.h1")
    until(lambda: up("west.h1"))
    assert "cluster west" not in noted(daemon)
    for master in masters.values():
        finish(master)
    until(lambda: states(deployment, job) == {"SUCCEEDED": 3})
    launched = [got.call["accept"] for got in west.calls if got.type == "ACCEPT"]
    assert len(launched) == 1, "nothing was begun anew"
