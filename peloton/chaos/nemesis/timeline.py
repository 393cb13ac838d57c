"""The log of one storm: actions and findings with their times, as lines in a file.

Turns events of many threads into one order. Findings are decided elsewhere; each text is kept once.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path


class Timeline:
    """A log; its seconds since the beginning are the clock of all clients, too."""

    def __init__(self, file: Path) -> None:
        self.findings: list[str] = []
        self.counts: Counter[str] = Counter()
        self._begun_s = time.monotonic()
        self._file = file.open("w", encoding="utf-8")
        self._lock = threading.Lock()

    @property
    def now_s(self) -> float:
        """The seconds since the beginning."""
        return time.monotonic() - self._begun_s

    def log(self, text: str) -> None:
        with self._lock:
            self._write(text)

    def count(self, what: str, text: str) -> None:
        """Write one line, and count one more of these events."""
        with self._lock:
            self.counts[what] += 1
            self._write(text)

    def find(self, text: str) -> None:
        """Record a finding: something is wrong."""
        with self._lock:
            if text not in self.findings:
                self.findings.append(text)
                self._write(f"FOUND {text}")

    def close(self) -> None:
        """Close the file: no more lines."""
        self._file.close()

    def _write(self, text: str) -> None:
        if not self._file.closed:  # a thread may be late
            self._file.write(f"{self.now_s:9.3f}  {text}\n")
            self._file.flush()
