"""Writes of many registers as one: joins what coroutines of several shards ask for in one step.

All registers of a cluster lie in one partition, so a store can write several of them by one
conditional write, at nearly the cost of one. A `WriteTogether` applies if the conditions of all its
writes are true, so for each shard it is its own write with a longer condition. When it is refused,
each shard is told only what concerns it: `NotApplied` with its own register if its condition was
false, else `OtherRefused`. The module must not judge what a reply means (`fencing`), nor know that
statements of different shards belong to one round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from peloton.runtime.core.statements import (
    NoneApplied,
    NotApplied,
    OtherRefused,
    OwnerWrite,
    Statement,
    StatementFailed,
    StatementReply,
    WriteTogether,
)
from peloton.runtime.ports import ShardId

TOGETHER_MAX = 64
"""Registers in one conditional write: about 10 KB, of the 50 KB a store accepts by default."""

Asks = Mapping[ShardId, tuple[Statement, ...]]


class JointStep:
    """The statements of one step, and how their replies fall to the shards again."""

    def __init__(self, asks: Asks) -> None:
        self._asks = asks
        self._together: dict[ShardId, tuple[int, int]] = {}
        """Of a shard whose write is joined with others: which statement, which write of it."""
        self.statements: list[Statement] = []
        writes = [
            ask[0] for ask in asks.values() if len(ask) == 1 and isinstance(ask[0], OwnerWrite)
        ]
        for begin in range(0, len(writes), TOGETHER_MAX):
            some = writes[begin : begin + TOGETHER_MAX]
            if len(some) > 1:
                place = len(self.statements)
                self._together |= {write.shard: (place, at) for at, write in enumerate(some)}
                self.statements.append(WriteTogether(tuple(some)))
        self._alone = len(self.statements)
        for shard, ask in asks.items():
            self.statements += () if shard in self._together else ask

    def replies(
        self, replies: Sequence[StatementReply]
    ) -> dict[ShardId, tuple[StatementReply, ...]]:
        """Per shard the replies to what it asked for, given those to `statements`."""
        found: dict[ShardId, tuple[StatementReply, ...]] = {}
        at = self._alone
        for shard, ask in self._asks.items():
            place = self._together.get(shard)
            if place is None:
                found[shard] = tuple(replies[at : at + len(ask)])
                at += len(ask)
            else:
                found[shard] = (self._share(place, replies[place[0]]),)
        return found

    def _share(self, place: tuple[int, int], reply: StatementReply) -> StatementReply:
        """What the reply to a joint write says of one of its writes."""
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
