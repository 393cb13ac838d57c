"""The disk that sandboxes use: measured now and then by a helper, one at a time.

Turns the folders of runs with a limit of disk into those that are over it. The loop must not read a
sandbox itself: one may hold a million files, or a mount of its account that never answers. So a
helper does, for a bounded number of folders and a bounded time, and rests for several times as long
as it took.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable

from .kinds import KeeperRun
from .sizes import SizeHelper

BATCH_MAX = 64
HELPER_S_MAX = 30.0
REST_FACTOR = 9.0
"""Nine tenths of the time nothing is measured."""


def _of_sandbox(run: KeeperRun) -> float:
    return float(run.limits["disk_mb"])


class DiskUse:
    """Measures folders of runs, in turns.

    `path` returns the folder of a run, by its id, and `limit_mb` its limit: by default those of its
    sandbox.
    """

    def __init__(
        self,
        path: Callable[[str], str],
        *,
        limit_mb: Callable[[KeeperRun], float] = _of_sandbox,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._limit_mb = limit_mb
        self._clock = clock
        self._waiting: deque[str] = deque()
        self._batch: dict[str, str] = {}
        self._helper = SizeHelper()
        self._began = self._next = 0.0

    @property
    def helper_pid(self) -> int:
        return self._helper.pid

    def add(self, run_id: str) -> None:
        """Measure this run from now on, until it has ended."""
        self._waiting.append(run_id)

    def check(self, runs: dict[str, KeeperRun]) -> list[tuple[KeeperRun, float]]:
        """Return live runs over their limit, with their use in MB; called each round."""
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
        """Note that the helper has ended."""
        self._helper.pid = 0
        self._next = self._clock() + REST_FACTOR * (self._clock() - self._began)

    def _begin(self, runs: dict[str, KeeperRun], now: float) -> None:
        self._batch = {}
        for _ in range(min(len(self._waiting), BATCH_MAX)):
            run_id = self._waiting.popleft()
            run = runs.get(run_id)
            if run is not None and run.live:
                self._waiting.append(run_id)
                self._batch[self._path(run_id)] = run_id
        if self._batch:
            self._began = now
            self._helper.begin(self._batch)
        else:
            self._helper.close()

    def _read(self, runs: dict[str, KeeperRun]) -> Iterable[tuple[KeeperRun, float]]:
        for path, size in self._helper.read():
            run = runs.get(self._batch.get(path, ""))
            if run is None or not run.live:
                continue
            if run.over_limit or run.kill_requested:  # it is being killed already
                continue
            used_mb = size / 1024
            if used_mb > self._limit_mb(run):
                yield run, used_mb
