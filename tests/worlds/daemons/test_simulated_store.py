"""The simulated store: the journal's promises under its ten faults, and each fault by itself.

A planted fault in the protocol, or a store that is worse than it may be, must be found by the very
same seeds that the true protocol survives, or these prove nothing. In a calm the store passes the
contract of a journal with all the others (`tests/contracts`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import msgspec
import pytest

from peloton.runtime.core.journal import fencing, segments
from peloton.runtime.core.journal.register import OwnedShard, RoundPlan
from peloton.runtime.core.journal.statements import (
    Advance,
    Applied,
    Bump,
    ConditionalWrite,
    CreateRegister,
    DeleteSegment,
    FrameRow,
    InsertRow,
    MoveFloor,
    NotApplied,
    ReadRegister,
    ReadSegment,
    RegisterRow,
    Rows,
    RowsFound,
    Statement,
    StatementFailed,
    StatementReply,
    WriteStored,
)
from peloton.runtime.ports import Committed, Damaged, Fenced, JournalBroken, JournalRefused
from peloton.runtime.simulation import cells, memory_rows
from peloton.runtime.simulation.cells import PlainRow, RowKey
from peloton.runtime.simulation.memory_rows import MemoryRows
from peloton.runtime.simulation.stepper import VirtualClock
from peloton.runtime.simulation.store import FAULT_KINDS, Level, SimulatedStore, StoreFaults
from tests.core.journal import test_fencing
from tests.core.journal.outside import Wrong
from tests.worlds.daemons.journals import SHARD, Sea, drawn

SEEDS = 100
PLANTED_SEEDS_MAX = 1000
"""Within so many seeds a planted fault is found; the rarest took 42 when this was written."""


@pytest.fixture(autouse=True)
def tiny_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a short history crosses the edges of segments and buckets."""
    monkeypatch.setattr(segments, "SEGMENT_FRAMES", 3)
    for module in (fencing, memory_rows, cells):
        monkeypatch.setattr(module, "BUCKET_PARTS", 2)


# ---- the promises, under faults --------------------------------------------------------------


def histories(seeds: int, *, flush_s: float = 0.0) -> Iterator[Sea]:
    """One history per seed, checked as it goes."""
    for seed in range(seeds):
        sea = Sea(seed)
        sea.storm(msgspec.structs.replace(drawn(random.Random(seed)), flush_s=flush_s))
        sea.calm()
        yield sea


def test_no_fault_of_the_store_breaks_a_promise_of_the_journal() -> None:
    struck = dict.fromkeys(FAULT_KINDS, 0)
    acknowledged = ended = 0
    for sea in histories(SEEDS):
        acknowledged += len(sea.story.acknowledged)
        ended += len(sea.story.ended)
        struck = {kind: struck[kind] + sea.store.struck[kind] for kind in FAULT_KINDS}
    assert acknowledged > 10 * SEEDS and ended > SEEDS, "work gets done"
    never = [kind for kind in FAULT_KINDS if not struck[kind]]
    # A journal alone has nobody to turn over to; the protocol reads no register below SERIAL.
    assert never == ["hold_turnover", "stale_read"]


def test_a_seed_tells_the_same_history_twice() -> None:
    first, again = list(histories(5)), list(histories(5))
    assert [sea.story.history for sea in first] == [sea.story.history for sea in again]
    assert [sea.store.struck for sea in first] == [sea.store.struck for sea in again]


# ---- planted faults: each must be found ------------------------------------------------------

REAL_FINISH = fencing.finish
REAL_ROW_KEY = cells.row_key
REAL_CONDITIONAL = MemoryRows._conditional


def floor_before_ended(
    owned: OwnedShard, plan: RoundPlan
) -> fencing.ProtocolCoroutine[Committed | Fenced]:
    """Moves the floor before the final states below it are acknowledged."""
    later = msgspec.structs.replace(plan, work=msgspec.structs.replace(plan.work, ended=()))
    answer = yield from REAL_FINISH(owned, later)
    if isinstance(answer, Committed):
        yield from fencing._write(InsertRow(owned.shard, row) for row in plan.work.ended)
    return answer


