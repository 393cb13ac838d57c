"""The sizes of folders: one `du` at a time, over a batch of them.

Turns paths into sizes, as they come. The loop must not read a folder itself: one may hold a million
files, or a mount of its account that never answers.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from .wire import PipeLines


class SizeHelper:
    def __init__(self) -> None:
        self._output = -1
        self._lines = PipeLines()
        self.pid = 0  # the owner clears it once the helper is reaped

    def begin(self, paths: Iterable[str]) -> None:
        """Start the helper; without a process or a descriptor to be had there is none."""
        self.close()
        write_end = -1
        try:
            self._output, write_end = os.pipe()
            os.set_blocking(self._output, False)
            # Of one file system: what an account mounts in its sandbox is not on our disk.
            self.pid = os.posix_spawnp(
                "du", ["du", "-skx", "--", *paths], {"PATH": os.environ.get("PATH", os.defpath)},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, write_end, 1),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                ],
            )  # fmt: skip
        except OSError:
            self.close()
        finally:
            if write_end >= 0:
                os.close(write_end)

    def read(self) -> Iterator[tuple[str, int]]:
        """Yield the folders measured since the last call, in order, with their KiB."""
        if self._output < 0:
            return
        for line in self._lines.read(self._output):
            size, _, path = line.partition(b"\t")
            if size.isdigit():
                yield os.fsdecode(path), int(size)

    def close(self) -> None:
        if self._output >= 0:
            os.close(self._output)
        self._output, self._lines = -1, PipeLines()
