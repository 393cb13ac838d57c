"""What the registers in a refusal tell of a round: one judgement for all its frames."""

from __future__ import annotations

import pytest

from peloton.runtime.core.journal.register import OpNames, OwnedShard
from peloton.runtime.core.journal.rounds import Refusals, plan, refusals
from peloton.runtime.core.journal.statements import (
    Advance,
    Applied,
    NoneApplied,
    NotApplied,
    RegisterRow,
    StatementFailed,
    WriteStored,
)
from peloton.runtime.ports import Fenced, Frame, JournalBroken, RoundRefused, ShardId, Work

SHARDS = [ShardId("g", number) for number in range(3)]
WRITES = [
    Advance(shard, 4, b"before %d" % n, b"mine %d" % n, 1, b"") for n, shard in enumerate(SHARDS)
]
HELD = [NotApplied(4, write.expected) for write in WRITES]
MINE = [NotApplied(4, write.op) for write in WRITES]
OVER = NotApplied(5, b"theirs")


def judged(*registers: NotApplied, doubted: bool) -> Refusals | None:
    return refusals(WRITES, NoneApplied(registers), doubted=doubted)


def shown(found: Refusals | None) -> list[str]:
    """Per shard: what its owner is told."""
    assert found is not None
    words = {Fenced("", definite=True): "fenced", Fenced(""): "in doubt"}
    return [
        "refused"
        if isinstance(each, RoundRefused)
        else words[Fenced("", definite=each.definite)]
        if isinstance(each, Fenced)
        else "committed"
        for each in (found.get(shard) for shard in SHARDS)
    ]


@pytest.mark.parametrize("doubted", [False, True])
def test_one_register_of_ours_shows_that_the_round_is_committed(doubted: bool) -> None:
    assert refusals(WRITES, Applied(), doubted=doubted) == {}
    assert judged(*MINE, doubted=doubted) == {}
    assert shown(judged(OVER, MINE[1], OVER, doubted=doubted)) == [
        "in doubt", "committed", "in doubt"
    ]  # fmt: skip


@pytest.mark.parametrize("doubted", [False, True])
def test_one_register_as_before_shows_that_no_copy_was_applied(doubted: bool) -> None:
    found = judged(HELD[0], OVER, HELD[2], doubted=doubted)
    assert shown(found) == ["refused", "fenced", "refused"]
    assert str(SHARDS[1]) in found[SHARDS[0]].text  # type: ignore[index]
    assert shown(judged(OVER, OVER, HELD[2], doubted=doubted)) == ["fenced", "fenced", "refused"]


def test_if_all_are_overtaken_only_a_round_that_was_sent_once_was_surely_not_applied() -> None:
    assert shown(judged(OVER, OVER, OVER, doubted=False)) == ["fenced"] * 3
    assert shown(judged(OVER, OVER, OVER, doubted=True)) == ["in doubt"] * 3


def test_of_one_shard_alone_the_same() -> None:
    alone = WRITES[:1]
    assert refusals(alone, MINE[0], doubted=True) == {}
    for doubted in (False, True):
        told = refusals(alone, OVER, doubted=doubted)
        assert told is not None
        fenced = told[SHARDS[0]]
        assert isinstance(fenced, Fenced) and fenced.definite is not doubted


@pytest.mark.parametrize("reply", [StatementFailed("x"), WriteStored(), NoneApplied(tuple(HELD))])
def test_what_settles_nothing(reply: StatementFailed | WriteStored | NoneApplied) -> None:
    assert refusals(WRITES, reply, doubted=False) is None


@pytest.mark.parametrize(
    "register",
    [
        NotApplied(),
        NotApplied(4, b"theirs"),
        NotApplied(3, b"x"),
        NotApplied(3, WRITES[0].op),  # an epoch never falls, whatever its op
        HELD[0],
    ],
)
def test_registers_that_cannot_be_stop_the_process(register: NotApplied) -> None:
    with pytest.raises(JournalBroken):
        judged(register, MINE[1], MINE[2], doubted=True)


@pytest.mark.parametrize("epoch", [3, 5])
def test_a_work_of_another_claim_is_not_planned_and_its_round_is_refused(epoch: int) -> None:
    """Its frame follows states of an older claim, or of one that is not ours."""
    row = RegisterRow(4, b"before", "", 0, b"", 0, 0)
    owned_shards = {shard: OwnedShard(shard, row) for shard in SHARDS[:2]}
    works = [Work(SHARDS[0], epoch, Frame(1, b"x")), Work(SHARDS[1], 4, Frame(1, b"y"))]
    found = plan(works, owned_shards=owned_shards, pending=(), ops=OpNames(bytes(16)))
    assert [*found.plans] == [SHARDS[1]]
    fenced = found.fenced[SHARDS[0]]
    assert fenced.definite and f"not owned here under epoch {epoch}" in fenced.text
    assert shown(found.refusals) == ["fenced", "refused", "committed"]