def keyed_without_epoch(row: PlainRow) -> RowKey:
    """An old owner's late row takes the place of the committed one."""
    return (row.position, row.part) if isinstance(row, FrameRow) else REAL_ROW_KEY(row)


def floor_without_op(rows: MemoryRows, ask: ConditionalWrite) -> StatementReply:
    """A late copy of an older floor moves the floor back, to a checkpoint that is gone."""
    if isinstance(ask, MoveFloor):
        ask = msgspec.structs.replace(ask, expected=rows.registers[ask.shard].op)
    return REAL_CONDITIONAL(rows, ask)


# What a talk or a condition does wrong is planted here too, over other rows and other histories.
IN_THE_PROTOCOL = [one for one in test_fencing.PLANTED if one[1] != "_plain"]
PLANTED: list[tuple[object, str, Callable[..., object]]] = [
    *IN_THE_PROTOCOL,
    (fencing, "finish", floor_before_ended),
    (cells, "row_key", keyed_without_epoch),
    (MemoryRows, "_conditional", floor_without_op),
]


RARE = [floor_without_op]
"""What takes hundreds of seeds to be found is planted at night."""
MARKED = [
    pytest.param(*each, id=each[2].__name__, marks=pytest.mark.nightly if each[2] in RARE else ())
    for each in PLANTED
]


@pytest.mark.parametrize(("where", "name", "fault"), MARKED)
def test_a_planted_fault_is_found(
    where: object, name: str, fault: object, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, fault)
    if fault is keyed_without_epoch:  # which needs a segment that is not one process's own
        monkeypatch.setattr(segments.Segments, "next", lambda self, size: bytes(24))
    with pytest.raises((Wrong, Damaged, JournalBroken, JournalRefused)):
        for _ in histories(PLANTED_SEEDS_MAX):
            pass


def test_a_commit_log_that_is_flushed_late_loses_what_was_promised() -> None:
    """No protocol can mend that: such a store is refused at the start (`commitlog_sync`)."""
    with pytest.raises((Wrong, Damaged, JournalBroken)):
        for _ in histories(PLANTED_SEEDS_MAX, flush_s=10.0):
            pass


# ---- each fault by itself --------------------------------------------------------------------

LOOK = ReadRegister(SHARD)
SEGMENT = b"segment"
DELETE = DeleteSegment(SHARD, SEGMENT, 1)
READ = ReadSegment(SHARD, SEGMENT, 1, 9)


def advance(number: int) -> Advance:
    """The owner's write of frame `number`; its op is the number, and expects the one before."""
    return Advance(SHARD, 1, b"%d" % (number - 1), b"%d" % number, number, bytes(32))


def insert(position: int) -> InsertRow:
    return InsertRow(SHARD, FrameRow(position, 1, 0, 1, b"", b"", b"", b"frame", SEGMENT))


class Bench:
    """A store with one claimed register, before its faults begin."""

    def __init__(self, seed: int = 0, **faults: float) -> None:
        self.clock = VirtualClock()
        self.store = SimulatedStore(random.Random(seed), self.clock)
        self.a, self.b = self.store.rows("a"), self.store.rows("b")
        assert ask(self.a, CreateRegister(SHARD, b"")) == Applied()
        assert ask(self.a, Bump(SHARD, 0, b"0", "a")) == Applied()
        self.storm(**faults)

    def storm(self, **faults: float) -> None:
        self.store.faults = StoreFaults(**faults)

    def later(self, seconds: float = 1000.0) -> None:
        self.clock.now_s += seconds
        self.store.advance()

    def last_position(self) -> int:
        """In the table itself."""
        return self.store.registers.registers[SHARD].last_position

    def frames(self) -> list[int]:
        return [row.position for row in found(self.a, READ)]


def ask(rows: Rows, statement: Statement) -> StatementReply:
    (reply,) = rows.run([statement])
    return reply


