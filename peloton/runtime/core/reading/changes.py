"""The change feed of a shard: what was journaled, in order, for readers.

Turns committed frames into changes keyed by (position, k), k counting within a frame. A reader
gives its mark and gets the changes after it, each once and in order, or a gap marker, after which
it has to read the whole state anew. Only durable frames are shown. The feed does not wait for a
reader: it keeps the newest frames, up to `CHANGES_MAX` changes and `CHANGES_BYTES_MAX` together,
and a slower reader gets a gap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import NamedTuple

from peloton.runtime.core.turning.story import StoryLine

CHANGES_MAX = 4096
CHANGES_BYTES_MAX = 16 * 1024 * 1024
PAGE_MAX = 1000
CHANGES_PAGE_BYTES_MAX = 1024 * 1024
"""A page ends after the change with which it reaches this size."""


class Mark(NamedTuple):
    """A point in the feed: after the k-th change of the frame at `position`."""

    position: int
    k: int


class Change(NamedTuple):
    """One entry of a frame: key, members, message class, facts and reason, as a story line."""

    mark: Mark
    line: StoryLine


class Page(NamedTuple):
    """The changes after a mark. `gap`: some before the first change are not kept any more."""

    changes: tuple[Change, ...]
    gap: bool
    mark: Mark  # to continue from
    more: bool


ALL = 1 << 31
"""Greater than any k: the end of a frame."""


class Changes:
    """The feed of one shard. Frames are kept as the story's own lines, encoded only when read."""

    def __init__(
        self, changes_max: int = CHANGES_MAX, *, bytes_max: int = CHANGES_BYTES_MAX
    ) -> None:
        self._max, self._bytes_max = changes_max, bytes_max
        self.dropped = 0  # changes, for metrics
        # Positions, their changes, and the bytes of these.
        self._kept: deque[tuple[int, tuple[StoryLine, ...], int]] = deque()
        self._count = self._bytes = 0
        self._next: tuple[int, tuple[StoryLine, ...]] | None = None
        self._before = self._end = Mark(0, ALL)
        """`_before` is the newest change that is not kept: a mark before it means a gap."""

    def begin(self, position: int) -> None:
        """Begin after a recovery: nothing up to this frame is kept."""
        self._before = self._end = Mark(position, ALL)

    def framed(self, position: int, lines: list[StoryLine]) -> None:
        """Take the lines of a complete frame that is not durable yet."""
        self._next = position, tuple(lines)

    def commit(self) -> tuple[int, tuple[StoryLine, ...]] | None:
        """Publish the changes of the frame that has become durable; return it, if there was one."""
        safe, self._next = self._next, None
        if safe is not None:
            self.add(*safe)
        return safe

    def add(self, position: int, lines: tuple[StoryLine, ...]) -> None:
        """Add the changes of a durable frame."""
        self._end = Mark(position, ALL)
        if lines:
            size = sum([line.size for line in lines])
            self._kept.append((position, lines, size))
            self._count += len(lines)
            self._bytes += size
        while self._count > self._max or self._bytes > self._bytes_max:
            gone, dropped, size = self._kept.popleft()
            self._count -= len(dropped)
            self._bytes -= size
            self.dropped += len(dropped)
            self._before = Mark(gone, ALL)

    @property
    def end(self) -> Mark:
        """The mark after all durable changes."""
        return self._end

    def after(
        self,
        mark: Mark | None,
        limit: int = PAGE_MAX,
        *,
        wanted: Callable[[StoryLine], bool] | None = None,
    ) -> Page:
        """Return the changes after a mark; for None a page without changes and the present mark.

        With `wanted` only changes that pass it are returned; a gap may have held any or none of
        them.
        """
        if mark is None:
            return Page((), gap=False, mark=self._end, more=False)
        # A mark ahead of the feed was not given by this shard, or it has lost its journal. Either
        # way the reader has to read the whole state anew.
        gap = mark < self._before or mark > self._end
        if gap:
            mark = self._before
        page: list[Change] = []
        size, more = 0, False
        for change in self._later(mark):
            if wanted is not None and not wanted(change.line):
                continue
            if len(page) >= limit or size >= CHANGES_PAGE_BYTES_MAX:
                more = True
                break
            page.append(change)
            size += change.line.size
        return Page(tuple(page), gap=gap, mark=page[-1].mark if more else self._end, more=more)

    def _later(self, mark: Mark) -> Iterator[Change]:
        # From the end: who follows asks for the newest frames, and thousands before are kept.
        later = list(takewhile(lambda frame: frame[0] >= mark.position, reversed(self._kept)))
        for position, lines, _ in reversed(later):
            for k, line in enumerate(lines):
                if (position, k) > mark:
                    yield Change(Mark(position, k), line)
