"""Processes: spawning a run, signals to its group, and reading /proc.

Turns a command into a process group, and a pid into facts. Nothing but an exec is waited for.

A run is spawned by `posix_spawn`: between fork and exec the child shares the memory of the keeper,
which stands still until then, and no Python runs in it. That costs a fraction of a fork, which
copies page tables and then the pages that the interpreter writes to. One that runs as another
account is spawned by switching.py. An exec of a file that the kernel has to wait for (a file
system that does not answer, a lease) holds up the keeper; only the keeper's own user can order it.

The child's folder and umask are those that the keeper sets on itself around a batch. Everything
else of the keeper stays with the keeper: its descriptors are closed by the exec, its signal
handlers and mask are reset. One of these descriptors holds the folder's lock, so a successor of a
keeper that was killed meanwhile begins only after the exec, and finds the process by its
environment.
"""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .accounts import Account
from .switching import AccountStarts, AccountTask, StartFailure, SwitchFailed

RUN_MARK = "PELOTON_RUN_ID"
KEEPER_MARK = "PELOTON_KEEPER"

NOT_FOUND_STATUS, NOT_RUNNABLE_STATUS = 127, 126

_PR_SET_CHILD_SUBREAPER = 36
_STAT_BYTES_MAX = 4096
_PF_KTHREAD = 0x00200000
_EXEC_ERROR_CHARS_MAX = 500
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TASK_UMASK = 0o022  # the keeper's own is stricter than what tasks expect
# Ignored by Python; a child would inherit that, and a task in a pipe never end.
RESET_SIGNALS = [signal.SIGPIPE, signal.SIGXFSZ]
_OUTPUT = os.O_WRONLY | os.O_CREAT | os.O_APPEND
_FILE_ACTIONS = [
    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
    (os.POSIX_SPAWN_OPEN, 1, "stdout", _OUTPUT, 0o600),
    (os.POSIX_SPAWN_OPEN, 2, "stderr", _OUTPUT, 0o600),
]
# The machine lacks something that is not the program's: another attempt may succeed.
_SYSTEM_ERRORS = (
    errno.EAGAIN, errno.ENOMEM, errno.ENOSPC, errno.EDQUOT, errno.ENFILE, errno.EMFILE, errno.EIO,
)  # fmt: skip


class Program(NamedTuple):
    value: str
    arguments: list[str]
    environment: dict[str, str]
    sandbox: str
    account: Account | None = None


class Stat(NamedTuple):
    state: str
    parent: int
    session: int
    flags: int
    birth: int
    rss_bytes: int


def become_subreaper() -> None:
    """Become the parent of orphans of runs: none escapes by a double fork."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become a subreaper")


class SpawnFailed(Exception):
    """No process was started.

    `status` is the exit code that a shell would report for the command; None if the command is
    not to blame.
    """

    def __init__(self, message: str, *, status: int | None) -> None:
        super().__init__(message)
        self.status = status


class Spawner:
    """Starts programs; a context, as the keeper's own folder and umask differ meanwhile."""

    def __init__(self) -> None:
        self._home_fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        self._umask = _TASK_UMASK
        self._account_starts = AccountStarts(RESET_SIGNALS)
        _keep_descriptors()

    def __enter__(self) -> Spawner:
        self._umask = os.umask(_TASK_UMASK)
        return self

    def __exit__(self, *_: object) -> None:
        os.umask(self._umask)
        os.fchdir(self._home_fd)

    def spawn(self, program: Program) -> int:
        """Start a program; return its pid. Raises SpawnFailed.

        The program runs already, or the process is about to become it as another account.
        """
        try:
            os.fchdir(self._home_fd)
            if program.account is not None:
                task = AccountTask(*program[:4], _marks(program))
                return self._account_starts.spawn(task, program.account, now=time.monotonic())
            os.chdir(program.sandbox)
            return _spawn_first(program)
        except (SwitchFailed, OSError, ValueError) as trouble:
            raise _failure_of(program, trouble) from trouble

    def spawn_part(self, program: Program, outputs: tuple[int, int]) -> int:
        """Start one of several programs of this session; return its pid. Raises SpawnFailed.

        The program is in a group of its own and in the working folder, and writes to these
        descriptors.
        """
        actions: list[Any] = [_FILE_ACTIONS[0]]
        actions += [(os.POSIX_SPAWN_DUP2, found, at) for at, found in enumerate(outputs, 1)]
        try:
            if program.account is not None:
                task = AccountTask(*program[:4], _marks(program))
                return self._account_starts.begin(
                    task, program.account, outputs=outputs, now=time.monotonic(), setpgroup=0
                )
            return _spawn_first(program, actions, setpgroup=0)
        except (SwitchFailed, OSError, ValueError) as trouble:
            raise _failure_of(program, trouble) from trouble

    def ended(self, pid: int) -> SpawnFailed | None:
        """Return why a process that was just reaped has not executed its program."""
        failure = self._account_starts.ended(pid)
        return _failed_start(failure) if failure is not None else None

    def next_deadline(self) -> float | None:
        """Return when `kill_overdue` is to be called next."""
        return self._account_starts.next_deadline()

    def kill_overdue(self, now: float) -> None:
        """Kill processes that should have executed their programs by now and have not."""
        self._account_starts.kill_overdue(now)


