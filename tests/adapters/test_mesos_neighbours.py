"""A second framework beside ours at a real master: each gets its share, and no offer is hoarded.

The other one is a plain client that declines nothing it can use. It must not look into the daemon.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.adapters.mesos_daemon import job_file, on_mesos, said
from tests.adapters.test_daemon_wiring import until
from tests.adapters.test_mesos_maintenance import running
from tests.contracts.mesos_calls import CPUS, Run, framework
from tests.e2e.cluster import until_there
from tests.servers import mesos_home
from tests.servers.mesos import Mesos, ask

THEIRS = 6.0
"""Of the cpus of each agent: ours have room for four runs of a half in what is left of one."""


def ours(mesos: Mesos) -> dict[str, Any]:
    """Our framework as the master knows it."""
    found = ask(mesos.leader().port, "/frameworks")["frameworks"]
    return next(one for one in found if one["role"] == "peloton")  # type: ignore[no-any-return]


def cpus(offer: dict[str, Any]) -> float:
    return float(sum(e["scalar"]["value"] for e in offer["resources"] if e["name"] == "cpus"))


def launched(other: Run, name: str, command: str) -> str:
    """They launch on the next offer with room; the agent."""
    while True:
        while not other.offers:
            other.next("OFFERS")
        offer = other.offers.pop()
        if cpus(offer) >= THEIRS:
            break
        body = {"offer_ids": [offer["id"]], "filters": {"refuse_seconds": 0}}
        other.call("DECLINE", body)
    other.agent_id = offer["agent_id"]
    other.launch(name, command, cpus=THEIRS, offer=offer["id"]["value"])
    other.updates(name, 2)
    return str(offer["hostname"])


@pytest.mark.timeout(300)
def test_each_framework_gets_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mesos_home.needed_home()
    gate, theirs = tmp_path / "gate", tmp_path / "theirs"
    with on_mesos(tmp_path, monkeypatch) as mesos:
        said("respool", "create", "/HelloWorldPool", "examples/hello_world_pool.yaml")
        need = {"cpulimit": 0.5, "memlimitmb": 32, "disklimitmb": 10}
        file = job_file(tmp_path, until_there(gate), instancecount=20, task={"resource": need})
        other = Run(mesos.leader().port, framework())
        other.subscribe()
        try:
            agents = {launched(other, f"t-{at}", until_there(theirs)) for at in range(2)}
            assert agents == {"h1", "h2"}, "they get all of what we have no use for"
            job = said("job", "create", "/HelloWorldPool", file).split()[1]
            room = 2 * int((CPUS - THEIRS) / 0.5)
            until(lambda: sum(running(job, f"mesos.{one}") for one in agents) == room)
            assert ours(mesos)["used_resources"]["cpus"] == room * 0.5
            theirs.touch()
            for name in ("t-0", "t-1"):
                other.updates(name)
            until(lambda: sum(running(job, f"mesos.{one}") for one in agents) == 20)
            until(lambda: ours(mesos)["offered_resources"]["cpus"] == 0)
            found = launched(other, "t-2", "true")
            assert found in agents, "and have what we leave while ours are running"
            gate.touch()
            assert "20 SUCCEEDED" in said("job", "wait", job)
            seen: set[str] = set()
            while seen < agents:
                other.next("OFFERS")
                seen |= {one["hostname"] for one in other.offers}
        finally:
            other.close()
