"""Replies remembered by the request keys of clients.

Turns a repeated command into its first reply, and the same key with another body into a refusal.
At most `KEYS_PER_CELL_MAX` per cell, for `KEEP_S`; the oldest are forgotten first. It must
remember nothing else: receivers answer every other repeat from their state.
"""

from __future__ import annotations

from typing import NamedTuple

from peloton.runtime.core.records import RequestAnswered
from peloton.runtime.vocabulary import Key, Refused

KEYS_PER_CELL_MAX = 64
KEEP_S = 24 * 3600.0
REFUSED_KEEP_S = 600.0
"""A refusal is kept only as long as another copy of the request may be under way: anybody can be
refused, for any id, so these must not pile up."""


class Repeat(NamedTuple):
    """The reply to a repeat: the bytes of the first one, or a refusal."""

    answer: bytes | None
    refused: Refused | None


class RequestLog:
    """The remembered replies of one shard."""

    def __init__(self) -> None:
        self.by_cell: dict[Key, dict[str, RequestAnswered]] = {}

    def find(self, key: Key, request: tuple[str, bytes], now: float) -> Repeat | None:
        """The reply to a request that was made before, or None when it is new."""
        name, digest = request
        found = self.by_cell.get(key, {}).get(name)
        if found is None or found.at + KEEP_S < now:
            return None
        if found.digest != digest:
            text = f"request key {name!r} was used with another body"
            return Repeat(None, Refused("REQUEST_KEY_REUSED", text, "peloton-request-key"))
        return Repeat(found.answer, None)

    def remember(self, key: Key, fact: RequestAnswered) -> None:
        """Remember one reply."""
        cell = self.by_cell.setdefault(key, {})
        cell.pop(fact.request, None)
        cell[fact.request] = fact
        while len(cell) > KEYS_PER_CELL_MAX:
            del cell[next(iter(cell))]

    def forget(self, key: Key) -> None:
        """Drop all replies of an entity."""
        self.by_cell.pop(key, None)

    def expire(self, now: float) -> None:
        """Drop what is older than `KEEP_S`."""
        for key in [*self.by_cell]:
            kept = {name: f for name, f in self.by_cell[key].items() if f.at + KEEP_S >= now}
            if kept:
                self.by_cell[key] = kept
            else:
                del self.by_cell[key]
