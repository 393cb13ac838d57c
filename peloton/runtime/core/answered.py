"""Answers that are remembered: by the request keys of clients.

Turns a repeated command into its first answer, and the same key with another body into a
refusal. At most `KEYS_PER_CELL_MAX` a cell, for `KEEP_S`; older ones are forgotten first. It must
remember nothing else: receivers answer every other repeat from their state.
"""

from __future__ import annotations

from typing import NamedTuple

from peloton.runtime.core.records import RequestAnswered
from peloton.runtime.vocabulary import Key, Refused

KEYS_PER_CELL_MAX = 64
KEEP_S = 24 * 3600.0
REFUSED_KEEP_S = 600.0
"""A refusal is only kept for longer than another copy of the request can be under way: anybody may
be refused, for any id."""


class Repeat(NamedTuple):
    """The answer that stands: bytes of the first one, or a refusal."""

    answer: bytes | None
    refused: Refused | None


class RequestLog:
    """The request keys of one shard."""

    def __init__(self) -> None:
        self.by_cell: dict[Key, dict[str, RequestAnswered]] = {}

    def look(self, key: Key, request: tuple[str, bytes], now: float) -> Repeat | None:
        """What stands for a request, or None when it is new."""
        name, digest = request
        found = self.by_cell.get(key, {}).get(name)
        if found is None or found.at + KEEP_S < now:
            return None
        if found.digest != digest:
            text = f"request key {name!r} was used with another body"
            return Repeat(None, Refused("REQUEST_KEY_REUSED", text, "peloton-request-key"))
        return Repeat(found.answer, None)

    def remember(self, key: Key, fact: RequestAnswered) -> None:
        """Fold one answer."""
        cell = self.by_cell.setdefault(key, {})
        cell.pop(fact.request, None)
        cell[fact.request] = fact
        while len(cell) > KEYS_PER_CELL_MAX:
            del cell[next(iter(cell))]

    def forget(self, key: Key) -> None:
        """The entity is gone, and its answers with it."""
        self.by_cell.pop(key, None)

    def expire(self, now: float) -> None:
        """Drop what is older than `KEEP_S`."""
        for key in [*self.by_cell]:
            kept = {name: f for name, f in self.by_cell[key].items() if f.at + KEEP_S >= now}
            if kept:
                self.by_cell[key] = kept
            else:
                del self.by_cell[key]
