"""What a keeper does with a request at each moment of a run: which start, which signal, what told.

The keeper's own objects in this process, as in `test_disk.py`, over a disk that is well.
"""

from __future__ import annotations

import errno
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from peloton.backends.keeper import kinds
from peloton.backends.keeper.disk import Disk
from peloton.backends.keeper.kept import KeepRules
from peloton.backends.keeper.sandboxes import SandboxFolders
from tests.backends.keeper.test_disk import HOST, NOBODY, REQUEST, Keeper

REPOSITORY = Path(__file__).parents[3]

OTHER = "host-2"
ENDED = {"outcome": kinds.SUCCEEDED}


@pytest.fixture
def keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Keeper]]:
    monkeypatch.chdir(tmp_path)
    yield lambda: Keeper(tmp_path)


def signals_of(keeper: Keeper) -> list[int]:
    found: list[int] = []
    keeper.runs.signal_group = lambda pid, number: found.append(number)  # type: ignore
    return found


def reasons(keeper: Keeper) -> list[tuple[str, str, str]]:
    """Host, run and reason of the ends that were told since the last call."""
    events, keeper.runs.events = keeper.runs.events, []
    return [(host, e["run"], e["reason"]) for host, e in events if e["a"] == "ended"]


def test_a_repeat_is_answered_from_the_records(keeper):
    one = keeper()
    one.launch("r-0-1")
    one.launch("r-0-1")
    assert one.spawner.spawned == ["r-0-1"]
    assert one.told() == [("started", "r-0-1")] * 2
    one.end("r-0-1")
    one.runs.commit()
    one.launch("r-0-1")
    assert one.spawner.spawned == ["r-0-1"]
    assert one.told() == [("ended", "r-0-1")] * 2


def test_an_acknowledged_id_is_not_started_again(keeper):
    one = keeper()
    one.launch("r-0-1")
    one.end("r-0-1")
    one.runs.commit()
    one.runs.ack(["r-0-1"])
    one.told()
    one.launch("r-0-1")
    assert one.spawner.spawned == ["r-0-1"]
    assert reasons(one) == [(HOST, "r-0-1", kinds.USED_BEFORE)]
    one.runs.write_acks()
    again = keeper()
    again.launch("r-0-1")
    assert again.spawner.spawned == []
    assert reasons(again) == [(HOST, "r-0-1", kinds.USED_BEFORE)]


def test_a_run_belongs_to_its_host(keeper):
    one = keeper()
    signals = signals_of(one)
    one.launch("r-0-1")
    one.told()
    one.runs.launch(OTHER, [{**REQUEST, "run": "r-0-1"}])
    assert reasons(one) == [(OTHER, "r-0-1", kinds.USED_BEFORE)]
    one.runs.kill(OTHER, "r-0-1", grace_s=0.0)
    one.runs.kill_overdue(math.inf)
    assert one.told() == [("unknown", "r-0-1")] and signals == []
    assert one.runs.listing(OTHER) == []


def test_what_is_killed_while_it_waits_does_not_start(keeper):
    one = keeper()
    signals = signals_of(one)
    one.runs.launch(HOST, [{**REQUEST, "run": "r-0-1"}])
    one.runs.kill(HOST, "r-0-1", grace_s=0.0)
    one.runs.commit()
    assert one.spawner.spawned == [] and signals == []
    one.runs.commit()
    assert reasons(one) == [(HOST, "r-0-1", kinds.KILL_REQUESTED)]


def test_what_can_have_no_folder_does_not_start(keeper):
    one = keeper()

    os.rmdir("runs")
    one.launch("r-0-1", "r-1-1")
    assert one.spawner.spawned == []
    one.runs.commit()
    assert {reason for _, _, reason in reasons(one)} == {kinds.NOT_STARTED}
    os.mkdir("runs")
    one.launch("r-2-1")
    assert one.spawner.spawned == ["r-2-1"]


def test_a_kill_is_one_sigterm_and_a_sigkill_after_its_grace(keeper):
    one = keeper()
    signals = signals_of(one)
    one.launch("r-0-1")
    one.runs.kill(HOST, "r-0-1", grace_s=1000.0)
    one.runs.kill(HOST, "r-0-1", grace_s=1000.0)
    assert signals == [signal.SIGTERM], "a repeat does not disturb it"
    due = one.runs.next_kill()
    assert due is not None
    one.runs.kill_overdue(due - 1.0)
    assert signals == [signal.SIGTERM]
    one.runs.kill_overdue(due)
    assert signals == [signal.SIGTERM, signal.SIGKILL]


def test_no_signal_is_sent_to_a_run_that_has_ended(keeper):
    one = keeper()
    signals = signals_of(one)
    one.launch("r-0-1")
    one.runs.kill(HOST, "r-0-1", grace_s=0.0)
    one.end("r-0-1", status=-signal.SIGTERM)
    one.runs.kill_overdue(math.inf)
    one.runs.kill(HOST, "r-0-1", grace_s=0.0)
    one.runs.kill_overdue(math.inf)
    assert signals == [signal.SIGTERM], "its pid may be another process's by now"


