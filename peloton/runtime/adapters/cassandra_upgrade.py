"""Registers of format 1, one partition each, moved into the one partition of format 2.

Runs within `peloton schema apply`, under its lock, and may end anywhere and be run again. Daemons
of the version before may live: each register is fenced before it is copied, for good, because no
claim can follow the highest epoch. A daemon of either version that starts meanwhile is refused by
the record's format. It must not touch frames, checkpoints or ended rows: they stay as they are.

Why the record first says `MOVING`:
 1. some registers are copied, and the command dies
 2. a daemon of this version starts, finds registers missing, and makes empty ones
 3. its shards begin anew, over the journal of the old ones
"""

from __future__ import annotations

import json
import os
from typing import Any

from cassandra.query import SimpleStatement
from msgspec.structs import astuple, replace

from peloton.runtime.adapters.cassandra_session import CONDITIONAL, SERIAL
from peloton.runtime.adapters.cassandra_statements import REGISTERS_PART
from peloton.runtime.core.chain import GENESIS
from peloton.runtime.core.statements import RegisterRow
from peloton.runtime.ports import ROWS_FORMAT, Unreachable

OLD_TABLE = "register"
OLD_FORMAT, MOVING = 1, 0
NEVER = 2**63 - 1
"""The epoch of a register that was moved. The next one does not fit into its column. Its owner is
then the epoch that it had, as text."""
MARKS = ", ".join(["%s"] * 9)
COLUMNS = "epoch, op, owner, last_position, last_chain, floor, floor_epoch"


def upgrade(session: Any) -> int:
    """Move the registers if the record has format 1; returns how many. Raises Unreachable."""
    record = session.execute(_serial("SELECT format, shards FROM cluster WHERE one = 0")).one()
    if record is None or record[0] not in (OLD_FORMAT, MOVING):
        return 0
    _change_format(session, OLD_FORMAT, after=MOVING)
    groups: dict[str, int] = json.loads(record[1])
    # A daemon that has read the format just before may still make registers that are missing, and
    # claim them: with a fence in each place there is none to make.
    text = f"INSERT INTO register (shard_group, shard_number, {COLUMNS}) VALUES ({MARKS})"
    for shard in ((group, number) for group, count in groups.items() for number in range(count)):
        fence = RegisterRow(NEVER, os.urandom(24), "0", 0, GENESIS, 0, 0)
        _conditional(session, f"{text} IF NOT EXISTS", values=[*shard, *astuple(fence)])
    shards = list(session.execute("SELECT DISTINCT shard_group, shard_number FROM register"))
    for group, number in shards:
        _move(session, (group, number))
    _change_format(session, MOVING, after=ROWS_FORMAT)
    return len(shards)


def _change_format(session: Any, before: int, *, after: int) -> None:
    text = "UPDATE cluster SET format = %s WHERE one = 0 IF format = %s"
    _conditional(session, text, values=[after, before])


def _move(session: Any, shard: tuple[str, int]) -> None:
    row = _read(session, shard)
    while row.epoch != NEVER:
        # Conditioned on the epoch alone: a busy owner changes the op all the time.
        _conditional(
            session,
            "UPDATE register SET epoch = %s, owner = %s, op = %s"
            " WHERE shard_group = %s AND shard_number = %s IF epoch = %s",
            values=[NEVER, str(row.epoch), os.urandom(24), *shard, row.epoch],
        )
        row = _read(session, shard)
    # Read after the fence, so nothing can follow. A second command copies the very same values.
    moved = astuple(replace(row, epoch=int(row.owner), owner=""))
    columns = f"part, shard_group, shard_number, {COLUMNS}"
    text = f"INSERT INTO registers ({columns}) VALUES (%s, {MARKS})"
    _conditional(session, f"{text} IF NOT EXISTS", values=[REGISTERS_PART, *shard, *moved])


def _read(session: Any, shard: tuple[str, int]) -> RegisterRow:
    text = f"SELECT {COLUMNS} FROM register WHERE shard_group = %s AND shard_number = %s"
    row = session.execute(_serial(text), shard).one()
    if row is None:
        raise Unreachable(f"register {shard[0]}/{shard[1]} was listed and is missing")
    return RegisterRow(*row)


def _serial(text: str) -> SimpleStatement:
    return SimpleStatement(text, consistency_level=SERIAL)


def _conditional(session: Any, text: str, *, values: list[object]) -> None:
    """Whether it is applied does not matter here: what was written is read again."""
    session.execute(text, values, execution_profile=CONDITIONAL)
