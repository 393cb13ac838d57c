"""A success must never come back as "not applied": the real driver against a server with faults.

The driver's own default is the trap: it sends a conditional write again, the second copy is refused
because the first was done, and the caller reads the refusal. Each fault here strikes after the
effect, which is the worst moment.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cassandra.policies import RetryPolicy
from msgspec.structs import replace

from peloton.runtime.adapters import cassandra_session
from peloton.runtime.adapters.cassandra_session import CONDITIONAL, CassandraSettings, Connected
from peloton.runtime.adapters.cassandra_store import BATCH_BYTES_MAX, CassandraRows, requests
from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.core.journal.statements import (
    Advance,
    Applied,
    Bump,
    FrameRow,
    InsertRow,
    NotApplied,
    ReadRegister,
    StatementFailed,
    WriteStored,
)
from peloton.runtime.ports import Claimed, Committed, Frame, ShardId, Unclear, Work
from tests.adapters.cassandra import cql_stub
from tests.adapters.cassandra import cql_wire as wire
from tests.adapters.cassandra.cql_stub import DROPPED, FAULTS, SILENT, UNPREPARED, Stub

SHARD = ShardId("a", 0)
WRITE = Advance(SHARD, 0, b"first", b"second", 1, b"chain")
ROW = InsertRow(SHARD, FrameRow(1, 0, 0, 1, b"op", b"", b"", b"body", b"segment"))
SIBLING = InsertRow(ShardId("other", 7), ROW.row)
OTHER_ROW = InsertRow(SHARD, replace(ROW.row, segment=b"another"))
ANSWERS_A_ROW = ("no rows", "nothing", "a row of another shape")
"""To a plain statement these are no faults."""
REQUEST_TIMEOUT_S, SILENCE_S = 60.0, 0.3
"""Only of silence is it the time that tells; a busy machine is silent for a moment, too."""
RESENT_BY_DEFAULT = (DROPPED, "overloaded", "server error", "bootstrapping", "truncate error")


@pytest.fixture
def stub() -> Iterator[Stub]:
    with cql_stub.running() as stub:
        yield stub


@pytest.fixture
def connected(stub: Stub) -> Iterator[Connected]:
    """Our settings, all of them; only that a busy machine has its time."""
    settings = CassandraSettings(port=stub.nodes[0].port, keyspace="stub")
    connected = cassandra_session.connect(settings)
    wait_for(connected, REQUEST_TIMEOUT_S)
    yield connected
    connected.close()


def wait_for(connected: Connected, seconds: float) -> None:
    for profile in connected.cluster.profile_manager.profiles.values():
        profile.request_timeout = seconds


def struck(stub: Stub, connected: Connected, fault: str) -> None:
    """The next request has this fault; for one that is silence nobody waits for long."""
    stub.fault = fault
    wait_for(connected, SILENCE_S if fault == SILENT else REQUEST_TIMEOUT_S)


def test_the_driver_knows_two_servers_to_send_to(stub: Stub, connected: Connected) -> None:
    ports = sorted(host.endpoint.port for host in connected.session.hosts)
    assert ports == sorted(node.port for node in stub.nodes)


def test_without_a_fault_a_write_is_applied_and_its_repeat_refused(
    stub: Stub, connected: Connected
) -> None:
    rows = CassandraRows(connected)
    assert rows.run([WRITE]) == [Applied()]
    assert rows.run([WRITE]) == [NotApplied(0, b"second")]
    assert stub.done[Advance] == 1


@pytest.mark.parametrize("fault", FAULTS)
def test_a_write_that_was_done_comes_back_in_doubt_and_was_sent_once(
    stub: Stub, connected: Connected, fault: str
) -> None:
    rows = CassandraRows(connected)
    struck(stub, connected, fault)
    (reply,) = rows.run([WRITE])
    assert isinstance(reply, StatementFailed), reply
    assert (stub.arrived[Advance], stub.done[Advance]) == (1, 1)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_journal_settles_the_doubt_by_the_identical_write(
    stub: Stub, connected: Connected, fault: str
) -> None:
    journal = FencedRows(CassandraRows(connected), process=b"p" * 16)
    claimed = journal.claim(SHARD, "somebody")
    assert isinstance(claimed, Claimed)
    struck(stub, connected, fault)
    (answer,) = journal.commit([Work(SHARD, claimed.epoch, Frame(1, b"body"))])
    assert isinstance(answer, Unclear)
    wait_for(connected, REQUEST_TIMEOUT_S)
    while isinstance(answer, Unclear):
        answer = journal.settle([SHARD])[0]
    assert answer == Committed()
    assert stub.done[Advance] == 1
    (answer,) = journal.commit([Work(SHARD, claimed.epoch, Frame(2, b"next"))])
    assert answer == Committed()
    assert stub.position == 2


def test_a_statement_the_server_forgot_is_prepared_anew_and_sent_again(
    stub: Stub, connected: Connected
) -> None:
    """The one second copy there may be: of the first the server said that it did nothing."""
    rows = CassandraRows(connected)
    stub.fault = UNPREPARED
    assert rows.run([WRITE]) == [Applied()]
    assert (stub.arrived[Advance], stub.done[Advance]) == (2, 1)


def test_no_server_at_all_is_a_doubt_too(stub: Stub, connected: Connected) -> None:
    rows = CassandraRows(connected)
    connected.close()
    (reply,) = rows.run([WRITE])
    assert isinstance(reply, StatementFailed)
    assert stub.arrived[Advance] == 0


@pytest.mark.parametrize("fault", sorted({*FAULTS} - {*ANSWERS_A_ROW}))
def test_reads_are_sent_once_too(stub: Stub, connected: Connected, fault: str) -> None:
    rows = CassandraRows(connected)
    stub.faulty = ReadRegister
    struck(stub, connected, fault)
    (reply,) = rows.run([ReadRegister(SHARD)])
    assert isinstance(reply, StatementFailed), reply
    assert stub.arrived[ReadRegister] == 1


def test_levels_are_what_the_protocol_rests_on(stub: Stub, connected: Connected) -> None:
    journal = FencedRows(CassandraRows(connected), process=b"p" * 16)
    assert isinstance(journal.claim(SHARD, "somebody"), Claimed)
    journal.commit([Work(SHARD, 1, Frame(1, b"body"))])
    assert stub.levels == {
        ReadRegister: (wire.SERIAL, wire.SERIAL),
        Bump: (wire.QUORUM, wire.SERIAL),
        FrameRow: (wire.QUORUM, wire.SERIAL),
        Advance: (wire.QUORUM, wire.SERIAL),
    }


def test_one_fault_among_many_statements_leaves_the_others_their_answers(
    stub: Stub, connected: Connected
) -> None:
    rows = CassandraRows(connected)
    stub.fault = "overloaded"
    first, failed, last = rows.run([ROW, WRITE, OTHER_ROW])
    assert first == last != failed
    assert isinstance(failed, StatementFailed)


def test_frames_of_one_segment_are_one_request_of_any_shards(
    stub: Stub, connected: Connected
) -> None:
    rows = CassandraRows(connected)
    assert rows.run([ROW, WRITE, SIBLING]) == [WriteStored(), Applied(), WriteStored()]
    assert (stub.arrived[FrameRow], stub.batched) == (1, 2)
    assert stub.levels[FrameRow] == (wire.QUORUM, wire.SERIAL)


@pytest.mark.parametrize("fault", sorted({*FAULTS} - {*ANSWERS_A_ROW}))
@pytest.mark.parametrize("frames", [[ROW], [ROW, SIBLING]], ids=["one", "many"])
def test_one_request_of_frames_is_sent_once_and_in_doubt_whole(
    stub: Stub, connected: Connected, frames: list[InsertRow], fault: str
) -> None:
    """One frame is a statement of its own, many are a batch."""
    rows = CassandraRows(connected)
    stub.faulty = FrameRow
    struck(stub, connected, fault)
    replies = rows.run(frames)
    assert [type(reply) for reply in replies] == [StatementFailed] * len(frames), replies
    assert (stub.arrived[FrameRow], stub.batched) == (1, 2 if len(frames) > 1 else 0)


def test_a_large_batch_is_several() -> None:
    large = InsertRow(SHARD, replace(ROW.row, body=bytes(BATCH_BYTES_MAX // 3)))
    made = requests([ROW, large, large, large, SIBLING, OTHER_ROW, WRITE])
    assert [each.places for each in made] == [[0, 1, 2], [3, 4], [5], [6]]
    assert all(each.size_bytes <= BATCH_BYTES_MAX for each in made)


@pytest.mark.parametrize("fault", RESENT_BY_DEFAULT)
def test_planted_the_default_policy_reports_a_success_as_not_applied(
    stub: Stub, connected: Connected, fault: str
) -> None:
    """The trap is there: were it not, the tests above would prove nothing."""
    rows = CassandraRows(connected)
    connected.cluster.profile_manager.profiles[CONDITIONAL].retry_policy = RetryPolicy()
    stub.fault = fault
    (reply,) = rows.run([WRITE])
    assert reply == NotApplied(0, b"second")
    assert (stub.arrived[Advance], stub.done[Advance]) == (2, 1)
