"""Reports of hosts about more room, for members that found no host.

Each row has a number that rises with each such report: a member that a host refused tries this host
again only under a new number.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from peloton.placement.labels import Ints


class HostNews:
    """The reports of more room, by row of the index."""

    def __init__(self) -> None:
        self._numbers: Ints = np.zeros(0, np.int64)
        self._rows: dict[int, None] = {}

    def grow(self, extra: int) -> None:
        """Add rows."""
        self._numbers = np.concatenate((self._numbers, np.zeros(extra, np.int64)))

    def more_reported(self, rows: list[int]) -> None:
        """Record that the hosts of these rows report more of something, or another status or
        label."""
        self._numbers[rows] += 1
        self.own_proposals_over(rows)

    def own_proposals_over(self, rows: Iterable[int]) -> None:
        """Record that these rows may fit more, though their hosts report nothing new."""
        self._rows.update(dict.fromkeys(rows))

    def report_number(self, row: int) -> int:
        """Return the number of a row, which rises with every report of more."""
        return int(self._numbers[row])

    def __bool__(self) -> bool:
        """Return whether `take` would return any rows."""
        return bool(self._rows)

    @property
    def rows(self) -> tuple[int, ...]:
        """Return the rows that `take` would return."""
        return tuple(self._rows)

    def take(self) -> list[int]:
        """Return and forget the rows that may fit more members than at the last call."""
        rows, self._rows = [*self._rows], {}
        return rows
