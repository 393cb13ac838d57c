"""Programs of the keeper that watch a run which is more than a process: how they begin and obey.

Turns what one is told (JSON, by a descriptor) into a child that outlives the keeper, and signals
for a run into those that its watcher takes. It must not wait for one, nor know what it watches.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from . import processes
from .kinds import KeeperRun, Record
from .switching import in_memory


class Watchers:
    """All of one keeper that run the same program: a module that says where it expects what it is
    told (`DESCRIPTION_FD`) and which signals it takes when it can (`TAKEN`)."""

    def __init__(self, program: ModuleType, folder: str) -> None:
        self._program, self._folder = program, folder
        self._arguments = [sys.executable, "-I", "-S", os.path.abspath(str(program.__file__))]

    def spawn(
        self, told: Record, run: KeeperRun | None, *, passed: Iterable[tuple[int, int]] = ()
    ) -> int:
        """The pid of a new one; it gets these descriptors under those numbers. Raises OSError.

        Its signals are blocked from the beginning: it takes them when it can.
        """
        described = in_memory(json.dumps(told).encode())
        actions: list[Any] = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            *((os.POSIX_SPAWN_DUP2, found, wanted) for found, wanted in passed),
            (os.POSIX_SPAWN_DUP2, described, self._program.DESCRIPTION_FD),
        ]
        environment = dict(os.environ)
        if run is not None:
            environment[processes.RUN_MARK] = run.run_id
            environment[processes.KEEPER_MARK] = self._folder
        try:
            return os.posix_spawn(
                self._arguments[0], self._arguments, environment, file_actions=actions, setsid=True,
                setsigmask=self._program.TAKEN, setsigdef=processes.RESET_SIGNALS,
            )  # fmt: skip
        finally:
            os.close(described)


def signal_watcher(run: KeeperRun, number: int) -> None:
    """Have it passed on: a watcher must not be killed with what it watches."""
    taken = signal.SIGUSR1 if number == signal.SIGKILL else signal.SIGTERM
    processes.signal_one(run.pid, taken)
