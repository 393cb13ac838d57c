"""The epoch filter: refuses messages of an older owner of the sending shard.

Keeps the highest epoch received from each other shard. When a shard has had two owners, messages of
the older one may still be in transit; once a message of the younger one was received they are
refused. The epochs are part of this shard's own state, journaled with the first message that raised
them. Mail without a stamp passes: no shard sent it. Without the filter:

1. Shard A, epoch 5, journals a launch and is partitioned before the message leaves.
2. A's next owner, epoch 6, sends "cancel"; this shard answers "gone", and forgets the run.
3. The partition heals, and the old message arrives: a launch of a run that has ended.
"""

from __future__ import annotations

from typing import Any

from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.core.entities.records import SHARD_KEY, EpochSeen
from peloton.runtime.core.turning.envelope import Stamp
from peloton.runtime.ports import ShardId


class EpochFilter:
    """The highest epochs that one shard has received."""

    def __init__(self) -> None:
        self._epochs: dict[ShardId, int] = {}
        self._raised: dict[ShardId, None] = {}
        self.refused = 0  # batches, for metrics

    def accepts(self, stamp: Stamp | None) -> bool:
        """Return whether mail of this stamp is of the newest owner known; note a newer one."""
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
        """Return the first entry of the next frame, before any turn on mail of a new epoch."""
        if not self._raised:
            return None
        facts = tuple(self._fact(shard) for shard in self._raised)
        self._raised = {}
        return Entry(SHARD_KEY, facts)

    def fold(self, fact: EpochSeen) -> None:
        """Apply a fact in recovery."""
        self._epochs[ShardId(fact.group, fact.number)] = fact.epoch

    def dump(self) -> tuple[Any, ...]:
        """Return the facts that a checkpoint stores; `fold` restores them."""
        return tuple(self._fact(shard) for shard in sorted(self._epochs))

    def _fact(self, shard: ShardId) -> EpochSeen:
        return EpochSeen(shard.group, shard.number, self._epochs[shard])
