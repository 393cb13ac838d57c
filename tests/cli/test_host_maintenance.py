"""`peloton host query` and `host maintenance`, with the texts of the original."""

from __future__ import annotations

import json

import pytest

from peloton.api.v0.host import host_pb2 as host
from tests.cli.terminal import Terminal


@pytest.fixture
def hosts(peloton: Terminal) -> Terminal:
    """A cluster with two hosts that are up."""
    for name in ("a", "b"):
        info = host.HostInfo(hostname=name, state=host.HOST_STATE_UP, current_pool="default")
        peloton.cluster.host_infos.append(info)
    return peloton


def test_a_host_goes_down_and_comes_back(hosts: Terminal) -> None:
    started = hosts("host", "maintenance", "start", "a")
    assert (started.code, started.out.strip()) == (
        0,
        "Host successfully submitted for maintenance: a",
    )
    assert [line.replace("|", " ").split() for line in hosts.lines("host", "query")] == [
        ["Hostname", "IP", "State", "HostPool"],
        ["a", "DOWN", "default"],
        ["b", "UP", "default"],
    ]
    completed = hosts("host", "maintenance", "complete", "a")
    assert completed.out.strip() == "Host successfully submitted for maintenance completion: a"
    names = [line.split("|")[0].strip() for line in hosts.lines("host", "query", "-s", "up")]
    assert names == ["Hostname", "a", "b"]


@pytest.mark.parametrize("states", ["down", "DOWN,HOST_STATE_DRAINING", " down, drained "])
def test_states_are_filtered_by_any_spelling(hosts: Terminal, states: str) -> None:
    assert hosts("host", "query", "--states", states).out.strip() == "No hosts found"
    (call,) = hosts.cluster.called("QueryHosts")
    assert host.HOST_STATE_DOWN in call.request.host_states


def test_a_state_that_is_none_is_refused_with_those_there_are(hosts: Terminal) -> None:
    refused = hosts("host", "query", "--states", "dwon")
    assert refused.code != 0 and "unknown, up, draining, drained, down" in refused.err
    assert not hosts.cluster.called("QueryHosts")


def test_an_unknown_host_is_an_error(hosts: Terminal) -> None:
    refused = hosts("host", "maintenance", "start", "nobody")
    assert refused.code == 66 and "host is not a Peloton agent" in refused.err


def test_scripts_get_names_and_json(hosts: Terminal) -> None:
    assert hosts("host", "query", "--output", "name").out.split() == ["a", "b"]
    found = json.loads(hosts("host", "query", "--output", "json").out)
    assert [one["hostname"] for one in found["host_infos"]] == ["a", "b"]
