"""The file of the audit log: whole lines, rotated, for its owner alone, and no answer unread."""

from __future__ import annotations

import json
import os
import resource
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
import structlog

from peloton.api.v0.task import task_pb2 as task
from peloton.gateway.server import audit, audit_file
from peloton.gateway.server.audit import AUDIT_LOG, AuditLog
from tests.gateway.fleet_fixture import until
from tests.gateway.server.audit_fixture import entry, lines_in


def test_the_file_is_for_its_owner_alone_whatever_the_mask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        (tmp_path / AUDIT_LOG).touch(0o666)
        log = AuditLog(tmp_path / AUDIT_LOG)
        log.close()
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / AUDIT_LOG).stat().st_mode) == 0o600


def test_no_link_is_followed_and_no_folder_written(tmp_path: Path) -> None:
    (tmp_path / "target").touch()
    (tmp_path / AUDIT_LOG).symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic link"):
        AuditLog(tmp_path / AUDIT_LOG)
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        AuditLog(tmp_path / "folder")


def test_all_that_was_handed_over_is_written_at_the_end(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / AUDIT_LOG)
    threads = [
        threading.Thread(target=lambda at=at: [log.add(entry(f"{at}/{n}")) for n in range(500)])
        for at in range(4)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    log.close()
    names = [line["objects"]["job"] for line in lines_in(tmp_path / AUDIT_LOG)]
    assert len(names) == 2000
    for at in range(4):
        assert [n for n in names if n.startswith(f"{at}/")] == [f"{at}/{n}" for n in range(500)]


def test_no_value_ends_the_thread_that_writes(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / AUDIT_LOG)
    strange: Any = {"job": b"\xff", "set": {1}}
    log.add(entry()._replace(objects=strange))
    log.add(entry()._replace(objects=5))  # type: ignore[arg-type]
    log.add(entry("next"))
    log.close()
    lines = lines_in(tmp_path / AUDIT_LOG)
    assert [line["objects"] for line in lines] == [
        {"job": "b'\\xff'", "set": "{1}"}, {}, {"job": "next"},
    ]  # fmt: skip


def test_a_line_that_was_torn_does_not_spoil_the_next(tmp_path: Path) -> None:
    (tmp_path / AUDIT_LOG).write_bytes(b'{"who":"a"}\n{"who":"tor')
    log = AuditLog(tmp_path / AUDIT_LOG)
    log.add(entry("next"))
    log.close()
    first, torn, last = (tmp_path / AUDIT_LOG).read_bytes().splitlines()
    assert (first, torn) == (b'{"who":"a"}', b'{"who":"tor')
    assert json.loads(last)["objects"] == {"job": "next"}


def test_files_are_rotated_and_so_many_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_file, "FILES_KEPT_MAX", 3)
    path = tmp_path / AUDIT_LOG
    log = AuditLog(path, file_bytes_max=1000)
    for number in range(40):
        log.add(entry(f"{number:04}"))
        until(lambda n=number: path.exists() and f"{n:04}" in path.read_text())
    log.close()
    kept = sorted(file.name for file in tmp_path.iterdir())
    assert kept == [AUDIT_LOG, *(f"{AUDIT_LOG}.{number}" for number in (1, 2, 3))]
    assert all(file.stat().st_size <= 1000 for file in tmp_path.iterdir())
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in tmp_path.iterdir())
    files = [path.with_name(name) for name in reversed(kept[1:])] + [path]
    names = [line["objects"]["job"] for file in files for line in lines_in(file)]
    assert names == [f"{number:04}" for number in range(40 - len(names), 40)], "none is left out"


def test_a_file_that_was_taken_away_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / AUDIT_LOG
    log = AuditLog(path)
    log.add(entry("first"))
    until(path.read_text)
    path.rename(tmp_path / "elsewhere")
    log.add(entry("second"))
    until(lambda: path.exists() and path.read_text())
    path.unlink()
    log.add(entry("third"))
    log.close()
    assert [line["objects"]["job"] for line in lines_in(tmp_path / "elsewhere")] == ["first"]
    assert [line["objects"]["job"] for line in lines_in(path)] == ["third"]


