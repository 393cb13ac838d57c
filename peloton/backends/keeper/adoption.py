"""Adoption: what a keeper makes of the runs of one that was killed.

Turns journaled runs into those still alive, to watch and kill, and those that are over; kills
what the dead ones left behind. It must not invent an exit status: only a parent learns it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from . import kinds, processes
from .kinds import KeeperRun, Memory

# Each pass kills what it sees; a process that forks meanwhile is seen by the next pass.
_HUNT_PASSES_MAX = 40
_HUNT_PAUSE_S = 0.005


def adopt(memory: Memory, folder: str, *, now: float) -> list[KeeperRun]:
    """The runs that still live. A process number of before a restart of the machine means
    nothing, so the boot must be the same one."""
    boot = processes.boot_id()
    same_boot = memory.boot_id == boot
    memory.boot_id = boot
    alive = []
    for run in memory.runs.values():
        if run.end is not None:
            continue
        if same_boot and run.pid and processes.is_alive(run.pid, run.birth):
            run.adopted = True
            alive.append(run)
        else:
            run.end = _lost(run, same_boot=same_boot, now=now)
            run.told = True
    keep = {run.run_id for run in alive}
    hunt(folder, lambda run_id: run_id not in keep)
    return alive


def _lost(run: KeeperRun, *, same_boot: bool, now: float) -> kinds.Record:
    message = "" if run.pid else "the run had not been started"
    reason = kinds.KEEPER_DIED if same_boot else kinds.MACHINE_RESTARTED
    return kinds.end_of(kinds.LOST, reason=reason, message=message, at=now)


def hunt(folder: str, doomed: Callable[[str], bool]) -> None:
    """Kills every process born for a doomed run of this folder, wherever it has gone."""
    _until_none(
        lambda: [
            pid
            for pid, found in processes.everybody()
            if found.state not in "ZX"
            and (run_id := processes.marked_run(pid, folder)) is not None
            and doomed(run_id)
        ]
    )


def hunt_session(leader: int) -> None:
    """Only for a leader seen alive a moment ago: later its number might be somebody else's."""
    _until_none(
        lambda: [
            pid
            for pid, found in processes.everybody()
            if found.session == leader and found.state not in "ZX"
        ]
    )


def _until_none(seek: Callable[[], list[int]]) -> None:
    for _ in range(_HUNT_PASSES_MAX):
        quarry = seek()
        if not quarry:
            return
        for pid in quarry:
            processes.signal_one(pid, signal.SIGKILL)
        time.sleep(_HUNT_PAUSE_S)