def found(rows: Rows, statement: Statement) -> tuple[RegisterRow | FrameRow, ...]:
    reply = ask(rows, statement)
    assert isinstance(reply, RowsFound)
    return reply.rows  # type: ignore[return-value]


def position(rows: Rows) -> int:
    (row,) = found(rows, LOOK)
    assert isinstance(row, RegisterRow)
    return row.last_position


def test_lose_reply() -> None:
    bench = Bench(lose_reply=1)
    assert isinstance(ask(bench.a, advance(1)), StatementFailed)
    assert isinstance(ask(bench.a, insert(1)), StatementFailed)
    assert isinstance(ask(bench.a, LOOK), StatementFailed)
    bench.storm()
    assert bench.last_position() == 1 and bench.frames() == [1]


def test_hold_begins_a_write_after_its_error_was_answered() -> None:
    bench = Bench(hold=1)
    assert isinstance(ask(bench.a, advance(1)), StatementFailed)
    assert bench.last_position() == 0 and bench.store.on_its_way == 1
    bench.later()
    assert bench.last_position() == 1 and bench.store.on_its_way == 0


def test_hold_ends_in_nothing_once_the_condition_is_false() -> None:
    bench = Bench(hold=1, late_s=10)
    while bench.store.on_its_way < 5:  # half of them are begun before the next call
        ask(bench.a, advance(2))
    bench.storm()
    assert ask(bench.b, Bump(SHARD, 1, b"theirs", "b")) == Applied()
    bench.later()
    assert bench.last_position() == 0


def test_either_order_of_a_held_write_and_its_retry() -> None:
    seen: dict[str, None] = {}
    for seed in range(50):
        bench = Bench(seed, hold=1)
        ask(bench.a, advance(1))
        bench.storm(either_order=1)
        answer = ask(bench.a, advance(1))
        assert bench.last_position() == 1 and bench.store.on_its_way == 0
        if bench.store.struck["either_order"]:
            seen[repr(answer)] = None
            assert bench.store.struck["condition_columns"] == 1, "whichever is second is refused"
    assert sorted(seen) == [repr(Applied()), repr(NotApplied(1, b"1"))]


def test_condition_columns_are_all_that_a_refusal_tells() -> None:
    bench = Bench()
    assert ask(bench.a, advance(2)) == NotApplied(1, b"0")
    assert ask(bench.a, CreateRegister(SHARD, b"x")) == NotApplied()
    assert bench.store.struck["condition_columns"] == 2


def test_complete_by_read_settles_a_half_accepted_write_either_way() -> None:
    seen: dict[int, None] = {}
    for seed in range(50):
        bench = Bench(seed, complete_by_read=1)
        assert isinstance(ask(bench.a, advance(1)), StatementFailed)
        assert bench.last_position() == 0 and bench.store.on_its_way == 1
        bench.storm()
        seen[position(bench.b)] = None
        assert bench.last_position() == position(bench.b), "once looked at, it is settled"
        assert bench.store.struck["complete_by_read"] == bench.last_position()
    assert sorted(seen) == [0, 1]


def test_a_conditional_write_settles_a_half_accepted_one_first() -> None:
    seen: dict[str, None] = {}
    for seed in range(50):
        bench = Bench(seed, complete_by_read=1)
        ask(bench.a, advance(1))
        bench.storm()
        seen[repr(ask(bench.a, advance(1)))] = None
        assert bench.last_position() == 1
    assert sorted(seen) == [repr(Applied()), repr(NotApplied(1, b"1"))]


def test_stale_read_shows_what_was_but_never_to_a_serial_one() -> None:
    bench = Bench(stale_read=1)
    quorum = bench.store.rows("c", level=Level.QUORUM)
    one = bench.store.rows("d", level=Level.ONE)
    ask(bench.a, advance(1))
    assert (position(one), position(quorum), position(bench.b)) == (0, 1, 1)
    bench.storm(stale_read=1, complete_by_read=1)
    ask(bench.a, advance(2))
    assert position(quorum) == 1 and bench.store.on_its_way == 1, "it settles nothing"
    assert bench.store.struck["stale_read"] == 2
    position(bench.b)
    assert bench.store.struck["stale_read"] == 2 and bench.store.on_its_way == 0


