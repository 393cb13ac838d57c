"""What a keeper has told and what its disk has kept: power cuts, failed and short writes.

Runs the keeper's own objects in this process over a disk that loses what was not synced, and fails
at a call of choice. Processes are numbers that nothing runs under: what they do is told elsewhere.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from peloton.backends.keeper import kinds, processes
from peloton.backends.keeper.adoption import adopt
from peloton.backends.keeper.journal import KeeperJournal, KeeperJournalFailed
from peloton.backends.keeper.kept import KeepRules
from peloton.backends.keeper.kinds import Memory
from peloton.backends.keeper.requests import EpochRefused
from peloton.backends.keeper.runs import Runs
from peloton.backends.keeper.sandboxes import SandboxFolders

HOST = "host-1"
NOBODY = 2**22 + 1  # above the highest pid of Linux
REQUEST = {"value": "true", "shell": True, "arguments": [], "environment": {}, "memory_mb": 0}


class Disk:
    """The module `os` for the keeper's files: all it does, and a cut that undoes what is not safe.

    A file is as it was at its last sync, under the name that it had at the last sync of the folder.
    """

    def __init__(self) -> None:
        self.fails: dict[str, int] = {}  # call → how many more of it fail
        self.short = False
        self.calls: list[str] = []
        self._synced: dict[int, bytes] = {}  # inode → content
        self._named: dict[str, int | None] = {}  # path → inode, at the last sync of its folder
        self._kept: dict[int, int] = {}  # inode → descriptor, so that no inode is used twice

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def _step(self, name: str) -> None:
        self.calls.append(name)
        if self.fails.get(name, 0) > 0:
            self.fails[name] -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def open(self, path: str, flags: int, mode: int = 0o777) -> int:
        fresh = flags & os.O_CREAT and not os.path.exists(path)
        fd = os.open(path, flags, mode)
        if fresh:
            self._named.setdefault(path, None)
        return fd

    def write(self, fd: int, data: Any) -> int:
        self._step("write")
        return os.write(fd, data[: max(1, len(data) // 2)] if self.short else data)

    def _sync(self, fd: int) -> None:
        status = os.fstat(fd)
        path = f"/proc/self/fd/{fd}"
        if os.path.isdir(path):
            folder = os.readlink(path)
            for name in list(self._named):
                if os.path.dirname(os.path.abspath(name)) == folder:
                    exists = os.path.exists(name)
                    self._named[name] = os.stat(name).st_ino if exists else None
        else:
            self._kept.setdefault(status.st_ino, os.dup(fd))
            self._synced[status.st_ino] = Path(path).read_bytes()

    def fsync(self, fd: int) -> None:
        self._step("fsync")
        self._sync(fd)

    def fdatasync(self, fd: int) -> None:
        self._step("fdatasync")
        self._sync(fd)

    def rename(self, old: str, new: str) -> None:
        self._step("rename")
        self._named.setdefault(new, os.stat(new).st_ino if os.path.exists(new) else None)
        os.rename(old, new)

    def mkdir(self, path: str, mode: int) -> None:
        os.mkdir(path, mode)
        self._named[path] = None

    def sync_file(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY)
        self._sync(fd)
        os.close(fd)

    def cut_power(self) -> None:
        for path, inode in self._named.items():
            if inode is None:
                shutil.rmtree(path) if os.path.isdir(path) else Path(path).unlink(missing_ok=True)
            elif os.path.isdir(path):
                continue
            else:
                fresh = Path(f"{path}.after")
                fresh.write_bytes(self._synced.get(inode, b""))
                fresh.replace(path)

    def close_all(self) -> None:
        for fd in self._kept.values():
            os.close(fd)


class Spawner:
    """Starts nothing; notes what it was asked to start."""

    def __init__(self) -> None:
        self.spawned: list[str] = []

    def ended(self, pid: int) -> None:
        """Every program was executed."""

    def next_deadline(self) -> None:
        """None is to be awaited."""

    def kill_overdue(self, now: float) -> None:
        """None is late."""

    def __enter__(self) -> Spawner:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was changed."""

    def spawn(self, program: processes.Program) -> int:
        self.spawned.append(program.environment[processes.RUN_MARK])
        return NOBODY + len(self.spawned)


