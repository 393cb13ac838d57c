"""Two servers that speak to the real driver and have one register between them; faults on order.

The register is exact: a conditional write is done when it arrives, *before* the fault that was
ordered for its answer strikes. So a second copy of it is refused, as by a real server. It counts
what arrives, and the tests judge.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import socket
import socketserver
import struct
import threading
import uuid
from collections import Counter
from collections.abc import Iterator

from peloton.runtime.adapters import cassandra_schema
from peloton.runtime.adapters.cassandra_statements import CQL, AdvanceInto
from peloton.runtime.core.journal.chain import GENESIS
from peloton.runtime.core.journal.statements import (
    Advance,
    Bump,
    FrameRow,
    ReadCluster,
    ReadRegister,
)
from peloton.runtime.ports import JOURNAL_FORMAT
from tests.adapters.cassandra import cql_wire as wire
from tests.adapters.cassandra.cql_wire import Frame, Reader, Wire

COLUMNS = {
    name: kind for table in cassandra_schema.tables() for name, kind in table.columns.items()
}
BY_ID = {hashlib.md5(cql.encode()).digest(): (kind, cql) for kind, cql in CQL.items()}
CONDITION = [("[applied]", "boolean"), ("epoch", "bigint"), ("op", "blob")]
LEVELS = struct.pack("!Hii", wire.SERIAL, 1, 2)
UNPREPARED = "unprepared"
PAGE_SIZE, SERIAL_LEVEL, TIMESTAMP = 0x04, 0x10, 0x20
UNLOGGED, PREPARED = 1, 1
ERRORS = {
    "overloaded": wire.error(0x1001),
    "server error": wire.error(0x0000),
    "bootstrapping": wire.error(0x1002),
    "truncate error": wire.error(0x1003),
    "unavailable": wire.error(0x1000, struct.pack("!Hii", wire.QUORUM, 2, 1)),
    "CAS timeout": wire.error(0x1100, LEVELS + wire.text("CAS") + struct.pack("!H", 1)),
    "write timeout": wire.error(0x1100, LEVELS + wire.text("SIMPLE")),
    "unknown result": wire.error(0x1700, LEVELS),
    "write failure": wire.error(0x1500, LEVELS + struct.pack("!i", 0) + wire.text("CAS")),
    "an error nobody knows": wire.error(0x7777),
}
RESULTS = {
    "a result of no known kind": struct.pack("!i", 77),
    "a result cut short": struct.pack("!iii", 2, 1, 3),
    "no rows": wire.rows(CONDITION[:1], []),
    "nothing": wire.void(),
    "a row of another shape": wire.rows([("other", "int")], [[1]]),
}
DROPPED, SILENT = "the connection drops", "silence"
FAULTS = (DROPPED, SILENT, *ERRORS, *RESULTS)


class Stub:
    """The register, the fault that is ordered for the next commit, and what arrived."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.epoch, self.op, self.position, self.chain = 0, b"first", 0, GENESIS
        self.segments = b""
        self.batched = 0  # rows that came in batches
        self.format = JOURNAL_FORMAT
        self.fault: str | None = None
        self.faulty: type = Advance
        self.arrived: Counter[type] = Counter()
        self.done: Counter[type] = Counter()
        self.levels: dict[type, tuple[int, int | None]] = {}
        self.nodes: list[Node] = []

    def execute(self, kind: type, values: list[bytes]) -> bytes | str:
        """Do a statement; its answer, or the fault that takes its place."""
        with self.lock:
            self.arrived[kind] += 1
            fault = self.fault if kind is self.faulty else None
            if fault is not None:
                self.fault = None
            if fault == UNPREPARED:
                return fault
            answer = self._do(kind, values)
            if fault is None:
                return answer
            return ERRORS.get(fault) or RESULTS.get(fault) or fault

    def _do(self, kind: type, values: list[bytes]) -> bytes:
        if kind is ReadRegister:
            names = "epoch op owner last_position last_chain floor floor_epoch segments".split()
            row = (self.epoch, self.op, "", self.position, self.chain, 0, 0, self.segments)
            return wire.rows([(name, COLUMNS[name]) for name in names], [row])
        if kind is ReadCluster:
            columns = [(name, COLUMNS[name]) for name in ("cluster_id", "format", "shards")]
            return wire.rows(columns, [(uuid.UUID(int=1), self.format, "{}")])
        if kind is FrameRow:
            return wire.void()
        epoch = int.from_bytes(values[6], "big")
        if kind is Bump:
            fits, op = self.op != values[7], values[1]
            moved = (int.from_bytes(values[0], "big"), self.position)
        else:
            assert kind is Advance, kind
            fits, op = self.op == values[7], values[2]
            moved = (epoch, int.from_bytes(values[0], "big"))
        if epoch != self.epoch or not fits:
            return wire.rows(CONDITION, [(False, self.epoch, self.op)])
        self.done[kind] += 1
        self.op, (self.epoch, self.position) = op, moved
        if kind is Advance:
            self.chain = values[1]
        return wire.rows(CONDITION[:1], [(True,)])


