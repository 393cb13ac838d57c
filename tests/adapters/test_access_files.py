"""The files of one user: which entries count, and which files with secrets are read."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from peloton import access_files
from peloton.access_files import ENTRIES, ClusterEntry

ADDRESS = "127.0.0.1:5397"
NOBODY_UID = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start it as another user")


def own_entry() -> ClusterEntry:
    return access_files.entry_for(ADDRESS, token_file="/x/token", socket="")


def written(folder: Path, text: str) -> ClusterEntry | None:
    """The entry that is found once the file of its address has this text."""
    access_files.publish([own_entry()], folder)
    (folder / ENTRIES / ADDRESS).write_text(text)
    return access_files.entry_of(ADDRESS, folder)


# ---- entries ----


@as_root
def test_an_entry_of_another_users_process_does_not_count(tmp_path: Path) -> None:
    """Of one that got the pid, and says to be born at the same time."""
    with (
        subprocess.Popen(["sleep", "600"], user=NOBODY_UID, group=NOBODY_UID) as other,
        contextlib.ExitStack() as at_end,
    ):
        at_end.callback(other.kill)
        entry = own_entry()._replace(pid=other.pid, born=access_files.birth_of(other.pid))
        assert written(tmp_path, json.dumps(own_entry()._asdict())) == own_entry()
        assert written(tmp_path, json.dumps(entry._asdict())) is None


def test_an_entry_counts_until_the_machine_starts_again(tmp_path: Path) -> None:
    entry = own_entry()
    assert entry.boot_id and entry.lives
    for boot_id in ("", "7b1c0ac3-5f1f-4b8e-a7a2-0c6e1ad1ce5d"):
        earlier = entry._replace(boot_id=boot_id)
        assert written(tmp_path, json.dumps(earlier._asdict())) is None
    old = entry._asdict()
    del old["boot_id"]
    assert written(tmp_path, json.dumps(old)) is None, "of a version that did not write it"
    access_files.publish([], tmp_path)
    assert not (tmp_path / ENTRIES / ADDRESS).exists()


@pytest.mark.parametrize(
    "change",
    [
        {"pid": 1e999},
        {"pid": True},
        {"pid": "1"},
        {"pid": float(os.getpid())},
        {"born": 1},
        {"token_file": ["/x/token"]},
        {"token_file": "/x\0/token"},
        {"socket": None},
        {"address": {}},
    ],
)
def test_an_entry_with_a_field_of_a_wrong_type_does_not_count(
    tmp_path: Path, change: dict[str, object]
) -> None:
    known = own_entry()._asdict()
    assert written(tmp_path, json.dumps(known | {"of_later_versions": 1})) == own_entry()
    assert written(tmp_path, json.dumps(known | change)) is None
    access_files.publish([], tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "1", "null", "{}", "[" * 60_000, "\udcff"])
def test_a_file_that_is_no_entry_does_not_count(tmp_path: Path, text: str) -> None:
    assert written(tmp_path, json.dumps(own_entry()._asdict())) == own_entry()
    (tmp_path / ENTRIES / ADDRESS).write_bytes(text.encode(errors="surrogateescape"))
    assert access_files.entry_of(ADDRESS, tmp_path) is None
