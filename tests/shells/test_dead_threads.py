"""A thread that ends by an error nobody expected is in health, by its name, and in the log."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from peloton.assembly.dead_threads import NAMED_MAX, THREADS, DeadThreads


@pytest.fixture
def dead() -> Iterator[DeadThreads]:
    before, found = threading.excepthook, DeadThreads()
    found.watch()
    yield found
    threading.excepthook = before


def end(error: BaseException | None, name: str = "writer") -> None:
    """A thread ends, by this error if there is one."""

    def run() -> None:
        if error is not None:
            raise error

    thread = threading.Thread(target=run, name=name)
    thread.start()
    thread.join()


def test_its_name_and_its_error_are_told_and_no_text_of_it(dead: DeadThreads) -> None:
    end(TypeError("a secret"))
    (note,) = dead.notes()
    assert note.component == THREADS
    assert note.text == "writer ended: TypeError; see the log, and restart this daemon"


@pytest.mark.parametrize("error", [None, SystemExit(1)])
def test_one_that_ends_as_it_is_to_is_not(dead: DeadThreads, error: BaseException | None) -> None:
    end(error)
    assert dead.notes() == ()


def test_so_many_are_named(dead: DeadThreads) -> None:
    for number in range(NAMED_MAX + 2):
        end(ValueError(), name=f"t{number}")
    (note,) = dead.notes()
    assert f"t{NAMED_MAX - 1} ended: ValueError; 2 more; see the log" in note.text
