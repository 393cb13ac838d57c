"""What a nemesis does to a keeper's machine, to a real keeper: its disk is full, it is killed.

And what it sees there without the keeper's word: which runs are alive.
"""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from peloton.backends.keeper import kinds, processes
from peloton.backends.keeper_messages import KeeperRunsListed, RunStarted
from peloton.chaos.nemesis.ground import OnKeeper
from peloton.chaos.nemesis.machine import KeeperMachine
from peloton.chaos.nemesis.process_table import ProcessTable, kill_pending

HOST = "host-1"
LONG = "x" * 8192


def listed(daemon, procs) -> None:
    """Ask for a list, and wait for it."""

    def lists() -> int:
        return sum(isinstance(each, KeeperRunsListed) for each in daemon.log.reports)

    before = lists()
    daemon.runs.list(HOST)
    procs.until(lambda: lists() > before, "a list")


@pytest.mark.parametrize("mount", [True, False], ids=["a disk of its own", "limited files"])
def test_a_keeper_that_cannot_write_tells_nothing_and_then_all(folder, daemon_of, procs, mount):
    """Where nothing can be mounted, both ways are the second one."""
    machine = KeeperMachine(folder, mount=mount)
    go = folder.parent / "go"
    try:
        daemon = daemon_of()
        daemon.launch("r-0-1", f"until [ -e {go} ]; do sleep 0.02; done; exit 7")
        daemon.launch("r-1-1", "sleep 600")
        pids = [daemon.log.next_report(RunStarted, run_id=f"r-{n}-1").pid for n in (0, 1)]
        machine.fill()
        # More than what is left of the last block that the journal has already.
        daemon.launch("r-2-1", f"true {LONG}")
        for _ in range(2):  # a list is answered before the launches beside it are begun
            listed(daemon, procs)
        go.touch()
        procs.until(lambda: not procs.alive(pids[0]), "the run is over")
        for _ in range(2):  # the keeper notices an end before it reads the second request
            listed(daemon, procs)
        assert daemon.listed_ends() == []
        machine.empty()
        assert daemon.end("r-0-1").exit_code == 7
        assert daemon.end("r-2-1").reason == kinds.NOT_STARTED
        assert machine.kill_keeper() == procs.keeper_pid(folder)
        daemon.runs.kill(HOST, "r-1-1", grace_s=0.0)
        assert daemon.end("r-1-1").outcome == kinds.KILLED
        daemon.runs.close()
        machine.kill_keeper()
        procs.until(lambda: not machine.keeper(), "no keeper is left")
    finally:
        machine.close()
    assert not folder.is_mount() and (folder / "journal").exists()


def test_a_machine_without_a_keeper_has_none_to_kill(folder, procs):
    machine = KeeperMachine(folder, mount=False)
    assert machine.kill_keeper() == 0
    other = subprocess.Popen(["sleep", "600"])
    try:
        (folder / "lock").write_text(f"{other.pid}\n")
        assert machine.kill_keeper() == 0 and other.poll() is None, "a pid of another process"
    finally:
        other.kill()
        other.wait()


def marked(folder: Path, run: str, *command: str) -> subprocess.Popen[bytes]:
    marks = {processes.KEEPER_MARK: str(folder), processes.RUN_MARK: run}
    return subprocess.Popen(command, env={"PATH": os.environ["PATH"], **marks})


def test_the_table_sees_runs_of_its_folder_while_they_live(folder, procs):
    folder.mkdir()
    table = ProcessTable(OnKeeper(folder).run_of)
    began_s = time.time()
    ours = marked(folder, "r-0-1", "sleep", "600")
    other = marked(folder.parent, "r-1-1", "sleep", "600")
    try:
        procs.until(lambda: table.poll() or table.seen, "it is seen")
        assert [*table.seen] == ["r-0-1"]
        first = table.seen["r-0-1"]
        table.poll()
        again = table.seen["r-0-1"]
        assert began_s <= first.first_s == again.first_s <= first.last_s < again.last_s
    finally:
        for made in (ours, other):
            made.kill()
            os.waitid(os.P_PID, made.pid, os.WEXITED | os.WNOWAIT)
    table.poll()
    assert table.seen["r-0-1"] == again, "a zombie has ended"
    for made in (ours, other):
        made.wait()


@pytest.mark.parametrize(
    ("pending", "ended"),
    [("SigPnd:\t0000000000000000", False), ("SigPnd:\t0000000000000100", True),
     ("ShdPnd:\t0000000000004100", True), ("ShdPnd:\t0000000000004000", False)],
)  # fmt: skip
def test_a_run_that_was_sent_sigkill_counts_as_ended(pending, ended):
    """It may stay in the table for a while, and runs nothing of its program any more."""
    status = f"Name:\tsleep\nState:\tD (disk sleep)\n{pending}\nSigBlk:\t0000000000000100\n"
    assert kill_pending(status) is ended
