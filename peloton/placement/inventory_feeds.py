"""How far the numbered deltas of each inventory were received, and which snapshots are needed.

Deltas after a gap are applied like any other, since summaries carry positions; the snapshot that is
requested then adds what was lost.
"""

from __future__ import annotations

from collections.abc import Iterable

from peloton.runtime.vocabulary import Key

SNAPSHOT_RETRY_S = 2.0
"""Between two requests for the same snapshot: both the request and the answer may be lost."""

REPEAT_S_MIN = 0.25
"""The first such time where peers come and go; each repeat doubles it. A request that finds nobody
is news of a peer as well, and would be repeated at once; one that is queued is answered late."""

QUIET_S = 10.0
"""While members find no host, a snapshot is requested of a feed that was silent for so long. The
loss of the last delta before a silence goes unnoticed, and it may have reported free resources."""

SETTLE_S = 10.0
"""A placer goes on without the inventories that do not answer when none has for so long."""


class InventoryFeed:
    """The state of one inventory's deltas."""

    def __init__(self) -> None:
        self.sequence: int | None = None
        self.received_at = 0.0
        self.request_at: float | None = 0.0  # when to request a snapshot; None: not needed
        self.requested_at = 0.0
        self.repeat_s = REPEAT_S_MIN
        self.whole = False  # it has sent a snapshot


class InventoryFeeds:
    """The inventories that a placer knows, in the order in which it came to know them."""

    def __init__(self, inventories: Iterable[Key] = ()) -> None:
        self._feeds: dict[Key, InventoryFeed] = {name: InventoryFeed() for name in inventories}
        self.complete = not self._feeds
        """Whether all hosts were reported: every inventory has sent a snapshot."""
        self._settles_at: float | None = None  # None: it has not begun

    def receive(self, inventory: Key, sequence: int, *, snapshot: bool, now: float) -> None:
        """Record the sequence number of a message of an inventory.

        A number lower than before means that the inventory restarted, and counts as a gap.
        """
        feed = self._feeds.get(inventory)
        if feed is None:
            feed = self._feeds[inventory] = InventoryFeed()
            self.complete = False
        if snapshot:
            if not feed.whole and self._settles_at is not None:
                self._settles_at = now + SETTLE_S
            feed.request_at = None
            feed.whole = True
            self.complete = all(each.whole for each in self._feeds.values())
        elif (
            feed.request_at is None and feed.sequence is not None and sequence != feed.sequence + 1
        ):
            feed.request_at = now
        feed.sequence, feed.received_at = sequence, now

    def refresh_quiet_feeds(self, now: float) -> None:
        """Request snapshots of feeds that have been silent, because members found no host."""
        for feed in self._feeds.values():
            if feed.request_at is None and now - feed.received_at >= QUIET_S:
                feed.request_at = now

    def settled(self, now: float) -> bool:
        """Return whether all hosts are known, or the wait for the unknown ones is over."""
        if self.complete:
            return True
        if self._settles_at is None:
            self._settles_at = now + SETTLE_S
        return now >= self._settles_at

    def hurry(self) -> None:
        """Send unanswered requests again soon, because they may arrive now."""
        for feed in self._feeds.values():
            if feed.request_at is not None and not feed.whole:
                feed.request_at = min(feed.request_at, feed.requested_at + feed.repeat_s)

    def due(self, now: float) -> list[Key]:
        """Return the inventories to request a snapshot of now; requests are repeated until it
        comes."""
        inventories = []
        for inventory, feed in self._feeds.items():
            if feed.request_at is not None and feed.request_at <= now:
                feed.requested_at, feed.request_at = now, now + SNAPSHOT_RETRY_S
                feed.repeat_s = min(2 * feed.repeat_s, SNAPSHOT_RETRY_S)
                inventories.append(inventory)
        return inventories

    @property
    def wake_at(self) -> float | None:
        """Return when the next request is due, or None."""
        times = (feed.request_at for feed in self._feeds.values())
        return min((at for at in times if at is not None), default=None)
