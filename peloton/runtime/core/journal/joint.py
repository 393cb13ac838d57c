"""Floors of many shards as one write: joins those that several coroutines move in one step.

All registers of a cluster lie in one partition, where conditional writes at the same time hinder
each other. A `WriteTogether` applies if the conditions of all its writes are true, so for each
shard it is its own write with a longer condition. When it is refused, each shard is told only what
concerns it: `NotApplied` with its own register if its condition was false, else `OtherRefused`, and
goes again without it. That is right for floors, which are each shard's own affair; the frames of a
round stand together (`core/journal/rounds.py`) and are not joined here. What a reply means is
judged by `fencing`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from peloton.runtime.core.journal.statements import (
    MoveFloor,
    NoneApplied,
    NotApplied,
    OtherRefused,
    OwnerWrite,
    Statement,
    StatementFailed,
    StatementReply,
    WriteTogether,
)
from peloton.runtime.ports import ROUND_SHARDS_MAX

Asks = Mapping[Hashable, tuple[Statement, ...]]
"""What coroutines ask for in one step, by any name of theirs."""


class JointStep:
    """The statements of one step, and the distribution of their replies to the coroutines."""

    def __init__(self, asks: Asks) -> None:
        self._asks = asks
        self._together: dict[Hashable, tuple[int, int]] = {}
        """Of one whose floor is joined with others: which statement, which write of it."""
        self.statements: list[Statement] = []
        floors = [
            (name, ask[0])
            for name, ask in asks.items()
            if len(ask) == 1 and isinstance(ask[0], MoveFloor)
        ]
        for begin in range(0, len(floors), ROUND_SHARDS_MAX):
            some = floors[begin : begin + ROUND_SHARDS_MAX]
            if len(some) > 1:
                place = len(self.statements)
                self._together |= {name: (place, at) for at, (name, _) in enumerate(some)}
                self.statements.append(WriteTogether(tuple(floor for _, floor in some)))
        self._alone = len(self.statements)
        for name, ask in asks.items():
            self.statements += () if name in self._together else ask

    def replies(
        self, replies: Sequence[StatementReply]
    ) -> dict[Hashable, tuple[StatementReply, ...]]:
        """Return by name the replies to what was asked for, given those to `statements`."""
        found: dict[Hashable, tuple[StatementReply, ...]] = {}
        at = self._alone
        for name, ask in self._asks.items():
            place = self._together.get(name)
            if place is None:
                found[name] = tuple(replies[at : at + len(ask)])
                at += len(ask)
            else:
                found[name] = (self._share(place, replies[place[0]]),)
        return found

    def _share(self, place: tuple[int, int], reply: StatementReply) -> StatementReply:
        """Return what the reply to a joint write means for one of its writes."""
        if not isinstance(reply, NoneApplied):
            return reply  # applied, or an unknown outcome, is so for all of them
        joint = self.statements[place[0]]
        assert isinstance(joint, WriteTogether)
        if all(map(_holds, joint.writes, reply.registers)):
            return StatementFailed("refused, though all its conditions are true")
        found = reply.registers[place[1]]
        return OtherRefused() if _holds(joint.writes[place[1]], found) else found


def _holds(write: OwnerWrite, found: NotApplied) -> bool:
    return (found.epoch, found.op) == (write.epoch, write.expected)
