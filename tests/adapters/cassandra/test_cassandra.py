"""The journal's store on a real Cassandra: schema, limits, races, and what the doctor sees.

That it keeps the journal's contract stands in tests/contracts. Tests that pause or kill a server
are in test_cassandra_faults.py, with one of their own.
"""

from __future__ import annotations

import re
import threading
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
from peloton.runtime.adapters.cassandra_store import (
    CassandraRows,
    requests,
)
from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.core.ended.gathering import bucket_of
from peloton.runtime.core.journal import segments
from peloton.runtime.core.journal.statements import (
    Advance,
    Applied,
    CreateRegister,
    FrameRow,
    InsertRow,
    ReadRegister,
    ReadSegment,
    RegisterRow,
    RowsFound,
    SegmentStart,
    WriteStored,
    WriteTogether,
)
from peloton.runtime.ports import (
    FRAME_PART_BYTES_MAX,
    ROUND_SHARDS_MAX,
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


# ---- schema ----------------------------------------------------------------------------------


OF_VERSION_0_1_0 = (
    "CREATE TABLE cluster (one int PRIMARY KEY, cluster_id uuid, format int, shards text)",
    "CREATE TABLE register (shard_group text, shard_number int, epoch bigint, op blob,"
    " PRIMARY KEY ((shard_group, shard_number)))",
)
"""Some of its tables."""


def test_a_keyspace_of_version_0_1_0_is_refused_by_name_and_left_as_it_is(
    server: Connected,
) -> None:
    session = server.session
    replication = "{'class': 'NetworkTopologyStrategy', 'dc1': 1}"
    executed(server, f"CREATE KEYSPACE IF NOT EXISTS older WITH replication = {replication}")
    session.set_keyspace("older")
    for text in OF_VERSION_0_1_0:
        executed(server, text.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))
    record = "INSERT INTO cluster (one, cluster_id, format, shards) VALUES (0, %s, 1, '{}')"
    session.execute(f"{record} IF NOT EXISTS", [uuid.UUID(int=7)], execution_profile=CONDITIONAL)
    where = CassandraSettings(port=cassandra.shared().port, keyspace="older")
    refused = "the journal has format 1, of version 0.1.0 .*`peloton respool dump`"
    with pytest.raises(JournalRefused, match=refused):
        CassandraRows.open(where)
    with pytest.raises(JournalRefused, match=refused):
        cassandra_schema.apply(server, "older", replication=COPIES)
    (finding,) = (one for one in findings_of(read_cluster(server, "older")) if "0.1.0" in one.text)
    assert finding.wrong and finding.remedy.startswith("Start the version that wrote it")
    tables = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'older'"
    assert {row[0] for row in executed(server, tables)} == {"cluster", "register"}
    assert [row[0] for row in executed(server, "SELECT format FROM cluster")] == [1]


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
    all_tables = (*written, "ended_states")
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
    session.execute("CREATE TABLE ill.ended_states (kind int PRIMARY KEY, key text)")
    applied = cassandra_schema.apply(server, "ill", replication=COPIES)
    assert "table ended_states: column kind is int, not text" in applied.differ
    assert "table ended_states: column position is missing" in applied.differ
    session.execute("ALTER TABLE shard_registers WITH gc_grace_seconds = 60")
    session.execute("ALTER TABLE frames WITH default_time_to_live = 60")
    session.execute("DROP TABLE ended_states")
    session.execute(f"ALTER KEYSPACE ill WITH replication = {of % 3} AND durable_writes = false")
    texts = " | ".join(
        finding.text for finding in findings_of(read_cluster(server, "ill")) if finding.wrong
    )
    for words in ("gc_grace_seconds is 60", "vanish after 60 s", "ended_states is missing",
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
