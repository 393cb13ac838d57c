"""The cluster as the gateway sees it: the few calls of a region that it needs, and no more.

It must hold no behaviour; the region of the shells has these very methods, and tests bring one
of their own.
"""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, Protocol

from peloton.runtime.core.changes import Change
from peloton.runtime.core.condition import Condition
from peloton.runtime.core.inspection import ChangesPage, FollowChanges
from peloton.runtime.core.story import StoryLine
from peloton.runtime.vocabulary import Key, Message, Query


class ClusterPort(Protocol):
    """What a region offers to the gateway; every future is answered, none raises."""

    def ask(
        self,
        key: Key,
        message: Message | Query,
        *,
        request: tuple[str, bytes] | None = None,
        who: str = "",
    ) -> Future[Any]:
        """A command or a query."""

    def shards_of(self, kind: str) -> list[Key]:
        """Whom to ask for the summaries of a kind."""

    def shard_of(self, key: Key) -> Key:
        """The shard that an entity lives in, as one follows it."""

    def follow(self, shard: Key, query: FollowChanges) -> Future[Any]:
        """What comes after a mark of a shard, as a `ChangesPage`, once there is something."""

    def changes_in(self, read: ChangesPage) -> list[Change]:
        """The changes of a page."""

    def quarantine(self) -> Future[Any]:
        """What is set aside: pairs (key, fact)."""

    def redrive(self, key: Key) -> Future[Any]:
        """Try again what is set aside."""

    def story(self, key: Key, member: int | None = None) -> Future[list[StoryLine]]:
        """What an entity did lately."""

    def condition(self) -> Condition:
        """Whether it is live and ready, and all that is wrong."""