class Keeper:
    """One life of a keeper, without its socket."""

    def __init__(self, folder: Path, disk: Any = os) -> None:
        self.journal = KeeperJournal("journal", disk)
        memory = Memory(processes.boot_id())
        memory.fold(self.journal.read())
        adopt(memory, str(folder), now=0.0)
        self.journal.rewrite(memory.records())
        boxes = SandboxFolders(str(folder), rules=KeepRules(1000), disk=disk)
        boxes.open(memory.runs)
        self.runs = Runs(str(folder), memory, journal=self.journal, boxes=boxes)
        self.spawner = self.runs._spawner = Spawner()  # type: ignore[assignment]

    def launch(self, *names: str) -> None:
        self.runs.launch(HOST, [{**REQUEST, "run": name} for name in names])
        self.runs.commit()

    def end(self, name: str, status: int = 0) -> None:
        """The process of the run ends, as the loop notices it."""
        run = self.runs.memory.runs[name]
        del self.runs.by_pid[run.pid]
        self.runs._exited(run, status)

    def told(self) -> list[tuple[str, str]]:
        """Kind and run of the events since the last call."""
        events, self.runs.events = self.runs.events, []
        return [(event["a"], event["run"]) for _, event in events]

    def states(self) -> dict[str, str]:
        return {each["run"]: each["state"] for each in self.runs.listing(HOST)}


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    monkeypatch.chdir(tmp_path)
    made = Disk()
    yield made
    made.close_all()


@pytest.fixture
def keeper(disk: Disk, tmp_path: Path) -> Callable[[], Keeper]:
    return lambda: Keeper(tmp_path, disk)


def after_a_cut(disk: Disk, keeper: Callable[[], Keeper]) -> Keeper:
    disk.cut_power()
    return keeper()


# ---- what was told is safe ----


def test_an_epoch_that_was_answered_survives_a_power_cut(disk, keeper):
    first = keeper()
    first.runs.hello(HOST, 7)
    with pytest.raises(EpochRefused) as refused:
        after_a_cut(disk, keeper).runs.hello(HOST, 6)
    assert refused.value.known == 7


def test_an_epoch_that_could_not_be_written_is_not_known_at_the_repeat(disk, keeper):
    first = keeper()
    disk.fails["fdatasync"] = 1
    for _ in range(2):  # the second is the repeat: nothing was written since
        with pytest.raises(KeeperJournalFailed):
            first.runs.hello(HOST, 7)
    first.runs.commit()
    first.runs.hello(HOST, 7)
    with pytest.raises(EpochRefused):
        after_a_cut(disk, keeper).runs.hello(HOST, 6)


def test_an_end_that_was_told_survives_a_power_cut(disk, keeper):
    first = keeper()
    first.launch("r-0-1", "r-1-1")
    first.end("r-0-1")
    first.runs.commit()
    assert ("ended", "r-0-1") in first.told()
    second = after_a_cut(disk, keeper)
    assert second.runs.memory.runs["r-0-1"].end["outcome"] == kinds.SUCCEEDED
    assert second.runs.memory.runs["r-1-1"].end["outcome"] == kinds.LOST


def test_an_id_is_taken_before_its_process_exists(disk, keeper):
    first = keeper()
    first.launch("r-0-1")
    assert first.spawner.spawned == ["r-0-1"]
    second = after_a_cut(disk, keeper)
    second.launch("r-0-1")
    assert second.spawner.spawned == []


def test_of_a_batch_no_process_exists_whose_launch_is_not_safe(disk, keeper):
    first = keeper()
    seen: list[list[str]] = []
    sync = disk.fdatasync

    def noted(fd: int) -> None:
        seen.append([*first.spawner.spawned])
        sync(fd)

    disk.fdatasync = noted
    first.launch("r-0-1", "r-1-1")
    assert seen == [[]] and len(first.spawner.spawned) == 2


@pytest.mark.parametrize("way", ["acknowledgements", "a rewrite"])
def test_an_acknowledged_id_stays_taken_across_a_power_cut(disk, keeper, way):
    """Its record leaves the journal, so its folder has to be safe by then."""
    first = keeper()
    first.launch("r-0-1")
    first.end("r-0-1")
    first.runs.commit()
    first.runs.ack(["r-0-1"])
    if way == "a rewrite":
        first.runs.compact(0)
    else:
        first.runs.write_acks()
        disk.sync_file("journal")  # the system may write it whenever it likes
    second = after_a_cut(disk, keeper)
    second.launch("r-0-1")
    assert second.spawner.spawned == []


def test_acknowledgements_are_not_written_while_folders_cannot_be_synced(disk, keeper):
    first = keeper()
    first.launch("r-0-1")
    first.end("r-0-1")
    first.runs.commit()
    first.runs.ack(["r-0-1"])
    disk.fails["fsync"] = 1
    first.runs.write_acks()
    assert b'"ack"' not in Path("journal").read_bytes()
    first.runs.write_acks()
    assert b'"ack"' in Path("journal").read_bytes()


# ---- a disk that fails ----


