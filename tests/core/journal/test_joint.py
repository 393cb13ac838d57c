"""Floors that many shards move in one step: joined, and judged for each alone."""

from __future__ import annotations

from collections.abc import Hashable

from peloton.runtime.core.journal.joint import JointStep
from peloton.runtime.core.journal.statements import (
    Advance,
    Applied,
    MoveFloor,
    NoneApplied,
    NotApplied,
    OtherRefused,
    ReadRegister,
    RowsFound,
    Statement,
    StatementFailed,
    StatementReply,
    WriteTogether,
)
from peloton.runtime.ports import ROUND_SHARDS_MAX, ShardId


def shard(number: int) -> ShardId:
    return ShardId("g", number)


def write(number: int) -> MoveFloor:
    return MoveFloor(shard(number), 1, b"before", b"%d" % number, 1)


def step(count: int) -> JointStep:
    """Of so many writes, with a read among them."""
    asks: dict[Hashable, tuple[Statement, ...]] = {shard(n): (write(n),) for n in range(count)}
    return JointStep({shard(count): (ReadRegister(shard(count)),), **asks})


HELD = NotApplied(1, b"before")
"""What a register has whose own condition is true."""


def refused(*registers: NotApplied) -> list[StatementReply]:
    """Per shard the reply to its write, of a joint one that finds these registers."""
    found = step(len(registers)).replies([NoneApplied(registers), RowsFound(())])
    return [found[shard(n)][0] for n in range(len(registers))]


def test_a_write_alone_travels_as_it_is() -> None:
    assert step(1).statements == [ReadRegister(shard(1)), write(0)]


def test_a_frame_is_not_joined_with_what_is_another_shards_affair() -> None:
    frame = Advance(shard(9), 1, b"before", b"9", 1, b"chain")
    made = JointStep({"frames": (frame,), shard(0): (write(0),), shard(1): (write(1),)})
    assert made.statements == [WriteTogether((write(0), write(1))), frame]


def test_more_than_fit_one_write_are_several_and_each_shard_gets_its_own_reply() -> None:
    count = 2 * ROUND_SHARDS_MAX + 1
    made = step(count)
    first, second, *alone = made.statements
    assert isinstance(first, WriteTogether) and isinstance(second, WriteTogether)
    assert [len(each.writes) for each in (first, second)] == [ROUND_SHARDS_MAX] * 2
    assert alone == [ReadRegister(shard(count)), write(count - 1)]
    lost, last = StatementFailed("lost"), NotApplied(2, b"other")
    found = made.replies([Applied(), lost, RowsFound(()), last])
    assert {found[shard(n)] for n in range(ROUND_SHARDS_MAX)} == {(Applied(),)}
    assert {found[shard(n)] for n in range(ROUND_SHARDS_MAX, 2 * ROUND_SHARDS_MAX)} == {(lost,)}
    assert found[shard(count - 1)] == (last,) and found[shard(count)] == (RowsFound(()),)


def test_of_a_refusal_each_shard_is_told_only_what_concerns_it() -> None:
    fenced = NotApplied(2, b"other")
    assert refused(HELD, fenced, HELD) == [OtherRefused(), fenced, OtherRefused()]


def test_a_register_that_is_missing_is_no_reason_to_doubt_the_others() -> None:
    assert refused(HELD, NotApplied()) == [OtherRefused(), NotApplied()]


def test_a_refusal_for_no_reason_is_in_doubt_for_all() -> None:
    """Taken as one because of another it would be sent again without end."""
    assert [type(each) for each in refused(HELD, HELD)] == [StatementFailed] * 2
