"""Adoption: how a keeper takes over the runs of one that was killed.

Turns journaled runs into those still alive, to watch and kill, and those that are over; kills
processes that ended runs left behind, or that were spawned and not recorded. An exit status is
never invented: only a parent receives it.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from . import kinds, processes
from .kinds import KeeperRun, Memory
from .stops import since_boot
from .supervised import LeftEnd, Supervised

# Each pass kills what it sees; a process that forks meanwhile is seen by the next pass.
_KILL_PASSES_MAX = 40
_KILL_PAUSE_S = 0.005


class Left(NamedTuple):
    """The ends that the supervisor has reported or will report, by pid and birth."""

    ends: tuple[LeftEnd, ...] = ()
    processes: frozenset[tuple[int, int]] = frozenset()


NOTHING = Left()


class LeftRuns:
    """Adopted runs whose ends the supervisor will report.

    `note` records a change of a run for a successor, and returns whether the successor will know
    it.
    """

    def __init__(self, note: Callable[[KeeperRun], bool]) -> None:
        self._note = note
        self._runs: dict[tuple[int, int], KeeperRun] = {}

    def add(self, run: KeeperRun) -> None:
        """Add a run that goes on, if the supervisor holds it."""
        if run.inherited:
            self._runs[run.pid, run.birth] = run

    def untold(self) -> None:
        """Give up the runs: the supervisor is gone, and they are watched as others are."""
        for run in self._runs.values():
            run.inherited = False
        self._runs.clear()

    def ended(self, ends: Iterable[LeftEnd]) -> list[tuple[int, int]]:
        """Note the reported ends of these processes; return those that may be forgotten.

        The next look at adopted runs ends the runs of these processes. The processes that are not
        returned have to be reported to a successor as well.
        """
        done = []
        for end in ends:
            run = self._runs.pop(end[:2], None)
            if run is not None:
                run.inherited = False
                run.cpu_s, run.peak_mb = end.cpu_s, end.peak_mb
                run.exit = [end.status, time.time() - (since_boot() - end.at)]
            if run is None or self._note(run):
                done.append(end[:2])
        return done


def left_by(below: Supervised | None, memory: Memory) -> Left:
    """Return what the supervisor has of the runs of this journal. Raises SupervisorGone."""
    if below is None:
        return NOTHING
    ends = below.first()
    wanted = {
        (run.pid, run.birth)
        for run in memory.runs.values()
        if run.pid and run.end is None and not (run.container or run.pod)
    }
    known = {*below.inherited, *(end[:2] for end in ends)}
    below.forget(known - wanted)
    return Left(tuple(end for end in ends if end[:2] in wanted), frozenset(known & wanted))


def adopt(memory: Memory, folder: str, *, now: float, left: Left = NOTHING) -> list[KeeperRun]:
    """Return the runs that are still alive.

    A pid from before a restart of the machine means nothing, so the boot id must be the same. In a
    copy of the folder a pid is that of the original's process.

    A container lives on without its watcher, and that of a pod has left how it ended: whether they
    have ended is found out later, as with a process whose end is reported by the supervisor, or was
    noted by the keeper before.
    """
    boot, here = processes.boot_id(), processes.folder_number(folder)
    copied = memory.folder not in ("", here)
    same_boot = memory.boot_id == boot
    memory.boot_id, memory.folder = boot, here
    alive = []
    for run in memory.runs.values():
        if run.end is not None:
            continue
        here_now = same_boot and not copied and run.pid
        run.inherited = (run.pid, run.birth) in left.processes
        told = run.container or run.pod or run.inherited or run.exit
        if here_now and (told or processes.is_alive(run.pid, run.birth)):
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
    """Wait until no process is in the middle of an exec, as after a kill during a spawn.

    Its lock is released by the exec of that child, a moment before the child's new environment,
    with its mark, can be read.
    """
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
    """Kill a session. Its leader must be alive, or its pid may be another process's."""
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
