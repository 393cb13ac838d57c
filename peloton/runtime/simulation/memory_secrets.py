"""Port `SecretStore` in memory: what tests and simulations use, and what the port means.

It must not see a value that is not sealed.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from peloton.runtime.ports import SealedSecret, Unreachable


class MemorySecrets:
    """Rows by job, id and time. While `down` has a text, nothing is answered."""

    def __init__(self) -> None:
        self.down = ""
        self._lock = threading.Lock()
        self._rows: dict[tuple[str, str, int], SealedSecret] = {}

    def put(self, rows: Sequence[SealedSecret]) -> None:
        """Write rows."""
        self._check()
        with self._lock:
            self._rows.update({_key(row): row for row in rows})

    def of_job(self, job: str) -> list[SealedSecret]:
        """All rows of a job."""
        self._check()
        with self._lock:
            return [row for row in self._rows.values() if row.job == job]

    def delete(self, rows: Sequence[SealedSecret]) -> None:
        """Delete rows."""
        self._check()
        with self._lock:
            for row in rows:
                self._rows.pop(_key(row), None)

    def forget(self, job: str) -> None:
        """Delete all rows of a job."""
        self.delete(self.of_job(job))

    def jobs(self, after: str, *, most: int) -> list[str]:
        """The next jobs, by name."""
        self._check()
        with self._lock:
            return sorted({row.job for row in self._rows.values() if row.job > after})[:most]

    def close(self) -> None:
        """Nothing is held."""

    def _check(self) -> None:
        if self.down:
            raise Unreachable(self.down)


def _key(row: SealedSecret) -> tuple[str, str, int]:
    return row.job, row.id, row.made
