"""Summaries for listings: one per entity of a kind that has a view, as of the last safe frame.

Turns touched entities into summaries that a reader may copy at any time. It must never show what
is not yet journaled, nor hold one summary per task: only kinds that ask for it (jobs) have any.

Their keys are kept sorted, so that a page can begin anywhere (`core/listing.py`). One more or less
moves the pointers behind it, which for a hundred thousand takes some ten microseconds; many at
once, as after a recovery, are sorted once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from typing import Any

from peloton.runtime.core.listing import LOOK_MAX, Listed, ListViews, page_of
from peloton.runtime.core.supervision import Failure, attempt
from peloton.runtime.core.turns import Turns
from peloton.runtime.vocabulary import Key, kind_of

ONE_BY_ONE_MAX = 64
"""So many keys are put in or taken out one after the other; more are done in one pass."""


class Views:
    """The summaries of one shard."""

    def __init__(self) -> None:
        self._safe: dict[Key, Any] = {}
        self._next: dict[Key, Any] = {}
        self._keys: dict[str, list[Key]] = {}  # by kind, sorted

    def touch(self, turns: Turns) -> None:
        """Summaries of entities that this frame has changed; None where one is gone.

        Where making one raises, the last one stays, and the story tells.
        """
        for key in turns.touched:
            view = turns.population.kind(key).view
            if view is None:
                continue
            state = turns.population.cells.get(key)
            summary = None if state is None else attempt(view, key, state)
            if isinstance(summary, Failure):
                turns.record_failure(key, "view", failure=summary)
            else:
                self._next[key] = summary

    def commit(self) -> None:
        """The frame is safe: its summaries may be seen."""
        came, went = [], []
        for key, summary in self._next.items():
            if summary is None:
                if self._safe.pop(key, None) is not None:
                    went.append(key)
            else:
                if key not in self._safe:
                    came.append(key)
                self._safe[key] = summary
        self._next = {}
        self._came(came)
        self._went(went)

    def drop(self, left: list[Key]) -> None:
        """These have left memory: who asks for them by name finds them among the ended."""
        went = []
        for key in left:
            if self._safe.pop(key, None) is not None:
                went.append(key)
            self._next.pop(key, None)
        self._went(went)

    def page(self, query: ListViews) -> Listed:
        """The page that is asked for."""
        keys = self._keys.get(query.kind, [])
        start = bisect_right(keys, query.after) if query.after else 0
        # One more than is looked at says that there is more.
        return page_of(query, keys[start : start + LOOK_MAX + 1], summary=self._safe.__getitem__)

    def _came(self, came: list[Key]) -> None:
        for kind, some in _by_kind(came):
            keys = self._keys.setdefault(kind, [])
            if len(some) > ONE_BY_ONE_MAX:
                keys += some
                keys.sort()
            else:
                for key in some:
                    insort(keys, key)

    def _went(self, went: list[Key]) -> None:
        for kind, some in _by_kind(went):
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
