"""Port `Rows` on Cassandra, through its driver, configured to send every statement once.

`run` has many requests in flight at a time and waits for all of them. Rows for one partition, such
as frames of whatever shards for one segment, travel in one request, which is one write. If a
request ends in any way but with rows, its statements are unclear: `StatementFailed`. Nothing is
sent again: an error is no proof that nothing happened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from cassandra import InvalidRequest
from cassandra.query import BatchStatement, BatchType
from msgspec import Struct

from peloton.runtime.adapters import cassandra_schema, cassandra_session
from peloton.runtime.adapters.cassandra_session import (
    CONDITIONAL,
    SERIAL,
    CassandraSettings,
    Connected,
)
from peloton.runtime.adapters.cassandra_statements import (
    CQL,
    LARGE,
    LINEARIZABLE,
    found,
    partition_of,
    size_bytes,
    text_of,
    values,
    verdict,
)
from peloton.runtime.core.journal.statements import (
    ConditionalWrite,
    ReadStatement,
    Statement,
    StatementFailed,
    StatementReply,
    WriteStored,
    single_writes,
)
from peloton.runtime.ports import (
    JournalRefused,
    Unreachable,
)

REQUESTS_IN_FLIGHT_MAX = 64
BYTES_IN_FLIGHT_MAX = 4 * 1024 * 1024
"""With more, a server refuses requests as overloaded, and each of them is then unclear."""
SILENT_MAX_S = 3 * cassandra_session.REQUEST_TIMEOUT_S
"""The driver ends each request by a timer; this limits the wait for one that never ends."""
BATCH_BYTES_MAX = 512 * 1024
"""Of rows in one request: a server refuses a write of more than half a segment of its commit log,
and one that is large keeps others waiting."""
LARGE_PAGE_ROWS = 16
"""Rows of 256 KiB a page: four times as fast as the default of 5,000, which is one huge page."""
APPLY = "peloton schema apply"


class RowsRequest(Struct, gc=False):
    """Statements that are sent as one request, with their places in the round."""

    statement: Statement
    """The first."""
    places: list[int]
    size_bytes: int


def requests(statements: Sequence[Statement]) -> list[RowsRequest]:
    """Group the statements into requests: rows of one partition share a request."""
    made: list[RowsRequest] = []
    open_batches: dict[Hashable, RowsRequest] = {}
    for place, statement in enumerate(statements):
        size = size_bytes(statement)
        partition = partition_of(statement)
        batch = open_batches.get(partition) if partition is not None else None
        if batch is not None and batch.size_bytes + size <= BATCH_BYTES_MAX:
            batch.places.append(place)
            batch.size_bytes += size
            continue
        request = RowsRequest(statement, [place], size)
        made.append(request)
        if partition is not None:
            open_batches[partition] = request
    return made


class RequestInFlight:
    """A request in flight, which collects its result pages on the driver's thread."""

    def __init__(self, request: RowsRequest, future: Any) -> None:
        self.request = request
        self.statement = request.statement
        self._future = future
        self._rows: list[Any] = []
        self._failure: BaseException | None = None
        # No `Event`: that is a condition, two locks and a list, twice a commit: a tenth of the
        # cost of a commit in this process. A second item, should one come, stays in the queue.
        self._ended: SimpleQueue[None] = SimpleQueue()
        # Callbacks, and not a `try`: any exception of the driver, also of later versions, is a
        # value here, so no list of exception types can miss one.
        future.add_callbacks(self._page, self._failed)

    def _page(self, rows: Any) -> None:
        self._rows.extend(rows or ())
        if self._future.has_more_pages:
            self._future.start_fetching_next_page()
        else:
            self._ended.put(None)

    def _failed(self, failure: BaseException) -> None:
        self._failure = failure
        self._ended.put(None)

    def reply(self) -> StatementReply:
        """Wait until the request has ended, and return its reply."""
        rows_before = -1
        while not self._has_ended():
            # Each page has its own time limit; the driver has a timer for the first only.
            if len(self._rows) == rows_before:
                return StatementFailed(
                    f"{type(self.statement).__name__}: no reply for {SILENT_MAX_S} s"
                )
            rows_before = len(self._rows)
        if self._failure is not None:
            return StatementFailed(f"{type(self._failure).__name__}: {self._failure}")
        if isinstance(self.statement, ConditionalWrite):
            return verdict(self.statement, self._rows)
        if isinstance(self.statement, ReadStatement):
            return found(self.statement, self._rows)
        return WriteStored()

    def _has_ended(self) -> bool:
        try:
            self._ended.get(timeout=SILENT_MAX_S)
        except Empty:
            return False
        return True


