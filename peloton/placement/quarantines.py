"""Hosts that a placer leaves out because they are suspected of failing every run.

As long as these are at most a tenth of the hosts that are up, they are left out. If they are more,
the cause is probably not the hosts, and the cluster must not stop for it: then each is used where
no other host fits.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

SHARE_MAX = 10
"""Of so many hosts that are up one may be left out."""

HostFlags = npt.NDArray[np.bool_]


class Quarantines:
    """Suspected hosts, by row of the index.

    `left_out`: rows that no member may have now.
    """

    def __init__(self) -> None:
        self.marked: HostFlags = np.zeros(0, np.bool_)
        self.left_out: HostFlags = np.zeros(0, np.bool_)
        self._count = 0

    def grow(self, extra: int) -> None:
        """Add rows."""
        more = np.zeros(extra, np.bool_)
        self.marked = np.concatenate((self.marked, more))
        self.left_out = np.concatenate((self.left_out, more))

    def mark(self, row: int, marked: bool) -> None:
        """Record whether the host of a row is suspected."""
        self._count += int(marked) - int(self.marked[row])
        self.marked[row] = marked

    def judge(self, up: HostFlags) -> list[int]:
        """Decide whether suspected hosts are left out.

        Returns the rows that are not left out any more.
        """
        before = self.left_out
        few = 0 < self._count * SHARE_MAX <= np.count_nonzero(up) if self._count else False
        if not few and not before.any():
            return []
        self.left_out = self.marked.copy() if few else np.zeros(len(before), np.bool_)
        found: list[int] = np.flatnonzero(before & ~self.left_out).tolist()
        return found
