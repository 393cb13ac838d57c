"""Journals of formats 1 to 3 moved on to format 4, one format after the other.

Format 1 had a partition for each register, in `register`; format 2 has them in one, in `registers`;
format 3 has them in `shard_registers`, with the segments of their frames, which are in `frames`
and no more in `journal`. The frames that a recovery reads are copied; older ones are not. What is
left in the old tables is never read again, and a person may drop them. Format 4 has final states
in `ended_states`, and reads those in `ended` where they are; its registers are in another partition
of `shard_registers`, as a daemon of format 3 would not find the new final states.

Runs within `peloton schema apply`, under its lock, and may end anywhere and be run again, or twice
at a time. Daemons of the version before may live: each register is fenced before it is copied, for
good, because no claim can follow the highest epoch. A daemon of either version that starts
meanwhile is refused by the record's format. It must not touch checkpoints or ended rows: they stay
as they are.

Why the record first says that a move is under way:
 1. some registers are copied, and the command dies
 2. a daemon of this version starts, finds registers missing, and makes empty ones
 3. its shards begin anew, over the journal of the old ones
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from cassandra.query import SimpleStatement
from msgspec import Struct
from msgspec.structs import replace

from peloton.runtime.adapters.cassandra_session import CONDITIONAL, SERIAL
from peloton.runtime.adapters.cassandra_statements import CQL, REGISTERS_PART, values
from peloton.runtime.adapters.cassandra_store import BYTES_IN_FLIGHT_MAX
from peloton.runtime.core import segments
from peloton.runtime.core.chain import GENESIS
from peloton.runtime.core.fencing import pick_frames
from peloton.runtime.core.segments import SegmentList, Segments
from peloton.runtime.core.statements import FrameRow, InsertRow, RegisterRow, SegmentStart
from peloton.runtime.ports import FRAME_PART_BYTES_MAX, ShardId, Unreachable

NEVER = 2**63 - 1
"""The epoch of a register that was moved. The next one does not fit into its column. Its owner is
then the epoch that it had, as text."""
COLUMNS = "epoch, op, owner, last_position, last_chain, floor, floor_epoch"
OLD_SEGMENT_FRAMES = 256
OLD_PAGE_ROWS = 16
PARTS_IN_FLIGHT = BYTES_IN_FLIGHT_MAX // FRAME_PART_BYTES_MAX // 2
"""Half of what a server takes, as it has daemons of the version before to serve."""
REGISTERS = """CREATE TABLE registers (part int, shard_group text, shard_number int,
    epoch bigint, op blob, owner text, last_position bigint, last_chain blob,
    floor bigint, floor_epoch bigint, PRIMARY KEY ((part), shard_group, shard_number)
) WITH gc_grace_seconds = 864000"""
READ_FRAMES = (
    "SELECT position, epoch, part, parts, op, prev_chain, chain, body FROM journal"
    " WHERE shard_group = ? AND shard_number = ? AND segment = ?"
)


class RegisterPlace(Struct, frozen=True):
    """Where the registers of a format are."""

    table: str
    part: int | None
    """Their partition; None: each has its own."""

    @property
    def columns(self) -> str:
        """Those of a register beside its key."""
        return f"{COLUMNS}, segments" if self.table == "shard_registers" else COLUMNS

    @property
    def all(self) -> str:
        """The condition of all registers of the format."""
        return "" if self.part is None else f" WHERE part = {self.part}"

    @property
    def one(self) -> str:
        """The condition of one, by group and number."""
        part = "" if self.part is None else f"part = {self.part} AND "
        return f" WHERE {part}shard_group = %s AND shard_number = %s"


class FormatMove(Struct, frozen=True):
    """From a format to the next."""

    before: int
    under_way: int
    """The format in the record meanwhile."""
    old: RegisterPlace
    new: RegisterPlace

    @property
    def after(self) -> int:
        """The format in the record when all is done."""
        return self.before + 1


PLACES = (
    RegisterPlace("register", None),
    RegisterPlace("registers", 0),
    RegisterPlace("shard_registers", 0),
    RegisterPlace("shard_registers", REGISTERS_PART),
)
MOVES = (
    FormatMove(1, under_way=0, old=PLACES[0], new=PLACES[1]),
    FormatMove(2, under_way=-1, old=PLACES[1], new=PLACES[2]),
    FormatMove(3, under_way=-2, old=PLACES[2], new=PLACES[3]),
)
UNDER_WAY = tuple(move.under_way for move in MOVES)


def upgrade(
    session: Any, change: Callable[[str], object], *, keep_lock: Callable[[], object] = lambda: None
) -> int:
    """Move the journal on, if its record has an old format; returns how many registers were moved.

    `change` makes a table; `keep_lock` is called before each register is moved, and between the
    reads of its frames. Raises Unreachable.
    """
    moved = 0
    for move in MOVES:
        record = session.execute(_serial("SELECT format, shards FROM cluster WHERE one = 0")).one()
        if record is not None and record[0] in (move.before, move.under_way):
            if move.new.table == "registers":
                change(REGISTERS.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))
            _change_format(session, move.before, after=move.under_way)
            groups = json.loads(record[1])
            moved = _move_all(session, move, groups=groups, keep_lock=keep_lock)
            _change_format(session, move.under_way, after=move.after)
    return moved


def _change_format(session: Any, before: int, *, after: int) -> None:
    text = "UPDATE cluster SET format = %s WHERE one = 0 IF format = %s"
    _conditional(session, text, bound=[after, before])


def _move_all(
    session: Any,
    move: FormatMove,
    *,
    groups: dict[str, int],
    keep_lock: Callable[[], object],
) -> int:
    # A daemon that has read the format just before may still make registers that are missing, and
    # claim them: with a fence in each place there is none to make.
    fence = RegisterRow(NEVER, os.urandom(24), "0", 0, GENESIS, 0, 0)
    for shard in ((group, number) for group, count in groups.items() for number in range(count)):
        keep_lock()
        _insert(session, move.old, shard=shard, row=fence)
    key = "DISTINCT shard_group, shard_number" if move.before == 1 else "shard_group, shard_number"
    shards = list(session.execute(f"SELECT {key} FROM {move.old.table}{move.old.all}"))
    copier = _Copier(session, keep_lock) if move.after == 3 else None
    moved = 0
    for group, number in shards:
        keep_lock()
        found = _fenced(session, move, shard=(group, number))
        if found is None:
            continue
        moved += 1
        row, listed = found
        if copier is not None:
            listed = segments.pack(copier.copy(ShardId(group, number), row))
        _insert(session, move.new, shard=(group, number), row=row, listed=listed)
    return moved


FencedRegister = tuple[RegisterRow, bytes | None]
"""A register, and its list of segments as it is stored: a damaged one is moved as it is, and stops
its own shard later."""


def _fenced(session: Any, move: FormatMove, *, shard: tuple[str, int]) -> FencedRegister | None:
    """The register as it was when it was fenced, which it is from now on; None if it is none."""
    row, listed = _read(session, move.old, shard=shard)
    if row.epoch is None:
        return None  # what a refused write to an absent register may leave behind
    while row.epoch != NEVER:
        # Conditioned on the epoch alone: a busy owner changes the op all the time.
        _conditional(
            session,
            f"UPDATE {move.old.table} SET epoch = %s, owner = %s, op = %s{move.old.one}"
            " IF epoch = %s",
            bound=[NEVER, str(row.epoch), os.urandom(24), *shard, row.epoch],
        )
        row, listed = _read(session, move.old, shard=shard)
    # Read after the fence, so nothing can follow. A second command finds the very same values.
    return replace(row, epoch=int(row.owner), owner=""), listed


def _insert(
    session: Any,
    place: RegisterPlace,
    *,
    shard: tuple[str, int],
    row: RegisterRow,
    listed: bytes | None = None,
) -> None:
    """Insert a register, if there is none."""
    columns = f"shard_group, shard_number, {COLUMNS}"
    bound = [*shard, *(getattr(row, name) for name in COLUMNS.split(", "))]
    if place.part is not None:
        columns, bound = f"part, {columns}", [place.part, *bound]
    if listed is not None:
        columns, bound = f"{columns}, segments", [*bound, listed]
    marks = ", ".join(["%s"] * len(bound))
    text = f"INSERT INTO {place.table} ({columns}) VALUES ({marks}) IF NOT EXISTS"
    _conditional(session, text, bound=bound)


def _read(session: Any, place: RegisterPlace, *, shard: tuple[str, int]) -> FencedRegister:
    text = f"SELECT {place.columns} FROM {place.table}{place.one}"
    row = session.execute(_serial(text), shard).one()
    if row is None:
        raise Unreachable(f"register {shard[0]}/{shard[1]} was listed and is missing")
    return RegisterRow(*row[:7]), (row[7] if len(row) > 7 else None)


class _Copier:
    """Copies tails from the table of formats 1 and 2."""

    def __init__(self, session: Any, keep_lock: Callable[[], object]) -> None:
        self._session = session
        self._keep_lock = keep_lock
        self._read = session.prepare(READ_FRAMES)
        self._read.fetch_size = OLD_PAGE_ROWS
        self._insert = session.prepare(CQL[FrameRow])

    def copy(self, shard: ShardId, row: RegisterRow) -> SegmentList:
        """Copy what a recovery would read; returns the segments.

        They have the name of the fence: unique, and the same for a command that copies again. The
        frames are copied unread: who recovers the shard verifies their chain.
        """
        names = Segments(row.op[:16])
        listed: SegmentList = ()
        tail = range(row.floor + 1, row.last_position + 1)
        first, last = row.floor // OLD_SEGMENT_FRAMES, (row.last_position - 1) // OLD_SEGMENT_FRAMES
        for segment in range(first, last + 1 if tail else first):
            self._keep_lock()
            found = self._session.execute(self._read, (*shard, segment))
            rows = tuple(FrameRow(*each) for each in found)
            for parts in pick_frames(rows, epoch=row.epoch, tail=tail):
                name = names.next(sum(len(part.body) for part in parts))
                listed = _listed(listed, SegmentStart(parts[0].position, name))
                self._write(shard, [replace(part, segment=name) for part in parts])
        return listed

    def _write(self, shard: ShardId, parts: list[FrameRow]) -> None:
        bound = [values(InsertRow(shard, part)) for part in parts]
        for at in range(0, len(bound), PARTS_IN_FLIGHT):
            some = bound[at : at + PARTS_IN_FLIGHT]
            for future in [self._session.execute_async(self._insert, each) for each in some]:
                future.result()


def _listed(listed: SegmentList, start: SegmentStart) -> SegmentList:
    known = listed and listed[-1].segment == start.segment
    return listed if known else (*listed, start)


def _serial(text: str) -> SimpleStatement:
    return SimpleStatement(text, consistency_level=SERIAL)


def _conditional(session: Any, text: str, *, bound: list[object]) -> None:
    """Whether it is applied does not matter here: what was written is read again."""
    session.execute(text, bound, execution_profile=CONDITIONAL)