class Node(socketserver.ThreadingTCPServer):
    """One server of the two."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, stub: Stub, name: int) -> None:
        super().__init__(("127.0.0.1", 0), Talk)
        self.stub = stub
        self.id = uuid.UUID(int=name)
        self.port = int(self.server_address[1])

    def described(self, *, peer: bool) -> bytes:
        """Its row in the system's tables."""
        common = {
            "data_center": ("text", "dc1"), "rack": ("text", "r"), "host_id": ("uuid", self.id),
            "release_version": ("text", "4.0.0"), "schema_version": ("uuid", uuid.UUID(int=9)),
            "native_address": ("inet", "127.0.0.1"), "native_port": ("int", self.port),
            "tokens": (wire.TEXT_SET, [str(self.id.int)]),
        }  # fmt: skip
        alone = {
            "key": ("text", "local"), "cluster_name": ("text", "stub"),
            "rpc_address": ("inet", "127.0.0.1"), "rpc_port": ("int", self.port),
            "partitioner": ("text", "org.apache.cassandra.dht.Murmur3Partitioner"),
        }  # fmt: skip
        row = {**common, **({"peer": ("inet", "127.0.0.1")} if peer else alone)}
        columns = [(name, kind) for name, (kind, _) in row.items()]
        return wire.rows(columns, [[value for _, value in row.values()]])


class Talk(socketserver.BaseRequestHandler):
    """One connection of the driver's."""

    def handle(self) -> None:
        assert isinstance(self.server, Node)
        self.node = self.server
        lines = Wire(self.request)
        # The driver hangs up whenever it likes.
        with contextlib.suppress(OSError):
            while (frame := lines.read()) is not None:
                answer = self.answer(frame)
                if answer == DROPPED:
                    self.request.shutdown(socket.SHUT_RDWR)
                    return
                if isinstance(answer, Frame):
                    lines.write(answer)
                if frame.opcode == wire.STARTUP:
                    lines.begin_segments()

    def answer(self, frame: Frame) -> Frame | str:
        if frame.opcode == wire.OPTIONS:
            return Frame(frame.stream, wire.SUPPORTED, wire.supported())
        if frame.opcode in (wire.STARTUP, wire.REGISTER):
            return Frame(frame.stream, wire.READY, b"")
        body: bytes | str
        if frame.opcode == wire.EXECUTE:
            body = self.execute(Reader(frame.body))
        elif frame.opcode == wire.BATCH:
            body = self.batch(Reader(frame.body))
        elif frame.opcode == wire.PREPARE:
            body = self.prepare(Reader(frame.body).long_text())
        else:
            body = self.query(Reader(frame.body).long_text())
        if body in (DROPPED, SILENT):
            return str(body)
        assert isinstance(body, bytes)
        failed = body in ERRORS.values() or body.startswith(struct.pack("!i", 0x2500))
        return Frame(frame.stream, wire.ERROR if failed else wire.RESULT, body)

    def execute(self, body: Reader) -> bytes | str:
        name = body.short_bytes()
        body.short_bytes()  # of the result's columns
        kind = BY_ID[name][0]
        level, flags, values = body.number("H"), body.number("i"), body.values()
        if kind is AdvanceInto:
            kind, self.node.stub.segments = Advance, values.pop(3)
        if flags & PAGE_SIZE:
            body.number("i")
        serial = body.number("H") if flags & SERIAL_LEVEL else None
        assert not flags & TIMESTAMP, "the servers' clocks stamp rows, not ours"
        self.node.stub.levels[kind] = (level, serial)
        answer = self.node.stub.execute(kind, values)
        if answer == UNPREPARED:
            return wire.error(0x2500, struct.pack("!H", len(name)) + name)
        return answer

    def batch(self, body: Reader) -> bytes | str:
        """Frames of one segment in one request; it arrives, fails and is answered as one."""
        assert body.number("B") == UNLOGGED
        kinds, segments = [], []
        for _ in range(body.number("H")):
            assert body.number("B") == PREPARED
            kinds.append(BY_ID[body.short_bytes()][0])
            segments.append(body.values()[0])
        assert {*kinds} == {FrameRow} and len({*segments}) == 1
        level, flags = body.number("H"), body.number("i")
        serial = body.number("H") if flags & SERIAL_LEVEL else None
        assert not flags & TIMESTAMP, "the servers' clocks stamp rows, not ours"
        self.node.stub.levels[FrameRow] = (level, serial)
        self.node.stub.batched += len(kinds)
        return self.node.stub.execute(FrameRow, [])

    def prepare(self, cql: str) -> bytes:
        insert = re.search(r"\((.*?)\) VALUES \((.*?)\)", cql)
        if insert:
            pairs = zip(insert[1].split(", "), insert[2].split(", "), strict=True)
            names = [name for name, value in pairs if value == "?"]
        else:
            names = re.findall(r"(\w+) [!<>]?= \?", cql)
        columns = [(name, COLUMNS[name]) for name in names]
        return wire.prepared(hashlib.md5(cql.encode()).digest(), columns)

    def query(self, cql: str) -> bytes:
        if cql.startswith("USE"):
            return wire.used("stub")
        if "system.local" in cql:
            return self.node.described(peer=False)
        if "system.peers" in cql:
            (other,) = [node for node in self.node.stub.nodes if node is not self.node]
            return other.described(peer=True)
        return wire.rows([("keyspace_name", "text")], [])


@contextlib.contextmanager
def running() -> Iterator[Stub]:
    """Both servers, until the end of the block."""
    stub = Stub()
    stub.nodes = [Node(stub, 1), Node(stub, 2)]
    for node in stub.nodes:
        # A short interval, or the end of each test waits half a second for it.
        threading.Thread(target=node.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield stub
    finally:
        for node in stub.nodes:
            node.shutdown()
            node.server_close()
