"""What hosts report of themselves that is better than before, for members that found no host.

Turns changes of rows into "these may fit more now" and into a number per row that rises with each
such report: whoever was refused by a host tries it again only under a new number. It must not know
amounts, shapes or members.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from peloton.placement.labels import Ints


class HostNews:
    """By row of the index."""

    def __init__(self) -> None:
        self._numbers: Ints = np.zeros(0, np.int64)
        self._rows: dict[int, None] = {}

    def grow(self, extra: int) -> None:
        """There are so many more rows."""
        self._numbers = np.concatenate((self._numbers, np.zeros(extra, np.int64)))

    def more_reported(self, rows: list[int]) -> None:
        """Their hosts report more of something, or another status or label."""
        self._numbers[rows] += 1
        self.own_proposals_over(rows)

    def own_proposals_over(self, rows: Iterable[int]) -> None:
        """They may fit more, though their hosts report nothing new."""
        self._rows.update(dict.fromkeys(rows))

    def report_number(self, row: int) -> int:
        """Rises with every report of more."""
        return int(self._numbers[row])

    def __bool__(self) -> bool:
        """Whether there is anything to take."""
        return bool(self._rows)

    @property
    def rows(self) -> tuple[int, ...]:
        """What `take` would return."""
        return tuple(self._rows)

    def take(self) -> list[int]:
        """The rows that may fit a member that they did not fit at the last call."""
        rows, self._rows = [*self._rows], {}
        return rows
