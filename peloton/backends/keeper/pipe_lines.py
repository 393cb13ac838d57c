"""Lines of a pipe that is read without waiting: whole ones now, the beginning of one is kept.

Must not own the pipe: who opened it closes it.
"""

from __future__ import annotations

import os

READ_BYTES = 65536


class PipeLines:
    """What has come of one pipe, whose reading end must not block."""

    def __init__(self) -> None:
        self._begun = b""

    def read(self, descriptor: int) -> list[bytes]:
        """The lines that are whole by now, without their ends."""
        try:
            while data := os.read(descriptor, READ_BYTES):
                self._begun += data
        except BlockingIOError:
            pass
        lines = self._begun.split(b"\n")
        self._begun = lines.pop()
        return lines
