"""Bare spawns of a program by a small process: the least that a real task could cost.

It must not do anything between two spawns: neither folders, nor files, nor a journal.
"""

from __future__ import annotations

import subprocess
import sys
from typing import NamedTuple

PROGRAM = "/bin/true"

# For each line "COUNT IN_FLIGHT" it spawns so many, and answers with the CPU seconds of itself and
# of them, and with the seconds that this took.
BARE = f"""
import os, resource, sys, time
def cpu_s():
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)
for line in sys.stdin:
    count, width = map(int, line.split())
    begun_s, at_s, open_runs = cpu_s(), time.perf_counter(), 0
    for _ in range(count):
        os.posix_spawn({PROGRAM!r}, [{PROGRAM!r}], os.environ)
        open_runs += 1
        if open_runs == width:
            os.waitpid(-1, 0)
            open_runs -= 1
    for _ in range(open_runs):
        os.waitpid(-1, 0)
    print(cpu_s() - begun_s, time.perf_counter() - at_s, flush=True)
"""


class Spawned(NamedTuple):
    """What one spawn took, on average, with its wait and the spawner's own part."""

    cpu_s: float
    took_s: float


class BareSpawner:
    """A small process that spawns the program and waits for it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", BARE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, tasks: int, *, in_flight: int = 1) -> Spawned:
        """So many, this many of them at a time."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(tasks, in_flight, file=self._process.stdin, flush=True)
        cpu_s, took_s = map(float, self._process.stdout.readline().split())
        return Spawned(cpu_s / tasks, took_s / tasks)

    def close(self) -> None:
        """End it."""
        self._process.communicate()
