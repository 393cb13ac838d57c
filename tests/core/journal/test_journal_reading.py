"""What `peloton journal` finds in a shard that it does not own: all of it, or what is wrong where.

A toy shard writes a journal over rows in memory; each test damages one thing behind its back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.core.entities.codec import Codec, Entry
from peloton.runtime.core.entities.encoding import encode
from peloton.runtime.core.journal import chain
from peloton.runtime.core.journal.statements import ReadSegment, Statement, StatementReply
from peloton.runtime.core.offline import journal_dump, journal_reading
from peloton.runtime.core.offline.digest import digest
from peloton.runtime.core.offline.journal_check import Rehearsal
from peloton.runtime.core.offline.journal_reading import Contents, read_shard
from peloton.runtime.ports import Claimed, Committed, Floor, Frame, ShardId, Unreachable, Work
from peloton.runtime.simulation.memory_rows import MemoryRows
from peloton.runtime.vocabulary import Key, key
from tests.toy import messages as w
from tests.toy.bench import Bench, Round
from tests.toy.kinds import KINDS

SIZES = {"house": 1, "city": 1}
NOTE = key("note", "x")
HOUSE = ShardId("house", 0)


class Written(Bench):
    """A bench whose frames, checkpoints and rows also go into a fenced journal."""

    def __init__(self, checkpoint_bytes_min: int | None = None) -> None:
        self.rows = MemoryRows()
        self.journal = FencedRows(self.rows, process=bytes(16))
        self.journal.bootstrap(SIZES)
        claimed = self.journal.claim(HOUSE, "")
        assert isinstance(claimed, Claimed)
        self.epoch = claimed.epoch
        super().__init__(sizes=SIZES, checkpoint_bytes_min=checkpoint_bytes_min)

    def write(self, ready: Round) -> None:
        super().write(ready)
        frame = Frame(ready.position, ready.frame) if ready.frame is not None else None
        floor = ready.floor if isinstance(ready.floor, Floor) else None
        work = Work(self.id, self.epoch, frame, ended=ready.ended, parts=ready.parts, floor=floor)
        (answer,) = self.journal.commit([work])
        assert isinstance(answer, Committed)

    def add(self, *amounts: int) -> None:
        for amount in amounts:
            self.send(NOTE, w.Add(amount), who="ann")
            self.rest()

    def append(self, *entries: Entry | bytes) -> None:
        """A frame that this program's shard did not make."""
        codec = Codec(KINDS)
        rows = [each if isinstance(each, bytes) else codec.encode_entry(each) for each in entries]
        position = self.rows.registers[self.id].last_position + 1
        frame = Frame(position, codec.encode_frame(self.now, rows))
        (answer,) = self.journal.commit([Work(self.id, self.epoch, frame)])
        assert isinstance(answer, Committed)

    def segment(self) -> dict[Any, Any]:
        """The rows of the only segment there is."""
        ((_, name),) = self.rows.registers[self.id].segments
        return self.rows.journal[self.id, name]

    def frame(self, position: int) -> tuple[dict[Any, Any], Any]:
        rows = self.segment()
        (name,) = [name for name in rows if name[0] == position]
        return rows, name


def contents_of(rows: MemoryRows, shard: ShardId = HOUSE) -> Contents:
    talk = read_shard(shard)
    ask = next(talk)
    while True:
        try:
            ask = talk.send(tuple(rows.run(ask)))  # type: ignore[arg-type]
        except StopIteration as end:
            return end.value


def findings(bench: Written) -> list[tuple[int, str, str]]:
    found = Rehearsal(KINDS, SIZES).check(contents_of(bench.rows))
    assert all(each.shard == bench.id for each in found)
    return [(each.position, each.key, each.text) for each in found]


