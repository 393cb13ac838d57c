"""The scripted master of Mesos answers as a real one: one table is run against both.

What the real one said is recorded in tests/data/mesos, by this test with PELOTON_RECORD_GOLDEN=1.
Must not ask the scripted master for its faults: those a real one does not have on demand.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts import mesos_calls
from tests.servers.mesos import Mesos
from tests.servers.mesos_home import needed_home
from tests.servers.scripted_master import ScriptedMaster

DATA = Path(__file__).resolve().parents[1] / "data" / "mesos"
RECORD = bool(os.environ.get("PELOTON_RECORD_GOLDEN"))
KINDS = {"plain": (), "partition_aware": ("PARTITION_AWARE",)}


@pytest.fixture(params=["real", "scripted"], scope="module")
def master(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[int]:
    """The port of a master with one agent."""
    if request.param == "real":
        needed_home()
        cluster = Mesos.start(tmp_path_factory.mktemp("mesos"))
        yield cluster.leader().port
        cluster.stop()
    else:
        with ScriptedMaster() as scripted:
            yield scripted.port


def test_it_refuses_what_a_master_refuses(master: int, request: pytest.FixtureRequest) -> None:
    found = mesos_calls.refusals(master)
    file = DATA / "refusals.json"
    if RECORD and "real" in request.node.name:
        file.write_text(json.dumps(found, indent=1) + "\n")
    assert found == json.loads(file.read_text())


@pytest.mark.parametrize("kind", KINDS)
def test_it_says_what_a_master_says(master: int, kind: str, request: pytest.FixtureRequest) -> None:
    said = mesos_calls.lines(mesos_calls.transcript(master, mesos_calls.framework(*KINDS[kind])))
    file = DATA / f"transcript_{kind}.jsonl"
    if RECORD and "real" in request.node.name:
        file.write_text(said)
    assert said.splitlines() == file.read_text().splitlines()
