"""What a client of a named executor leaves for the next one of that name."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from peloton.sdk.errors import BadSpec, Conflict
from peloton.sdk.executor.calls import ExecutorCall
from peloton.sdk.executor.futures import WorkerId
from peloton.sdk.executor.packing import PackedFunction, PackedWork
from peloton.sdk.executor.session import ExecutorSession

FUNCTION = PackedFunction("f", b"digest", b"data")
ANSWER = (1, True, b"result", (None, None))
WORKER = WorkerId("job", 3, "run")


@pytest.fixture(autouse=True)
def own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.fixture
def session() -> Iterator[ExecutorSession]:
    made = ExecutorSession("mine")
    yield made
    made.end()


def call(number: int) -> ExecutorCall:
    future: Future[Any] = Future()
    return ExecutorCall(number, PackedWork(FUNCTION, b"arguments"), future=future)


def again(session: ExecutorSession) -> ExecutorSession:
    """The next process: a lock goes with its holder."""
    session._owned.close()
    return ExecutorSession("mine")


def test_calls_jobs_and_the_port_are_there_again(session: ExecutorSession) -> None:
    assert (session.calls(), session.jobs(), session.port()) == ([], [], 0)
    session.write_port(1234)
    session.write_calls([call(0), call(1)])
    session.write_job("a")
    session.write_job("b")
    session.write_answer(ANSWER, WORKER)
    found = again(session)
    assert (found.token, found.jobs(), found.port()) == (session.token, ["a", "b"], 1234)
    first, second = found.calls()
    assert first == (0, PackedWork(FUNCTION, b"arguments"), None, None, False)
    assert (second.answer, second.worker) == (ANSWER, WORKER)
    found.write_calls([call(2)])
    found.write_cancelled(2)
    last = again(found)
    assert [(one.number, one.is_cancelled) for one in last.calls()] == [
        (0, False), (1, False), (2, True),
    ]  # fmt: skip
    last.end()
    last.write_cancelled(0)
    assert not last.folder.exists()


def test_what_was_being_written_is_left_out(session: ExecutorSession) -> None:
    session.write_calls([call(0)])
    whole = (session.folder / "calls").read_bytes()
    session.write_calls([call(1)])
    longer = (session.folder / "calls").read_bytes()
    for length in range(len(whole), len(longer)):
        (session.folder / "calls").write_bytes(longer[:length])
        found = again(session)
        assert [one.number for one in found.calls()] == [0]
        assert (session.folder / "calls").read_bytes() == whole, "what follows has to be readable"
        session = found
    session.end()


def test_a_function_is_written_again_where_its_first_call_could_not_be(
    session: ExecutorSession,
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            session.write_calls([call(0)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    session.write_calls([call(1)])
    assert [(one.number, one.work.function) for one in again(session).calls()] == [(1, FUNCTION)]


def test_one_process_has_a_name_at_a_time(session: ExecutorSession) -> None:
    with pytest.raises(Conflict, match="another process has the executor mine open"):
        ExecutorSession("mine")
    assert session.token_file.stat().st_mode & 0o777 == 0o600
    assert session.folder.stat().st_mode & 0o777 == 0o700
    session.end()
    ExecutorSession("mine").end()


def test_an_ended_session_leaves_the_next_of_its_name_alone(session: ExecutorSession) -> None:
    session.write_calls([call(0)])
    session.end()
    following = ExecutorSession("mine")
    following.write_calls([call(1)])
    session.end()
    session.write_job("a")
    session.write_answer(ANSWER, WORKER)
    with pytest.raises(Conflict):
        ExecutorSession("mine")
    assert [one.number for one in again(following).calls()] == [1]
    assert following.jobs() == [] and following.token_file.read_bytes() == following.token


@pytest.mark.parametrize("written", [b"", b"a" * 63, b"a" * 65])
def test_a_token_that_is_cut_short_is_refused(session: ExecutorSession, written: bytes) -> None:
    session.token_file.write_bytes(written)
    with pytest.raises(Conflict, match=rf"token is no token: it has {len(written)} bytes, not 64"):
        again(session)
    (session.folder / "token.new").write_bytes(b"a")
    session.token_file.unlink()
    found = again(session)
    assert found.token_file.read_bytes() == found.token
    assert sorted(path.name for path in found.folder.iterdir()) == ["lock", "token"]


@pytest.mark.parametrize("name", ["../mine", ".", "a b", "x" * 101, "-x"])
def test_a_name_is_a_name_of_a_file(name: str) -> None:
    with pytest.raises(BadSpec, match="name: must be letters, digits"):
        ExecutorSession(name)


def test_without_a_name_nothing_is_left() -> None:
    session = ExecutorSession("")
    session.write_calls([call(0)])
    assert [path.name for path in session.folder.iterdir()] == ["token"]
    session.end()
    assert not session.folder.exists()