class CassandraRows:
    """The port `Rows` on the tables of `schema.cql`. Safe to call from several threads."""

    def __init__(self, connected: Connected) -> None:
        self._connected = connected
        self._prepared = {kind: self._prepare(kind, text) for kind, text in CQL.items()}

    @classmethod
    def open(cls, settings: CassandraSettings) -> CassandraRows:
        """Connect. Raises Unreachable, or JournalRefused if the tables are missing or differ."""
        try:
            connected = cassandra_session.connect(settings)
        except InvalidRequest as error:
            raise _no_schema(settings.keyspace, error) from error
        try:
            # Before it is said that tables are missing: those of earlier formats are others.
            with cassandra_session.asking():
                cassandra_schema.check_format(connected.session, settings.keyspace)
            return cls(connected)
        except BaseException:
            connected.close()
            raise

    def _prepare(self, kind: type, text: str) -> Any:
        try:
            prepared = self._connected.session.prepare(text)
        except InvalidRequest as error:
            raise _no_schema(self._connected.session.keyspace, error) from error
        except cassandra_session.FAILURES as error:
            raise Unreachable(f"the store became unreachable while connecting: {error}") from error
        if kind in LINEARIZABLE:
            # The profile's serial level applies to conditional writes only.
            prepared.consistency_level = SERIAL
        if kind in LARGE:
            prepared.fetch_size = LARGE_PAGE_ROWS
        return prepared

    def run(self, statements: Sequence[Statement]) -> list[StatementReply]:
        """Send all statements, as many at once as the limits allow; return the replies in order."""
        replies: list[StatementReply | None] = [None] * len(statements)
        in_flight: deque[RequestInFlight] = deque()
        in_flight_bytes = 0

        def finish(pending: RequestInFlight) -> None:
            reply = pending.reply()
            for place in pending.request.places:
                replies[place] = reply

        for request in requests(statements):
            in_flight.append(self._send(request, statements))
            in_flight_bytes += request.size_bytes
            while len(in_flight) >= REQUESTS_IN_FLIGHT_MAX or in_flight_bytes > BYTES_IN_FLIGHT_MAX:
                first = in_flight.popleft()
                in_flight_bytes -= first.request.size_bytes
                finish(first)
        for pending in in_flight:
            finish(pending)
        return [reply for reply in replies if reply is not None]

    def _send(self, request: RowsRequest, statements: Sequence[Statement]) -> RequestInFlight:
        single = [each for place in request.places for each in single_writes(statements[place])]
        bound = self._bound(single)
        if isinstance(request.statement, ConditionalWrite):
            future = self._connected.session.execute_async(bound, execution_profile=CONDITIONAL)
        else:
            future = self._connected.session.execute_async(bound)
        return RequestInFlight(request, future)

    def _bound(self, single: Sequence[Statement]) -> Any:
        if len(single) == 1:
            return self._prepared[text_of(single[0])].bind(values(single[0]))
        # (A batch of one partition is one mutation of it; `UNLOGGED` says that no other is in it.)
        batch = BatchStatement(BatchType.UNLOGGED)
        for each in single:
            batch.add(self._prepared[text_of(each)], values(each))
        return batch

    def close(self) -> None:
        """Close all connections; requests in flight fail."""
        self._connected.close()


def _no_schema(keyspace: str | None, error: InvalidRequest) -> JournalRefused:
    return JournalRefused(
        f"keyspace {keyspace} lacks the journal's tables ({error}): run `{APPLY}`"
    )
