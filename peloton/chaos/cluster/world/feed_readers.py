"""Clients that follow change feeds, each at its own pace, from any daemon.

Turns a mark into the pages after it: a reader goes on from the mark of its last page, and asks
another daemon when no answer comes. A slow reader waits between two pages, so that the feed drops
changes before they are read. `feed_check.py` judges the pages.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from peloton.runtime.core.reading.followers import FOLLOW_S
from peloton.runtime.core.reading.inspection import ChangesPage, FollowChanges, shard_key
from peloton.runtime.ports import ShardId
from peloton.runtime.simulation.world import World
from peloton.runtime.vocabulary import Key

TRY_S = FOLLOW_S + 5.0
"""After so long without an answer a reader asks another daemon: a feed without changes answers
after `FOLLOW_S`."""
PAUSE_S = 0.5


class Read(NamedTuple):
    """A page, and the mark from which it was asked for."""

    after: tuple[int, int]
    page: ChangesPage


class FeedReader:
    """A reader of one shard's feed."""

    def __init__(
        self, world: World, shard: ShardId, *, query: FollowChanges, pause_s: float
    ) -> None:
        self.shard = shard
        self.mark: tuple[int, int] | None = None
        self.pages: list[Read] = []  # not judged yet
        self.kinds = query.kinds
        self.pause_s = pause_s
        self._world = world
        self._query = query
        self._tries = 0

    def ask(self) -> None:
        """Ask for the next page until there is one."""
        self._tries += 1
        number = self._tries

        def again() -> None:
            if self._tries == number:
                self.ask()

        living = [each for each in self._world.living() if each.alive]
        if living:
            region = living[number % len(living)].region
            query = self._query if self.mark is None else self._query.behind(self.mark)
            region.follow(shard_key(self.shard), query).add_done_callback(
                lambda future: self._answered(number, future, again=again)
            )
        self._world.later.at(self._world.now + TRY_S, again)

    def _answered(self, number: int, future: Future[Any], *, again: Callable[[], None]) -> None:
        if number != self._tries:
            return  # too late: another daemon was asked
        page = future.result()
        if not isinstance(page, ChangesPage):
            self._world.later.at(self._world.now + PAUSE_S, again)
            return
        if self.mark is not None:
            self.pages.append(Read(self.mark, page))
        self.mark = page.mark
        self._world.later.at(self._world.now + self.pause_s, again)


def calm(readers: list[FeedReader]) -> None:
    """Let all readers read as fast as they can from now on."""
    for reader in readers:
        reader.pause_s = 0.0


def wanted(key: Key, kinds: tuple[str, ...]) -> bool:
    """Return whether a reader of these kinds gets the changes of an entity."""
    return not kinds or key.partition("/")[0] in kinds
