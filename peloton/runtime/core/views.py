"""Summaries for listings: one per entity of a kind that has a view, as of the last safe frame.

Turns touched entities into summaries that a reader may copy at any time. It must never show what
is not yet journaled, nor hold one summary per task: only kinds that ask for it (jobs) have any.
"""

from __future__ import annotations

from typing import Any

from peloton.runtime.core.supervision import Failure, attempt
from peloton.runtime.core.turns import Turns
from peloton.runtime.vocabulary import Key


class Views:
    """The summaries of one shard."""

    def __init__(self) -> None:
        self._safe: dict[Key, Any] = {}
        self._next: dict[Key, Any] = {}

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
                turns.troubled(key, "view", failure=summary)
            else:
                self._next[key] = summary

    def commit(self) -> None:
        """The frame is safe: its summaries may be seen."""
        for key, summary in self._next.items():
            if summary is None:
                self._safe.pop(key, None)
            else:
                self._safe[key] = summary
        self._next = {}

    def drop(self, left: list[Key]) -> None:
        """These have left memory: who asks for them by name finds them among the ended."""
        for key in left:
            self._safe.pop(key, None)
            self._next.pop(key, None)

    def of_kind(self, kind: str) -> list[Any]:
        """All summaries of a kind, in no promised order."""
        prefix = kind + "/"
        return [summary for key, summary in self._safe.items() if key.startswith(prefix)]
