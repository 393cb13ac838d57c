"""`peloton backup` and `peloton restore`: what comes back, what is refused, kills.

A kill is a real one, of a fork of this process, before each sync of a file or folder.
"""

from __future__ import annotations

import json
import lzma
import os
import shutil
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import yaml

from peloton import __version__
from peloton.backends import keeper_folder
from peloton.backends.keeper.identity import keeper_id
from peloton.backends.keeper.journal import KeeperJournal
from peloton.backends.keeper_folder import KeeperOwner
from peloton.commands import backups
from peloton.runtime.adapters import folder_origin, sqlite_schema
from peloton.runtime.adapters.claimed_folder import SECRETS_FILE
from peloton.runtime.adapters.folder_origin import FolderKind
from peloton.runtime.adapters.sqlite_secrets import SqliteSecrets
from peloton.runtime.adapters.sqlite_store import SqliteJournal
from peloton.runtime.adapters.sqlite_witness import WitnessOptions
from peloton.runtime.ports import SealedSecret
from tests.cli.terminal import Printed, typed
from tests.killed_forks import dies_at, is_killed

GOLDEN = Path(__file__).parent.parent / "journals" / __version__ / "journal.sqlite.xz"
COMMAND = {"value": "true", "shell": True, "arguments": []}
LAUNCH = {"is": "launch", "run": "a", "host": "h", "command": COMMAND, "memory_mb": 1.0}
START = {"is": "start", "run": "a", "pid": 1, "birth": 1, "at": 1.0}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder of a cluster that was stopped, with a keeper that has one living run."""
    folder = tmp_path / "data"
    (folder / "keeper").mkdir(parents=True)
    (folder / "journal.sqlite").write_bytes(lzma.decompress(GOLDEN.read_bytes()))
    (folder / "backend").write_text("process\n")
    keeper_id(str(folder / "keeper"))
    keeper_folder.claim(folder / "keeper", KeeperOwner("01" * 16, "west"))
    journal = KeeperJournal(str(folder / "keeper" / "journal"))
    journal.rewrite(
        [
            {"is": "boot", "id": "b", "folder": str(folder)},
            {"is": "epoch", "host": "h", "epoch": 9},
            LAUNCH,
        ]
    )
    journal.append([START], sync=True)
    journal.close()
    with (folder / "keeper" / "journal").open("ab") as half:
        half.write(b'{"is": "en')
    folder_origin.record(folder)
    return folder


def backup(data: Path, target: Path) -> Printed:
    return typed("backup", str(target), "--data-dir", str(data))


def restore(source: Path, data: Path) -> Printed:
    return typed("restore", str(source), str(data))


def replay(data: Path) -> list[str]:
    """All actors as recovery finds them."""
    printed = typed("journal", "dump", "--states", "--data-dir", str(data))
    assert printed.code == 0
    return printed.out.splitlines()


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_what_is_restored_is_what_was_backed_up(data: Path, tmp_path: Path) -> None:
    before = contents(data)
    made = backup(data, tmp_path / "backup")
    assert made.code == 0 and f"backup of {data} in" in made.out
    assert contents(data) == before, "nothing is written"
    done = restore(tmp_path / "backup", tmp_path / "restored")
    assert done.code == 0 and "what was acknowledged later is gone" in done.err
    assert replay(tmp_path / "restored") == replay(data) != []
    assert typed("journal", "check", "--data-dir", str(tmp_path / "restored")).code == 0
    restored = contents(tmp_path / "restored")
    for name in ("backend", "keeper/identity"):
        assert restored[name] == before[name]
    assert not {path for path in tmp_path.rglob("*") if path.name.endswith(".restoring")}
    for path in [*(tmp_path / "restored").rglob("*"), *(tmp_path / "backup").rglob("*")]:
        assert not path.stat().st_mode & 0o077, path


def test_secrets_go_along_sealed_while_they_are_written_and_no_key(
    data: Path, tmp_path: Path
) -> None:
    key = data / "secrets.key"
    key.write_text("a key that is kept in the wrong place\n")
    store = SqliteSecrets(data / SECRETS_FILE)
    row = SealedSecret("job", "s-1", 7, "k", b"sealed")
    store.put([row])
    made = backup(data, tmp_path / "backup")
    store.close()
    assert made.code == 0 and "no key" in made.err
    done = restore(tmp_path / "backup", tmp_path / "restored")
    assert done.code == 0 and backups.SECRETS_NOTE in done.err
    restored = SqliteSecrets(tmp_path / "restored" / SECRETS_FILE)
    assert restored.of_job("job") == [row]
    restored.close()
    for folder in ("backup", "restored"):
        assert not [name for name in contents(tmp_path / folder) if name.endswith(".key")]
        assert not (tmp_path / folder / SECRETS_FILE).stat().st_mode & 0o077


def test_a_backup_without_secrets_says_nothing_of_them(data: Path, tmp_path: Path) -> None:
    assert "encrypted" not in backup(data, tmp_path / "backup").err
    assert "encrypted" not in restore(tmp_path / "backup", tmp_path / "restored").err


def test_restored_runs_are_nobodys_processes(data: Path, tmp_path: Path) -> None:
    backup(data, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    keeper = tmp_path / "restored" / "keeper"
    records = KeeperJournal(str(keeper / "journal")).read()
    ends = {record["run"]: record["end"] for record in records if record["is"] == "end"}
    assert {(end["outcome"], end["reason"]) for end in ends.values()} == {
        ("LOST", backups.RESTORED)
    }
    hosts = {record["run"]: record["host"] for record in records if record["is"] == "launch"}
    there = {run.rpartition("-")[0][-2:]: host for run, host in hosts.items() if run != "a"}
    assert hosts["a"] == "h", "the keeper's own"
    assert there.items() >= {"-0": "a", "-7": "a"}.items(), "what the journal has on hosts"
    assert hosts.keys() == ends.keys()
    assert not [record for record in records if record["is"] == "epoch"]
    keeper_folder.claim(keeper, KeeperOwner("02" * 16, "east"))


def test_the_manifest_names_the_journal_first_and_its_positions(data: Path, tmp_path: Path) -> None:
    backup(data, tmp_path / "backup")
    manifest = json.loads((tmp_path / "backup" / "manifest.json").read_text())
    names = [file["name"] for file in manifest["files"]]
    assert names[0] == "journal.sqlite" and "keeper/journal" in names
    assert manifest["positions"]["jobmgr-1"] > 0


def test_a_restored_journal_has_a_witness_and_a_generation_of_its_own(
    data: Path, tmp_path: Path
) -> None:
    backup(data, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    journal = SqliteJournal(
        tmp_path / "restored" / "journal.sqlite", witness=WitnessOptions(tmp_path / "restored")
    )
    (groups,) = journal._rows._read("SELECT shards FROM cluster", ())
    assert journal.bootstrap(json.loads(groups[0])).generation == 1
    journal.close()
    read = "SELECT shard_number, epoch, last_position FROM register WHERE shard_group = 'jobmgr'"
    old, new = (
        sqlite3.connect(folder / "journal.sqlite").execute(read).fetchall()
        for folder in (data, tmp_path / "restored")
    )
    for before, after in zip(old, new, strict=True):
        assert after[0] == before[0] and after[2] == before[2] and after[1] > before[1]


def test_a_restored_folder_is_a_copy_only_beside_its_original(data: Path, tmp_path: Path) -> None:
    backup(data, tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    found = folder_origin.examine(tmp_path / "restored")
    assert found.kind is FolderKind.COPY and "which is still there" in found.text
    shutil.rmtree(data)
    assert folder_origin.examine(tmp_path / "restored").kind in (FolderKind.MOVED, FolderKind.SAME)


def test_a_journal_that_is_open_is_backed_up_with_its_log(data: Path, tmp_path: Path) -> None:
    journal = SqliteJournal(data / "journal.sqlite")
    journal.raise_level(3)
    assert (data / "journal.sqlite-wal").stat().st_size > 0
    assert backup(data, tmp_path / "backup").code == 0
    journal.close()
    assert not (tmp_path / "backup" / "journal.sqlite-wal").exists()
    copy = sqlite3.connect(tmp_path / "backup" / "journal.sqlite")
    assert copy.execute("SELECT max(epoch) FROM register").fetchone()[0] >= 3
    copy.close()


def flip(file: Path) -> None:
    found = bytearray(file.read_bytes())
    found[len(found) // 2] ^= 1
    file.write_bytes(found)


def later(file: Path) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": 99}))


def earlier(file: Path) -> None:
    raw = json.loads(file.read_text())
    file.write_text(json.dumps({**raw, "peloton": "0.1.0", "journal_format": 1}))


def escape(file: Path) -> None:
    file.write_text(file.read_text().replace('"backend"', '"../backend"'))


@pytest.mark.parametrize(
    ("name", "damage", "text"),
    [
        ("journal.sqlite", flip, "journal.sqlite is not what was backed up"),
        ("keeper/journal", flip, "keeper/journal is not what was backed up"),
        ("backend", Path.unlink, "backend is missing"),
        ("manifest.json", Path.unlink, "is no complete backup"),
        ("manifest.json", lambda file: file.write_text("{"), "manifest.json is damaged"),
        ("manifest.json", later, "which is later than this one"),
        ("manifest.json", earlier, "by Peloton 0.1.0, whose journals this version does not read"),
        ("manifest.json", escape, "which is not in a backup"),
    ],
)
def test_a_damaged_backup_is_refused_by_name(
    data: Path, tmp_path: Path, *, name: str, damage: Callable[[Path], object], text: str
) -> None:
    backup(data, tmp_path / "backup")
    damage(tmp_path / "backup" / name)
    printed = restore(tmp_path / "backup", tmp_path / "restored")
    assert printed.code == 1 and text in printed.err
    assert not (tmp_path / "restored").exists()


def test_nothing_is_overwritten(data: Path, tmp_path: Path) -> None:
    assert backup(data, tmp_path / "backup").code == 0
    before = contents(tmp_path)
    for printed in (
        backup(data, tmp_path / "backup"),
        restore(tmp_path / "backup", data),
    ):
        assert printed.code == 1 and "is not empty" in printed.err
    assert contents(tmp_path) == before
    assert backup(tmp_path, tmp_path / "other").code == 66
    assert not (tmp_path / "other").exists()


def test_a_damaged_journal_is_no_backup(data: Path, tmp_path: Path) -> None:
    file = data / "journal.sqlite"
    file.write_bytes(file.read_bytes()[:8192] + os.urandom(20000))
    printed = backup(data, tmp_path / "backup")
    assert printed.code == 1 and "journal.sqlite" in printed.err
    assert restore(tmp_path / "backup", tmp_path / "restored").code == 1


def test_cassandra_is_backed_up_by_its_own_tools(tmp_path: Path) -> None:
    config = tmp_path / "daemon.yaml"
    raw = {
        "cluster": "c",
        "journal": {"cassandra": {"contacts": ["127.0.0.1"]}},
        "zookeeper": {"hosts": ["127.0.0.1:1"]},
        "backend": {"simulated": {"hosts": [{"name": "a"}]}},
    }
    config.write_text(yaml.safe_dump(raw))
    printed = typed("backup", str(tmp_path / "backup"), "--config", str(config))
    assert printed.code == 1 and not (tmp_path / "backup").exists()
    for step in ("nodetool snapshot", "nodetool repair", "journal check --config"):
        assert step in printed.err


def killed_before_sync(number: int, act: Callable[[], object]) -> bool:
    """Run it in a fork that kills itself before its sync of this number; whether it got there."""

    def counted() -> None:
        step, sync = dies_at(number), os.fsync

        def count(descriptor: int) -> None:
            step()
            sync(descriptor)

        os.fsync = count
        act()

    return is_killed(counted)


def test_a_backup_that_was_killed_is_whole_or_refused(data: Path, tmp_path: Path) -> None:
    number = 0
    while killed_before_sync(
        number := number + 1, partial(backups.make, data, tmp_path / f"backup-{number}")
    ):
        target, restored = tmp_path / f"backup-{number}", tmp_path / f"restored-{number}"
        printed = restore(target, restored)
        if (target / "manifest.json").exists():
            assert printed.code == 0 and replay(restored) == replay(data)
        else:
            assert printed.code == 1 and "is no complete backup" in printed.err
            assert "interrupted" in backup(data, target).err
    assert number > 10, "every sync of a backup was reached"


def test_a_restore_that_was_killed_leaves_no_data_folder(data: Path, tmp_path: Path) -> None:
    backup(data, tmp_path / "backup")
    number, wanted = 1, replay(data)
    while True:
        target = tmp_path / f"restored-{number}"
        source = tmp_path / "backup"
        if not killed_before_sync(number, partial(backups.restore, source, target)):
            break
        assert not target.exists() or replay(target) == wanted
        if not target.exists():
            assert restore(source, target).code == 0
        assert replay(target) == wanted
        assert not target.with_name(f".{target.name}.restoring").exists()
        number += 1
    assert number > 10, "every sync of a restore was reached"


def test_a_long_reader_holds_up_no_commit(data: Path) -> None:
    """Commits wait while the log is moved; moving waited five seconds for a reader."""
    journal = SqliteJournal(data / "journal.sqlite")
    journal.raise_level(3)
    reader = sqlite_schema.open_reader(data / "journal.sqlite")
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM register").fetchall()
    journal.raise_level(4)
    mover = sqlite_schema.open_mover(data / "journal.sqlite")
    ((wait_ms,),) = mover.execute("PRAGMA busy_timeout").fetchall()
    assert wait_ms <= 100, "so long it waits for a reader, and a commit for it"
    assert mover.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0], "it did not wait longer"
    reader.close()
    assert mover.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
    mover.close()
    journal.close()


@pytest.mark.parametrize("place", ["/proc/nowhere", "FILE/below"])
def test_a_place_where_nothing_can_be_made_is_named(data: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    wrong = Path(place.replace("FILE", str(tmp_path / "file")))
    made = backup(data, wrong)
    assert made.code == 1 and f"{wrong} cannot be made: " in made.err, made
    assert backup(data, tmp_path / "good").code == 0
    restored = restore(tmp_path / "good", wrong)
    assert restored.code == 1 and f"{wrong} cannot be made: " in restored.err, restored
