"""What the actors of a shard did lately and why, for people.

Turns entries and undone decisions into lines, at most `LINES_MAX` a shard, newest kept. A story is
never read by a decision and never journaled: the journal has the entries, this has their echo.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from peloton.runtime.vocabulary import Key

LINES_MAX = 4096


class Line(NamedTuple):
    """One turn: when, who, what was said, what was written down, and why (or why not)."""

    at: float
    key: Key
    members: int
    cause: str
    facts: tuple[Any, ...]
    because: str


class Story:
    """The last lines of one shard."""

    __slots__ = ("_lines",)

    def __init__(self, lines_max: int = LINES_MAX) -> None:
        self._lines: deque[Line] = deque(maxlen=lines_max)

    def tell(self, line: Line) -> None:
        """Add a line."""
        self._lines.append(line)

    def of(self, key: Key, member: int | None = None) -> list[Line]:
        """The lines of one entity, oldest first; of one member of a crowd where named."""
        return [
            line
            for line in self._lines
            if line.key == key and (member is None or line.members >> member & 1)
        ]