def _failure_of(program: Program, trouble: Exception) -> SpawnFailed:
    if isinstance(trouble, SwitchFailed):
        return SpawnFailed(str(trouble), status=None)
    if isinstance(trouble, OSError):
        return _failed_exec(program.value, trouble.errno or 0)
    # A null byte, or a variable with "=" in its name.
    why = _cannot_run(program.value, repr(trouble))
    return SpawnFailed(why, status=NOT_RUNNABLE_STATUS)


def _spawn_first(program: Program, actions: Sequence[Any] = _FILE_ACTIONS, **place: Any) -> int:
    """Spawn the first path that can be run; else raise the most telling error.

    `place`: where the process is, if it is not in a session of its own.
    """
    denied: OSError | None = None
    missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    for path in _candidates(program):
        try:
            return os.posix_spawn(
                path,
                program.arguments,
                program.environment,
                file_actions=actions,
                setsigmask=(),
                setsigdef=RESET_SIGNALS,
                **(place or {"setsid": True}),
            )
        except (FileNotFoundError, NotADirectoryError) as trouble:
            missing = trouble
        except OSError as trouble:
            denied = denied or trouble
    raise denied or missing


def _marks(program: Program) -> dict[str, str]:
    return {name: program.environment[name] for name in (RUN_MARK, KEEPER_MARK)}


def _candidates(program: Program) -> Iterator[str]:
    """Yield the paths where the program may be: a look is cheaper than a spawn that fails."""
    if os.path.dirname(program.value):
        yield program.value
        return
    for folder in os.get_exec_path(program.environment):
        path = os.path.join(folder, program.value)
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            pass  # the spawn fails as well, and its error counts
        yield path


def _failed_exec(value: str, number: int) -> SpawnFailed:
    why = os.strerror(number)
    if number in _SYSTEM_ERRORS:
        return SpawnFailed(f"spawn: {why}", status=None)
    status = NOT_FOUND_STATUS if number == errno.ENOENT else NOT_RUNNABLE_STATUS
    return SpawnFailed(_cannot_run(value, why), status=status)


def _failed_start(failure: StartFailure) -> SpawnFailed:
    if not failure.switched:
        why = os.strerror(failure.number)
        return SpawnFailed(f"cannot become the account: {why}", status=None)
    if failure.number:
        return _failed_exec(failure.value, failure.number)
    why = _cannot_run(failure.value, "its file did not open in time")
    return SpawnFailed(why, status=NOT_RUNNABLE_STATUS)


def _cannot_run(value: str, why: str) -> str:
    return f"cannot run {value!r}: {why}"[:_EXEC_ERROR_CHARS_MAX]


