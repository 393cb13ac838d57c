"""One request to Cassandra, over a future by hand: pages, failures, and an end that never comes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from peloton.runtime.adapters import cassandra_store
from peloton.runtime.adapters.cassandra_statements import LINEARIZABLE
from peloton.runtime.adapters.cassandra_store import RequestInFlight, RowsRequest
from peloton.runtime.core.journal.statements import (
    FrameRow,
    InsertRow,
    ReadRegister,
    ReadSegment,
    RowsFound,
    StatementFailed,
    WriteStored,
)
from peloton.runtime.ports import ShardId

SHARD = ShardId("a", 0)
READ = ReadSegment(SHARD, b"segment", 1, 9)
WRITE = InsertRow(SHARD, FrameRow(1, 0, 0, 1, b"op", b"", b"", b"body", b"segment"))


class Future:
    """As much of the driver's as is used. Its callbacks are called by the test."""

    def __init__(self) -> None:
        self.has_more_pages = False
        self.fetched = 0
        self.page: Callable[[Any], None] = lambda rows: None
        self.failed: Callable[[BaseException], None] = lambda failure: None

    def add_callbacks(self, page: Any, failed: Any) -> None:
        self.page, self.failed = page, failed

    def start_fetching_next_page(self) -> None:
        self.fetched += 1


def in_flight(statement: Any) -> tuple[RequestInFlight, Future]:
    future = Future()
    return RequestInFlight(RowsRequest(statement, [0], 0), future), future


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cassandra_store, "SILENT_MAX_S", 0.01)


def row(position: int) -> Any:
    row = (position, 1, 0, 1, b"op", b"", b"", b"body")
    names = ("position", "epoch", "part", "parts", "op", "prev_chain", "chain", "body")
    return dict(zip(names, row, strict=True))


def test_a_read_has_the_rows_of_all_its_pages() -> None:
    request, future = in_flight(READ)
    future.has_more_pages = True
    future.page([row(1), row(2)])
    assert future.fetched == 1
    future.has_more_pages = False
    future.page([row(3)])
    reply = request.reply()
    assert isinstance(reply, RowsFound) and len(reply.rows) == 3


@pytest.mark.parametrize("statement", [READ, WRITE])
def test_whatever_fails_is_in_doubt(statement: Any) -> None:
    request, future = in_flight(statement)
    future.failed(OSError("gone"))
    assert request.reply() == StatementFailed("OSError: gone")


def test_a_page_that_fails_makes_the_whole_read_fail() -> None:
    request, future = in_flight(READ)
    future.has_more_pages = True
    future.page([row(1)])
    future.failed(OSError("gone"))
    assert isinstance(request.reply(), StatementFailed)


@pytest.mark.timeout(20)
def test_what_never_ends_is_in_doubt_after_a_while(impatient: None) -> None:
    request, _ = in_flight(WRITE)
    assert request.reply() == StatementFailed("InsertRow: no reply for 0.01 s")


def test_a_write_that_ended_is_stored() -> None:
    request, future = in_flight(WRITE)
    future.page(None)
    assert request.reply() == WriteStored()


def test_registers_are_read_after_the_writes_that_are_under_way() -> None:
    """A read at another level may miss a conditional write that was acknowledged."""
    assert ReadRegister in LINEARIZABLE
