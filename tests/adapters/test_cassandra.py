"""The journal's store on a real Cassandra: schema, limits, races, and what the doctor sees.

That it keeps the journal's contract stands in tests/contracts. Must not pause or kill the
server; those tests have one of their own, in test_cassandra_faults.py.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from cassandra.cluster import EXEC_PROFILE_DEFAULT
from cassandra.io.asyncioreactor import AsyncioConnection
from cassandra.policies import FallthroughRetryPolicy, NoSpeculativeExecutionPolicy
from msgspec.structs import replace

from peloton.runtime.adapters import cassandra_schema, cassandra_session, cassandra_upgrade
from peloton.runtime.adapters.cassandra_doctor import findings_of, read_cluster
from peloton.runtime.adapters.cassandra_session import (
    CONDITIONAL,
    LEVEL,
    SERIAL,
    CassandraSettings,
    Connected,
)
from peloton.runtime.adapters.cassandra_store import (
    BYTES_IN_FLIGHT_MAX,
    CassandraRows,
    requests,
)
from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.core import segments
from peloton.runtime.core.gathering import bucket_of
from peloton.runtime.core.statements import (
    Advance,
    Applied,
    CreateRegister,
    FrameRow,
    InsertRow,
    ReadEnded,
    ReadRegister,
    ReadSegment,
    RegisterRow,
    RowsFound,
    SegmentStart,
    WriteStored,
    WriteTogether,
)
from peloton.runtime.ports import (
    FRAME_BYTES_MAX,
    FRAME_PART_BYTES_MAX,
    ROUND_SHARDS_MAX,
    ROWS_FORMAT,
    CheckpointPart,
    Claimed,
    Committed,
    Cut,
    EndedRow,
    Floor,
    Frame,
    JournalRefused,
    ShardId,
    Unreachable,
    Work,
)
from tests.cli.terminal import typed
from tests.servers import cassandra, keyspaces
from tests.servers.patient import PatientRows, executed
from tests.servers.process import free_ports

SHARD = ShardId("a", 0)
COPIES = {"dc1": 1}
DUEL_CLAIMS = 15


DDL_S_MAX = 60.0
"""A change of tables waits for the server's disk; on a busy machine for longer than a request."""


@pytest.fixture
def server() -> Iterator[Connected]:
    """A session of the test's own, in no keyspace."""
    connected = cassandra_session.connect(
        CassandraSettings(port=cassandra.shared().port), keyspace=False
    )
    for profile in connected.cluster.profile_manager.profiles.values():
        profile.request_timeout = DDL_S_MAX
    yield connected
    connected.close()


def journal() -> FencedRows:
    """A new process with a session of its own."""
    return FencedRows(CassandraRows.open(keyspaces.settings()), process=uuid.uuid4().bytes)


def patient_journal() -> FencedRows:
    """The same, where every statement has to succeed in the end."""
    return FencedRows(PatientRows.open(keyspaces.settings()), process=uuid.uuid4().bytes)


# ---- session ---------------------------------------------------------------------------------


def test_every_session_has_the_settings_that_keep_a_success_a_success(server: Connected) -> None:
    profiles = server.cluster.profile_manager.profiles
    for profile in (profiles[EXEC_PROFILE_DEFAULT], profiles[CONDITIONAL]):
        assert type(profile.retry_policy) is FallthroughRetryPolicy
        assert type(profile.speculative_execution_policy) is NoSpeculativeExecutionPolicy
        levels = (profile.consistency_level, profile.serial_consistency_level)
        assert levels == (LEVEL, SERIAL)
    assert not issubclass(server.cluster.connection_class, AsyncioConnection)
    assert server.cluster.protocol_version == cassandra_session.PROTOCOL_VERSION


def test_nobody_there_is_unreachable() -> None:
    with pytest.raises(Unreachable, match="refused"):
        CassandraRows.open(CassandraSettings(port=free_ports(1)[0]))


