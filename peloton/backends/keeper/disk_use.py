"""The disk that sandboxes use: measured now and then by a helper, one at a time.

Turns the folders of runs with a limit of disk into those that are over it. It must not read a
sandbox itself: one may hold a million files, or a mount of its account that never answers, and the
loop must not wait. So `du` does, for a bounded number of folders and a bounded time, and it rests
for several times as long as it took.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable

from .kinds import KeeperRun
from .pipe_lines import PipeLines

BATCH_MAX = 64
HELPER_S_MAX = 30.0
REST_FACTOR = 9.0
"""Nine tenths of the time nothing is measured."""


class DiskUse:
    """Measures the sandboxes, in turns. `path` gives that of a run."""

    def __init__(
        self, path: Callable[[str], str], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._clock = clock
        self._waiting: deque[str] = deque()
        self._batch: dict[str, str] = {}
        self._output = -1
        self._lines = PipeLines()
        self._began = self._next = 0.0
        self.helper_pid = 0

    def add(self, run_id: str) -> None:
        """Measure this run from now on, until it has ended."""
        self._waiting.append(run_id)

    def check(self, runs: dict[str, KeeperRun]) -> list[tuple[KeeperRun, float]]:
        """Live runs over their limit, with what they use in MB; called each round."""
        found = [*self._read(runs)]
        now = self._clock()
        if self.helper_pid:
            if now - self._began > HELPER_S_MAX:
                os.kill(self.helper_pid, signal.SIGKILL)  # not reaped, so the pid is its own
                self._waiting.rotate(-1)  # else those behind a slow one would never have a turn
        elif now >= self._next and self._waiting:
            self._begin(runs, now)
        return found

    def reaped(self) -> None:
        """The helper has ended."""
        self.helper_pid = 0
        self._next = self._clock() + REST_FACTOR * (self._clock() - self._began)

    def _begin(self, runs: dict[str, KeeperRun], now: float) -> None:
        self._close()
        for _ in range(min(len(self._waiting), BATCH_MAX)):
            run_id = self._waiting.popleft()
            run = runs.get(run_id)
            if run is not None and run.live:
                self._waiting.append(run_id)
                self._batch[self._path(run_id)] = run_id
        if not self._batch:
            return
        write_end = -1
        try:
            self._output, write_end = os.pipe()
            os.set_blocking(self._output, False)
            # Of one file system: what an account mounts in its sandbox is not on our disk.
            command = ["du", "-skx", "--", *self._batch]
            self.helper_pid = os.posix_spawnp(
                "du", command, {"PATH": os.environ.get("PATH", os.defpath)},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, write_end, 1),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                ],
            )  # fmt: skip
            self._began = now
        except OSError:
            self._close()  # no process or descriptor to be had: the next round tries again
        finally:
            if write_end >= 0:
                os.close(write_end)

    def _read(self, runs: dict[str, KeeperRun]) -> Iterable[tuple[KeeperRun, float]]:
        if self._output < 0:
            return
        for line in self._lines.read(self._output):
            size, _, path = line.partition(b"\t")
            run = runs.get(self._batch.get(os.fsdecode(path), ""))
            if run is None or not size.isdigit() or not run.live:
                continue
            if run.over_limit or run.kill_requested:  # it is being killed already
                continue
            used_mb = int(size) / 1024
            if used_mb > run.limits["disk_mb"]:
                yield run, used_mb

    def _close(self) -> None:
        if self._output >= 0:
            os.close(self._output)
        self._output, self._lines, self._batch = -1, PipeLines(), {}
