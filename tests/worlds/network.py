"""What lies between shards: envelopes under way, in virtual time, drawn from one seed.

Turns an envelope that leaves one shard into zero, one or two that arrive at another, and lets
those of different shards overtake each other. Between two shards and under one epoch they keep
their order, and what an older epoch said is not heard after a newer one's first word: so much the
runtime promises, and actors stand on it (a launch that came after the end of its run was seen
would run again). It must not look into messages.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Hashable
from typing import NamedTuple

from peloton.runtime.core.envelope import Envelope


class Storm(NamedTuple):
    """Which faults are on, and how strong; all off is a calm."""

    drop: float = 0.0  # share of envelopes lost
    repeat: float = 0.0  # share of envelopes that arrive twice
    delay_s: float = 0.0  # at most
    crash: float = 0.0  # share of bundles at which their shard dies


CALM = Storm()


class Network:
    """Envelopes under way. A side is a shard, or what else speaks: it is only compared."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.storm = CALM
        self.carried = 0
        self._under_way: list[tuple[float, int, Hashable, int, Hashable, Envelope]] = []
        self._count = 0
        self._last: dict[tuple[Hashable, Hashable], float] = {}
        self._heard: dict[tuple[Hashable, Hashable], int] = {}

    def carry(
        self, envelope: Envelope, now: float, *, source: Hashable, epoch: int, target: Hashable
    ) -> None:
        """An envelope leaves."""
        storm, chance = self.storm, self.chance
        if storm.drop and chance.random() < storm.drop:
            return
        for _ in range(2 if storm.repeat and chance.random() < storm.repeat else 1):
            at = now + (chance.random() * storm.delay_s if storm.delay_s else 0.0)
            at = max(at, self._last.get((source, target), 0.0))
            self._last[source, target] = at
            self._count += 1
            item = (at, self._count, source, epoch, target, envelope)
            heapq.heappush(self._under_way, item)

    def arrived(self, now: float) -> list[tuple[Hashable, Envelope]]:
        """Envelopes that have come, with where."""
        found = []
        while self._under_way and self._under_way[0][0] <= now:
            _, _, source, epoch, target, envelope = heapq.heappop(self._under_way)
            if epoch < self._heard.get((source, target), 0):
                continue
            self._heard[source, target] = epoch
            self.carried += 1
            found.append((target, envelope))
        return found

    @property
    def wake_at(self) -> float | None:
        """When the next envelope arrives."""
        return self._under_way[0][0] if self._under_way else None
