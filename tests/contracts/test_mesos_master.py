"""The scripted master of Mesos answers as a real one: one table is run against both.

What the real one said is recorded in tests/data/mesos, by this test with PELOTON_RECORD_GOLDEN=1.
Faults of the scripted master are not used, as a real one does not have them on demand.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.contracts import mesos_calls
from tests.servers.mesos import Mesos
from tests.servers.mesos_home import needed_home
from tests.servers.scripted_master import ScriptedMaster

DATA = Path(__file__).resolve().parents[1] / "data" / "mesos"
RECORD = bool(os.environ.get("PELOTON_RECORD_GOLDEN"))
KINDS = {"plain": (), "partition_aware": ("PARTITION_AWARE",)}


class Rig(NamedTuple):
    """Where the master is, and how its agent is lost."""

    port: int
    lose: Callable[[], None]


@pytest.fixture(params=["real", "scripted"], scope="module")
def master(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rig]:
    """A master with one agent."""
    if request.param == "real":
        needed_home()
        cluster = Mesos.start(tmp_path_factory.mktemp("mesos"))
        yield Rig(cluster.leader().port, cluster.agents[0].kill)
        cluster.stop()
    else:
        with ScriptedMaster() as scripted:
            lose = functools.partial(scripted.lose_agent, "h1")
            yield Rig(scripted.port, lose)


def compare(said: str, name: str, request: pytest.FixtureRequest) -> None:
    """Hold it against what a real master said, or record that."""
    file = DATA / name
    if RECORD and "real" in request.node.name:
        file.write_text(said)
    assert said.splitlines() == file.read_text().splitlines()


def test_it_refuses_what_a_master_refuses(master: Rig, request: pytest.FixtureRequest) -> None:
    found = mesos_calls.refusals(master.port)
    compare(json.dumps(found, indent=1) + "\n", "refusals.json", request)


def test_it_lists_its_agents_as_a_master(master: Rig, request: pytest.FixtureRequest) -> None:
    found = mesos_calls.agents(master.port)
    compare(json.dumps(found, indent=1, sort_keys=True) + "\n", "agents.json", request)


@pytest.mark.parametrize("kind", KINDS)
def test_it_says_what_a_master_says(master: Rig, kind: str, request: pytest.FixtureRequest) -> None:
    info = mesos_calls.framework(*KINDS[kind])
    said = mesos_calls.lines(mesos_calls.transcript(master.port, info))
    compare(said, f"transcript_{kind}.jsonl", request)


def test_it_tells_that_an_agent_is_lost(master: Rig, request: pytest.FixtureRequest) -> None:
    """The last test: the agent does not come back."""
    said = mesos_calls.loss(master.port, mesos_calls.framework("PARTITION_AWARE"), master.lose)
    compare(mesos_calls.lines(said), "loss.jsonl", request)