@pytest.mark.parametrize("keyspace", ["no_such_keyspace", "system"])
def test_without_the_tables_it_says_how_to_make_them(keyspace: str) -> None:
    settings = CassandraSettings(port=cassandra.shared().port, keyspace=keyspace)
    with pytest.raises(JournalRefused, match="peloton schema apply"):
        CassandraRows.open(settings)


def test_a_closed_session_answers_that_it_does_not_know() -> None:
    closed = journal()
    closed.close()
    with pytest.raises(Unreachable):
        closed.read_ended(SHARD, kind="k", key="x")


# ---- rows ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [FRAME_PART_BYTES_MAX, 100_000, 20_000])
def test_more_than_may_be_under_way_at_once_comes_back_in_order(size: int) -> None:
    """Also in batches that would be refused, were they of more than one partition."""
    rows = PatientRows(keyspaces.empty())
    body = bytes(size)
    asked = [
        InsertRow(SHARD, FrameRow(position, 1, part, 20, b"op", b"", b"", body, b"segment"))
        for position in (1, 2, 3, 4)
        for part in range(20)
    ]
    assert rows.run(asked) == [WriteStored()] * len(asked)
    (found,) = rows.run([ReadSegment(SHARD, b"segment", 1, 4)])
    assert isinstance(found, RowsFound)
    assert [row.part for row in found.rows if isinstance(row, FrameRow)] == [*range(20)] * 4