def test_a_healthy_shard_is_read_whole_and_nothing_is_found() -> None:
    bench = Written(checkpoint_bytes_min=150)
    bench.add(*range(1, 13))
    contents = contents_of(bench.rows)
    assert contents.register.floor and contents.tail, "a checkpoint, and frames after it"
    assert [frame.position for frame in contents.frames] == [*range(1, bench.shard.position + 1)]
    assert findings(bench) == []
    assert digest(Rehearsal(KINDS, SIZES).recovered(contents)) == digest(bench.shard)


def test_reading_claims_and_writes_nothing() -> None:
    bench = Written()
    bench.add(1, 2)
    before = {**bench.rows.registers}
    asked: list[Statement] = []

    class Watched(MemoryRows):
        def run(self, statements: Any) -> list[StatementReply]:
            asked.extend(statements)
            return bench.rows.run(statements)

    contents_of(Watched())
    assert {type(each).__name__ for each in asked} <= {"ReadRegister", "ReadSegment", "ReadBucket"}
    assert bench.rows.registers == before


def test_a_shard_that_is_not_there() -> None:
    assert contents_of(MemoryRows()) is None


def changed_body(bench: Written) -> None:
    rows, name = bench.frame(2)
    rows[name] = replace(rows[name], body=encode((1, bench.now, [])))


def lost_frames(bench: Written) -> None:
    for position in (2, 3):
        rows, name = bench.frame(position)
        del rows[name]


def half_a_frame(bench: Written) -> None:
    rows, name = bench.frame(2)
    rows[name] = replace(rows[name], parts=2)


def another_history(bench: Written) -> None:
    rows, name = bench.frame(2)
    row = replace(rows[name], prev_chain=bytes(range(32)))
    link = chain.link(row.prev_chain, (bench.id, 2), op=row.op, body=row.body)
    rows[name] = replace(row, chain=link)


def register_knows_another(bench: Written) -> None:
    row = bench.rows.registers[bench.id]
    bench.rows.registers[bench.id] = replace(row, last_chain=bytes(range(32)))


def register_is_mad(bench: Written) -> None:
    row = bench.rows.registers[bench.id]
    bench.rows.registers[bench.id] = replace(row, epoch=0, op=b"x")


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (changed_body, [(2, "it is not what was written")]),
        (lost_frames, [(2, "no whole frame is there, nor any up to 3")]),
        (half_a_frame, [(2, "no whole frame is there")]),
        (
            another_history,
            [
                (2, "it does not continue the chain of the frame before"),
                (3, "it does not continue the chain of the frame before"),
            ],
        ),
        (register_knows_another, [(5, "the register knows another frame")]),
        (
            register_is_mad,
            [
                (0, "register: position 5 without any claim"),
                (0, "register: the last write has a name of 1 bytes"),
                *[(at, "no whole frame is there, nor any up to 5") for at in (1,)],
            ],
        ),
    ],
)
def test_damage_is_named_with_its_position(
    damage: Callable[[Written], None], named: list[tuple[int, str]]
) -> None:
    bench = Written()
    bench.add(1, 2, 3, 4, 5)
    damage(bench)
    assert [(position, text) for position, _, text in findings(bench)] == named


def test_two_damages_are_both_named() -> None:
    bench = Written()
    bench.add(1, 2, 3, 4, 5)
    changed_body(bench)
    rows, name = bench.frame(4)
    del rows[name]
    assert [position for position, _, _ in findings(bench)] == [4, 2]


@pytest.mark.parametrize("kind", ["lost", "changed", "unfinished"])
def test_a_checkpoint_that_is_not_whole(kind: str) -> None:
    bench = Written(checkpoint_bytes_min=150)
    bench.add(*range(1, 11))
    row = bench.rows.registers[bench.id]
    parts = bench.rows.checkpoint[bench.id, row.floor, row.floor_epoch, 0]
    if kind == "lost":
        del parts[0]
        text = "parts 0 to 0 are missing"
    elif kind == "changed":
        parts[1] = replace(parts[1], body=b"rot")
        text = "part 1 is not what was written"
    else:
        del parts[1]
        text = "the parts from 1 on are missing"
    assert (0, "", f"checkpoint {row.floor}: {text}") in findings(bench)


