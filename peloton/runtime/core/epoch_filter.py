"""Whom a shard listens to: the highest epoch it ever heard of each other shard.

Turns the stamp of arriving mail into "go on" or "too late". Of a shard that has had two owners,
the older one's words may still be under way; once the younger one was heard they are refused. The
epoch is part of this shard's own state, journaled with the first message that raised it. It must
not refuse what carries no stamp: that was said by no shard. What goes wrong otherwise:

1. Shard A, epoch 5, journals a launch and is cut off with the message still in its hands.
2. A's next owner, epoch 6, withdraws: "cancel"; this shard answers "gone", and forgets the run.
3. The cut heals, and A's old word arrives: a launch of a run that everybody believes is over.
"""

from __future__ import annotations

from typing import Any

from peloton.runtime.core.codec import Entry
from peloton.runtime.core.envelope import Stamp
from peloton.runtime.core.records import SHARD_KEY, EpochSeen
from peloton.runtime.ports import ShardId


class EpochFilter:
    """The epochs that one shard has heard."""

    def __init__(self) -> None:
        self._epochs: dict[ShardId, int] = {}
        self._raised: dict[ShardId, None] = {}
        self.refused = 0  # letters, for figures

    def accepts(self, stamp: Stamp | None) -> bool:
        """Whether mail of this stamp may still be heard."""
        if stamp is None:
            return True
        highest = self._epochs.get(stamp.shard, 0)
        if stamp.epoch < highest:
            self.refused += 1
            return False
        if stamp.epoch > highest:
            self._epochs[stamp.shard] = stamp.epoch
            self._raised[stamp.shard] = None
        return True

    def raised(self) -> Entry | None:
        """What the next frame has to say first, before any turn on that mail."""
        if not self._raised:
            return None
        facts = tuple(self._fact(shard) for shard in self._raised)
        self._raised = {}
        return Entry(SHARD_KEY, facts)

    def fold(self, fact: EpochSeen) -> None:
        """Recovery."""
        self._epochs[ShardId(fact.group, fact.number)] = fact.epoch

    def dump(self) -> tuple[Any, ...]:
        """What a checkpoint keeps: facts that `fold` takes back."""
        return tuple(self._fact(shard) for shard in sorted(self._epochs))

    def _fact(self, shard: ShardId) -> EpochSeen:
        return EpochSeen(shard.group, shard.number, self._epochs[shard])
