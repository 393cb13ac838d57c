"""The cpu use of this machine's runs, from the kernel's counts for their processes.

Turns /proc into the cpus that each run holds and uses: a process belongs to the run named in its
environment, to which the keeper has added the name, and the daemon the run's own cpus. So a
restarted daemon knows both for runs that began before.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import NamedTuple

from peloton.backends.keeper.processes import RUN_MARK

OWN_CPUS = "PELOTON_OWN_CPUS"
"""The variable that says how many cpus of its own a run has; it is missing where that is none."""
PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_TIMES = slice(11, 15)  # fields of `stat` behind the name of the program: with ended children
_BEGAN = 19


class RunUse(NamedTuple):
    """A run's own cpus, and its use, in cpus."""

    own: float
    used: float


class _Process(NamedTuple):
    run: str
    own: float


class CpuUse:
    """The counts of the last reading, with which the next one is compared."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._processes: dict[tuple[str, str], _Process] = {}  # by number and beginning
        self._seconds: dict[str, float] = {}  # by run
        self._at: float | None = None

    def read(self, now: float) -> dict[str, RunUse]:
        """Return the use since the last reading of each run with cpus of its own, by name.

        A new run has no earlier count, and counts as using all its cpus: otherwise its host would
        show slack that may not exist until the next reading.
        """
        seconds: dict[str, float] = {}
        own: dict[str, float] = {}
        known, self._processes = self._processes, {}
        for number in filter(str.isdecimal, os.listdir(self._proc)):
            try:
                fields = (self._proc / number / "stat").read_text().rpartition(")")[2].split()
                name = number, fields[_BEGAN]
                found = known.get(name) or self._look(number)
            except (OSError, IndexError, ValueError):
                continue  # it has ended, or is another account's
            self._processes[name] = found
            if found.own:
                used = sum(map(int, fields[_TIMES])) / _TICKS_PER_S
                seconds[found.run] = seconds.get(found.run, 0.0) + used
                # A program may start others with any environment: the least counts.
                own[found.run] = min(found.own, own.get(found.run, found.own))
        passed = now - self._at if self._at is not None else 0.0
        before, self._seconds, self._at = self._seconds, seconds, now
        found: dict[str, RunUse] = {}
        for run, total in seconds.items():
            known = run in before and passed > 0.0
            # A process that has ended may take its seconds with it.
            used = max(0.0, total - before[run]) / passed if known else own[run]
            found[run] = RunUse(own[run], used)
        return found

    def _look(self, number: str) -> _Process:
        lines = (self._proc / number / "environ").read_bytes().split(b"\0")
        found = dict(line.decode("utf-8", "replace").partition("=")[::2] for line in lines)
        if RUN_MARK not in found or OWN_CPUS not in found:
            return _Process("", 0.0)
        own = float(found[OWN_CPUS])  # a program may have written there what it likes
        return _Process(found[RUN_MARK], max(0.0, own) if math.isfinite(own) else 0.0)
