"""The journal's store on a real Cassandra: schema, limits, races, and what the doctor sees.

That it keeps the journal's contract stands in tests/contracts. Must not pause or kill the shared
server; those tests have one of their own, in test_cassandra_faults.py.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator

import pytest
from cassandra.cluster import EXEC_PROFILE_DEFAULT
from cassandra.io.asyncioreactor import AsyncioConnection
from cassandra.policies import FallthroughRetryPolicy, NoSpeculativeExecutionPolicy

from peloton.runtime.adapters import cassandra_schema, cassandra_session
from peloton.runtime.adapters.cassandra_doctor import findings_of, read_cluster
from peloton.runtime.adapters.cassandra_session import (
    CONDITIONAL,
    LEVEL,
    SERIAL,
    CassandraSettings,
    Connected,
)
from peloton.runtime.adapters.cassandra_store import CassandraRows
from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.core.statements import FrameRow, InsertRow, ReadSegment, RowsFound, WriteStored
from peloton.runtime.ports import (
    FRAME_PART_BYTES_MAX,
    CheckpointPart,
    Claimed,
    Committed,
    Cut,
    Floor,
    Frame,
    JournalRefused,
    ShardId,
    Unreachable,
    Work,
)
from tests.servers import cassandra, keyspaces
from tests.servers.process import free_ports

SHARD = ShardId("a", 0)
COPIES = {"dc1": 1}
DUEL_CLAIMS = 15


@pytest.fixture
def server() -> Iterator[Connected]:
    """A session of the test's own, in no keyspace."""
    connected = cassandra_session.connect(
        CassandraSettings(port=cassandra.shared().port), keyspace=False
    )
    yield connected
    connected.close()


def journal() -> FencedRows:
    """A new process with a session of its own."""
    return FencedRows(CassandraRows.open(keyspaces.settings()), process=uuid.uuid4().bytes)


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


def test_nobody_there_is_unreachable_and_soon() -> None:
    began_s = time.monotonic()
    with pytest.raises(Unreachable, match="refused"):
        CassandraRows.open(CassandraSettings(port=free_ports(1)[0]))
    assert time.monotonic() - began_s < 20


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


def test_more_than_may_be_under_way_at_once_comes_back_in_order() -> None:
    rows = CassandraRows(keyspaces.empty())
    body = bytes(FRAME_PART_BYTES_MAX)
    asked = [
        InsertRow(SHARD, FrameRow(position, 1, part, 20, b"op", b"", b"", body))
        for position in (1, 2, 3, 4)
        for part in range(20)
    ]
    assert rows.run(asked) == [WriteStored()] * len(asked)
    (found,) = rows.run([ReadSegment(SHARD, 0)])
    assert isinstance(found, RowsFound)
    assert [row.part for row in found.rows if isinstance(row, FrameRow)] == [*range(20)] * 4


def test_a_cut_leaves_no_row_that_nobody_names() -> None:
    """A scan of the tables: the sizes that the store reports go by what the register names."""
    connected = keyspaces.empty()
    owner = FencedRows(CassandraRows(connected), process=b"p" * 16)
    owner.bootstrap({"a": 1})
    claimed = owner.claim(SHARD, "somebody")
    assert isinstance(claimed, Claimed)
    position = 0
    for floor in (270, 540, 810):
        while position < floor:
            position += 1
            commit(owner, Work(SHARD, claimed.epoch, Frame(position, b"x")))
        part = CheckpointPart(position, 0, b"state", True)
        commit(owner, Work(SHARD, claimed.epoch, parts=(part,), floor=Floor(position)))
        while commit(owner, Work(SHARD, claimed.epoch, cut=Cut())).more_to_cut:
            pass
    count = connected.session.execute("SELECT segment FROM journal").all()
    assert {segment for (segment,) in count} == {2, 3}
    parts = connected.session.execute("SELECT position FROM checkpoint").all()
    assert sorted(place for (place,) in parts) == [540, 540, 810, 810]


