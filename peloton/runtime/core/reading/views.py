"""Summaries for listings: one per entity of a kind that has a view, as of the last durable frame.

Turns touched entities into summaries that can be read at any time. Only kinds with a listing have
summaries: one per task would fill the memory.

The keys are kept sorted, so that a page can begin anywhere (`core/reading/listing.py`). An
insertion moves the pointers behind it, which for a hundred thousand takes some ten microseconds;
many at once, as after a recovery, are sorted once. The entities of a kind with ranks are kept by
rank as well, with the texts that are searched (`core/reading/ranked_views.py`); those never leave
the shard.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping
from typing import Any

from peloton.runtime.core.reading.blocks import Texts
from peloton.runtime.core.reading.listing import SCAN_MAX, Listed, ListViews, page_of
from peloton.runtime.core.reading.ranked_views import RankChange, RankedViews
from peloton.runtime.core.turning.supervision import Failure, attempt
from peloton.runtime.core.turning.turns import Turns
from peloton.runtime.kinds import Kind
from peloton.runtime.vocabulary import Key, kind_of

ONE_BY_ONE_MAX = 64
"""Up to so many keys are inserted or removed one by one; more are done in one pass."""


class Views:
    """The summaries of one shard."""

    def __init__(self, kinds: Mapping[str, Kind] | None = None) -> None:
        """Begin with the listings of these kinds; by default of kinds without ranks and texts."""
        self._changes = 0  # odd while the summaries are being changed
        self._safe: dict[Key, Any] = {}
        self._next: dict[Key, Any] = {}
        self._keys: dict[str, list[Key]] = {}  # by kind, sorted
        self._next_texts: dict[Key, Texts] = {}
        self._rankings = {
            kind.name: RankedViews(kind.listing.ranked)
            for kind in (kinds or {}).values()
            if kind.listing is not None and kind.listing.ranked
        }

    def touch(self, turns: Turns) -> None:
        """Make the summaries of entities that this frame has changed.

        If making one raises, the last one stays, and the error is noted in the story.
        """
        for key in turns.touched:
            listing = turns.population.kind(key).listing
            if listing is None:
                continue
            state = turns.population.cells.get(key)
            summary = None if state is None else attempt(listing.summary, key, state)
            if isinstance(summary, Failure):
                turns.record_failure(key, "view", failure=summary)
            elif summary is not None or key in self._safe or key in self._next:
                self._next[key] = summary
                if listing.texts is not None and summary is not None:
                    texts = attempt(listing.texts, state)
                    self._next_texts[key] = () if isinstance(texts, Failure) else texts

    def commit(self) -> None:
        """Publish the summaries of the frame that has become durable."""
        if not self._next:
            return
        self._changes += 1
        texts = self._next_texts
        self._rank(
            RankChange(key, self._safe.get(key), now, texts.get(key, ()))
            for key, now in self._next.items()
        )
        added, removed = [], []
        for key, summary in self._next.items():
            if summary is None:
                if self._safe.pop(key, None) is not None:
                    removed.append(key)
            else:
                if key not in self._safe:
                    added.append(key)
                self._safe[key] = summary
        self._next, self._next_texts = {}, {}
        self._add(added)
        self._remove(removed)
        self._changes += 1

    def drop(self, evicted: list[Key]) -> None:
        """Drop entities that were evicted from memory: from now on they are found only by key."""
        if not evicted:
            return
        self._changes += 1
        self._rank(RankChange(key, self._safe.get(key), None) for key in evicted)
        removed = []
        for key in evicted:
            if self._safe.pop(key, None) is not None:
                removed.append(key)
            self._next.pop(key, None)
            self._next_texts.pop(key, None)
        self._remove(removed)
        self._changes += 1

    def page(self, query: ListViews, *, here: bool = False) -> Listed:
        """Return the page that answers a query; `here`: for a reader in this process."""
        ranking = self._rankings.get(query.kind)
        if ranking is not None and query.ranked:
            return ranking.page(query, here=here)
        keys = self._keys.get(query.kind, [])
        start = bisect_right(keys, query.after) if query.after else 0
        # One more than a page takes shows that there is more.
        some = keys[start : start + SCAN_MAX + 1]
        return page_of(query, some, summary=self._safe.__getitem__, here=here)

    def read(self, query: ListViews) -> Listed | None:
        """Return a page as `page` does, on any thread; None if summaries changed meanwhile.

        What was read then may be of two frames, or beside the place where it was looked for.
        """
        changes = self._changes
        if changes % 2:
            return None
        page = attempt(self.page, query, here=True)
        if self._changes != changes:
            return None
        return page if isinstance(page, Listed) else None

    def _rank(self, changes: Iterable[RankChange]) -> None:
        if not self._rankings:
            return
        found: dict[str, list[RankChange]] = {}
        for change in changes:
            found.setdefault(kind_of(change.key), []).append(change)
        for kind, some in found.items():
            if kind in self._rankings:
                self._rankings[kind].change(some)

    def _add(self, added: list[Key]) -> None:
        for kind, some in _by_kind(added):
            keys = self._keys.setdefault(kind, [])
            if len(some) > ONE_BY_ONE_MAX:
                keys += some
                keys.sort()
            else:
                for key in some:
                    insort(keys, key)

    def _remove(self, removed: list[Key]) -> None:
        for kind, some in _by_kind(removed):
            keys = self._keys[kind]
            if len(some) > ONE_BY_ONE_MAX:
                gone = dict.fromkeys(some)
                keys[:] = [key for key in keys if key not in gone]
            else:
                for key in some:
                    del keys[bisect_left(keys, key)]


def _by_kind(keys: Iterable[Key]) -> Iterable[tuple[str, list[Key]]]:
    found: dict[str, list[Key]] = {}
    for key in keys:
        found.setdefault(kind_of(key), []).append(key)
    return found.items()
