"""Which shard an entity belongs to: crc32 of its partition modulo the size of the group.

Turns a key into (group, number). It must not know who owns a shard, and its result for a key can
never change: the sizes of groups are written once, in the cluster record.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from peloton.runtime.core.inspection import SHARD_KIND
from peloton.runtime.ports import ShardId
from peloton.runtime.vocabulary import Key, Kind, kind_of

PARTITIONS_KEPT_MAX = 200_000


class Sharding:
    """The partitions of all registered kinds over groups of fixed sizes."""

    def __init__(self, kinds: Mapping[str, Kind], sizes: Mapping[str, int]) -> None:
        self._kinds = kinds
        self._shards = {
            group: [ShardId(group, number) for number in range(size)]
            for group, size in sizes.items()
        }
        self._known: dict[Key, ShardId] = {}

    def shard_of(self, key: Key) -> ShardId:
        """The shard of a key; a partition that is a number is that of the shard itself."""
        found = self._known.get(key)
        if found is None:
            if kind_of(key) == SHARD_KIND:
                _, group, at = key.split("/")
                return ShardId(group, int(at))
            kind = self._kinds[kind_of(key)]
            partition = kind.partition(key)
            number = partition if isinstance(partition, int) else zlib.crc32(partition.encode())
            shards = self._shards[kind.group]
            found = shards[number % len(shards)]
            if len(self._known) >= PARTITIONS_KEPT_MAX:
                self._known.clear()
            self._known[key] = found
        return found

    def is_at(self, key: Key, shard: ShardId) -> bool:
        """Whether the key is of an entity of that shard."""
        known = self._known.get(key)
        if known is not None:
            return known == shard
        return kind_of(key) in self._kinds and self.shard_of(key) == shard