def _keep_descriptors() -> None:
    """Close on exec the descriptors that this process was started with."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2:
                os.set_inheritable(int(name), False)
        except OSError as trouble:
            if trouble.errno != errno.EBADF:  # that of the listing is closed already
                raise


def reset_signals() -> None:
    """Reset signals that the keeper's starter ignored or blocked: tasks would inherit that."""
    # Python ignores these two for itself; `RESET_SIGNALS` has them.
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def signal_group(pid: int, number: int) -> None:
    """Signal the whole group of an unreaped child or of a process just seen alive.

    Its pid cannot be reused then.
    """
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def has_group(pid: int) -> bool:
    """Return whether a process is left in this group, also one that was not reaped.

    No other process or group gets this number as long as there is.
    """
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # they are of another account
        return True
    return True


def signal_one(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def stat(pid: int) -> Stat | None:
    try:
        # Not `open`, which makes three times as many system calls; once for each launch.
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
        try:
            text = os.read(fd, _STAT_BYTES_MAX)
        finally:
            os.close(fd)
    except OSError as trouble:
        if trouble.errno in (errno.ENOENT, errno.ESRCH):
            return None
        raise
    # The name may hold blanks and brackets; what follows the last bracket may not.
    fields = text.rpartition(b")")[2].split()
    return Stat(
        state=fields[0].decode(),
        parent=int(fields[1]),
        session=int(fields[3]),
        flags=int(fields[6]),
        birth=int(fields[19]),
        rss_bytes=int(fields[21]) * _PAGE_BYTES,
    )


def is_alive(pid: int, birth: int) -> bool:
    """Return whether this very process lives, not another one with its pid; a zombie has ended."""
    found = stat(pid)
    return found is not None and found.birth == birth and found.state not in "ZX"


def status_of(ended: os.waitid_result) -> int:
    """Return the status as in subprocess: an exit code, or a signal's negative."""
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def all_processes() -> Iterator[tuple[int, Stat]]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            found = stat(int(name))
            if found is not None:
                yield int(name), found


def children() -> list[int]:
    """Return the children of the keeper: runs, helpers, and reparented orphans."""
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except FileNotFoundError:  # a kernel built without this file
        return [pid for pid, found in all_processes() if found.parent == me]


def marked_run(pid: int, keeper: str) -> str | None:
    """Return the run that a process was started for, by its initial environment."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            variables = file.read().split(b"\0")
    except OSError:
        return None
    if f"{KEEPER_MARK}={keeper}".encode() not in variables:
        return None
    start = f"{RUN_MARK}=".encode()
    for variable in variables:
        if variable.startswith(start):
            return variable[len(start) :].decode(errors="replace")
    return None


def environment(pid: int) -> dict[str, str]:
    """Return the variables that a process began with. Raises OSError."""
    with open(f"/proc/{pid}/environ", "rb") as file:
        pairs = (variable.partition(b"=") for variable in file.read().split(b"\0") if variable)
        return {os.fsdecode(name): os.fsdecode(text) for name, _, text in pairs}


def in_exec(pid: int, found: Stat) -> bool:
    """Return whether a process is between two programs.

    The old one's memory is gone then, and neither arguments nor environment of the new one can be
    read yet.
    """
    if found.state in "ZX" or found.flags & _PF_KTHREAD:
        return False
    try:
        for name in ("environ", "cmdline"):
            with open(f"/proc/{pid}/{name}", "rb") as file:
                if file.read(1):
                    return False
    except OSError:
        return False
    return True


def rss_by_session(wanted: Mapping[int, object]) -> dict[int, int]:
    """Return resident bytes per session, for those wanted.

    Shared pages count once per process, which is why limits compared with this sum must leave a
    margin.
    """
    sums: dict[int, int] = {}
    for _, found in all_processes():
        if found.session in wanted:
            sums[found.session] = sums.get(found.session, 0) + found.rss_bytes
    return sums


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def folder_number(folder: str) -> str:
    """Return device and inode: a folder that is moved on its file system keeps them."""
    found = os.stat(folder)
    return f"{found.st_dev}:{found.st_ino}"