def commit(owner: FencedRows, work: Work) -> Committed:
    (answer,) = owner.commit([work])
    assert isinstance(answer, Committed)
    return answer


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
    heir = journal()
    assert isinstance(heir.claim(SHARD, "heir"), Claimed)
    list(heir.read_checkpoint(SHARD))
    frames = {frame.position: frame.body for frame in heir.read_tail(SHARD)}
    assert list(frames) == list(range(1, len(frames) + 1))
    assert acknowledged.items() <= frames.items()
    for one in (*owners, heir):
        one.close()


# ---- schema ----------------------------------------------------------------------------------


def test_the_schema_is_applied_once_and_then_left_alone(server: Connected) -> None:
    first = cassandra_schema.apply(server, "applied", replication=COPIES)
    assert first.made == ("cluster", "registers", "journal", "checkpoint", "ended")
    again = cassandra_schema.apply(server, "applied", replication=COPIES)
    assert (again.made, again.there, again.differ) == ((), first.made, ())


OLD_REGISTER = """CREATE TABLE register (shard_group text, shard_number int, epoch bigint, op blob,
    owner text, last_position bigint, last_chain blob, floor bigint, floor_epoch bigint,
    PRIMARY KEY ((shard_group, shard_number)))"""
OF_SHARD_0 = "WHERE shard_group = 'g' AND shard_number = 0"
OLD_CLAIM = f"UPDATE register SET epoch = ?, op = ?, owner = 'old' {OF_SHARD_0} IF epoch = ?"
DELETE_REGISTER = """DELETE FROM registers
    WHERE part = 0 AND shard_group = %s AND shard_number = %s IF EXISTS"""
REGISTER_COLUMNS = "epoch, op, owner, last_position, last_chain, floor, floor_epoch"


def of_format_1(server: Connected, keyspace: str) -> CassandraSettings:
    """A keyspace with frames of two shards, as version 0.1.0 laid its registers out."""
    cassandra_schema.apply(server, keyspace, replication=COPIES)
    where = CassandraSettings(port=cassandra.shared().port, keyspace=keyspace)
    session = server.session
    with contextlib.closing(FencedRows(CassandraRows.open(where), process=b"o" * 16)) as owner:
        owner.bootstrap({"g": 3}, name="west")
        owner.raise_level(1)
        for number in range(2):
            shard = ShardId("g", number)
            assert isinstance(owner.claim(shard, "old"), Claimed)
            list(owner.read_checkpoint(shard))
            for position in range(1, 3 + number):
                commit(owner, Work(shard, 1, Frame(position, b"%d" % position)))
    session.execute(OLD_REGISTER)
    columns = f"shard_group, shard_number, {REGISTER_COLUMNS}"
    insert = f"INSERT INTO register ({columns}) VALUES ({', '.join(['%s'] * 9)}) IF NOT EXISTS"
    for row in session.execute(f"SELECT {columns} FROM registers"):
        session.execute(insert, row)
        session.execute(DELETE_REGISTER, row[:2])
    session.execute("UPDATE cluster SET format = 1 WHERE one = 0 IF format = 2")
    return where


def test_registers_of_format_1_are_moved_and_their_owners_fenced(server: Connected) -> None:
    where, session = of_format_1(server, "older"), server.session
    never_made = OF_SHARD_0.replace("0", "2")
    session.execute(f"DELETE FROM register {never_made} IF EXISTS")
    applied = cassandra_schema.apply(server, "older", replication=COPIES)
    assert applied.moved == 4, "three shards', and the feature level's"
    # Whoever held a shard is fenced for good: no claim of that version can follow.
    (row,) = session.execute(f"SELECT epoch FROM register {OF_SHARD_0}")
    (fence,) = session.execute(f"SELECT epoch FROM register {never_made}")
    assert fence == row, "nor make one that was missing"
    claim = session.prepare(OLD_CLAIM)
    assert not session.execute(claim, [2, b"late", 1]).one()[0]
    with pytest.raises(TypeError, match="too large"):
        session.execute(claim, [row[0] + 1, b"late", row[0]])
    with contextlib.closing(FencedRows(CassandraRows.open(where), process=b"n" * 16)) as heir:
        assert heir.bootstrap({"g": 3}, name="west").level == 1
        for number in range(2):
            shard = ShardId("g", number)
            claimed = heir.claim(shard, "new")
            assert isinstance(claimed, Claimed) and claimed.epoch == 2
            list(heir.read_checkpoint(shard))
            assert [frame.position for frame in heir.read_tail(shard)] == [*range(1, 3 + number)]
    assert cassandra_schema.apply(server, "older", replication=COPIES).moved == 0


