"""Who a keeper is and whom it serves: folders that are found again, mixed up, and given away.

Real keepers, real processes. What hosts are told, what lies in the folder and which processes live
is all there is.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peloton.actors.host import messages as m
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.resources import UNIT, Resources
from peloton.backends import keeper_folder, process
from peloton.backends.keeper.identity import keeper_id
from peloton.backends.keeper_folder import KeeperOwner, OwnedByAnother
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.vocabulary import Key
from tests.backends.keeper.test_backend import Hosts

HOST = Key("host/a")
WEST, EAST = KeeperOwner("01" * 16, "west"), KeeperOwner("02" * 16, "east")


class Machine:
    """The backend of one host."""

    def __init__(self, folder: Path, owner: KeeperOwner | None = WEST) -> None:
        self.hosts = Hosts()
        self.backend = process.ProcessBackend(folder, ["a"], owner=owner)
        self.backend.start(self.hosts.tell, self.hosts.trouble)

    def order(self, *messages: Any) -> None:
        list(
            self.backend.receive(
                [Envelope(process.PROCESS_BACKEND, each) for each in messages], 0.0
            )
        )

    def start(self, run: str, *, keeper: str = "", epoch: int = 1) -> None:
        runs = (m.StartRun(run, RunSpec(Resources(UNIT), "sleep 600")),)
        self.order(m.StartRuns(HOST, epoch, runs, keeper))

    def listed(self, epoch: int = 1) -> m.RunsListed:
        self.order(m.ListRuns(HOST, epoch, 1.0))
        found: m.RunsListed = self.hosts.next_report(m.RunsListed)
        return found


@pytest.fixture
def machines() -> Iterator[Callable[..., Machine]]:
    made: list[Machine] = []

    def make(folder: Path, owner: KeeperOwner | None = WEST) -> Machine:
        made.append(Machine(folder, owner))
        return made[-1]

    yield make
    for machine in made:
        machine.backend.close()


def test_a_list_says_which_keeper_made_it_and_where(
    folder: Path, machines: Callable[..., Machine]
) -> None:
    listed = machines(folder).listed()
    assert listed.keeper == keeper_id(str(folder)) != "" and listed.keeper_at == str(folder)
    assert machines(folder).listed().keeper == listed.keeper, "of the folder, for good"


def test_what_another_keeper_is_to_start_does_not_start_here(
    folder: Path, machines: Callable[..., Machine]
) -> None:
    machine = machines(folder)
    machine.start("r-0-1", keeper="another")
    told = machine.hosts.next_report(m.RunsListed)
    assert told.keeper == keeper_id(str(folder)) and told.running == ()
    machine.start("r-1-1", keeper=told.keeper)
    assert machine.hosts.next_report(m.RunsStarted).runs == ("r-1-1",)
    assert not (folder / "runs" / "r-0-1").exists()


def test_a_folder_serves_one_cluster(folder: Path) -> None:
    keeper_folder.claim(folder, WEST)
    keeper_folder.claim(folder, WEST)
    with pytest.raises(OwnedByAnother) as refused:
        keeper_folder.claim(folder, EAST)
    for word in (str(folder), "west", "east", WEST.cluster_id, EAST.cluster_id):
        assert word in str(refused.value)
    with pytest.raises(OwnedByAnother):
        keeper_folder.claim(folder, KeeperOwner("03" * 16, "west"))


@pytest.mark.parametrize("killed", [False, True], ids=["its keeper runs", "its keeper was killed"])
def test_a_folder_that_is_given_up_ends_its_runs_and_its_epochs(
    folder: Path, procs: Any, machines: Callable[..., Machine], killed: bool
) -> None:
    west = machines(folder)
    west.start("r-0-1", epoch=99)
    assert west.hosts.next_report(m.RunsStarted).runs == ("r-0-1",)
    procs.until(lambda: procs.marked(folder), "the run is there")
    west.backend.close()
    if killed:
        os.kill(procs.keeper_pid(folder), signal.SIGKILL)
    ran = procs.marked(folder)
    aside = keeper_folder.adopt(folder, EAST)
    assert ran and not any(procs.alive(pid) for pid in ran)
    assert (aside / "runs" / "r-0-1").is_dir(), "people may want to read what it wrote"
    east = machines(folder, EAST)
    assert east.listed(epoch=1).running == (), "the epochs of the other cluster count no more"


def test_who_lost_its_folder_to_another_cluster_says_so(
    folder: Path, procs: Any, machines: Callable[..., Machine]
) -> None:
    west = machines(folder)
    west.hosts.next_report(m.BackendUp)
    keeper_folder.adopt(folder, EAST)
    while True:
        told = west.hosts.next_report(m.BackendDown)
        if "east" in told.text:
            break
    assert "west" in told.text
