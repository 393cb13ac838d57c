"""Files that come with jobs: whole or not at all, and never changed under a run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from peloton.backends.job_files import JobFileFolder
from peloton.runtime.job_files import (
    FILE_BYTES_MAX,
    FILES_MAX,
    NoFilesOfOther,
    OtherFiles,
    problem_of,
)

FILES = {"script": b"#!/bin/sh\n", "7": b"echo 7"}


def test_a_job_has_its_files_or_none(tmp_path: Path) -> None:
    files = JobFileFolder(tmp_path)
    assert files.made() == {}
    assert files.put("a", FILES)
    assert not files.put("a", FILES), "another copy of the request"
    found = {one.name: one.read_bytes() for one in (tmp_path / "files" / "a").iterdir()}
    assert found == FILES
    assert os.access(tmp_path / "files" / "a" / "script", os.X_OK)
    assert [*files.made()] == ["a"]
    with pytest.raises(OtherFiles):
        files.put("a", {"script": b"other"})
    assert (tmp_path / "files" / "a" / "script").read_bytes() == FILES["script"]


def test_an_account_that_passes_the_folders_above_reads_them_whatever_the_umask(
    tmp_path: Path,
) -> None:
    before = os.umask(0o077)
    try:
        JobFileFolder(tmp_path).put("a", FILES)
    finally:
        os.umask(before)
    folder = tmp_path / "files"
    assert [one.stat().st_mode & 0o5 for one in (folder, folder / "a")] == [0o1, 0o1]
    assert (folder / "a" / "script").stat().st_mode & 0o5 == 0o5


def test_one_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    files = JobFileFolder(tmp_path)
    with pytest.raises(OSError):
        files.put("a", {"good": b"", "x" * 300: b""})
    assert files.made() == {}


def test_what_is_removed_is_gone_and_nothing_else(tmp_path: Path) -> None:
    files = JobFileFolder(tmp_path)
    for job in ("a", "b"):
        files.put(job, FILES)
    for _ in range(2):
        files.remove("a")
        assert [*files.made()] == ["b"]


def test_a_job_has_the_files_of_another_for_itself(tmp_path: Path) -> None:
    files = JobFileFolder(tmp_path)
    with pytest.raises(NoFilesOfOther):
        files.share("b", "a")
    files.put("a", FILES)
    files.put("c", {"script": b"other"})
    assert files.share("b", "a")
    assert not files.share("b", "a"), "another copy of the request"
    for job in ("a", "b"):
        with pytest.raises(OtherFiles):
            files.share(job, "c")
    files.remove("a")
    with pytest.raises(NoFilesOfOther):
        files.share("d", "a")
    found = {one.name: one.read_bytes() for one in (tmp_path / "files" / "b").iterdir()}
    assert found == FILES
    assert {*files.made()} == {"b", "c"}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"../a": b""}, "'../a' is no name"),
        ({".a": b""}, "'.a' is no name"),
        ({"": b""}, "'' is no name"),
        ({"a": bytes(FILE_BYTES_MAX + 1)}, "a has 4194305 bytes, the limit is 4194304"),
        (dict.fromkeys(map(str, range(9)), bytes(FILE_BYTES_MAX)), "bytes in all, the limit is"),
        (dict.fromkeys(map(str, range(FILES_MAX + 1)), b""), "1001 files, the limit is 1000"),
    ],
)
def test_what_may_not_come_is_named(files: dict[str, bytes], said: str) -> None:
    assert said in problem_of(files)


def test_all_else_may_come() -> None:
    assert problem_of(dict.fromkeys(map(str, range(8)), bytes(FILE_BYTES_MAX))) == ""
