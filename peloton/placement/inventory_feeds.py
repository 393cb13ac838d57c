"""Feeds: how far each inventory's numbered deltas were heard, and which snapshots are wanted.

Turns sequence numbers into requests for snapshots. It must not hold back what it heard: summaries
carry positions, so a delta after a gap is as good as any other; only what is missing is missed.
"""

from __future__ import annotations

from collections.abc import Iterable

from peloton.runtime.vocabulary import Key

SNAPSHOT_RETRY_S = 2.0
"""Between two requests for the same snapshot: both the request and the answer may be lost."""

QUIET_S = 10.0
"""A feed silent for so long is asked anew while members find no host. Nothing tells that the last
delta before a silence was lost, and it may be the one that said there is room."""


class InventoryFeed:
    """One inventory as a placer hears it."""

    def __init__(self) -> None:
        self.sequence: int | None = None
        self.heard_at = 0.0
        self.ask_at: float | None = 0.0  # when to ask for a snapshot; None: nothing is missing


class InventoryFeeds:
    """The inventories a placer hears of, in the order in which it did."""

    def __init__(self, inventories: Iterable[Key] = ()) -> None:
        self._feeds: dict[Key, InventoryFeed] = {name: InventoryFeed() for name in inventories}

    def receive(self, inventory: Key, sequence: int, *, snapshot: bool, now: float) -> None:
        """Note a message of an inventory. A sequence that falls is one begun anew: a gap too."""
        feed = self._feeds.setdefault(inventory, InventoryFeed())
        if snapshot:
            feed.ask_at = None
        elif feed.ask_at is None and feed.sequence is not None and sequence != feed.sequence + 1:
            feed.ask_at = now
        feed.sequence, feed.heard_at = sequence, now

    def doubt_quiet_feeds(self, now: float) -> None:
        """Members found no host: doubt the feeds that have been quiet."""
        for feed in self._feeds.values():
            if feed.ask_at is None and now - feed.heard_at >= QUIET_S:
                feed.ask_at = now

    def due(self, now: float) -> list[Key]:
        """The inventories to ask now; each is asked again if no snapshot comes."""
        asked = []
        for inventory, feed in self._feeds.items():
            if feed.ask_at is not None and feed.ask_at <= now:
                feed.ask_at = now + SNAPSHOT_RETRY_S
                asked.append(inventory)
        return asked

    @property
    def wake_at(self) -> float | None:
        """When the next request is due."""
        return min((f.ask_at for f in self._feeds.values() if f.ask_at is not None), default=None)
