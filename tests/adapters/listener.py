"""Listeners that write down what they are told and wake whoever waits for it.

No word is lost, whichever thread it comes from.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

WAIT_S_MAX = 60.0


class Diary:
    """What one exchange told."""

    def __init__(self) -> None:
        self.accepts: list[int] = []
        self.frames: list[tuple[int, bytes]] = []
        self.ends: list[tuple[int, str]] = []
        self.on_frame: Callable[[int, bytes], None] = lambda stream, data: None
        self._told = threading.Condition()

    def accepted(self, stream: int) -> None:
        with self._told:
            self.accepts.append(stream)
            self._told.notify_all()

    def arrived(self, stream: int, data: bytes) -> None:
        with self._told:
            self.frames.append((stream, data))
            self._told.notify_all()
        self.on_frame(stream, data)

    def closed(self, stream: int, text: str) -> None:
        with self._told:
            self.ends.append((stream, text))
            self._told.notify_all()

    def wait(self, until: Callable[[], bool]) -> None:
        """Until it holds; what was told meanwhile is in the complaint if it never does."""
        with self._told:
            came = self._told.wait_for(until, timeout=WAIT_S_MAX)
        assert came, f"accepts {self.accepts}, {len(self.frames)} frames, ends {self.ends}"