def test_unavailable_does_nothing() -> None:
    bench = Bench(unavailable=1)
    for statement in (advance(1), insert(1), LOOK):
        assert isinstance(ask(bench.a, statement), StatementFailed)
    bench.later()
    bench.storm()
    assert bench.last_position() == 0 and bench.frames() == []


def test_reorder_plain_within_a_batch_and_beyond_it() -> None:
    looks: dict[int, None] = {}
    for seed in range(50):
        bench = Bench(seed, reorder_plain=0.5)
        wrote, read = bench.a.run([insert(1), READ])
        if wrote == WriteStored() and isinstance(read, RowsFound):
            looks[len(read.rows)] = None
    assert sorted(looks) == [0, 1], "a read sent with a write sees it, or does not"
    bench = Bench(reorder_plain=1)
    assert isinstance(ask(bench.a, insert(1)), StatementFailed)
    bench.storm()
    bench.later()
    assert bench.frames() == [1], "it lands later"


@pytest.mark.parametrize("skew_s", [0.0, 60.0])
def test_plain_after_delete_is_dead_unless_a_clock_is_fast(skew_s: float) -> None:
    seen: dict[int, None] = {}
    for seed in range(50):
        bench = Bench(seed, plain_after_delete=1, skew_s=skew_s)
        ask(bench.a, insert(1))
        bench.later(10)
        assert ask(bench.b, DELETE) == WriteStored()
        bench.later()
        seen[len(bench.frames())] = None
    assert sorted(seen) == ([0, 1] if skew_s else [0])


def test_of_two_rows_with_one_key_the_later_stays_whichever_came_first() -> None:
    older, newer = insert(1), InsertRow(SHARD, msgspec.structs.replace(insert(1).row, body=b"new"))
    for writes in ([(older, 1), (newer, 2)], [(newer, 2), (older, 1)]):
        table = cells.Cells()
        for write, stamp_us in writes:
            table.write(write, stamp_us)
        assert list(table.read(READ)) == [newer.row]


def test_a_delete_by_a_slow_clock_spares_what_is_newer() -> None:
    seen: dict[int, None] = {}
    for seed in range(50):
        bench = Bench(seed, skew_s=60)
        ask(bench.a, insert(1))
        ask(bench.b, DELETE)
        seen[len(bench.frames())] = None
    assert sorted(seen) == [0, 1]


def test_power_cut_forgets_what_was_on_its_way_and_what_was_not_flushed() -> None:
    bench = Bench(hold=1, late_s=10)
    while not any(late.at_s > bench.clock.now_s for late in bench.store._late):
        ask(bench.a, advance(5))
    bench.storm()
    assert ask(bench.a, advance(1)) == Applied() and ask(bench.a, insert(1)) == WriteStored()
    bench.store.power_cut()
    assert bench.store.on_its_way == 0
    assert bench.last_position() == 1 and bench.frames() == [1], "what was answered stays"
    bench.storm(flush_s=10)
    assert ask(bench.a, advance(2)) == Applied() and ask(bench.a, insert(2)) == WriteStored()
    bench.later(5)
    bench.store.power_cut()
    assert bench.last_position() == 1 and bench.frames() == [1], "unless it is flushed too late"
    assert ask(bench.a, advance(2)) == Applied()
    bench.later(20)
    bench.store.power_cut()
    assert bench.last_position() == 2


def test_one_daemon_is_cut_off_and_what_it_sent_before_arrives() -> None:
    bench = Bench(hold=1)
    ask(bench.a, advance(1))
    bench.storm()
    bench.store.cut("a")
    assert isinstance(ask(bench.a, LOOK), StatementFailed)
    bench.later()
    assert position(bench.b) == 1
    bench.store.mend("a")
    assert position(bench.a) == 1
    assert bench.store.struck["cut"] == 1
