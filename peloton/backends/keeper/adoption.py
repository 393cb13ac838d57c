"""Adoption: how a keeper takes over the runs of one that was killed.

Turns journaled runs into those still alive, to watch and kill, and those that are over; kills
what ended runs left behind, and processes that were spawned and not recorded any more. It must
not invent an exit status: only a parent receives it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from . import kinds, processes
from .kinds import KeeperRun, Memory

# Each pass kills what it sees; a process that forks meanwhile is seen by the next pass.
_KILL_PASSES_MAX = 40
_KILL_PAUSE_S = 0.005


def adopt(memory: Memory, folder: str, *, now: float) -> list[KeeperRun]:
    """The runs that are still alive. A pid from before a restart of the machine means nothing, so
    the boot id must be the same. In a copy of the folder it is that of the original's process.
    A container lives on without its watcher, and that of a pod has left how it ended: whether they
    have ended is found out later."""
    boot, here = processes.boot_id(), processes.folder_number(folder)
    copied = memory.folder not in ("", here)
    same_boot = memory.boot_id == boot
    memory.boot_id, memory.folder = boot, here
    alive = []
    for run in memory.runs.values():
        if run.end is not None:
            continue
        here_now = same_boot and not copied and run.pid
        if here_now and (run.container or run.pod or processes.is_alive(run.pid, run.birth)):
            run.adopted = True
            alive.append(run)
        else:
            why = kinds.KEEPER_DIED if same_boot else kinds.MACHINE_RESTARTED
            reason = kinds.FOLDER_COPIED if same_boot and copied else why
            run.end = _lost(run, reason=reason, now=now)
            run.end_safe = True
    keep = {run.run_id for run in alive}
    if any(run.end is not None and not run.pid for run in memory.runs.values()):
        _await_execs()
    kill_marked(folder, lambda run_id: run_id not in keep)
    return alive


def _await_execs() -> None:
    """The keeper may have been killed in the middle of a spawn. Its lock is released by the exec
    of that child, a moment before the child's new environment, with its mark, is to be seen."""
    for _ in range(_KILL_PASSES_MAX):
        if not any(processes.in_exec(pid, found) for pid, found in processes.all_processes()):
            return
        time.sleep(_KILL_PAUSE_S)


def _lost(run: KeeperRun, *, reason: str, now: float) -> kinds.Record:
    message = "" if run.pid else "it was just being started"
    return kinds.end_of(kinds.LOST, reason=reason, message=message, at=now)


def kill_marked(folder: str, selected: Callable[[str], bool]) -> None:
    """Kill every process started for a selected run of this folder, in whatever session it is."""
    _until_none(
        lambda: [
            pid
            for pid, info in processes.all_processes()
            if info.state not in "ZX"
            and (run_id := processes.marked_run(pid, folder)) is not None
            and selected(run_id)
        ]
    )


def kill_session(leader: int) -> None:
    """Only for a leader seen alive a moment ago: later its pid may be another process's."""
    _until_none(
        lambda: [
            pid
            for pid, info in processes.all_processes()
            if info.session == leader and info.state not in "ZX"
        ]
    )


def _until_none(find: Callable[[], list[int]]) -> None:
    for _ in range(_KILL_PASSES_MAX):
        found = find()
        if not found:
            return
        for pid in found:
            processes.signal_one(pid, signal.SIGKILL)
        time.sleep(_KILL_PAUSE_S)
