"""Feeds: how far each inventory's numbered deltas were received, and which snapshots are needed.

Turns sequence numbers into requests for snapshots. Must not hold deltas back: summaries carry
positions, so a delta after a gap is applied like any other, and a snapshot adds what was lost.
"""

from __future__ import annotations

from collections.abc import Iterable

from peloton.runtime.vocabulary import Key

SNAPSHOT_RETRY_S = 2.0
"""Between two requests for the same snapshot: both the request and the answer may be lost."""

REPEAT_S_MIN = 0.25
"""Between two requests where peers come and go: a request that finds nobody is news as well, and
would be repeated at once, and again."""

QUIET_S = 10.0
"""While members find no host, a snapshot is requested of a feed that was silent for so long. The
loss of the last delta before a silence goes unnoticed, and it may have reported free resources."""

SETTLE_S_MAX = 10.0
"""So long after its first request a placer goes on without the inventories that do not answer."""

TASKS_RETRY_S = 5.0
TASKS_TRIES = 5
"""So often, and so far apart, a snapshot is requested of an inventory with hosts that do not tell
what tasks they run while others do. The feature level from which they do is raised once, a daemon
reads that up to 15 s later, and a host on which nothing changes is not reported again: without it
spread jobs would leave such a host out for good. Not for ever: a host with too many labels of tasks
tells none."""


class InventoryFeed:
    """The state of one inventory's deltas."""

    def __init__(self) -> None:
        self.sequence: int | None = None
        self.received_at = 0.0
        self.request_at: float | None = 0.0  # when to request a snapshot; None: not needed
        self.requested_at = 0.0
        self.whole = False  # it has sent a snapshot
        self.tasks_tries = 0


class InventoryFeeds:
    """The inventories that a placer knows, in the order in which it came to know them."""

    def __init__(self, inventories: Iterable[Key] = ()) -> None:
        self._feeds: dict[Key, InventoryFeed] = {name: InventoryFeed() for name in inventories}
        self.complete = not self._feeds
        """Whether all hosts were reported: every inventory has sent a snapshot."""
        self._settles_at: float | None = None  # None: nothing was requested yet

    def receive(self, inventory: Key, sequence: int, *, snapshot: bool, now: float) -> None:
        """Note a message of an inventory. A lower sequence has restarted, and is a gap too."""
        feed = self._feeds.get(inventory)
        if feed is None:
            feed = self._feeds[inventory] = InventoryFeed()
            self.complete = False
        if snapshot:
            feed.request_at = None
            feed.whole = True
            self.complete = all(each.whole for each in self._feeds.values())
        elif (
            feed.request_at is None and feed.sequence is not None and sequence != feed.sequence + 1
        ):
            feed.request_at = now
        feed.sequence, feed.received_at = sequence, now

    def refresh_quiet_feeds(self, now: float) -> None:
        """Members found no host: request snapshots of feeds that have been silent."""
        for feed in self._feeds.values():
            if feed.request_at is None and now - feed.received_at >= QUIET_S:
                feed.request_at = now

    def expect_tasks(self, inventories: Iterable[Key], now: float) -> None:
        """These have hosts that do not tell what tasks they run."""
        for inventory in inventories:
            feed = self._feeds[inventory]
            if feed.request_at is None and feed.tasks_tries < TASKS_TRIES:
                feed.tasks_tries += 1
                feed.request_at = now + TASKS_RETRY_S

    def settled(self, now: float) -> bool:
        """Whether all hosts are known, or those that are not were waited for."""
        if self.complete:
            return True
        if self._settles_at is None:
            self._settles_at = now + SETTLE_S_MAX
        return now >= self._settles_at

    def hurry(self) -> None:
        """Requests that were not answered may arrive now: they are sent again soon."""
        for feed in self._feeds.values():
            if feed.request_at is not None and not feed.whole:
                feed.request_at = min(feed.request_at, feed.requested_at + REPEAT_S_MIN)

    def due(self, now: float) -> list[Key]:
        """The inventories to send a request now; it is repeated until a snapshot comes."""
        inventories = []
        for inventory, feed in self._feeds.items():
            if feed.request_at is not None and feed.request_at <= now:
                feed.requested_at, feed.request_at = now, now + SNAPSHOT_RETRY_S
                inventories.append(inventory)
        return inventories

    @property
    def wake_at(self) -> float | None:
        """When the next request is due."""
        return min(
            (f.request_at for f in self._feeds.values() if f.request_at is not None), default=None
        )
