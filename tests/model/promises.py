"""What the journal promises, checked at every step of the model.

A `Story` is what an observer knows who sees everything: frames as the register took them, epochs
and who claimed them, frames reported as failed. It grows and never shrinks, so a promise that was
broken for an instant is found in that instant.

1. *Positions*: the register takes frame n+1 after frame n, each write once, epochs one by one, and
   floors do not fall.
2. *Epochs*: of two owners only one holds an epoch.
3. *Acknowledged* means committed. *Refused for good* means not committed, now or ever.
4. *Recovery*: in every state an owner that claimed now would read exactly the committed frames,
   and it would find the final state of whatever ended at or below the floor.
5. *Overtaken*: an owner that reads late reads what was committed under lower epochs, or is told
   that it was overtaken; it never calls a healthy shard damaged.
6. An `ended` row says what a committed frame said.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from peloton.runtime.core.journal.statements import (
    Advance,
    Applied,
    Bump,
    InsertRow,
    MoveFloor,
    Statement,
    StatementReply,
)
from peloton.runtime.ports import EndedRow
from tests.model.tables import Store


class Wrong(AssertionError):
    """A promise of the journal is broken."""


class Taken(NamedTuple):
    """A frame as the register took it."""

    op: bytes
    epoch: int
    body: bytes


class Story(NamedTuple):
    """All that has happened for good."""

    committed: tuple[Taken, ...] = ()
    claimed: tuple[tuple[int, int], ...] = ()
    """Epoch and process."""
    refused: tuple[bytes, ...] = ()
    """Frames that a client was told have failed for good."""

    @property
    def bodies(self) -> tuple[bytes, ...]:
        return tuple(one.body for one in self.committed)


def landed(story: Story, store: Store, statement: Statement, reply: StatementReply) -> Story:
    """The statement ran on `store` (as it was before) and was answered so."""
    if isinstance(statement, InsertRow):
        if isinstance(statement.row, EndedRow):
            _says_what_was_committed(story, statement.row)
        return story
    if not isinstance(reply, Applied):
        return story
    before = store.register
    if isinstance(statement, Bump) and statement.epoch != before.epoch:
        raise Wrong(f"epoch {statement.next_epoch} follows epoch {before.epoch}")
    if isinstance(statement, MoveFloor) and statement.floor < before.floor:
        raise Wrong(f"the floor falls from {before.floor} to {statement.floor}")
    if isinstance(statement, Advance):
        return story._replace(committed=(*story.committed, _taken(story, store, statement)))
    return story


def _says_what_was_committed(story: Story, row: EndedRow) -> None:
    if story.bodies[row.position - 1 : row.position] != (row.body,):
        raise Wrong(f"an ended row at {row.position} says what no committed frame said")


def _taken(story: Story, store: Store, write: Advance) -> Taken:
    if any(one.op == write.op for one in story.committed):
        raise Wrong("one commit is applied twice")
    if write.position != len(story.committed) + 1:
        raise Wrong(f"frame {write.position} follows frame {len(story.committed)}")
    for _, rows in store.journal:
        for _, row in rows:
            if row.chain == write.chain:
                if row.body in story.refused:
                    raise Wrong("a frame was reported as failed, and is committed later")
                if row.body in story.bodies:
                    raise Wrong("one frame is committed at two positions")
                return Taken(write.op, write.epoch, row.body)
    raise Wrong(f"frame {write.position} is committed before its rows are there")


def told(story: Story, process: int, news: tuple[tuple[str, Any], ...]) -> Story:
    """What an owner says to the outside at the end of a talk."""
    for what, value in news:
        if what == "claimed":
            story = _claimed(story, value, process)
        elif what == "loaded":
            _loaded(story, *value)
        elif what == "acknowledged":
            if value not in story.bodies:
                raise Wrong("a frame is acknowledged, and is not committed")
        elif value in story.bodies:
            raise Wrong("a frame is reported as failed, and was committed")
        else:
            story = story._replace(refused=tuple(sorted((*story.refused, value))))
    return story


def _claimed(story: Story, epoch: int, process: int) -> Story:
    if any(one[0] == epoch for one in story.claimed):
        raise Wrong(f"two owners in epoch {epoch}")
    return story._replace(claimed=tuple(sorted((*story.claimed, (epoch, process)))))


def _loaded(story: Story, epoch: int, history: tuple[bytes, ...]) -> None:
    before = tuple(one.body for one in story.committed if one.epoch < epoch)
    if history != before:
        raise Wrong(f"the owner of epoch {epoch} reads {history}, committed were {before}")


def whole(story: Story, store: Store, history: tuple[bytes, ...]) -> None:
    """`history` is what a recovery reads from `store`: is that all, and is all that ended there?"""
    if history != story.bodies:
        raise Wrong(f"a recovery now reads {history}, committed were {story.bodies}")
    found = {row.position: row.body for _, rows in store.ended for _, row in rows}
    for position in range(1, store.register.floor + 1):
        if found.get(position) != story.bodies[position - 1]:
            raise Wrong(f"floor {store.register.floor}, and what ended at {position} is not found")
