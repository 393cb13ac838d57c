"""What Cassandra answers to a conditional write of several registers, as values."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.runtime.adapters.cassandra_statements import verdict
from peloton.runtime.core.journal.statements import (
    Advance,
    Applied,
    NoneApplied,
    NotApplied,
    StatementFailed,
    WriteTogether,
)
from peloton.runtime.ports import ShardId

SHARDS = [ShardId("a", 0), ShardId("a", 1), ShardId("b", 0)]
JOINT = WriteTogether(tuple(Advance(shard, 1, b"old", b"new", 1, b"chain") for shard in SHARDS))


def row(shard: ShardId, epoch: int | None, op: bytes | None) -> dict[str, Any]:
    key = {"part": 0, "shard_group": shard.group, "shard_number": shard.number}
    return {"[applied]": False, **key, "epoch": epoch, "op": op}


def test_one_row_tells_that_all_are_applied() -> None:
    assert verdict(JOINT, [{"[applied]": True}]) == Applied()


def test_a_refusal_has_a_row_for_each_register_in_the_order_of_the_store() -> None:
    rows = [row(SHARDS[2], 2, b"c"), row(SHARDS[0], 1, b"old"), row(SHARDS[1], 1, b"old")]
    held = NotApplied(1, b"old")
    assert verdict(JOINT, rows) == NoneApplied((held, held, NotApplied(2, b"c")))


def test_a_register_without_a_row_is_missing() -> None:
    found = verdict(JOINT, [row(SHARDS[0], 1, b"old"), row(SHARDS[1], 1, b"old")])
    assert isinstance(found, NoneApplied) and found.registers[2] == NotApplied()


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"[applied]": False}],
        [{"[applied]": True}, {"[applied]": True}],
        [{"[applied]": True}, row(SHARDS[0], 1, b"old")],
        [{"[applied]": None}],
        [row(SHARDS[0], 1, None)],
        [row(ShardId("other", 0), 1, b"old")],
    ],
)
def test_anything_else_is_in_doubt(rows: list[dict[str, Any]]) -> None:
    assert isinstance(verdict(JOINT, rows), StatementFailed)
