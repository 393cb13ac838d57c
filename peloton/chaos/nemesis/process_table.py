"""The processes of all runs, as the machine has them: when each run was seen alive.

Polls the process table, from a thread of its own, for processes that carry the mark of a run. The
keeper and the daemons are not asked: their conclusions are compared with this. A process that has
been sent SIGKILL counts as ended: it runs no more of its program.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from peloton.backends.keeper import processes

POLL_S = 0.1
YOUNG_S = 2.0
"""Before that a process may still be about to become another program, with another mark."""
_SIGKILL_BIT = 1 << 8


class SeenAlive(NamedTuple):
    """The first and the last time at which a process of the run was seen alive."""

    first_s: float
    last_s: float


class ProcessTable:
    """The processes of runs, polled. `run_of`: the run of a process, by its pid."""

    def __init__(self, run_of: Callable[[int], str | None]) -> None:
        self.seen: dict[str, SeenAlive] = {}
        self._marked_run = run_of
        self._marks: dict[tuple[int, int], str] = {}  # pid and birth → run; "" for others
        self._first_s: dict[tuple[int, int], float] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="process table", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop polling."""
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(POLL_S):
            self.poll()

    def poll(self) -> None:
        """Look at all processes once."""
        present: set[tuple[int, int]] = set()
        for pid, found in processes.all_processes():
            if found.state in "ZX":
                continue
            identity = (pid, found.birth)
            present.add(identity)
            run = self._run_of(identity)
            # The time comes first: what is found alive after it was alive at that time.
            now_s = time.time()
            if run and _runs_on(pid, found.birth):
                first_s = self.seen[run].first_s if run in self.seen else now_s
                self.seen[run] = SeenAlive(first_s, now_s)
        for known in (self._marks, self._first_s):
            for gone in known.keys() - present:
                del known[gone]

    def _run_of(self, identity: tuple[int, int]) -> str:
        run = self._marks.get(identity)
        if run is None:
            run = self._marked_run(identity[0]) or ""
            first_s = self._first_s.setdefault(identity, time.monotonic())
            if run or time.monotonic() - first_s > YOUNG_S:
                self._marks[identity] = run
        return run


def _runs_on(pid: int, birth: int) -> bool:
    """Return whether this very process lives, and no SIGKILL is on its way to it."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return not kill_pending(status) and processes.is_alive(pid, birth)


def kill_pending(status: str) -> bool:
    """Return whether a SIGKILL waits for the process of this text of /proc."""
    pending = 0
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name in ("SigPnd", "ShdPnd"):
            pending |= int(value, 16)
    return bool(pending & _SIGKILL_BIT)
