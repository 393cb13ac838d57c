"""Programs of the keeper that watch a container or a pod: how they are started and signalled.

Starts a watcher with its description (JSON, by a descriptor) as a child that outlives the keeper,
and turns signals for a run into those that its watcher takes. The keeper never waits for a watcher.
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
    """The watchers of one keeper that run the same program.

    The program is a module that names the descriptor of its description (`DESCRIPTION_FD`) and the
    signals that it takes when it can (`TAKEN`).
    """

    def __init__(self, program: ModuleType, folder: str) -> None:
        self._program, self._folder = program, folder
        self._arguments = [sys.executable, "-I", "-S", os.path.abspath(str(program.__file__))]

    def spawn(
        self, told: Record, run: KeeperRun | None, *, passed: Iterable[tuple[int, int]] = ()
    ) -> int:
        """Start a watcher, which gets these descriptors; return its pid. Raises OSError.

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
    """Let the watcher pass a signal on: it must not be killed with what it watches."""
    taken = signal.SIGUSR1 if number == signal.SIGKILL else signal.SIGTERM
    processes.signal_one(run.pid, taken)
