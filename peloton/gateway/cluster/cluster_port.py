"""The port through which the gateway uses the cluster: the methods of a region that it needs.

It must hold no behaviour: the region of the shells implements it, and tests use a fake.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Protocol

from peloton.runtime.core.ended.retention import HeldEnded
from peloton.runtime.core.health import DaemonHealth
from peloton.runtime.core.reading.changes import Change
from peloton.runtime.core.reading.inspection import ChangesPage, FollowChanges
from peloton.runtime.core.turning.story import StoryLine
from peloton.runtime.vocabulary import Key, Message, Query


class ClusterPort(Protocol):
    """What a region offers to the gateway; every future gets a result, none raises."""

    def ask(
        self,
        key: Key,
        message: Message | Query,
        *,
        request: tuple[str, bytes] | None = None,
        who: str = "",
    ) -> Future[Any]:
        """Send a command or a query; the future has the answer."""

    def read(self, key: Key, query: Query) -> Any:
        """The answer to a query that needs no waiting; None where it has to be asked."""

    def shards_of(self, kind: str) -> list[Key]:
        """The shards that hold entities of a kind."""

    def shard_of(self, key: Key) -> Key:
        """The shard of an entity, as the address for `follow`."""

    def follow(self, shard: Key, query: FollowChanges) -> Future[Any]:
        """The changes after a mark of a shard, as a `ChangesPage`, once there are any."""

    def changes_in(self, read: ChangesPage) -> list[Change]:
        """The changes of a page."""

    def quarantine(self) -> Future[Any]:
        """Dead letters and quarantines: pairs (key, fact)."""

    def message_name(self, key: Key, number: int) -> str:
        """What the message of a dead letter is called."""

    def redrive(self, key: Key) -> Future[Any]:
        """Redrive the dead letters of an entity."""

    def story(self, key: Key, member: int | None = None) -> Future[list[StoryLine]]:
        """The recent turns of an entity."""

    def daemon_health(self) -> DaemonHealth:
        """Whether the process is live and ready, and the reasons if not."""

    def ended_held(self, kind: str) -> list[HeldEnded]:
        """What each shard of this process has in memory of ended entities of a kind."""
