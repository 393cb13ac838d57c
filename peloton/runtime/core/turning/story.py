"""The story of a shard: the recent decisions of its actors and their reasons, for people.

Keeps the newest entries, and decisions without facts, as lines: at most `LINES_MAX` per shard, of
at most `STORY_BYTES_MAX` as journaled, or a client that creates and deletes large jobs all day
would fill the memory. A story is never read by a decision and never journaled: the journal has the
entries themselves.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from peloton.runtime.vocabulary import Key

LINES_MAX = 4096
STORY_BYTES_MAX = 8 * 1024 * 1024


class StoryLine(msgspec.Struct, frozen=True, gc=False):
    """A turn: time, key, members, class of the message, facts, and the reason (or error)."""

    at: float
    key: Key
    members: int
    cause: str
    facts: tuple[Any, ...]
    because: str
    size: int = 0
    """Bytes of its journaled entry; 0 if there is none."""
    who: str = ""
    """The principal whose call caused it, as text; empty if no call did."""


class Story:
    """The last lines of one shard."""

    __slots__ = ("_bytes", "_bytes_max", "_lines", "_lines_max")

    def __init__(self, lines_max: int = LINES_MAX, *, bytes_max: int = STORY_BYTES_MAX) -> None:
        self._lines: deque[StoryLine] = deque()
        self._lines_max, self._bytes_max = lines_max, bytes_max
        self._bytes = 0

    def add(self, line: StoryLine) -> None:
        """Add a line."""
        lines = self._lines
        lines.append(line)
        self._bytes += line.size
        while len(lines) > self._lines_max or self._bytes > self._bytes_max:
            self._bytes -= lines.popleft().size

    def of(self, key: Key, member: int | None = None) -> list[StoryLine]:
        """Return the lines of one entity, oldest first; of one member if `member` is given."""
        return [
            line
            for line in self._lines
            if line.key == key and (member is None or line.members >> member & 1)
        ]
