"""The journal while its Cassandra is paused, killed and started again: no frame is lost.

Never kill the shared server here, as other tests use it: these tests have one of their own.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.runtime.adapters import cassandra_schema, cassandra_session
from peloton.runtime.adapters.cassandra_doctor import findings_of, read_cluster
from peloton.runtime.adapters.cassandra_session import CassandraSettings, Connected
from peloton.runtime.adapters.cassandra_store import CassandraRows
from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.core.journal.statements import (
    Applied,
    Bump,
    NotApplied,
    ReadRegister,
    RegisterRow,
    RowsFound,
    StatementFailed,
)
from peloton.runtime.ports import (
    Answer,
    Claimed,
    Committed,
    Fenced,
    Frame,
    JournalRefused,
    RoundRefused,
    ShardId,
    Unclear,
    Unreachable,
    Work,
)
from tests.servers import cassandra
from tests.servers.cassandra import Cassandra
from tests.servers.patient import PatientRows

SHARDS = [ShardId("a", number) for number in range(4)]
SHARD = SHARDS[0]
SETTLE_TIMEOUT_S = 90.0
AGAIN_S = 0.1
FRAMES_BEFORE_KILL = 20
KEYSPACE = "faults"
PATIENCE_S, SILENCE_S = 60.0, 0.5


@pytest.fixture(scope="module")
def server() -> Cassandra:
    """The shared one, which may be paused: nobody else asks meanwhile."""
    server = cassandra.shared()
    bootstrap(server)
    return server


def bootstrap(server: Cassandra) -> None:
    maker = cassandra_session.connect(where(server), keyspace=False)
    cassandra_schema.apply(maker, KEYSPACE, replication={server.data_centre: 1})
    maker.close()
    first = FencedRows(PatientRows.open(where(server)), process=b"f" * 16)
    first.bootstrap({"a": len(SHARDS)})
    first.close()


def where(server: Cassandra) -> CassandraSettings:
    return CassandraSettings(port=server.port, keyspace=KEYSPACE)


def opened(server: Cassandra) -> CassandraRows:
    """Rows on a session of their own, which waits for a busy server."""
    connected = cassandra_session.connect(where(server))
    wait_for(connected, PATIENCE_S)
    sessions.append(connected)
    return CassandraRows(connected)


sessions: list[Connected] = []
"""All of them; those that are closed do no harm."""


def wait_for(connected: Connected, seconds: float) -> None:
    """Let its requests take so long from now on."""
    for profile in connected.cluster.profile_manager.profiles.values():
        profile.request_timeout = seconds


@contextlib.contextmanager
def paused(server: Cassandra) -> Iterator[None]:
    """Nobody is answered; whoever asks does not wait for long to know that."""
    for one in sessions:
        wait_for(one, SILENCE_S)
    server.pause()
    try:
        yield
    finally:
        server.go_on()
        for one in sessions:
            wait_for(one, PATIENCE_S)


def journal(server: Cassandra) -> FencedRows:
    """A new process."""
    return FencedRows(opened(server), process=uuid.uuid4().bytes)


def claim(owner: FencedRows, shard: ShardId = SHARD) -> Claimed:
    until_s = time.monotonic() + SETTLE_TIMEOUT_S
    while time.monotonic() < until_s:
        try:
            claimed = owner.claim(shard, "somebody")
        except Unreachable:
            continue
        if isinstance(claimed, Claimed):
            return claimed
    raise AssertionError("the shard could not be claimed")


def settled(owner: FencedRows, shard: ShardId = SHARD) -> Answer:
    """As a shard does it: the identical write again, until there is an answer."""
    pause = threading.Event()
    until_s = time.monotonic() + SETTLE_TIMEOUT_S
    answer = owner.settle([shard])[0]
    while isinstance(answer, Unclear) and time.monotonic() < until_s:
        # Without a server the driver refuses at once; it tries to connect twice a second.
        pause.wait(AGAIN_S)
        answer = owner.settle([shard])[0]
    return answer


def committed(owner: FencedRows, work: Work) -> Answer:
    """The answer to a commit, once there is one."""
    (answer,) = owner.commit([work])
    return settled(owner, work.shard) if isinstance(answer, Unclear) else answer


def tail(owner: FencedRows, shard: ShardId = SHARD) -> list[bytes]:
    list(owner.read_checkpoint(shard))
    return [frame.body for frame in owner.read_tail(shard)]


def test_a_write_that_meets_a_paused_server_is_in_doubt_and_then_done_once(
    server: Cassandra,
) -> None:
    owner = journal(server)
    claimed = claim(owner)
    next_position = claimed.last_position + 1
    with paused(server):
        (answer,) = owner.commit([Work(SHARD, claimed.epoch, Frame(next_position, b"frozen"))])
        assert isinstance(answer, Unclear)
        assert isinstance(owner.settle([SHARD])[0], Unclear)
    assert settled(owner) == Committed()
    after = Frame(next_position + 1, b"after")
    assert committed(owner, Work(SHARD, claimed.epoch, after)) == Committed()
    heir = journal(server)
    assert claim(heir).last_position == next_position + 1
    assert tail(heir)[-2:] == [b"frozen", b"after"]
    owner.close()
    heir.close()


def test_a_conditional_write_that_was_frozen_lands_later_and_its_repeat_says_so(
    server: Cassandra,
) -> None:
    rows = opened(server)
    before = register(rows)
    bump = Bump(SHARD, before.epoch, uuid.uuid4().bytes, "somebody")
    with paused(server):
        (reply,) = rows.run([bump])
        assert isinstance(reply, StatementFailed)
    pause = threading.Event()
    while isinstance(reply, StatementFailed):
        pause.wait(AGAIN_S)
        (reply,) = rows.run([bump])
    # Refused with our own op: the first copy, which had "failed", was done when the server thawed.
    assert reply in (Applied(), NotApplied(before.epoch + 1, bump.op))
    after = register(rows)
    assert (after.epoch, after.op) == (before.epoch + 1, bump.op)
    rows.close()


def register(rows: CassandraRows) -> RegisterRow:
    (found,) = rows.run([ReadRegister(SHARD)])
    assert isinstance(found, RowsFound)
    (row,) = found.rows
    assert isinstance(row, RegisterRow)
    return row


def test_an_owner_in_doubt_is_fenced_by_the_next(server: Cassandra) -> None:
    owner, heir = journal(server), journal(server)
    claimed = claim(owner)
    position = claimed.last_position + 1
    with paused(server):
        (answer,) = owner.commit([Work(SHARD, claimed.epoch, Frame(position, b"late"))])
        assert isinstance(answer, Unclear)
    taken = claim(heir)
    answer = settled(owner)
    assert isinstance(answer, Fenced)
    if answer.definite:
        # Only its parts were in doubt: the commit itself was sent once, and refused.
        assert taken.last_position == claimed.last_position
    assert (tail(heir)[-1:] == [b"late"]) == (taken.last_position == position)
    owner.close()
    heir.close()


@pytest.mark.parametrize("again", [False, True], ids=["at once", "in doubt"])
def test_a_round_of_which_one_shard_is_fenced_leaves_no_frame(
    server: Cassandra, again: bool
) -> None:
    """`again`: the round was sent to a paused server before, so that it is in doubt when the other
    journal claims; then the store may have committed it whole, and all who ask are told the same.
    """
    owner, thief = journal(server), journal(server)
    claims = {shard: claim(owner, shard) for shard in SHARDS}
    works = [
        Work(
            shard, claims[shard].epoch, Frame(claims[shard].last_position + 1, b"round %d" % again)
        )
        for shard in SHARDS
    ]
    if again:
        with paused(server):
            assert all(isinstance(answer, Unclear) for answer in owner.commit(works))
        taken = claim(thief, SHARDS[1])
        answers = [settled(owner, shard) for shard in SHARDS]
    else:
        taken = claim(thief, SHARDS[1])
        pairs = zip(SHARDS, owner.commit(works), strict=True)
        answers = [settled(owner, at) if isinstance(one, Unclear) else one for at, one in pairs]
    done = taken.last_position > claims[SHARDS[1]].last_position
    assert again or not done
    assert isinstance(answers.pop(1), Fenced)
    assert {type(answer) for answer in answers} == {Committed if done else RoundRefused}
    for shard in SHARDS:
        heir = thief if shard == SHARDS[1] else owner
        claimed = taken if shard == SHARDS[1] else claim(owner, shard)
        assert claimed.last_position == claims[shard].last_position + done
        assert (tail(heir, shard)[-1:] == [b"round %d" % again]) == done
    if not done:
        shard = SHARDS[0]
        claimed = claim(owner, shard)
        next_one = Frame(claimed.last_position + 1, b"anew")
        assert committed(owner, Work(shard, claimed.epoch, next_one)) == Committed()
    owner.close()
    thief.close()


@pytest.mark.slow
def test_a_killed_server_comes_back_with_all_that_was_acknowledged(tmp_path: Path) -> None:
    server = Cassandra.start(tmp_path)
    try:
        bootstrap(server)
        all_comes_back(server)
    finally:
        server.kill()


def all_comes_back(server: Cassandra) -> None:
    """Of what it acknowledged until it was killed."""
    owner = journal(server)
    claims = {shard: claim(owner, shard) for shard in SHARDS}
    acknowledged = {shard: claims[shard].last_position for shard in SHARDS}
    killer = threading.Event()

    def kill() -> None:
        killer.wait()
        server.kill()

    thread = threading.Thread(target=kill)
    thread.start()
    doubted: list[ShardId] = []
    while not doubted:
        if min(acknowledged.values()) > FRAMES_BEFORE_KILL:
            killer.set()
        answers = owner.commit(
            [
                Work(shard, claims[shard].epoch, Frame(acknowledged[shard] + 1, b"frame"))
                for shard in SHARDS
            ]
        )
        for shard, answer in zip(SHARDS, answers, strict=True):
            if answer == Committed():
                acknowledged[shard] += 1
            else:
                assert isinstance(answer, Unclear)
                doubted.append(shard)
    killer.set()  # if a server that stood still raised the doubt before
    thread.join()
    server.restart()
    for shard in doubted:
        assert settled(owner, shard) == Committed()
        acknowledged[shard] += 1
    heir = journal(server)
    assert {shard: claim(heir, shard).last_position for shard in SHARDS} == acknowledged
    for shard in SHARDS:
        tail(heir, shard)  # walks the chain to its end
    owner.close()
    heir.close()


@pytest.mark.nightly
def test_planted_a_server_that_syncs_periodically_loses_what_it_acknowledged(
    tmp_path: Path,
) -> None:
    """Why the doctor insists: a plain kill, of the server alone, takes acknowledged frames."""
    # Ten minutes: a sync must not fall by chance between the last frame and the kill. And
    # compressed: a plain log lies in mapped pages, which outlive the server alone, and which it
    # makes readable every 100 ms, whatever the period. All frames would stay on a busy machine.
    careless = {
        "commitlog_sync": "periodic",
        "commitlog_sync_period": "600000ms",
        "commitlog_compression": "[{class_name: LZ4Compressor}]",
    }
    server = Cassandra.start(tmp_path, settings=careless)
    try:
        bootstrap(server)
        connected = cassandra_session.connect(where(server), keyspace=False)
        texts = [
            finding.text
            for finding in findings_of(read_cluster(connected, KEYSPACE))
            if finding.wrong
        ]
        connected.close()
        assert len(texts) == 1 and "commitlog_sync is periodic" in texts[0]
        owner = journal(server)
        claimed = claim(owner)
        for position in range(1, 11):
            work = Work(SHARD, claimed.epoch, Frame(position, b"frame"))
            assert committed(owner, work) == Committed()
        owner.close()
        server.kill()
        server.restart()
        assert frames_left(server) < 10
    finally:
        server.kill()


def frames_left(server: Cassandra) -> int:
    """0 as well when the shard, or its tables, are not even there."""
    with contextlib.suppress(JournalRefused), contextlib.closing(journal(server)) as heir:
        return claim(heir).last_position
    return 0