def test_what_an_owner_changes_meanwhile_is_no_finding() -> None:
    """Between the register and the frames the floor moves, and what lies below is cut."""
    bench = Written(checkpoint_bytes_min=150)
    bench.add(1, 2)

    class Moving(MemoryRows):
        moves = 1

        def run(self, statements: Any) -> list[StatementReply]:
            if isinstance(statements[0], ReadSegment) and self.moves:
                self.moves -= 1
                bench.add(*range(3, 14))
                floor = bench.rows.registers[bench.id].floor
                segment = bench.segment()
                for name in [name for name in segment if name[0] <= floor]:
                    del segment[name]
            return bench.rows.run(statements)

    contents = contents_of(Moving())
    assert contents.findings == ()
    assert contents.register == bench.rows.registers[bench.id]


def test_a_floor_that_never_stands_still_is_given_up() -> None:
    bench = Written(checkpoint_bytes_min=1)
    bench.add(1, 2)

    class Racing(MemoryRows):
        def run(self, statements: Any) -> list[StatementReply]:
            found = bench.rows.run(statements)
            if isinstance(statements[0], ReadSegment):
                bench.add(1, 1, 1)
                return [type(reply)(()) for reply in found]  # type: ignore[call-arg]
            return found

    with pytest.raises(Unreachable, match=f"moved the floor {journal_reading.READS_MAX} times"):
        contents_of(Racing())


# ---- what does not decode, and what does not fold ----


def test_an_entry_that_does_not_decode_is_named_by_its_key() -> None:
    bench = Written()
    bench.add(1)
    later = encode(("note/x", [(77, [1, "tomorrow"])], b"", (), "", "", ""))
    bench.append(Entry(key("note", "y"), (w.Added(1),)), later)
    (found,) = findings(bench)
    assert found[:2] == (2, "note/x")
    assert "note has no fact of number 77" in found[2]


def test_a_fact_that_does_not_fold_is_named_by_its_position_and_key() -> None:
    """`Added(14)` raises when it is folded; the entries around it are well."""
    bench = Written()
    bench.add(1)
    well = [Entry(key("note", f"n{at}"), (w.Added(1),)) for at in range(9)]
    bench.append(*well[:5], Entry(NOTE, (w.Added(14),)), *well[5:])
    bench.append(Entry(key("note", "after"), (w.Added(1),)))
    (found,) = findings(bench)
    assert found == (2, "note/x", "the facts do not fold: ValueError: 14 does not fold")


def test_an_entity_of_another_shard() -> None:
    bench = Written()
    bench.append(Entry(key("meter", "0"), (w.Built(1),)))
    assert findings(bench) == [(0, "meter/0", "it belongs to city-0")]


def test_ended_rows_that_cannot_be_read() -> None:
    bench = Written()
    bench.add(1)
    bench.send(NOTE, w.Close())
    bench.rest()
    (rows,) = bench.rows.ended.values()
    rehearsal = Rehearsal(KINDS, SIZES)
    assert [*rehearsal.ended(bench.id, rows.values())] == []
    (row,) = rows.values()
    (found,) = rehearsal.ended(bench.id, [replace(row, body=b"rot")])
    assert (found.key, found.position) == ("note/x", row.position)


# ---- what is printed ----


def lines(bench: Written, start: int = 0) -> list[dict[str, Any]]:
    return [*journal_dump.lines(contents_of(bench.rows), Codec(KINDS), start=start)]


def test_entries_have_the_names_of_fields() -> None:
    bench = Written()
    bench.add(7)
    assert lines(bench) == [
        {
            "shard": "house-0",
            "position": 1,
            "epoch": 1,
            "time": bench.now,
            "key": "note/x",
            "cause": "Add",
            "because": "",
            "who": "ann",
            "facts": [{"number": 1, "fact": "Added", "fields": {"amount": 7}}],
        }
    ]


