"""The shard of an entity: crc32 of its partition modulo the size of the group.

The result for a key never changes: the sizes of groups are written once, in the cluster record.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Mapping

from peloton.runtime.core.reading.inspection import SHARD_KIND
from peloton.runtime.kinds import Kind
from peloton.runtime.ports import ShardId
from peloton.runtime.vocabulary import KEYS_KEPT_MAX, Key, kind_of


class Sharding:
    """The partitions of all registered kinds over groups of fixed sizes."""

    def __init__(self, kinds: Mapping[str, Kind], sizes: Mapping[str, int]) -> None:
        self._kinds = kinds
        self._shards = {
            group: [ShardId(group, number) for number in range(size)]
            for group, size in sizes.items()
        }
        self.shard_of: Callable[[Key], ShardId] = functools.lru_cache(KEYS_KEPT_MAX)(self._shard_of)
        """The shard of a key; a partition that is a number is that of the shard itself."""

    def _shard_of(self, key: Key) -> ShardId:
        if kind_of(key) == SHARD_KIND:
            _, group, at = key.split("/")
            return ShardId(group, int(at))
        kind = self._kinds[kind_of(key)]
        partition = kind.partition(key)
        number = partition if isinstance(partition, int) else zlib.crc32(partition.encode())
        shards = self._shards[kind.group]
        return shards[number % len(shards)]

    def is_at(self, key: Key, shard: ShardId) -> bool:
        return kind_of(key) in self._kinds and self.shard_of(key) == shard