@pytest.mark.parametrize("call", ["write", "fdatasync"])
def test_an_end_is_told_once_its_record_is_safe_and_not_before(disk, keeper, call):
    first = keeper()
    first.launch("r-0-1")
    first.told()
    first.end("r-0-1", status=9)
    disk.fails[call] = 1
    first.runs.commit()
    assert first.told() == []
    assert first.states() == {"r-0-1": "running"}
    (listed,) = first.runs.listing(HOST)
    assert listed["end"] is None, "a successor would not know it"
    first.runs.launch(HOST, [{**REQUEST, "run": "r-0-1"}])
    first.runs.kill(HOST, "r-0-1", grace_s=0.0)
    assert first.told() == [], "nor to who asks again"
    first.runs.ack(["r-0-1"])
    assert "r-0-1" in first.runs.memory.runs, "nor may it be forgotten"
    first.runs.commit()
    assert first.told() == [("ended", "r-0-1")]
    second = after_a_cut(disk, keeper)
    assert second.runs.memory.runs["r-0-1"].end["exit_code"] == 9


@pytest.mark.parametrize("call", ["write", "fdatasync"])
def test_nothing_is_appended_after_a_failure(disk, keeper, call):
    """A second sync after one that failed reports success for bytes that are gone."""
    first = keeper()
    disk.fails[call] = 1
    with pytest.raises(KeeperJournalFailed):
        first.journal.append([kinds.epoch_record(HOST, 1)], sync=True)
    disk.calls.clear()
    with pytest.raises(KeeperJournalFailed):
        first.journal.append([kinds.epoch_record(HOST, 2)], sync=True)
    assert disk.calls == []
    first.journal.rewrite(first.runs.memory.records())
    first.journal.append([kinds.epoch_record(HOST, 3)], sync=True)
    assert [each.get("epoch") for each in KeeperJournal("journal").read()] == [None, 3]


def test_what_a_failed_write_left_behind_is_not_in_the_next_journal(disk, keeper):
    """Half a line, and behind it whole ones that nobody could read."""
    first = keeper()
    disk.short = True
    step, count = disk._step, []

    def second_fails(name: str) -> None:
        count.append(name)
        if len(count) == 2:
            raise OSError(errno.ENOSPC, name)
        step(name)

    disk._step = second_fails
    first.launch("r-0-1")
    disk._step, disk.short = step, False
    assert not Path("journal").read_bytes().endswith(b"\n")
    assert first.spawner.spawned == []
    first.runs.commit()
    assert ("ended", "r-0-1") in first.told()
    first.launch("r-1-1")
    assert first.spawner.spawned == ["r-1-1"]
    second = after_a_cut(disk, keeper)
    assert second.runs.memory.runs["r-0-1"].end["reason"] == kinds.NOT_STARTED
    assert second.runs.memory.runs["r-1-1"].end["reason"] == kinds.KEEPER_DIED


def test_short_writes_are_continued(disk, keeper):
    first = keeper()
    disk.short = True
    first.launch("r-0-1")
    first.end("r-0-1")
    first.runs.commit()
    second = after_a_cut(disk, keeper)
    assert second.runs.memory.runs["r-0-1"].end["outcome"] == kinds.SUCCEEDED


@pytest.mark.parametrize(
    ("call", "which"), [("write", 1), ("fsync", 1), ("rename", 1), ("fsync", 2)]
)
def test_a_rewrite_that_fails_anywhere_leaves_one_whole_journal(disk, keeper, call, which):
    """The second sync is that of the folder, behind the rename."""
    first = keeper()
    first.runs.hello(HOST, 7)
    step, count = disk._step, []

    def fails(name: str) -> None:
        count.append(name)
        if name == call and count.count(name) == which:
            raise OSError(errno.EIO, name)
        step(name)

    disk._step = fails
    with pytest.raises(KeeperJournalFailed):
        first.journal.rewrite(first.runs.memory.records())
    with pytest.raises(KeeperJournalFailed):  # the old descriptor may have no name any more
        first.runs.hello(HOST, 8)
    disk._step = step
    assert after_a_cut(disk, keeper).runs.memory.epochs == {HOST: 7}


def test_what_is_appended_to_a_new_journal_survives_a_power_cut(disk, keeper):
    first = keeper()
    first.runs.hello(HOST, 7)
    first.journal.rewrite(first.runs.memory.records())
    first.runs.hello(HOST, 8)
    assert after_a_cut(disk, keeper).runs.memory.epochs == {HOST: 8}


@pytest.mark.parametrize(
    "tail",
    [
        b'{"is":"ep',
        b'{"is":"epoch","host":"host-1","epoch":9}',
        b'\0\0\0\n{"is":"epoch","host":"host-1","epoch":9}\n',
    ],
    ids=["half", "without its newline", "bytes that never arrived"],
)
def test_half_a_line_at_the_end_did_not_happen(disk, keeper, tail):
    keeper().runs.hello(HOST, 7)
    with Path("journal").open("ab") as file:
        file.write(tail)
    second = keeper()
    assert second.runs.memory.epochs == {HOST: 7}
    second.runs.hello(HOST, 8)
    assert keeper().runs.memory.epochs == {HOST: 8}
