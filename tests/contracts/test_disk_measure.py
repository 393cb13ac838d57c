"""The room on real disks, and who is told of a full one by the journal of a file."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from peloton.runtime.adapters import disk_measure
from peloton.runtime.adapters.disk_measure import DiskMeasure
from peloton.runtime.adapters.sqlite_store import SqliteJournal
from peloton.runtime.ports import Claimed, Committed, Frame, NoRoom, Unclear, Work
from tests.contracts.journals import GROUPS, SHARD

PAGES = 40


def test_folders_on_one_disk_are_one(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    folders = {"one": tmp_path / "a", "other": tmp_path / "b", "gone": tmp_path / "c"}
    (room,) = DiskMeasure(folders)()
    assert room.of == ("one", "other")
    assert 0 < room.free_bytes <= room.size_bytes
    assert room.free_bytes <= os.statvfs(tmp_path).f_blocks * os.statvfs(tmp_path).f_frsize


def test_a_look_is_kept_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk_measure, "MEASURE_EVERY_S", 600.0)
    measure = DiskMeasure({"one": tmp_path})
    assert measure() is measure()


def test_a_file_without_room_says_so_and_takes_the_same_work_later(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "j", page_count_max=PAGES)
    journal.bootstrap(GROUPS)
    claimed = journal.claim(SHARD, "somebody")
    assert isinstance(claimed, Claimed)
    position, answer = 0, None
    while not isinstance(answer, Unclear):
        position += 1
        work = Work(SHARD, claimed.epoch, Frame(position, b"#" * 20_000))
        (answer,) = journal.commit([work])
    assert isinstance(answer, NoRoom), answer
    (again,) = journal.settle([SHARD])
    assert isinstance(again, NoRoom), "it is full still"
    journal.page_count_max = None
    journal._discard()
    assert journal.settle([SHARD]) == [Committed()]
    journal.release(SHARD, claimed.epoch)
    assert isinstance(journal.claim(SHARD, "another"), Claimed)
    assert [*journal.read_checkpoint(SHARD)] == []
    assert [frame.position for frame in journal.read_tail(SHARD)] == [*range(1, position + 1)]
    journal.close()


@pytest.mark.parametrize(("code", "kind"), [(13, NoRoom), (5, Unclear)])
def test_only_a_full_disk_counts_as_one(tmp_path: Path, code: int, kind: type) -> None:
    journal = SqliteJournal(tmp_path / "j")
    error = sqlite3.OperationalError("it failed")
    error.sqlite_errorcode = code
    assert type(journal._unclear(error)) is kind
    journal.close()


class Witness:
    """One whose folder fails with an error."""

    def __init__(self, number: int) -> None:
        self.number = number

    def note(self, done: object) -> None:
        raise OSError(self.number, os.strerror(self.number))

    def close(self, writer: object) -> None:
        """It has nothing open."""


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, NoRoom), (errno.EIO, Unclear)])
def test_a_witness_without_room_is_a_full_disk_too(tmp_path: Path, number: int, kind: type) -> None:
    journal = SqliteJournal(tmp_path / "j")
    journal._witness = Witness(number)  # type: ignore[assignment]
    assert type(journal._note([])) is kind
    journal.close()
