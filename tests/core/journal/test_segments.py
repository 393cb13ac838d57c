"""Segments: whose frames lie where, what a register lists of it, and what a cut deletes.

That no order of events loses a frame is searched in `tests/model`; these are the sizes and counts.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest
from msgspec.structs import replace

from peloton.runtime.adapters import cassandra_statements as statements
from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.core.journal import register, segments
from peloton.runtime.core.journal.segments import (
    ROW_BYTES,
    SEGMENT_BYTES_MAX,
    SWEEP_SEGMENTS,
    SegmentPart,
    Segments,
    ended,
    extended,
    pack,
    parts,
    unpack,
)
from peloton.runtime.core.journal.statements import (
    DeleteSegment,
    ReadRegister,
    ReadSegment,
    RegisterRow,
    SegmentStart,
    Statement,
    StatementReply,
)
from peloton.runtime.core.offline.journal_reading import wrong_with
from peloton.runtime.ports import (
    CheckpointPart,
    Claimed,
    Committed,
    Cut,
    Damaged,
    Floor,
    Frame,
    ShardId,
    Work,
)
from peloton.runtime.simulation.memory_rows import MemoryRows
from peloton.runtime.vocabulary import key
from tests.toy import messages as w
from tests.toy.bench import Bench

NOTE = key("note", "x")
BUSY, QUIET = ShardId("g", 0), ShardId("g", 1)
A, B, C = (
    bytes([name]) * 16 + number.to_bytes(8, "big") for name, number in ((1, 1), (2, 9), (1, 2))
)
LISTED = (SegmentStart(1, A), SegmentStart(4, B), SegmentStart(6, C))


# ---- values ----


def test_a_process_never_names_two_segments_alike() -> None:
    one, other = Segments(b"a" * 16), Segments(b"b" * 16)
    names = [each.next(SEGMENT_BYTES_MAX) for each in (one, other) for _ in range(100)]
    assert len({*names}) == 200


def test_a_segment_is_full_by_frames_or_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    large = Segments(bytes(16))
    half = SEGMENT_BYTES_MAX // 2 - ROW_BYTES
    names = [large.next(half) for _ in range(5)]
    assert names[0] == names[1] != names[2] == names[3] != names[4]
    monkeypatch.setattr(segments, "SEGMENT_FRAMES", 3)
    small = Segments(bytes(16))
    names = [small.next(0) for _ in range(7)]
    assert [names.index(name) for name in names] == [0, 0, 0, 3, 3, 3, 6]


def test_parts_are_what_of_the_tail_lies_where() -> None:
    assert [*parts(LISTED, range(1, 9))] == [
        SegmentPart(A, 1, 3),
        SegmentPart(B, 4, 5),
        SegmentPart(C, 6, 8),
    ]
    assert [*parts(LISTED, range(5, 7))] == [SegmentPart(B, 5, 5), SegmentPart(C, 6, 6)]
    assert [*parts(LISTED, range(3, 4))] == [SegmentPart(A, 3, 3)]
    assert [*parts(LISTED, range(9, 9))] == [*parts((), range(1, 1))] == []


def test_a_cut_takes_whole_segments_and_the_position_that_is_anothers() -> None:
    assert ended(LISTED, after=0, upto=2) == []
    assert ended(LISTED, after=0, upto=3) == [SegmentPart(A, 1, 4)], "4 is in the next one"
    assert ended(LISTED, after=0, upto=9) == [SegmentPart(A, 1, 4), SegmentPart(B, 4, 6)]
    assert ended(LISTED, after=3, upto=9) == [SegmentPart(B, 4, 6)], "and never the last"


def test_a_list_forgets_what_was_cut_but_for_some() -> None:
    listed = tuple(SegmentStart(at, A) for at in range(1, 11))
    start = SegmentStart(11, B)
    assert extended(listed, start, cut_to=0) == (*listed, start)
    assert extended(listed, start, cut_to=SWEEP_SEGMENTS) == (*listed, start)
    assert extended(listed, start, cut_to=SWEEP_SEGMENTS + 2) == (*listed[2:], start)
    assert extended((), start, cut_to=99) == (start,)


def test_a_list_is_stored_whole_and_small() -> None:
    chance = random.Random(7)
    processes = [chance.randbytes(16) for _ in range(3)]
    for _ in range(100):
        starts = sorted(chance.sample(range(1, 10_000), chance.randrange(20)))
        listed = tuple(
            SegmentStart(at, chance.choice(processes) + chance.randrange(2**40).to_bytes(8, "big"))
            for at in starts
        )
        assert unpack(pack(listed)) == listed
    assert unpack(None) == unpack(b"") == ()
    of_one = tuple(SegmentStart(at, bytes(16) + at.to_bytes(8, "big")) for at in range(1, 101))
    assert len(pack(of_one)) < 100 * 10, "all registers of a round may be written with theirs"


@pytest.mark.parametrize(
    "stored",
    [
        b"\xff",
        pack(LISTED)[:-1],
        pack(LISTED) + b"!",
        msgspec.msgpack.encode([(b"short", [(1, 1)])]),
        msgspec.msgpack.encode([(bytes(16), [(1, -1)])]),
        msgspec.msgpack.encode([(bytes(16), [(1, 2**64 - 1)])]),
    ],
)
def test_a_stored_list_that_is_none_is_damage_of_its_register_alone(stored: bytes) -> None:
    row = (2, A, "", 5, B, 0, 0)
    found = statements.found(ReadRegister(BUSY), [(*row, stored), (*row, pack(LISTED))])
    spoilt, good = found.rows
    assert isinstance(spoilt, RegisterRow) and "does not decode" in spoilt.damage
    assert good == RegisterRow(*row, LISTED)


# ---- a journal ----


@pytest.mark.parametrize("floor", [False, True])
def test_a_shard_whose_list_does_not_decode_is_damaged_and_others_go_on(floor: bool) -> None:
    fleet = Fleet()
    journal = fleet.owner(1, BUSY, QUIET)
    fleet.frames(journal, BUSY, QUIET)
    if floor:
        fleet.floor(journal, BUSY)
    registers = fleet.rows.registers
    registers[BUSY] = replace(registers[BUSY], segments=(), damage="it does not decode")
    heir = fleet.owner(2)
    with pytest.raises(Damaged, match="does not decode"):
        fleet.claim(heir, BUSY)
    assert fleet.claim(heir, QUIET) == [1]
    assert "register: it does not decode" in wrong_with(registers[BUSY])


class Counting(MemoryRows):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Statement] = []

    def run(self, statements: Sequence[Statement]) -> list[StatementReply]:
        self.seen += statements
        return super().run(statements)


class Fleet:
    """Journals over one store of two shards."""

    def __init__(self) -> None:
        self.rows = Counting()
        self.epochs: dict[ShardId, int] = {}
        self.claims: dict[ShardId, Claimed] = {}
        self.positions = {BUSY: 0, QUIET: 0}
        self.owner(9).bootstrap({"g": 2})

    def owner(self, process: int, *shards: ShardId) -> FencedRows:
        journal = FencedRows(self.rows, process=process.to_bytes(16, "big"))
        for shard in shards:
            self.claim(journal, shard)
        return journal

    def claim(self, journal: FencedRows, shard: ShardId) -> list[int]:
        claimed = journal.claim(shard, "x")
        assert isinstance(claimed, Claimed)
        self.epochs[shard] = claimed.epoch
        self.claims[shard] = claimed
        list(journal.read_checkpoint(shard))
        return [frame.position for frame in journal.read_tail(shard)]

    def frames(self, journal: FencedRows, *shards: ShardId) -> list[bool]:
        """One round; per shard whether it is told that its tail is scattered."""
        works = []
        for shard in shards:
            self.positions[shard] += 1
            frame = Frame(self.positions[shard], b"%d" % self.positions[shard])
            works.append(Work(shard, self.epochs[shard], frame))
        return [self.committed(answer).scattered for answer in journal.commit(works)]

    def floor(self, journal: FencedRows, shard: ShardId) -> Committed:
        position = self.positions[shard]
        parts = (CheckpointPart(position, 0, b"state", last=True),)
        work = Work(shard, self.epochs[shard], parts=parts, floor=Floor(position))
        return self.committed(*journal.commit([work]))

    def cut(self, journal: FencedRows, shard: ShardId) -> list[DeleteSegment]:
        """Cut until nothing is left to cut; what was deleted."""
        self.rows.seen.clear()
        while self.committed(
            *journal.commit([Work(shard, self.epochs[shard], cut=Cut())])
        ).more_to_cut:
            pass
        return [each for each in self.rows.seen if isinstance(each, DeleteSegment)]

    @staticmethod
    def committed(answer: object) -> Committed:
        assert isinstance(answer, Committed), answer
        return answer


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_FRAMES", 4)


def test_the_frames_of_a_round_are_in_one_segment_and_each_shard_reads_its_own(
    small: None,
) -> None:
    fleet = Fleet()
    journal = fleet.owner(1, BUSY, QUIET)
    for _ in range(4):
        fleet.frames(journal, BUSY, QUIET)
    first, second = (fleet.rows.registers[shard].segments for shard in (BUSY, QUIET))
    assert first == second and [start.first for start in first] == [1, 3]
    assert len(fleet.rows.journal) == 2 * 2, "two shards in two segments"
    fleet.rows.seen.clear()
    assert fleet.claim(fleet.owner(2), QUIET) == [1, 2, 3, 4]
    read = [each for each in fleet.rows.seen if isinstance(each, ReadSegment)]
    assert [(each.shard, each.first, each.last) for each in read] == [(QUIET, 1, 2), (QUIET, 3, 4)]


def test_a_process_that_owns_a_shard_again_goes_on_in_its_segment() -> None:
    fleet = Fleet()
    a, b = fleet.owner(1, BUSY), fleet.owner(2)
    fleet.frames(a, BUSY)
    assert fleet.claim(b, BUSY) == [1]
    fleet.frames(b, BUSY)
    assert fleet.claim(a, BUSY) == [1, 2]
    fleet.frames(a, BUSY)
    starts = fleet.rows.registers[BUSY].segments
    assert [start.first for start in starts] == [1, 2, 3]
    assert starts[0].segment == starts[2].segment != starts[1].segment
    assert fleet.claim(b, BUSY) == [1, 2, 3]


def test_one_delete_for_each_segment_and_a_few_again_with_each_floor(small: None) -> None:
    fleet = Fleet()
    journal = fleet.owner(1, BUSY)
    counts, lists = [], []
    for _ in range(10):
        for _ in range(12):
            fleet.frames(journal, BUSY)
        fleet.floor(journal, BUSY)
        deleted = fleet.cut(journal, BUSY)
        previous = fleet.positions[BUSY] - 12
        assert len({each.segment for each in deleted}) == len(deleted)
        counts.append(len(deleted))
        lists.append(len(fleet.rows.registers[BUSY].segments))
    new = 12 // 4
    assert counts == [0, new, 2 * new, *[new + SWEEP_SEGMENTS] * 7], "those of a floor, and a few"
    assert lists == [new, 2 * new, 3 * new, *[2 * new + SWEEP_SEGMENTS] * 7]
    left = [key[0] for rows in fleet.rows.journal.values() for key in rows]
    assert min(left) > previous - 4


def test_a_quiet_shard_beside_busy_ones_is_told_that_its_tail_is_scattered(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(register, "TAIL_SEGMENTS_MAX", 3)
    fleet = Fleet()
    journal = fleet.owner(1, BUSY, QUIET)
    told = []
    for _ in range(5):
        for _ in range(4):
            fleet.frames(journal, BUSY)
        told += fleet.frames(journal, QUIET)
    assert told == [False, False, False, True, True]
    assert not fleet.floor(journal, QUIET).scattered
    fleet.frames(journal, BUSY)
    assert fleet.frames(journal, QUIET) == [False], "they are listed until they are cut"


def test_a_claim_tells_that_the_tail_is_scattered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(register, "TAIL_SEGMENTS_MAX", 3)
    fleet = Fleet()
    told = []
    for process in range(1, 7):
        journal = fleet.owner(process, QUIET)
        told.append(fleet.claims[QUIET].scattered)
        fleet.frames(journal, QUIET)
    assert told == [False, False, False, False, True, True]
    fleet.floor(journal, QUIET)
    fleet.owner(7, QUIET)
    assert not fleet.claims[QUIET].scattered


@pytest.mark.parametrize("frames", [1, 2])
@pytest.mark.parametrize("cuts", [False, True])
def test_many_owners_of_few_frames_each_keep_the_list_and_the_rows_bounded(
    monkeypatch: pytest.MonkeyPatch, frames: int, cuts: bool
) -> None:
    """Each makes a checkpoint if its claim says so, and ends before or after the cut."""
    monkeypatch.setattr(register, "TAIL_SEGMENTS_MAX", 3)
    fleet = Fleet()
    lists, rows = [], []
    for process in range(1, 101):
        journal = fleet.owner(process, QUIET)
        fleet.frames(journal, QUIET)
        if fleet.claims[QUIET].scattered:
            fleet.floor(journal, QUIET)
            if cuts:
                fleet.cut(journal, QUIET)
        for _ in range(frames - 1):
            fleet.frames(journal, QUIET)
        lists.append(len(fleet.rows.registers[QUIET].segments))
        rows.append(sum(len(each) for each in fleet.rows.journal.values()))
    assert max(lists) == max(lists[:30]) <= 3 * (3 + 2) + SWEEP_SEGMENTS
    assert max(rows) == max(rows[:30]), "what is not listed any more was deleted"
    tail = fleet.claim(fleet.owner(999), QUIET)
    assert tail == [*range(fleet.claims[QUIET].floor + 1, fleet.positions[QUIET] + 1)]


def test_a_scattered_tail_is_replaced_by_a_checkpoint_however_small_it_is() -> None:
    bench = Bench()
    bench.send(NOTE, w.Add(1))
    bench.rest()
    assert bench.checkpoint[0] == 0
    bench.shard.committed(scattered=True)
    bench.shard.committed()  # a round that had nothing to write
    bench.send(NOTE, w.Add(2))
    bench.rest()
    floor = bench.checkpoint[0]
    assert floor
    bench.send(NOTE, w.Add(3))
    bench.rest()
    assert bench.checkpoint[0] == floor, "and then no more"
