"""The memory journal's hook: at every step in turn an answer is lost, or the process ends.

Whatever the step and whatever was lost, what was acknowledged is there for the next owner, and
what is settled happened once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from peloton.runtime.ports import (
    CheckpointPart,
    Claimed,
    Committed,
    Cut,
    EndedRow,
    Fenced,
    Floor,
    Frame,
    ShardId,
    Unclear,
    Unreachable,
    Work,
)
from peloton.runtime.simulation.memory_journal import (
    AnswerLost,
    MemoryJournal,
    MemoryStore,
    StoreCall,
)

SHARD = ShardId("g", 0)


class Crash(Exception):
    """The process ends here."""


def works(epoch: int) -> Iterator[Work]:
    for position in range(1, 5):
        row = EndedRow("k", str(position), position, b"end")
        part = CheckpointPart(position, 0, b"state %d" % position, True)
        yield Work(SHARD, epoch, Frame(position, b"%d" % position), ended=(row,))
        yield Work(SHARD, epoch, parts=(part,), floor=Floor(position), cut=Cut())


def history(store: MemoryStore, hook: Callable[[StoreCall], None]) -> int:
    """Claims, and does all works, settling whatever is unclear; the last acknowledged position."""
    journal = MemoryJournal(store, process=bytes(16), hook=hook)
    journal.bootstrap({"g": 1})
    claimed = journal.claim(SHARD, "x")
    while not isinstance(claimed, Claimed):
        claimed = journal.claim(SHARD, "x")
    last = 0
    for work in works(claimed.epoch):
        (answer,) = journal.commit([work])
        while isinstance(answer, Unclear):
            answer = journal.settle([SHARD])[0]
        assert isinstance(answer, Committed)
        last = work.frame.position if work.frame is not None else last
        store.acknowledged = last  # type: ignore[attr-defined]
    return last


def at_call(
    number: int, error: type[Exception]
) -> tuple[list[StoreCall], Callable[[StoreCall], None]]:
    calls: list[StoreCall] = []

    def hook(call: StoreCall) -> None:
        calls.append(call)
        if len(calls) == number:
            raise error(f"{call}")

    return calls, hook


CALLS, COUNT = at_call(0, AnswerLost)
history(MemoryStore(), COUNT)


def check_heir(store: MemoryStore, acknowledged: int) -> int:
    heir = MemoryJournal(store, process=b"h" * 16)
    claimed = heir.claim(SHARD, "heir")
    assert isinstance(claimed, Claimed)
    assert claimed.last_position >= acknowledged
    parts = list(heir.read_checkpoint(SHARD))
    assert parts == ([b"state %d" % claimed.floor] if claimed.floor else [])
    tail = [frame.position for frame in heir.read_tail(SHARD)]
    assert tail == list(range(claimed.floor + 1, claimed.last_position + 1))
    for position in range(1, acknowledged + 1):
        assert heir.read_ended(SHARD, kind="k", key=str(position)) is not None
    return claimed.last_position


@pytest.mark.parametrize("number", range(1, len(CALLS) + 1))
def test_a_lost_answer_is_settled_and_nothing_happens_twice(number: int) -> None:
    calls, hook = at_call(number, AnswerLost)
    store = MemoryStore()
    assert history(store, hook) == 4
    assert check_heir(store, 4) == 4
    assert len(calls) > len(CALLS), "the step was done again"


@pytest.mark.parametrize("number", range(1, len(CALLS) + 1))
def test_a_process_may_end_at_every_step(number: int) -> None:
    _, hook = at_call(number, Crash)
    store = MemoryStore()
    store.acknowledged = 0  # type: ignore[attr-defined]
    with pytest.raises(Crash):
        history(store, hook)
    check_heir(store, store.acknowledged)  # type: ignore[attr-defined]


def test_the_hook_hears_each_step_before_and_after() -> None:
    names = [(call.name, call.moment) for call in CALLS]
    assert names[:6] == [
        ("claim", "before"), ("claim", "after"), ("append", "before"), ("append", "after"),
        ("ended", "before"), ("ended", "after"),
    ]  # fmt: skip
    assert {name for name, _ in names} == {"claim", "append", "ended", "parts", "floor", "cut"}


def test_a_lost_commit_that_another_owner_followed_is_fenced_and_unknown() -> None:
    store = MemoryStore()
    _, hook = at_call(4, AnswerLost)
    journal = MemoryJournal(store, process=bytes(16), hook=hook)
    journal.bootstrap({"g": 1})
    journal.claim(SHARD, "x")
    (answer,) = journal.commit([Work(SHARD, 1, Frame(1, b""))])
    assert isinstance(answer, Unclear)
    assert check_heir(store, 0) == 1
    answer = journal.settle([SHARD])[0]
    assert isinstance(answer, Fenced) and not answer.definite


@pytest.mark.parametrize("name", ["read_checkpoint", "read_tail", "read_ended"])
def test_a_lost_read_is_unreachable(name: str) -> None:
    def hook(call: StoreCall) -> None:
        if call.name == name:
            raise AnswerLost(name)

    store = MemoryStore()
    history(store, lambda call: None)
    journal = MemoryJournal(store, process=b"r" * 16, hook=hook)
    journal.claim(SHARD, "x")
    with pytest.raises(Unreachable):
        list(journal.read_checkpoint(SHARD))
        list(journal.read_tail(SHARD))
        journal.read_ended(SHARD, kind="k", key="1")