def test_a_move_that_was_broken_off_is_refused_and_goes_on(server: Connected) -> None:
    where, session = of_format_1(server, "broken"), server.session
    cassandra_schema.apply(server, "broken", replication=COPIES)
    # As if the command had died before the second register.
    session.execute(DELETE_REGISTER, ["g", 1])
    session.execute("UPDATE cluster SET format = 0 WHERE one = 0 IF format = 2")
    with contextlib.closing(FencedRows(CassandraRows.open(where), process=b"n" * 16)) as heir:
        with pytest.raises(JournalRefused, match="has format 0.*peloton schema apply"):
            heir.bootstrap({"g": 3}, name="west")
        assert cassandra_schema.apply(server, "broken", replication=COPIES).moved == 4
        assert heir.bootstrap({"g": 3}, name="west").shards == {"g": 3}
        claimed = heir.claim(ShardId("g", 1), "new")
        assert isinstance(claimed, Claimed) and (claimed.epoch, claimed.last_position) == (2, 3)


def test_of_commands_at_the_same_time_one_makes_the_tables(server: Connected) -> None:
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
    assert [bool(one.made) for one in done].count(True) == 1
    assert all("another command is changing the schema" in text for text in others)
    last = cassandra_schema.apply(server, "together", replication=COPIES)
    assert (last.made, last.differ) == ((), ())


def test_tables_that_differ_are_told_and_not_touched(server: Connected) -> None:
    cassandra_schema.apply(server, "differing", replication=COPIES)
    server.session.execute("DROP TABLE ended")
    server.session.execute("CREATE TABLE ended (kind int PRIMARY KEY, key text)")
    applied = cassandra_schema.apply(server, "differing", replication=COPIES)
    assert "table ended: column kind is int, not text" in applied.differ
    assert "table ended: column position is missing" in applied.differ


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


def test_the_doctor_names_what_was_done_to_the_keyspace(server: Connected) -> None:
    cassandra_schema.apply(server, "ill", replication=COPIES)
    session = server.session
    session.execute("ALTER TABLE registers WITH gc_grace_seconds = 60")
    session.execute("ALTER TABLE journal WITH default_time_to_live = 60")
    session.execute("DROP TABLE ended")
    session.execute(
        "ALTER KEYSPACE ill WITH replication = {'class': 'NetworkTopologyStrategy', 'dc1': 3}"
        " AND durable_writes = false"
    )
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
    assert missing.returncode == 1 and "there is no keyspace typed" in missing.stdout
    made = typed("schema", "apply", *where, "--replication", "dc1:1")
    assert made.returncode == 0 and "made in keyspace typed: cluster" in made.stdout
    fine = typed("doctor", *where)
    assert fine.returncode == 0 and "weak    keyspace typed" in fine.stdout
    nobody = typed("doctor", "--cassandra", f"127.0.0.1:{free_ports(1)[0]}")
    assert nobody.returncode == 69 and "refused" in nobody.stderr
    wrong = typed("schema", "apply", "--cassandra", "host:port", "--replication", "dc1:1")
    assert wrong.returncode == 64 and "is not HOST[:PORT]" in wrong.stderr


def typed(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "peloton", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
