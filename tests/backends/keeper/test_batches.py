"""How often the keeper's loop writes and syncs for many launches, and in which order.

Runs the keeper's own objects with real processes, in a process and a folder of their own, with a
journal that notes each append. No socket: requests are calls.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
# Prints [kinds of the records, synced, children of the keeper by then] for each append.
PROGRAM = """
import json, os, sys
from peloton.backends.keeper import processes
from peloton.backends.keeper.journal import KeeperJournal
from peloton.backends.keeper.kinds import Memory
from peloton.backends.keeper.runs import Runs
from peloton.backends.keeper.kept import KeepRules
from peloton.backends.keeper.sandboxes import SandboxFolders

class NotingJournal(KeeperJournal):
    def append(self, records, *, sync):
        records = list(records)
        kinds = [record["is"] for record in records]
        print(json.dumps([kinds, sync, len(processes.children())]))
        super().append(records, sync=sync)

folder = os.getcwd()
memory = Memory(processes.boot_id())
journal = NotingJournal("journal")
journal.rewrite(memory.records())
boxes = SandboxFolders(folder, rules=KeepRules(1000))
boxes.open({})
runs = Runs(folder, memory, journal=journal, boxes=boxes)
request = {"value": "true", "shell": True, "arguments": [], "environment": {}, "memory_mb": 0}
runs.launch("host", [{**request, "run": f"r-{n}-1"} for n in range(int(sys.argv[1]))])
while runs.busy:
    runs.commit()
    if runs.by_pid and not runs.unfinished:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)  # until one has ended
        runs.reap()
runs.ack(list(memory.runs))
runs.write_acks()
"""


@pytest.fixture(scope="module")
def appends(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[list[str], bool, int]]:
    """Those of 100 launches at once."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "100"],
        cwd=tmp_path_factory.mktemp("keeper"),
        env={"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=True,
        text=True,
        timeout=100,
    )
    lines = done.stdout.splitlines()
    return [(kinds, synced, alive) for kinds, synced, alive in map(json.loads, lines)]


def test_launches_share_a_sync_and_precede_their_processes(appends):
    launches = [each for each in appends if "launch" in each[0]]
    assert [kinds.count("launch") for kinds, _, _ in launches] == [64, 36]
    assert all(synced for _, synced, _ in launches)
    assert launches[0][2] == 0, "no process before its launch is safe on disk"


def test_starts_are_written_once_a_batch_and_statuses_one_by_one_and_none_is_synced(appends):
    """A status is written before the process is waited for: nobody could ask for it afterwards."""
    starts = [each for each in appends if "start" in each[0]]
    counts = [kinds.count("start") for kinds, _, _ in starts]
    assert [count for count in counts if count > 1] == [64, 36] and counts.count(1) == 100
    assert not any(synced for _, synced, _ in starts)


def test_ends_are_synced_and_share_the_sync_of_what_is_there(appends):
    ends = [each for each in appends if "end" in each[0]]
    assert sum(kinds.count("end") for kinds, _, _ in ends) == 100
    assert all(synced for _, synced, _ in ends)


def test_acknowledgements_are_written_together(appends):
    assert appends[-1] == (["ack"] * 100, False, 0)
