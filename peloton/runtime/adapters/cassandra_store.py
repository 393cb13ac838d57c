"""Port `Rows` on Cassandra, through its driver, which here sends every statement once.

`run` has many statements on the wire at a time and waits for all of them. However a request ends,
if not with rows, its statement is in doubt: `StatementFailed`. It must not send anything again,
look into a body, or take one error for proof that nothing happened.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Any

from cassandra import InvalidRequest

from peloton.runtime.adapters import cassandra_session
from peloton.runtime.adapters.cassandra_session import (
    CONDITIONAL,
    SERIAL,
    CassandraSettings,
    Connected,
)
from peloton.runtime.adapters.cassandra_statements import (
    CONDITIONALS,
    CQL,
    LARGE,
    LINEARIZABLE,
    found,
    size_bytes,
    text_of,
    values,
    verdict,
)
from peloton.runtime.core import chain
from peloton.runtime.core.statements import (
    FrameRow,
    PartRow,
    ReadBucket,
    ReadCluster,
    ReadEnded,
    ReadName,
    ReadRegister,
    ReadSegment,
    RegisterRow,
    RowsFound,
    Statement,
    StatementFailed,
    StatementReply,
    WriteStored,
)
from peloton.runtime.ports import (
    BUCKET_PARTS,
    SEGMENT_FRAMES,
    JournalRefused,
    ShardId,
    Sizes,
    Unreachable,
)

STATEMENTS_UNDER_WAY_MAX = 64
BYTES_UNDER_WAY_MAX = 4 * 1024 * 1024
"""More at once, and a server refuses requests as overloaded, each of which is then in doubt."""
NO_END_S = 3 * cassandra_session.REQUEST_TIMEOUT_S
"""The driver ends each request by a timer. Should one never end, nobody waits for ever."""
LARGE_PAGE_ROWS = 16
"""Rows of 256 KiB a page: four times as fast as the default of 5,000, which is one huge page."""
APPLY = "peloton schema apply"
READS = (ReadCluster, ReadName, ReadRegister, ReadSegment, ReadBucket, ReadEnded)


class PendingStatement:
    """One statement under way: gathers its pages, on the driver's thread, until it has ended."""

    def __init__(self, ask: Statement, future: Any) -> None:
        self.ask = ask
        self.size_bytes = size_bytes(ask)
        self._future = future
        self._rows: list[Any] = []
        self._failure: BaseException | None = None
        # No `Event`: that is a condition, two locks and a list, twice a commit: a tenth of what a
        # commit costs this process. A second word, should one come, is left lying.
        self._ended: SimpleQueue[None] = SimpleQueue()
        # Callbacks, and not a `try`: whatever the driver raises or will come to raise is a value
        # here, so no kind of failure can be forgotten in a list.
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
        """Wait for the end, and say what it means."""
        seen = -1
        while not self._has_ended():
            # Of many pages each has its own time; the driver has a timer for the first only.
            if len(self._rows) == seen:
                return StatementFailed(f"{type(self.ask).__name__}: silence for {NO_END_S} s")
            seen = len(self._rows)
        if self._failure is not None:
            return StatementFailed(f"{type(self._failure).__name__}: {self._failure}")
        if isinstance(self.ask, CONDITIONALS):
            return verdict(self.ask, self._rows)
        if isinstance(self.ask, READS):
            return found(self.ask, self._rows)
        return WriteStored()

    def _has_ended(self) -> bool:
        try:
            self._ended.get(timeout=NO_END_S)
        except Empty:
            return False
        return True


class CassandraRows:
    """The tables of `schema.cql`. Safe to call from several threads."""

    def __init__(self, connected: Connected) -> None:
        self._connected = connected
        self._prepared = {kind: self._prepare(kind, text) for kind, text in CQL.items()}

    @classmethod
    def open(cls, settings: CassandraSettings) -> CassandraRows:
        """Raises Unreachable, or Refused if the tables are not there."""
        try:
            connected = cassandra_session.connect(settings)
        except InvalidRequest as error:
            raise _no_schema(settings.keyspace, error) from error
        try:
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
            raise Unreachable(f"the store went away while it was joined: {error}") from error
        if kind in LINEARIZABLE:
            # The profile's serial level reaches conditional writes only.
            prepared.consistency_level = SERIAL
        if kind in LARGE:
            prepared.fetch_size = LARGE_PAGE_ROWS
        return prepared

    def run(self, statements: Sequence[Statement]) -> list[StatementReply]:
        """All of them, as many at once as the limits allow; replies in order."""
        replies: list[StatementReply] = []
        under_way: deque[PendingStatement] = deque()
        under_way_bytes = 0
        for ask in statements:
            request = self._send(ask)
            under_way.append(request)
            under_way_bytes += request.size_bytes
            while (
                len(under_way) >= STATEMENTS_UNDER_WAY_MAX or under_way_bytes > BYTES_UNDER_WAY_MAX
            ):
                first = under_way.popleft()
                under_way_bytes -= first.size_bytes
                replies.append(first.reply())
        replies += [request.reply() for request in under_way]
        return replies

    def _send(self, ask: Statement) -> PendingStatement:
        bound = self._prepared[text_of(ask)].bind(values(ask))
        if isinstance(ask, CONDITIONALS):
            future = self._connected.session.execute_async(bound, execution_profile=CONDITIONAL)
        else:
            future = self._connected.session.execute_async(bound)
        return PendingStatement(ask, future)

    def sizes(self, shard: ShardId) -> Sizes:
        """What the shard's own names lead to; a store without an index of partitions knows no more.

        Reads all that it measures, so ask rarely. Ended rows are found by key only: not counted.
        """
        register = self._one(ReadRegister(shard))
        if not isinstance(register, RegisterRow):
            return Sizes()
        frames = frame_bytes = 0
        segment = register.last_position // SEGMENT_FRAMES
        while segment >= 0:
            rows = self._read(ReadSegment(shard, segment))
            if not rows and segment < register.floor // SEGMENT_FRAMES:
                break
            frames += len(rows)
            frame_bytes += sum(len(row.body) for row in rows if isinstance(row, FrameRow))
            segment -= 1
        parts = self._parts(shard, (register.floor, register.floor_epoch))
        if parts:
            previous = chain.unpack_manifest(parts[0].body).previous
            parts += self._parts(shard, previous[:2])
        return Sizes(frames, frame_bytes, len(parts), sum(len(part.body) for part in parts))

    def _parts(self, shard: ShardId, checkpoint: tuple[int, int]) -> list[PartRow]:
        position, epoch = checkpoint
        parts: list[PartRow] = []
        while position and len(parts) % BUCKET_PARTS == 0:
            bucket = len(parts) // BUCKET_PARTS
            rows = self._read(ReadBucket(shard, position, epoch, bucket))
            parts += [row for row in rows if isinstance(row, PartRow)]
            if not rows:
                break
        return parts

    def _one(self, ask: Statement) -> object:
        rows = self._read(ask)
        return rows[0] if rows else None

    def _read(self, ask: Statement) -> tuple[object, ...]:
        (reply,) = self.run([ask])
        if isinstance(reply, RowsFound):
            return reply.rows
        raise Unreachable(reply.text if isinstance(reply, StatementFailed) else repr(reply))

    def close(self) -> None:
        """Let go of all connections; what is under way ends as failed."""
        self._connected.close()


def _no_schema(keyspace: str | None, error: InvalidRequest) -> JournalRefused:
    return JournalRefused(
        f"keyspace {keyspace} has not the journal's tables ({error}): run `{APPLY}`"
    )