def test_members_of_crowds_are_ranges() -> None:
    bench = Written()
    bench.send(key("panel", "p"), w.Install(12))
    bench.rest()
    (fitted,) = [line for line in lines(bench) if line["facts"][0]["fact"] == "Fitted"]
    assert fitted["key"] == "bulb/p"
    assert fitted["members"] == "0-11"
    assert journal_dump.concerns(fitted, "bulb/p", member=11)
    assert not journal_dump.concerns(fitted, "bulb/p", member=12)


def test_what_is_not_known_is_printed_as_it_is_stored() -> None:
    bench = Written()
    later = encode(("note/x", [(77, [1, "tomorrow", b"\x01"])], b"", (), "c", "b", "w"))
    stranger = encode(("ghost/x", [(1, [True])], b"", (), "", "", ""))
    bench.append(later, stranger)
    first, second = (line["facts"] for line in lines(bench))
    assert first[0]["fact"] is None and first[0]["raw"] == [1, "tomorrow", "01"]
    assert "note has no fact of number 77" in first[0]["unknown"]
    assert second[0]["raw"] == [True]


def test_a_frame_of_a_later_form_is_printed_too() -> None:
    bench = Written()
    frame = Frame(1, encode((2, bench.now, [("note/x", {"a": 1}, "and", "more", "fields")])))
    (answer,) = bench.journal.commit([Work(bench.id, bench.epoch, frame)])
    assert isinstance(answer, Committed)
    (line,) = lines(bench)
    assert line["raw"] == [2, bench.now, [["note/x", {"a": 1}, "and", "more", "fields"]]]
    ((position, _, text),) = findings(bench)
    assert position == 1 and "does not decode" in text


def test_states_are_those_of_a_recovery() -> None:
    bench = Written(checkpoint_bytes_min=150)
    bench.add(*range(1, 11))
    bench.send(key("panel", "p"), w.Install(3, (60, 40)))
    bench.rest()
    core = Rehearsal(KINDS, SIZES).recovered(contents_of(bench.rows))
    by_key = {line["key"]: line for line in journal_dump.states(core)}
    assert by_key["note/x"]["state"]["total"] == 55
    (bulbs,) = by_key["bulb/p"]["classes"]
    assert bulbs["members"] == "0-2" and bulbs["state"]["power"] == "OFF"
    assert by_key["bulb/p"]["columns"]["spec"] == [
        {"members": "0,2", "value": 0},
        {"members": "1", "value": 1},
    ]


def test_figures() -> None:
    bench = Written(checkpoint_bytes_min=150)
    bench.add(*range(1, 11))
    found = journal_dump.figures(contents_of(bench.rows), Codec(KINDS))
    assert found["facts"]["note Added"] == 10
    row = bench.rows.registers[bench.id]
    assert found["tail_frames"] == row.last_position - row.floor
    assert found["tail_bytes"] < found["frame_bytes"]
    assert found["checkpoint_parts"] == 1


def test_an_empty_shard_has_no_findings() -> None:
    bench = Written()
    assert findings(bench) == []
    assert journal_dump.figures(contents_of(bench.rows), Codec(KINDS))["frames"] == 0


@pytest.mark.parametrize(
    ("raw", "text"), [(0, ""), (0b1, "0"), (0b1011, "0-1,3"), (0b111 << 7, "7-9")]
)
def test_ranges(raw: int, text: str) -> None:
    assert journal_dump.ranges(raw) == text


def test_keys_know_their_shard() -> None:
    rehearsal = Rehearsal(KINDS, {"house": 1})
    assert rehearsal.home(NOTE) == ShardId("house", 0)
    assert rehearsal.home(Key("ghost/x")) is None
    assert rehearsal.home(key("meter", "0")) is None