def test_a_cut_leaves_no_row_that_nobody_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scan of the tables: the sizes that the store reports go by what the register names."""
    monkeypatch.setattr(segments, "SEGMENT_FRAMES", 16)
    connected = keyspaces.empty()
    owner = FencedRows(PatientRows(connected), process=b"p" * 16)
    owner.bootstrap({"a": 1})
    claimed = owner.claim(SHARD, "somebody")
    assert isinstance(claimed, Claimed)
    position = 0
    for floor in (17, 34, 51):
        while position < floor:
            position += 1
            commit(owner, Work(SHARD, claimed.epoch, Frame(position, b"x")))
        part = CheckpointPart(position, 0, b"state", True)
        commit(owner, Work(SHARD, claimed.epoch, parts=(part,), floor=Floor(position)))
        while commit(owner, Work(SHARD, claimed.epoch, cut=Cut())).more_to_cut:
            pass
    places = connected.session.execute("SELECT position FROM frames").all()
    assert min(place for (place,) in places) == 2 * 16 + 1, "by whole segments"
    parts = connected.session.execute("SELECT position FROM checkpoint").all()
    assert sorted(place for (place,) in parts) == [34, 34, 51, 51]


def commit(owner: FencedRows, work: Work) -> Committed:
    (answer,) = owner.commit([work])
    assert isinstance(answer, Committed)
    return answer


def test_a_full_round_may_begin_a_segment_for_shards_with_long_lists() -> None:
    """Far beyond what a server takes in a batch of several partitions (50 KB)."""
    rows = PatientRows(keyspaces.empty())
    shards = [ShardId("a", number) for number in range(ROUND_SHARDS_MAX)]
    listed = tuple(SegmentStart(at, uuid.uuid4().bytes + bytes(8)) for at in range(1, 100))
    writes = tuple(Advance(shard, 0, b"0", b"1", 99, b"c", listed) for shard in shards)
    assert all(rows.run([CreateRegister(shard, b"0")]) == [Applied()] for shard in shards)
    assert len(segments.pack(listed)) * len(shards) > 100_000
    assert rows.run([WriteTogether(writes)]) == [Applied()]
    (found,) = rows.run([ReadRegister(shards[-1])])
    assert isinstance(found, RowsFound)
    assert found.rows == (RegisterRow(0, b"1", "", 99, b"c", 0, 0, listed),)


# ---- races -----------------------------------------------------------------------------------


def test_of_two_that_claim_and_write_all_the_time_no_acknowledged_frame_is_lost() -> None:
    keyspaces.empty()
    owners = [journal(), journal()]
    owners[0].bootstrap({"a": 1})
    acknowledged: dict[int, bytes] = {}
    epochs: list[int] = []

    def duel(me: int) -> None:
        for _ in range(DUEL_CLAIMS):
            try:
                claimed = owners[me].claim(SHARD, f"owner {me}")
            except Unreachable:
                continue  # the server's disk, or the other one, kept it from answering
            if not isinstance(claimed, Claimed):
                continue
            epochs.append(claimed.epoch)
            for position in range(claimed.last_position + 1, claimed.last_position + 6):
                body = b"%d of %d" % (position, claimed.epoch)
                (answer,) = owners[me].commit([Work(SHARD, claimed.epoch, Frame(position, body))])
                if not isinstance(answer, Committed):
                    break
                assert position not in acknowledged
                acknowledged[position] = body

    threads = [threading.Thread(target=duel, args=(me,)) for me in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(epochs)) == len(epochs) > DUEL_CLAIMS
    heir = patient_journal()
    assert isinstance(heir.claim(SHARD, "heir"), Claimed)
    list(heir.read_checkpoint(SHARD))
    frames = {frame.position: frame.body for frame in heir.read_tail(SHARD)}
    assert list(frames) == list(range(1, len(frames) + 1))
    assert acknowledged.items() <= frames.items()
    for one in (*owners, heir):
        one.close()


# ---- final states ----------------------------------------------------------------------------


def state_of(key: str, position: int = 1) -> EndedRow:
    return EndedRow("job", key, position, f"{key} at {position}".encode())


def test_final_states_of_one_bucket_are_one_write_and_each_is_found() -> None:
    keyspaces.empty()
    shard, owner = ShardId("g", 0), patient_journal()
    owner.bootstrap({"g": 1})
    claimed = owner.claim(shard, "me")
    assert isinstance(claimed, Claimed)
    keys = [f"job/{number}" for number in range(400)]
    some = [state_of(key) for key in keys if bucket_of(key) in (3, 4)]
    asked = requests([InsertRow(shard, row) for row in some])
    assert len(some) > 8 and [len(request.places) for request in asked] == [
        [bucket_of(row.key) for row in some].count(number)
        for number in dict.fromkeys(bucket_of(row.key) for row in some)
    ]
    commit(owner, Work(shard, claimed.epoch, Frame(1, b"they end"), ended=tuple(some)))
    newest = state_of(some[0].key, 2)
    commit(owner, Work(shard, claimed.epoch, Frame(2, b"again"), ended=(newest,)))
    for row in [newest, *some[1:]]:
        assert owner.read_ended(shard, kind="job", key=row.key) == row
    absent = next(key for key in keys if bucket_of(key) == 5)
    assert owner.read_ended(shard, kind="job", key=absent) is None
    assert owner.read_ended(shard, kind="task", key=some[0].key) is None
    owner.close()


def test_where_there_are_no_final_states_of_older_formats_none_are_looked_for() -> None:
    """A keyspace that never had an older format pays for one read once."""
    session, where = keyspaces.empty().session, keyspaces.settings()
    with contextlib.closing(PatientRows.open(where)) as rows:
        read = ReadEnded(ShardId("g", 0), OLD_STATE.kind, OLD_STATE.key)
        assert rows.run([read, read]) == [RowsFound(), RowsFound()]
        session.execute(INSERT_OLD_STATE, [OLD_STATE.kind, OLD_STATE.key, 7, OLD_STATE.body])
        assert rows.run([read]) == [RowsFound()], "no daemon writes such a row any more"
    with contextlib.closing(PatientRows.open(where)) as rows:
        assert rows.run([read]) == [RowsFound((OLD_STATE,))]


# ---- schema ----------------------------------------------------------------------------------


OLD_REGISTER = """CREATE TABLE register (shard_group text, shard_number int, epoch bigint, op blob,
    owner text, last_position bigint, last_chain blob, floor bigint, floor_epoch bigint,
    PRIMARY KEY ((shard_group, shard_number)))"""
OLD_JOURNAL = """CREATE TABLE journal (shard_group text, shard_number int, segment bigint,
    position bigint, epoch bigint, part int, parts int, op blob, prev_chain blob, chain blob,
    body blob, PRIMARY KEY ((shard_group, shard_number, segment), position, epoch, part))
    WITH CLUSTERING ORDER BY (position ASC, epoch DESC, part ASC)"""
OLDER = "older"
"""One keyspace for all of them, as to make one takes over a second."""
OLD_GUARDED = {
    "register": ("shard_group", "shard_number"),
    "registers": ("part", "shard_group", "shard_number"),
}
OLD_PLAIN = {"journal": ("shard_group", "shard_number", "segment")}
OF_SHARD_0 = "shard_group = 'g' AND shard_number = 0"
REGISTER_COLUMNS = "epoch, op, owner, last_position, last_chain, floor, floor_epoch"
FRAME_COLUMNS = "position, epoch, part, parts, op, prev_chain, chain, body"
TAIL_FRAMES = 20
"""After the checkpoint."""
FEW, MANY = TAIL_FRAMES + 4, 300
"""Frames of the first shard; many are more than an old segment has."""
LARGEST = bytes(range(256)) * (FRAME_BYTES_MAX // 256)


class OldTables(NamedTuple):
    """Where a journal of an older format has its registers."""

    format: int
    table: str
    part: str = ""

    def claim(self, session: Any) -> Any:
        text = f"UPDATE {self.table} SET epoch = ?, op = ?, owner = 'old' WHERE {self.part}"
        return session.prepare(f"{text}{OF_SHARD_0} IF epoch = ?")


OLD = {
    1: OldTables(1, "register"),
    2: OldTables(2, "registers", "part = 0 AND "),
    3: OldTables(3, "shard_registers", "part = 0 AND "),
}
OLD_STATE = EndedRow("job", "job/old", 7, b"final")
INSERT_OLD_STATE = """INSERT INTO ended
    (shard_group, shard_number, kind, key, position, deleted, body)
    VALUES ('g', 0, %s, %s, %s, false, %s)"""


def of_format(
    old: OldTables, server: Connected, *, write: Callable[[FencedRows], None]
) -> CassandraSettings:
    """A keyspace with frames of two shards, laid out as an earlier version did.

    The first has a checkpoint and frames after it, the second frames only, of two owners. The third
    was never claimed.
    """
    session = server.session
    cassandra_schema.apply(server, OLDER, replication=COPIES)
    for made in (OLD_REGISTER, cassandra_upgrade.REGISTERS, OLD_JOURNAL):
        executed(server, made.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))
    keyspaces.empty_tables(server)
    keyspaces.empty_tables(server, guarded=OLD_GUARDED, plain=OLD_PLAIN)
    where = CassandraSettings(port=cassandra.shared().port, keyspace=OLDER)
    with contextlib.closing(FencedRows(PatientRows.open(where), process=b"o" * 16)) as owner:
        owner.bootstrap({"g": 3}, name="west")
        owner.raise_level(1)
        write(owner)
    executed(server, INSERT_OLD_STATE, [OLD_STATE.kind, OLD_STATE.key, 7, OLD_STATE.body])
    key, columns = "shard_group, shard_number", REGISTER_COLUMNS
    if old.format < 3:
        insert = session.prepare(
            f"INSERT INTO journal ({key}, segment, {FRAME_COLUMNS})"
            f" VALUES ({', '.join(['?'] * 11)})"
        )
        for row in executed(server, f"SELECT {key}, {FRAME_COLUMNS} FROM frames"):
            executed(server, insert, (*row[:2], (row[2] - 1) // 256, *row[2:]))
        for row in executed(server, "SELECT DISTINCT segment FROM frames"):
            executed(server, "DELETE FROM frames WHERE segment = %s", row)
    else:
        columns = f"{columns}, segments"
    registers = list(executed(server, f"SELECT {key}, {columns} FROM shard_registers"))
    forget_the_new(session)
    part, mark = ("part, ", "0, ") if old.part else ("", "")
    marks = ", ".join(["%s"] * len(registers[0]))
    insert = f"INSERT INTO {old.table} ({part}{key}, {columns}) VALUES ({mark}{marks})"
    for row in registers:
        session.execute(f"{insert} IF NOT EXISTS", row, execution_profile=CONDITIONAL)
    session.execute(
        "UPDATE cluster SET format = %s WHERE one = 0 IF format = %s",
        [old.format, ROWS_FORMAT],
        execution_profile=CONDITIONAL,
    )
    return where


def write_few(owner: FencedRows) -> None:
    write_frames(owner, FEW)


def write_many(owner: FencedRows) -> None:
    write_frames(owner, MANY)


def write_frames(owner: FencedRows, count: int) -> None:
    first, second = ShardId("g", 0), ShardId("g", 1)
    assert isinstance(owner.claim(first, "old"), Claimed)
    for position in range(1, count + 1):
        commit(owner, Work(first, 1, Frame(position, b"%d" % position)))
        if position == count - TAIL_FRAMES:
            parts = (CheckpointPart(position, 0, b"state", True),)
            commit(owner, Work(first, 1, parts=parts, floor=Floor(position)))
    for epoch in (1, 2):
        assert isinstance(owner.claim(second, "old"), Claimed)
        list(owner.read_checkpoint(second))
        body = bytes([epoch]) * (FRAME_PART_BYTES_MAX + 1)
        commit(owner, Work(second, epoch, Frame(epoch, body)))


def write_largest(owner: FencedRows) -> None:
    shard = ShardId("g", 0)
    assert isinstance(owner.claim(shard, "old"), Claimed)
    commit(owner, Work(shard, 1, Frame(1, LARGEST)))


def forget_the_new(session: Any) -> None:
    """As if no daemon of this version had been there."""
    key = "part, shard_group, shard_number"
    where = "part = %s AND shard_group = %s AND shard_number = %s"
    for row in session.execute(f"SELECT {key} FROM shard_registers"):
        session.execute(
            f"DELETE FROM shard_registers WHERE {where} IF EXISTS",
            row,
            execution_profile=CONDITIONAL,
        )


def recover_all(where: CassandraSettings, count: int) -> None:
    """All of `of_format` is there, and can be written on."""
    with contextlib.closing(FencedRows(PatientRows.open(where), process=b"n" * 16)) as heir:
        record = heir.bootstrap({"g": 3}, name="west")
        assert (record.level, record.format) == (1, ROWS_FORMAT)
        claims = [heir.claim(ShardId("g", number), "new") for number in range(3)]
        assert all(isinstance(claimed, Claimed) for claimed in claims)
        states = [[*heir.read_checkpoint(ShardId("g", number))] for number in range(3)]
        assert states == [[b"state"], [], []]
        tails = [[*heir.read_tail(ShardId("g", number))] for number in range(3)]
        assert [frame.position for frame in tails[0]] == [
            *range(count - TAIL_FRAMES + 1, count + 1)
        ]
        assert [(frame.position, frame.body[:1]) for frame in tails[1]] == [(1, b"\1"), (2, b"\2")]
        for number, (claimed, tail) in enumerate(zip(claims, tails, strict=True)):
            assert isinstance(claimed, Claimed) and claimed.epoch == (2, 3, 1)[number]
            frame = Frame(claimed.last_position + 1, b"new")
            commit(heir, Work(ShardId("g", number), claimed.epoch, frame))
            assert claimed.last_position == (tail[-1].position if tail else 0)
        lengths = [len([*heir.read_tail(ShardId("g", number))]) for number in range(3)]
        assert lengths == [TAIL_FRAMES + 1, 3, 1]
        assert heir.read_ended(ShardId("g", 0), kind="job", key="job/old") == OLD_STATE
        assert heir.read_ended(ShardId("g", 1), kind="job", key="job/old") is None
        for row in (EndedRow("job", "job/old", 8, b"newer"), replace(OLD_STATE, deleted=True)):
            newer = replace(row, position=max(row.position, 8) + row.deleted)
            commit(heir, Work(ShardId("g", 0), 2, ended=(newer,)))
            found = heir.read_ended(ShardId("g", 0), kind="job", key="job/old")
            assert found == (None if row.deleted else newer), "an older row is not looked at"


@pytest.mark.parametrize("old", OLD.values(), ids=["1", "2", "3"])
def test_a_journal_of_an_older_format_is_moved_and_its_owners_fenced(
    server: Connected, old: OldTables
) -> None:
    # Only the first two have the segments of old; one of them is enough.
    write, count = (write_many, MANY) if old.format == 1 else (write_few, FEW)
    where, session = of_format(old, server, write=write), server.session
    never_made = f"{old.part}{OF_SHARD_0.replace('0', '2')}"
    session.execute(f"DELETE FROM {old.table} WHERE {never_made} IF EXISTS")
    early = FencedRows(PatientRows.open(where), process=b"n" * 16)
    with (
        contextlib.closing(early),
        pytest.raises(JournalRefused, match="run `peloton schema apply"),
    ):
        early.bootstrap({"g": 3}, name="west")
    applied = cassandra_schema.apply(server, OLDER, replication=COPIES)
    assert applied.moved == 4, "three shards', and the feature level's"
    # Whoever held a shard is fenced for good: no claim of that version can follow.
    (row,) = session.execute(f"SELECT epoch FROM {old.table} WHERE {old.part}{OF_SHARD_0}")
    (fence,) = session.execute(f"SELECT epoch FROM {old.table} WHERE {never_made}")
    assert fence == row, "nor make one that was missing"
    claim = old.claim(session)
    assert not session.execute(claim, [2, b"late", 1]).one()[0]
    with pytest.raises(TypeError, match="too large"):
        session.execute(claim, [row[0] + 1, b"late", row[0]])
    recover_all(where, count)
    assert cassandra_schema.apply(server, OLDER, replication=COPIES).moved == 0


class Weighed:
    """A session that notes how many bytes it ever had in flight."""

    def __init__(self, session: Any) -> None:
        self.session, self.lock = session, threading.Lock()
        self.now = self.most = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    def execute_async(self, statement: Any, bound: Any) -> Any:
        size = sum(len(value) for value in bound if isinstance(value, bytes))
        self._add(size)
        future = self.session.execute_async(statement, bound)
        future.add_callbacks(lambda _: self._add(-size), lambda _: self._add(-size))
        return future

    def _add(self, size: int) -> None:
        with self.lock:
            self.now += size
            self.most = max(self.most, self.now)


def test_the_largest_frame_is_moved_within_what_a_server_takes(server: Connected) -> None:
    where = of_format(OLD[2], server, write=write_largest)
    session = Weighed(server.session)
    assert cassandra_upgrade.upgrade(session, server.session.execute) == 4
    assert FRAME_PART_BYTES_MAX < session.most <= BYTES_IN_FLIGHT_MAX
    with contextlib.closing(FencedRows(PatientRows.open(where), process=b"n" * 16)) as heir:
        assert isinstance(heir.claim(ShardId("g", 0), "new"), Claimed)
        assert [*heir.read_checkpoint(ShardId("g", 0))] == []
        assert [*heir.read_tail(ShardId("g", 0))] == [Frame(1, LARGEST)]


class Killed(Exception):
    """The command dies here."""


class Mortal:
    """A session of a command that dies at its n-th request."""

    def __init__(self, session: Any, life: int) -> None:
        self.session, self.life = session, life

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    def execute(self, *words: Any, **more: Any) -> Any:
        self.life -= 1
        if self.life < 0:
            raise Killed
        return self.session.execute(*words, **more)

    def execute_async(self, *words: Any, **more: Any) -> Any:
        self.life -= 1
        if self.life < 0:
            raise Killed
        return self.session.execute_async(*words, **more)


def test_a_move_may_die_anywhere_and_goes_on(server: Connected) -> None:
    """At each request in turn; what was done stays done, so the lives add up to one move. From the
    oldest format it is all moves, one after the other."""
    where, session = of_format(OLD[1], server, write=write_few), server.session
    deaths = 0
    with contextlib.closing(FencedRows(PatientRows.open(where), process=b"e" * 16)) as early:
        while True:
            try:
                cassandra_upgrade.upgrade(Mortal(session, deaths), session.execute)
                break
            except Killed:
                deaths += 1
            with pytest.raises(JournalRefused, match=r"has format (-2|-1|0|1|2|3),.*schema apply"):
                early.bootstrap({"g": 3}, name="west")
            if deaths in (1, 12):
                told = [each.text for each in findings_of(read_cluster(server, OLDER))]
                words = "has format 1," if deaths == 1 else "is being moved"
                assert [words in text for text in told].count(True) == 1, told
    assert deaths > 40
    segments_made = {segment for (segment,) in session.execute("SELECT segment FROM frames")}
    assert len(segments_made) == 2, "copied again, it is the same"
    recover_all(where, FEW)


def test_two_commands_that_move_one_journal_do_not_mix(server: Connected) -> None:
    """The lock of the first has expired while it was slow."""
    where, session = of_format(OLD[2], server, write=write_few), server.session
    with pytest.raises(Killed):
        cassandra_upgrade.upgrade(Mortal(session, 20), session.execute)
    assert cassandra_upgrade.upgrade(session, session.execute) == 4
    recover_all(where, FEW)
    read = f"SELECT epoch, segments FROM shard_registers WHERE part = 1 AND {OF_SHARD_0}"
    (before,) = session.execute(read)
    for move in cassandra_upgrade.MOVES[1:]:
        moved = cassandra_upgrade._move_all(session, move, groups={"g": 3}, keep_lock=lambda: None)
        assert moved == 4
    (after,) = session.execute(read)
    assert after == before, "what has moved on is not moved back"


def test_the_lock_is_renewed_while_a_journal_is_moved(
    server: Connected, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, session = of_format(OLD[2], server, write=write_few), server.session
    times = itertools.count(0.0, cassandra_schema.LOCK_RENEWED_S)
    session.execute(f"USE {OLDER}")
    lock = cassandra_schema.SchemaLock(session, OLDER, clock=lambda: next(times))
    read = f"SELECT TTL(holder) FROM {cassandra_schema.LOCK_TABLE} WHERE one = 0"
    assert session.execute(read).one()[0] <= 120
    monkeypatch.setattr(cassandra_schema, "LOCK_TTL_S", 5000)
    lock.keep()
    assert 4900 < session.execute(read).one()[0] <= 5000
    renewals = next(times)
    assert cassandra_upgrade.upgrade(session, session.execute, keep_lock=lock.keep) == 4
    asked = (next(times) - renewals) / cassandra_schema.LOCK_RENEWED_S
    assert asked > 4 * 3, "for each register, and for each part of a tail that is copied"
    lock.free()
    with pytest.raises(JournalRefused, match="its lock on older has expired: run it again"):
        lock.keep()
    assert cassandra_schema.apply(server, OLDER, replication=COPIES).moved == 0
    recover_all(where, FEW)


def test_of_commands_at_the_same_time_one_makes_the_tables_which_are_then_left_alone(
    server: Connected,
) -> None:
    outcomes: list[object] = []

    def command() -> None:
        where = CassandraSettings(port=cassandra.shared().port)
        connected = cassandra_session.connect(where, keyspace=False)
        try:
            outcomes.append(cassandra_schema.apply(connected, "together", replication=COPIES))
        except JournalRefused as refused:
            outcomes.append(refused)
        finally:
            connected.close()

    threads = [threading.Thread(target=command) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = [one for one in outcomes if isinstance(one, cassandra_schema.SchemaApplied)]
    others = [str(one) for one in outcomes if not isinstance(one, cassandra_schema.SchemaApplied)]
    written = ("cluster", "shard_registers", "frames", "checkpoint", "secrets")
    all_tables = (*written, "ended_states", "ended")
    assert [one.made for one in done if one.made] == [all_tables]
    assert all("another command is changing the schema" in text for text in others)
    last = cassandra_schema.apply(server, "together", replication=COPIES)
    assert (last.made, last.there, last.differ) == ((), all_tables, ())


@pytest.mark.parametrize(
    ("keyspace", "copies", "text"),
    [
        ("Upper", COPIES, "'Upper' is not a valid keyspace name"),
        ("x; DROP KEYSPACE tests", COPIES, "is not a valid keyspace name"),
        ("fine", {}, "name how many copies"),
        ("fine", {"dc1": 0}, "dc1:0 is not a data centre with a number of copies"),
        ("fine", {"dc1'}; --": 1}, "is not a data centre with a number of copies"),
        ("fine", {"no_such_centre": 1}, "there is no data centre no_such_centre; there is dc1"),
    ],
)
def test_names_that_are_none_are_refused(
    server: Connected, keyspace: str, copies: dict[str, int], text: str
) -> None:
    with pytest.raises(JournalRefused, match=re.escape(text)):
        cassandra_schema.apply(server, keyspace, replication=copies)


# ---- doctor ----------------------------------------------------------------------------------


def test_the_doctor_reads_a_real_server(server: Connected) -> None:
    keyspace = keyspaces.settings().keyspace
    (finding,) = findings_of(read_cluster(server, keyspace))
    assert not finding.wrong and "1 copy" in finding.text
    (missing,) = findings_of(read_cluster(server, "no_such_keyspace"))
    assert missing.wrong and missing.remedy == "peloton schema apply --replication dc1:1"


def test_what_was_done_to_the_keyspace_is_named_and_not_touched(server: Connected) -> None:
    session = server.session
    of = "{'class': 'NetworkTopologyStrategy', 'dc1': %d}"
    session.execute(f"CREATE KEYSPACE ill WITH replication = {of % 1}")
    session.execute("CREATE TABLE ill.ended (kind int PRIMARY KEY, key text)")
    applied = cassandra_schema.apply(server, "ill", replication=COPIES)
    assert "table ended: column kind is int, not text" in applied.differ
    assert "table ended: column position is missing" in applied.differ
    session.execute("ALTER TABLE shard_registers WITH gc_grace_seconds = 60")
    session.execute("ALTER TABLE frames WITH default_time_to_live = 60")
    session.execute("DROP TABLE ended")
    session.execute(f"ALTER KEYSPACE ill WITH replication = {of % 3} AND durable_writes = false")
    texts = " | ".join(
        finding.text for finding in findings_of(read_cluster(server, "ill")) if finding.wrong
    )
    for words in ("gc_grace_seconds is 60", "vanish after 60 s", "ended is missing",
                  "3 copies, 1 servers", "durable_writes is off"):  # fmt: skip
        assert words in texts


def test_the_commands_speak_to_a_person_and_to_a_script() -> None:
    contact = f"127.0.0.1:{cassandra.shared().port}"
    where = ["--cassandra", contact, "--keyspace", "typed"]
    missing = typed("doctor", *where)
    assert missing.code == 1 and "there is no keyspace typed" in missing.out
    made = typed("schema", "apply", *where, "--replication", "dc1:1")
    assert made.code == 0 and "made in keyspace typed: cluster" in made.out
    fine = typed("doctor", *where)
    assert fine.code == 0 and "weak    keyspace typed" in fine.out
    nobody = typed("doctor", "--cassandra", f"127.0.0.1:{free_ports(1)[0]}")
    assert nobody.code == 69 and "refused" in nobody.err
    wrong = typed("schema", "apply", "--cassandra", "host:port", "--replication", "dc1:1")
    assert wrong.code == 64 and "is not HOST[:PORT]" in wrong.err
