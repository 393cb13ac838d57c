"""A copy of a keeper's folder has the records of processes that are not its own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from peloton.backends import keeper_folder
from peloton.backends.keeper.kinds import FOLDER_COPIED
from peloton.backends.keeper_calling import KeeperUnavailable
from peloton.backends.keeper_folder import KeeperOwner
from peloton.backends.keeper_messages import KeeperRunsListed, RunStarted
from peloton.backends.process_runs import KeeperSettings, ProcessRuns

WEST, EAST = KeeperOwner("01" * 16, "west"), KeeperOwner("02" * 16, "east")


def copied(folder: Path, daemon: Any) -> tuple[Path, int]:
    """A copy made while the run `a` was alive and after `b` had ended, and the process of `a`."""
    daemon.launch("b", "exit 3")
    daemon.end("b")
    daemon.launch("a", "sleep 600")
    daemon.log.next_report(RunStarted, run_id="a")
    copy = folder.with_name("copy")
    subprocess.run(["cp", "-a", folder, copy], check=True)
    records = [json.loads(line) for line in (folder / "journal").read_text().splitlines()]
    (pid,) = [each["pid"] for each in records if each["is"] == "start" and each["run"] == "a"]
    return copy, pid


def listed(copy: Path, log: Any, owner: KeeperOwner, *, epoch: int) -> KeeperRunsListed:
    settings = KeeperSettings(idle_s=0.2, round_s=0.1)
    runs = ProcessRuns(copy, log, settings=settings, owner=owner)
    runs.hello("host-1", epoch)
    runs.kill("host-1", "a", grace_s=0.0)
    runs.list("host-1")
    found: KeeperRunsListed = log.next_report(KeeperRunsListed)
    runs.close()
    return found


def test_a_keeper_in_a_copy_leaves_the_originals_process_alone(
    folder: Path, daemon_of: Callable[..., Any], procs: Any
) -> None:
    daemon = daemon_of()
    copy, pid = copied(folder, daemon)
    found = listed(copy, type(daemon.log)(), WEST, epoch=1)
    ends = {run.run_id: run.ended for run in found.runs}
    assert ends["a"] is not None and ends["b"] is not None
    assert (ends["a"].outcome, ends["a"].reason) == ("LOST", FOLDER_COPIED)
    assert ends["b"].exit_code == 3
    assert procs.alive(pid)


def test_a_disowned_folder_serves_another_cluster_and_loses_its_runs(
    folder: Path, daemon_of: Callable[..., Any], procs: Any
) -> None:
    daemon = daemon_of(epoch=7)
    keeper_folder.claim(folder, WEST)
    copy, pid = copied(folder, daemon)
    with pytest.raises(KeeperUnavailable, match="a keeper runs in"):
        keeper_folder.disown(folder, "copied")
    keeper_folder.disown(copy, "copied")
    keeper_folder.disown(copy, "copied twice")
    keeper_folder.claim(copy, EAST)
    found = listed(copy, type(daemon.log)(), EAST, epoch=1)
    ends = {run.run_id: run.ended for run in found.runs}
    assert ends["a"] is not None and ends["b"] is not None
    assert (ends["a"].outcome, ends["a"].reason) == ("LOST", "copied")
    assert (ends["b"].exit_code, found.keeper) == (3, daemon.runs.keeper)
    assert procs.alive(pid)
