"""Followers of a shard's change feed: queries that wait until there is a change for them.

A `FollowChanges` that finds nothing after its mark is kept, and answered with the first committed
frame that has a change of its names. Followers are indexed by name, so a frame costs nothing to
followers of other names. At most `FOLLOWERS_MAX` queries are kept, each for `FOLLOW_S`, after which
it gets an empty page and asks again. Pages are made when a query is answered; none are kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from peloton.runtime.core.entities.codec import Codec
from peloton.runtime.core.reading.changes import (
    ALL,
    CHANGES_PAGE_BYTES_MAX,
    PAGE_MAX,
    Change,
    Changes,
    Mark,
    Page,
)
from peloton.runtime.core.reading.inspection import FollowChanges, read_of
from peloton.runtime.core.turning.envelope import Reply
from peloton.runtime.core.turning.story import StoryLine
from peloton.runtime.vocabulary import Key, Unavailable, kind_of

FOLLOWERS_MAX = 16384
FOLLOW_S = 20.0
"""Less than an ask between daemons may take (`shells/peer_messages.py`)."""


class _Follower(NamedTuple):
    reply_to: Any
    query: FollowChanges
    until_s: float

    def wants(self, line: StoryLine) -> bool:
        kinds, names = self.query.kinds, self.query.names
        if kinds and kind_of(line.key) not in kinds:
            return False
        return not names or name_of(line.key) in names

    @property
    def limit(self) -> int:
        return min(max(self.query.limit, 1), PAGE_MAX)


class Followers:
    """The queries that wait in one shard."""

    def __init__(self, changes: Changes, codec: Codec) -> None:
        self._changes, self._codec = changes, codec
        self._waiting: dict[int, _Follower] = {}  # the oldest first, and so the first to expire
        self._by_name: dict[str, dict[int, None]] = {}  # "" has those that want any name
        self._number = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def next_s(self) -> float | None:
        """When the first of them expires."""
        return next((one.until_s for one in self._waiting.values()), None)

    def add(self, reply_to: Any, query: FollowChanges, now: float) -> list[Reply]:
        """Add a query; return its answer, or nothing while there is no change for it."""
        follower = _Follower(reply_to, query, now + FOLLOW_S)
        mark = Mark(*query.mark) if query.mark is not None else None
        page = self._changes.after(mark, follower.limit, wanted=follower.wants)
        if mark is None or page.changes or page.gap:
            return [Reply(reply_to, read_of(self._codec, page))]
        if len(self._waiting) >= FOLLOWERS_MAX:
            text = f"{FOLLOWERS_MAX} queries follow this shard already"
            return [Reply(reply_to, Unavailable(text))]
        self._number += 1
        self._waiting[self._number] = follower
        for name in dict.fromkeys(query.names) or ("",):
            self._by_name.setdefault(name, {})[self._number] = None
        return []

    def framed(self, position: int, lines: tuple[StoryLine, ...]) -> list[Reply]:
        """Return the answers to the queries that wait for a change of this durable frame.

        No earlier change was for them, or they would not be waiting.
        """
        if not self._waiting:
            return []
        found: dict[int, list[Change]] = {}
        for k, line in enumerate(lines):
            change = Change(Mark(position, k), line)
            for name in dict.fromkeys((name_of(line.key), "")):
                for number in self._by_name.get(name, ()):
                    if self._waiting[number].wants(line):
                        found.setdefault(number, []).append(change)
        replies, rows = [], dict[Mark, bytes]()
        for number, changes in found.items():
            follower = self._take(number)
            page = _page(changes, follower.limit)
            replies.append(Reply(follower.reply_to, read_of(self._codec, page, rows_of=rows)))
        return replies

    def expired(self, now: float) -> list[Reply]:
        """Return an empty page for each query that has waited too long."""
        replies = []
        while self._waiting:
            number, follower = next(iter(self._waiting.items()))
            if follower.until_s > now:
                break
            self._take(number)
            nothing = Page((), gap=False, mark=self._changes.end, more=False)
            replies.append(Reply(follower.reply_to, read_of(self._codec, nothing)))
        return replies

    def _take(self, number: int) -> _Follower:
        follower = self._waiting.pop(number)
        for name in dict.fromkeys(follower.query.names) or ("",):
            others = self._by_name[name]
            others.pop(number, None)
            if not others:
                del self._by_name[name]
        return follower


def name_of(key: Key) -> str:
    """Return the name by which an entity is followed, such as `task/<name>/3`'s `<name>`."""
    return key.split("/", 2)[1]


def _page(changes: list[Change], limit: int) -> Page:
    """Return a page of the first of one frame's changes, as many as fit."""
    size = 0
    for count, change in enumerate(changes):
        if count >= limit or size >= CHANGES_PAGE_BYTES_MAX:
            some = tuple(changes[:count])
            return Page(some, gap=False, mark=some[-1].mark, more=True)
        size += change.line.size
    mark = Mark(changes[-1].mark.position, ALL)
    return Page(tuple(changes), gap=False, mark=mark, more=False)
