"""A second framework beside ours at a real master: each gets its share, and no offer is hoarded.

The other one is a plain client that declines nothing it can use.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.mesos.mesos_daemon import job_file, on_mesos, said
from tests.adapters.mesos.test_mesos_maintenance import running
from tests.adapters.test_daemon_wiring import until
from tests.contracts.mesos_calls import CPUS, Run, framework
from tests.e2e.cluster import until_there
from tests.servers import mesos_home
from tests.servers.mesos import Mesos, ask

RUNS = 18
"""Of ours: they fill one agent, and leave as much on the other as the neighbour takes."""
THEIRS = 6.0
"""Of the cpus of each agent: ours have room for three runs of a half in what is left of one."""
EXECUTOR = 0.1
"""What ours takes on each agent, beside the tasks."""


def ours(mesos: Mesos) -> dict[str, Any]:
    """Our framework as the master knows it."""
    found = ask(mesos.leader().port, "/frameworks")["frameworks"]
    return next(one for one in found if "peloton" in one["roles"])


def cpus(offer: dict[str, Any]) -> float:
    return float(sum(e["scalar"]["value"] for e in offer["resources"] if e["name"] == "cpus"))


class Neighbour(Run):
    """It takes what it needs, and gives all else back until it wants more."""

    def take(self, names: Sequence[str], command: str) -> set[str]:
        """Launch on as many agents as there are names; returns these."""
        self.call("REVIVE")
        found: dict[str, dict[str, Any]] = {}
        while len(found) < len(names):
            while not self.offers:
                self.next("OFFERS")
            offer = self.offers.pop()
            if cpus(offer) < THEIRS or offer["hostname"] in found:
                self.give_back(offer)
            else:
                found[offer["hostname"]] = offer
        self.call("SUPPRESS")
        for name, offer in zip(names, found.values(), strict=True):
            self.agent_id = offer["agent_id"]
            self.launch(name, command, cpus=THEIRS, offer=offer["id"]["value"])
        for name in names:
            self.updates(name, 2)
        while self.offers:
            self.give_back(self.offers.pop())
        return {*found}

    def give_back(self, offer: dict[str, Any]) -> None:
        self.call("DECLINE", {"offer_ids": [offer["id"]], "filters": {"refuse_seconds": 0}})


@pytest.mark.timeout(300)
def test_each_framework_gets_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mesos_home.needed_home()
    gate, theirs = tmp_path / "gate", tmp_path / "theirs"
    with on_mesos(tmp_path, monkeypatch) as mesos:
        (tmp_path / "pool.yaml").write_text("name: HelloWorldPool\n")  # all that the hosts have
        said("respool", "create", "/HelloWorldPool", str(tmp_path / "pool.yaml"))
        need = {"cpulimit": 0.5, "memlimitmb": 32, "disklimitmb": 10}
        file = job_file(tmp_path, until_there(gate), instancecount=RUNS, task={"resource": need})
        other = Neighbour(mesos.leader().port, framework())
        other.subscribe()
        try:
            agents = other.take(("t-0", "t-1"), until_there(theirs))
            assert agents == {"h1", "h2"}, "they get all of what we have no use for"
            job = said("job", "create", "/HelloWorldPool", file).split()[1]
            room = 2 * int((CPUS - THEIRS - EXECUTOR) / 0.5)
            until(lambda: sum(running(job, f"mesos.{one}") for one in agents) == room)
            assert ours(mesos)["used_resources"]["cpus"] <= room * 0.5 + 2 * EXECUTOR
            theirs.touch()
            for name in ("t-0", "t-1"):
                other.updates(name)
            until(lambda: sum(running(job, f"mesos.{one}") for one in agents) == RUNS)
            until(lambda: ours(mesos)["offered_resources"]["cpus"] == 0)
            assert other.take(("t-2",), "true") < agents, "and have what we leave while ours run"
            gate.touch()
            assert f"{RUNS} SUCCEEDED" in said("job", "wait", job)
            other.updates("t-2")
            assert other.take(("t-3", "t-4"), "true") == agents
        finally:
            other.close()