# In a process of its own: a keeper reaps all children there are.
REAPING = """
import os, signal, sys
from pathlib import Path
from peloton.backends.keeper import processes
from tests.backends.keeper.test_disk import NOBODY, Keeper

keeper = Keeper(Path.cwd())
keeper.launch("r-0-1")
run = keeper.runs.by_pid.pop(NOBODY + 1)
run.pid = os.posix_spawn("/bin/true", ["true"], {})
keeper.runs.by_pid[run.pid] = run
keeper.runs.signal_group = lambda pid, number: print(int(number), processes.stat(pid))
os.waitid(os.P_PID, run.pid, os.WEXITED | os.WNOWAIT)
keeper.runs.reap()
print(run.end["outcome"])
"""


def test_a_group_is_killed_while_its_leader_is_not_reaped(tmp_path):
    """Reaped, its pid is free, and the signal could reach another group."""
    done = subprocess.run(
        [sys.executable, "-c", REAPING], cwd=tmp_path, env={"PYTHONPATH": str(REPOSITORY)},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    signalled, outcome = done.stdout.splitlines()
    assert signalled.startswith(f"{int(signal.SIGKILL)} Stat(state='Z'")
    assert outcome == kinds.SUCCEEDED


def test_folders_of_unfinished_runs_are_kept_and_made_again(keeper):
    one = keeper()
    one.launch("r-0-1", "r-1-1")
    os.rmdir("runs/r-1-1")
    again = keeper()
    again.runs.sandboxes.kept.rules = KeepRules(0)
    again.runs.sandboxes.prune()
    assert sorted(os.listdir("runs")) == ["r-0-1", "r-1-1"]
    assert again.runs.sandboxes.helper_pid == 0


def test_variables_are_not_written_to_disk(keeper):
    one = keeper()
    one.runs.launch(HOST, [{**REQUEST, "run": "r-0-1", "environment": {"TOKEN": "secret"}}])
    one.runs.commit()
    assert b'"launch"' in Path("journal").read_bytes()
    assert b"secret" not in Path("journal").read_bytes()


def test_the_journal_forgets_what_was_acknowledged(keeper):
    one = keeper()
    one.launch("r-0-1")
    one.end("r-0-1")
    one.runs.commit()
    one.runs.ack(["r-0-1"])
    one.runs.write_acks()
    again = keeper()
    assert not again.runs.memory.runs
    assert b"r-0-1" not in Path("journal").read_bytes()


def test_what_was_never_recorded_is_in_no_journal(keeper):
    """It has no folder yet, so another keeper may start it."""
    one = keeper()
    one.runs.launch(HOST, [{**REQUEST, "run": "r-0-1"}])
    one.journal.rewrite(one.runs.memory.records())
    again = keeper()
    assert not again.runs.memory.runs
    again.launch("r-0-1")
    assert again.spawner.spawned == ["r-0-1"]


def test_a_successor_adopts_what_was_recorded(keeper):
    """By the pids that were noted behind the spawn."""
    one = keeper()
    one.launch("r-0-1")
    again = keeper()
    assert again.runs.memory.runs["r-0-1"].pid == NOBODY + 1
    assert again.runs.memory.runs["r-0-1"].end["message"] == "", "it is gone; it was not starting"


def test_a_folder_that_cannot_be_moved_is_tried_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it hold up the others, or start a helper that has nothing to remove."""
    busy = {"a", "b"}

    class BusyDisk(Disk):
        def rename(self, old: str, new: str) -> None:
            if os.path.basename(old) in busy:
                raise OSError(errno.EBUSY, "busy")
            os.rename(old, new)

    monkeypatch.chdir(tmp_path)
    boxes = SandboxFolders(str(tmp_path), rules=KeepRules(1), disk=BusyDisk())
    boxes.open(())

    def prune() -> list[str]:
        boxes.prune()
        if boxes.helper_pid:
            os.waitpid(boxes.helper_pid, 0)
            boxes.helper_pid = 0
        return sorted(path.name for path in (tmp_path / "runs").iterdir())

    for run_id in ("a", "b", "c"):
        boxes.make(run_id)
        boxes.finish(run_id, ENDED)
    assert prune() == ["a", "b", "c"], "two are too many, and both are busy"
    assert prune() == ["a", "b"]
    busy.clear()
    assert len(prune()) == 1


def test_without_room_for_the_trash_sandboxes_are_removed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = [True]

    class FullDisk(Disk):
        def mkdir(self, path: str, mode: int) -> None:
            if full and path == "trash":
                raise OSError(errno.ENOSPC, "full")
            os.mkdir(path, mode)

    monkeypatch.chdir(tmp_path)
    boxes = SandboxFolders(str(tmp_path), rules=KeepRules(0), disk=FullDisk())
    boxes.open(())
    boxes.make("a")
    boxes.finish("a", ENDED)
    boxes.prune()
    assert boxes.helper_pid == 0 and (tmp_path / "runs" / "a").is_dir()
    full.clear()
    boxes.prune()
    os.waitpid(boxes.helper_pid, 0)
    assert not (tmp_path / "runs" / "a").exists()
