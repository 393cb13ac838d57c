"""The log of one storm: what was done and found, when, as lines in a file.

Turns events of many threads into one order. It must not decide what counts as a finding; it only
keeps what others found, each text once.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path


class Timeline:
    """Seconds are counted from its beginning, on the clock that every client uses as well."""

    def __init__(self, file: Path) -> None:
        self.findings: list[str] = []
        self.counts: Counter[str] = Counter()
        self._begun_s = time.monotonic()
        self._file = file.open("w", encoding="utf-8")
        self._lock = threading.Lock()

    @property
    def now_s(self) -> float:
        """Since the beginning."""
        return time.monotonic() - self._begun_s

    def say(self, text: str) -> None:
        """One line."""
        with self._lock:
            self._write(text)

    def count(self, what: str, text: str) -> None:
        """One line, and one more of these."""
        with self._lock:
            self.counts[what] += 1
            self._write(text)

    def find(self, text: str) -> None:
        """Something is wrong."""
        with self._lock:
            if text not in self.findings:
                self.findings.append(text)
                self._write(f"FOUND {text}")

    def close(self) -> None:
        """No more lines."""
        self._file.close()

    def _write(self, text: str) -> None:
        if not self._file.closed:  # a late thread has nothing to say any more
            self._file.write(f"{self.now_s:9.3f}  {text}\n")
            self._file.flush()
