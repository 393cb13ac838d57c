"""Keeping a folder: the lock, the recovery, the loop, in that order.

Turns a detached process into the folder's keeper. Neither the journal nor a process may be touched
before the lock is held: two keepers would adopt the same runs.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import os
import time
from collections.abc import Callable

from .adoption import adopt, kill_marked, left_by
from .disk import DISK, Disk, write_all
from .journal import KeeperJournal
from .kept import KeepRules
from .kinds import KeeperRun, Memory
from .limits import Limits
from .processes import become_subreaper, boot_id, folder_number, reset_signals
from .runs import Runs
from .sandboxes import SandboxFolders, is_private
from .service import Service, ServiceSettings
from .supervised import HELD_STATUS, Supervised

READY_STATUS = 0
_IDLE_S, _SANDBOXES_KEPT_MAX, _ROUND_S = 60.0, 1000.0, 1.0
_NO_RULE = 0.0


def keep(
    folder: str,
    arguments: list[str],
    *,
    below: Supervised | None = None,
    say: Callable[[int], None] | None = None,
    disk: Disk = DISK,
) -> None:
    """Keep the working folder.

    `say` takes the status of the start, once; without it the supervisor does. `below` connects this
    process with its supervisor, if it has one.
    """
    say = say or (below.say if below is not None else lambda _: None)
    defaults = [_IDLE_S, _SANDBOXES_KEPT_MAX, _ROUND_S, *[_NO_RULE] * 3]
    numbers = [float(argument) for argument in arguments] + defaults[len(arguments) :]
    settings = ServiceSettings(idle_s=numbers[0], round_s=numbers[2])
    mb, free_mb = map(int, numbers[4:6])
    rules = KeepRules(int(numbers[1]), age_s=numbers[3], mb=mb, free_mb=free_mb)
    _make_private(disk)
    lock_fd = _lock(disk)
    if lock_fd < 0:
        say(HELD_STATUS)
        return
    reset_signals()
    become_subreaper()
    journal = KeeperJournal("journal", disk)
    memory = Memory(boot_id())
    memory.fold(journal.read())
    if not _is_here(folder):
        kill_marked(folder, memory.runs.__contains__)
        say(READY_STATUS)
        return
    left = left_by(below, memory)
    alive = adopt(memory, folder, now=time.time(), left=left)
    journal.rewrite(memory.records())
    boxes = SandboxFolders(folder, rules=rules, disk=disk)
    boxes.open(memory.runs)
    limits = Limits(folder, disk=disk)
    runs = Runs(folder, memory, journal=journal, boxes=boxes, limits=limits)
    _take_over(runs, alive)
    service = Service(runs, settings, lock_fd=lock_fd, below=below, disk=disk)
    say(READY_STATUS)
    service.take(left)
    # Nothing here makes cycles.
    gc.collect()
    gc.freeze()
    gc.disable()
    service.serve()


def _take_over(runs: Runs, alive: list[KeeperRun]) -> None:
    """Take over from a keeper that was killed: runs that go on, and what is to be removed."""
    runs.adopted = {run.run_id: run for run in alive}
    runs.limits.recover(runs.adopted)
    for run in alive:
        runs.resume(run)
    runs.containers.sweep([*runs.adopted])
    runs.pods.recover(runs.memory.runs.values())
    runs.secret_files.sweep({*runs.adopted})


def _is_here(folder: str) -> bool:
    """Return whether the folder still is the working folder.

    It may have been moved while there was no keeper: then nobody asks for its runs any more.
    """
    try:
        return folder_number(folder) == folder_number(".")
    except FileNotFoundError:
        return False


def _make_private(disk: Disk) -> None:
    """Close the folder to other users, who could hold the lock, or replace what is in it."""
    found = disk.stat(".")
    if found.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "the folder belongs to another user")
    if not is_private(found):
        disk.chmod(".", 0o700)


def _lock(disk: Disk) -> int:
    """Lock the folder for one keeper. The number in the file is for people."""
    fd = disk.open("lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        disk.close(fd)
        return -1
    disk.ftruncate(fd, 0)
    write_all(fd, f"{os.getpid()}\n".encode(), disk=disk)
    return fd
