"""What the command line says and does otherwise where the hosts are agents of Mesos."""

from __future__ import annotations

import json
import os

import grpc
import pytest

from peloton.api.v0.host import host_pb2 as host
from peloton.ops.v1 import ops_pb2 as ops
from tests.cli.terminal import Terminal


@pytest.fixture
def mesos(peloton: Terminal) -> Terminal:
    peloton.cluster.hosts.append(
        ops.Host(name="mesos.h1", state="UP", attributes={"mesos.cluster": "mesos"})
    )
    return peloton


@pytest.mark.parametrize("words", [("run", "--", "true"), ("map", "echo {}", ":::", "1")])
def test_a_command_runs_in_this_folder_only_where_the_hosts_are_here(
    peloton: Terminal, words: tuple[str, ...]
) -> None:
    name, *rest = words
    typed = (name, "--cpus", "1", "--mem", "64m", "--dry-run", *rest)
    peloton.cluster.hosts.append(ops.Host(name="h0", state="UP", attributes={"rack": "a"}))
    assert f"cd {os.getcwd()} || exit" in peloton(*typed).out
    peloton.cluster.hosts.append(ops.Host(name="west.h1", attributes={"mesos.cluster": "west"}))
    on_mesos = peloton(*typed)
    assert (on_mesos.code, "cd " in on_mesos.out) == (0, False), on_mesos
    chosen = peloton(name, "--workdir", "/srv", *typed[1:])
    assert "cd /srv || exit" in chosen.out


def infos(peloton: Terminal, **states: host.HostState) -> None:
    for name, state in states.items():
        peloton.cluster.host_infos.append(host.HostInfo(hostname=f"mesos.{name}", state=state))


def test_who_completes_a_maintenance_is_told_to_start_the_agent(mesos: Terminal) -> None:
    infos(mesos, h1=host.HOST_STATE_DOWN, other=host.HOST_STATE_DOWN)
    done = mesos("host", "maintenance", "complete", "mesos.h1")
    assert done.code == 0 and "next: start its Mesos agent;" in done.err
    assert mesos("host", "maintenance", "complete", "mesos.other").err == ""
    mesos.cluster.troubles["ListHosts"] = [(grpc.StatusCode.INVALID_ARGUMENT, "no")] * 9
    assert mesos("host", "maintenance", "complete", "mesos.h1").code == 0


def test_both_lists_have_one_word_for_a_host_that_is_away(mesos: Terminal) -> None:
    infos(mesos, h1=host.HOST_STATE_UNKNOWN, h2=host.HOST_STATE_UP)
    mesos.cluster.hosts[0].state = "UNREACHABLE"
    assert "UNKNOWN (UNREACHABLE)" in mesos("host", "query").out
    data = json.loads(mesos("host", "query", "-o", "json").out)
    assert "UNREACHABLE" not in json.dumps(data)
    mesos.cluster.troubles["ListHosts"] = [(grpc.StatusCode.INVALID_ARGUMENT, "no")] * 9
    told = mesos("host", "query")
    assert told.code == 0 and "UNKNOWN" in told.out and "UNREACH" not in told.out


@pytest.mark.parametrize(
    "words",
    [
        ("maintenance", "start"),
        ("maintenance", "complete"),
        ("maintenance", "start", "--dry-run"),
        ("forget", "--dry-run"),
    ],
)
@pytest.mark.parametrize("name", ["h1", "mesos.h2", "mesos"])
def test_a_host_by_half_its_name(mesos: Terminal, words: tuple[str, ...], name: str) -> None:
    refused = mesos("host", *words, name)
    assert refused.code != 0 and refused.err.strip().endswith("; did you mean mesos.h1?"), refused


def test_a_host_that_is_like_no_other(mesos: Terminal) -> None:
    refused = mesos("host", "maintenance", "start", "zzz")
    assert (refused.code, refused.err) == (66, "zzz: host is not a Peloton agent\n")
