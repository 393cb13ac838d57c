"""Ended entities that wait until several of them can be written as one.

A store that finds final states by key, in partitions, takes one write for all that lie in one
partition (*bucket*), and a row alone costs nearly as much as sixteen. So an entity that has ended
stays in memory a little longer, and of all that wait the fullest bucket is written first. Nothing
depends on when that happens: until then the entity is in the frames and checkpoints of its shard.
How long it may take is bounded by number, bytes and seconds.
"""

from __future__ import annotations

import zlib
from collections import OrderedDict

from peloton.runtime.vocabulary import Key

ENDED_BUCKETS = 64
"""Partitions with the final states of one shard. Stored: it can never change. With 16 shards of
jobs, 64 MiB in each of them are the final states of a hundred million small actors."""
GATHERED_MIN = 512
"""So many of a shard wait, on a store with buckets: the fullest of 64 then has about 16."""
GATHERED_BYTES_MAX = 1024 * 1024
"""Bytes of those that wait, as encoded."""
GATHERED_S_MAX = 600.0
"""How long one waits at most: a shard where little ends writes what there is."""
ROW_BYTES = 256
"""What a row takes beside its body, about."""


def bucket_of(key: Key | str) -> int:
    """Return the bucket of a final state.

    It is drawn from the upper half of the checksum: the lower half has chosen the shard
    (`sharding`), so it is nearly the same for all keys of one shard.
    """
    return (zlib.crc32(key.encode()) >> 16) % ENDED_BUCKETS


class _Bucket:
    """The waiting entities of one bucket, first come first, with their sizes."""

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.weight = 0
        # Ordered, because keys are taken from the front: a plain dict would walk over all that were
        # ever taken there.
        self.sizes: OrderedDict[Key, int] = OrderedDict()


class Gathering:
    """The entities of one shard that have ended and wait for their rows.

    With a `least` of 1 none waits for others, and all are in one bucket.
    """

    def __init__(self, least: int = 1) -> None:
        self.least = least
        self._buckets: dict[int, _Bucket] = {}  # in the order in which they began to fill
        self._count = self._weight = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: Key) -> bool:
        bucket = self._buckets.get(self._number(key))
        return bucket is not None and key in bucket.sizes

    def add(self, key: Key, *, now: float, size: int = 0) -> None:
        """Add an entity that has ended and does not wait yet."""
        number = self._number(key)
        bucket = self._buckets.get(number)
        if bucket is None:
            bucket = self._buckets[number] = _Bucket(now)
        weight = size + ROW_BYTES
        bucket.sizes[key] = weight
        bucket.weight += weight
        self._count += 1
        self._weight += weight

    def is_due(self, now: float) -> bool:
        """Return whether some rows are to be written now."""
        next_s = self.next_s
        return self._is_full or (next_s is not None and next_s <= now)

    @property
    def next_s(self) -> float | None:
        """When the first bucket is written though nothing joins it; None if none waits."""
        if self.least == 1:
            return None  # due at once
        return next((one.since_s + GATHERED_S_MAX for one in self._buckets.values()), None)

    def only(self, keys: dict[Key, None]) -> bool:
        """Return whether no other entities than these wait."""
        return all(key in keys for bucket in self._buckets.values() for key in bucket.sizes)

    def take(self, at_most: int, *, now: float) -> list[Key]:
        """Remove and return the entities to be written now, bucket by bucket."""
        taken: list[Key] = []
        while len(taken) < at_most and self.is_due(now):
            number = next(iter(self._buckets))
            if self._is_full:
                number = max(self._buckets, key=lambda one: self._buckets[one].weight)
            taken += self._take(number, at_most - len(taken))
        return taken

    def _take(self, number: int, at_most: int) -> list[Key]:
        bucket = self._buckets[number]
        taken: list[Key] = []
        while bucket.sizes and len(taken) < at_most:
            key, weight = bucket.sizes.popitem(last=False)
            bucket.weight -= weight
            self._count -= 1
            self._weight -= weight
            taken.append(key)
        if not bucket.sizes:
            del self._buckets[number]
        return taken

    @property
    def _is_full(self) -> bool:
        return self._count >= self.least or self._weight > GATHERED_BYTES_MAX

    def _number(self, key: Key) -> int:
        return 0 if self.least == 1 else bucket_of(key)
