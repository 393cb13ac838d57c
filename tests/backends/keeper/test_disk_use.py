"""How the disk of sandboxes is measured: in turns, one helper at a time, and never for long."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest

from peloton.backends.keeper import disk_use
from peloton.backends.keeper.disk_use import BATCH_MAX, HELPER_S_MAX, REST_FACTOR, DiskUse
from peloton.backends.keeper.kinds import KeeperRun

MB = 1024 * 1024


class Sandboxes:
    """Live runs with sandboxes of some size, and a time that the test sets."""

    def __init__(self, folder: Path, sizes_mb: list[int]) -> None:
        self.runs: dict[str, KeeperRun] = {}
        self.now = 0.0
        self.use = DiskUse(lambda run_id: str(folder / run_id), clock=lambda: self.now)
        for number, size in enumerate(sizes_mb):
            name = f"r-{number}-1"
            (folder / name).mkdir()
            (folder / name / "file").write_bytes(b"x" * size * MB)
            run = self.runs[name] = KeeperRun(name, "h", command={}, memory_mb=0.0)
            run.pid, run.limits = 1, {"disk_mb": 2.0}
            self.use.add(name)

    def measure(self) -> list[tuple[str, int]]:
        """One helper's whole life."""
        found = self.use.check(self.runs)
        if self.use.helper_pid:
            os.waitpid(self.use.helper_pid, 0)
            self.use.reaped()
        return [(run.run_id, round(mb)) for run, mb in [*found, *self.use.check(self.runs)]]


def test_runs_over_their_limit_are_found_with_what_they_use(tmp_path):
    boxes = Sandboxes(tmp_path, [1, 3, 4])
    assert boxes.measure() == [("r-1-1", 3), ("r-2-1", 4)]


def test_a_name_that_looks_like_an_option_or_holds_a_line_end_harms_nobody(tmp_path):
    boxes = Sandboxes(tmp_path, [1, 3])
    (tmp_path / "r-0-1" / "9999999\tr-0-1\n9999999\tr-0-1").write_bytes(b"")
    (tmp_path / "r-0-1" / "--apparent-size").write_bytes(b"")
    assert boxes.measure() == [("r-1-1", 3)]


def test_what_is_on_another_file_system_or_behind_a_link_does_not_count(tmp_path):
    boxes = Sandboxes(tmp_path, [0, 3])
    (tmp_path / "r-0-1" / "link").symlink_to(tmp_path / "r-1-1")
    assert boxes.measure() == [("r-1-1", 3)]


def test_ended_runs_are_not_measured_any_more(tmp_path):
    boxes = Sandboxes(tmp_path, [3, 3])
    boxes.runs["r-0-1"].end = {}
    del boxes.runs["r-1-1"]
    assert boxes.measure() == []
    assert boxes.use.helper_pid == 0


def test_a_run_that_is_being_stopped_is_not_over_its_limit(tmp_path):
    boxes = Sandboxes(tmp_path, [3, 3])
    boxes.runs["r-0-1"].kill_requested = True
    assert boxes.measure() == [("r-1-1", 3)]


def test_without_a_descriptor_the_next_round_tries_again(tmp_path):
    boxes = Sandboxes(tmp_path, [3])
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
    try:
        assert boxes.use.check(boxes.runs) == [] and boxes.use.helper_pid == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert boxes.measure() == [("r-0-1", 3)]


def test_a_helper_rests_longer_than_it_worked(tmp_path):
    boxes = Sandboxes(tmp_path, [3])
    boxes.use.check(boxes.runs)
    os.waitpid(boxes.use.helper_pid, 0)
    boxes.now = 2.0
    boxes.use.reaped()
    boxes.now += 2.0 * REST_FACTOR - 0.1
    boxes.use.check(boxes.runs)
    assert not boxes.use.helper_pid
    boxes.now += 0.1
    boxes.use.check(boxes.runs)
    assert boxes.use.helper_pid
    os.waitpid(boxes.use.helper_pid, 0)


def test_runs_take_turns(tmp_path, monkeypatch):
    monkeypatch.setattr(disk_use, "BATCH_MAX", 2)
    assert BATCH_MAX > 2
    boxes = Sandboxes(tmp_path, [3, 3, 3, 3])
    assert boxes.measure() == [("r-0-1", 3), ("r-1-1", 3)]
    assert boxes.measure() == [("r-2-1", 3), ("r-3-1", 3)]


def test_a_helper_that_does_not_answer_is_killed_and_another_run_is_first(tmp_path, monkeypatch):
    slow = tmp_path / "bin"
    slow.mkdir()
    (slow / "du").write_text("#!/bin/sh\nexec sleep 600\n")
    (slow / "du").chmod(0o755)
    boxes = Sandboxes(tmp_path, [3, 3])
    monkeypatch.setenv("PATH", f"{slow}:{os.environ['PATH']}")
    boxes.use.check(boxes.runs)
    pid = boxes.use.helper_pid
    boxes.now = HELPER_S_MAX
    boxes.use.check(boxes.runs)
    boxes.now = HELPER_S_MAX + 0.1
    boxes.use.check(boxes.runs)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    boxes.use.reaped()
    monkeypatch.undo()
    boxes.now += 1000.0
    assert boxes.measure() == [("r-1-1", 3), ("r-0-1", 3)]


@pytest.mark.parametrize("path", ["/nowhere"])
def test_without_the_program_nothing_is_measured(tmp_path, monkeypatch, path):
    boxes = Sandboxes(tmp_path, [3])
    monkeypatch.setenv("PATH", path)
    assert boxes.measure() == [] and boxes.use.helper_pid == 0