def test_a_full_disk_stops_nobody_and_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "RETRY_S", 0.01)
    path = tmp_path / AUDIT_LOG
    earlier = AuditLog(path)
    earlier.add(entry("before"))
    earlier.close()
    before = path.read_bytes()
    log = AuditLog(path, waiting_max=50)
    assert not log.notes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Room for half a line: what does not fit as a whole is not there at all.
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 40, limits[1]))
    try:
        for number in range(80):
            log.add(entry(f"{number}"))
        until(lambda: "File too large" in str(log.notes()))
        (note,) = log.notes()
        assert note.component == "audit" and "50 wait; 30 lines are lost" in note.text
        # It is tried again all the time: what fitted is there for a moment.
        until(lambda: path.read_bytes() == before)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    until(lambda: path.read_bytes().count(b"\n") == 52)
    until(lambda: "written" not in str(log.notes()))
    assert log.notes()[0].text == "30 lines are lost"
    log.add(entry("after"))
    log.close()
    *lines, lost, after = lines_in(path)
    assert [line["objects"]["job"] for line in lines[1:]] == [str(n) for n in range(50)]
    assert (lost["lost"], after["objects"]["job"]) == (30, "after")


def test_an_answer_that_cannot_be_read_costs_only_its_part(tmp_path: Path) -> None:
    def broken(data: bytes) -> Any:
        raise ValueError("a bug")

    log = AuditLog(tmp_path / AUDIT_LOG)
    reads = audit.ReadAnswer(broken, lambda answer: {})
    log.add(entry("short")._replace(answer=b"x", reads=reads))
    log.add(entry("next"))
    log.close()
    lines = lines_in(tmp_path / AUDIT_LOG)
    assert [line["objects"]["job"] for line in lines] == ["short", "next"]
    assert [line["answer"] for line in lines] == ["UNKNOWN", "OK"]


def test_answers_that_wait_are_bounded_and_then_unknown(tmp_path: Path) -> None:
    long = task.StopResponse()
    long.error.notFound.id.value = "x" * 600
    reads = audit.ReadAnswer(task.StopResponse.FromString, lambda answer: {})
    data = long.SerializeToString()
    one = entry()._replace(answer=data, reads=reads)
    for most, wanted in ((len(data) - 1, "UNKNOWN"), (len(data), "REFUSED")):
        path = tmp_path / wanted
        log = AuditLog(path, answers_bytes_max=most)

        def written_again(log: AuditLog = log, path: Path = path, wanted: str = wanted) -> bool:
            log.add(one)
            return [line["answer"] for line in lines_in(path)].count(wanted) > 2

        until(written_again)  # what is written takes no room any more
        log.close()
        assert lines_in(path)[0]["answer"] == wanted


def test_a_minute_of_refused_callers_ends_with_the_count_of_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line comes by itself, and the next minute has room again."""
    monkeypatch.setattr(audit, "REFUSED_S", 0.2)
    monkeypatch.setattr(audit, "REFUSED_LINES_MAX", 2)
    log = AuditLog(tmp_path / AUDIT_LOG)
    for number in range(5):
        log.add_refused(entry(f"{number}"))
    until(lambda: any("left_out" in line for line in lines_in(tmp_path / AUDIT_LOG)))
    log.add_refused(entry("again"))
    log.close()
    lines = lines_in(tmp_path / AUDIT_LOG)
    assert lines[-1]["objects"]["job"] == "again"
    # On a machine under load a part of them may fall into the next minute.
    told = [line["objects"]["job"] for line in lines[:-1] if "objects" in line]
    assert told[:2] == ["0", "1"]
    assert len(told) + sum(line.get("left_out", 0) for line in lines) == 5


def test_a_line_after_the_end_is_said(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / AUDIT_LOG)
    log.close()
    with structlog.testing.capture_logs() as said:
        log.add(entry("late"))
    assert [json.loads(one["line"])["objects"]["job"] for one in said] == ["late"]


@pytest.mark.needs_root("to give files away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / AUDIT_LOG).touch(0o600)
    os.chown(tmp_path / AUDIT_LOG, 12345, -1)
    with pytest.raises(OSError, match="belongs to user") as caught:
        AuditLog(tmp_path / AUDIT_LOG)
    assert caught.value.filename == str(tmp_path / AUDIT_LOG)
