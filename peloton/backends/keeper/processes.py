"""Processes: forking a run behind a gate, signals to its group, and reading /proc.

Turns a command into a process group, and a pid into facts. It must not know what a run is,
decide when one is to be killed, or wait for anything.

Why a gate: a keeper killed between the fork and the record of its pid would leave a task that
its successor does not know.

1. The keeper forks; the child makes its session and reads one byte from the gate.
2. The keeper writes the pids of the whole batch to its journal.
3. Only then it writes to the gate, and the children exec their commands.

Killed before 3, the gate closes with the keeper and the children exit without having done
anything; killed after 2, the successor finds their pids.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
from collections.abc import Iterator, Mapping
from typing import NamedTuple, NoReturn

RUN_MARK = "PELOTON_RUN_ID"
KEEPER_MARK = "PELOTON_KEEPER"

NOT_FOUND_STATUS, NOT_RUNNABLE_STATUS, NEVER_STARTED_STATUS = 127, 126, 125

_PR_SET_CHILD_SUBREAPER = 36
_EXEC_ERROR_CHARS_MAX = 500
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_ALL_SIGNALS = signal.valid_signals()
# Python ignores these two and a child would inherit that: a task in a pipe would never end.
_RESET_SIGNALS = [
    signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD,
]  # fmt: skip


class Program(NamedTuple):
    value: str
    arguments: list[str]
    environment: dict[str, str]
    sandbox: str


class Stat(NamedTuple):
    state: str
    parent: int
    session: int
    birth: int
    rss_bytes: int


def become_subreaper() -> None:
    """Orphans of runs are reparented to the keeper, not to init: none escapes by a double fork."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become a subreaper")


class ForkBatch:
    """One batch of forks behind one gate.

    The pipe for exec errors outlives the batch: a child that cannot exec its command writes the
    reason before it exits, so the reason is there when its exit is seen.
    """

    def __init__(self, exec_errors: int) -> None:
        self._exec_errors = exec_errors
        self._forked = 0
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL_SIGNALS)
        try:
            self._gate, self._gate_write = os.pipe()
        except OSError:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            raise

    def fork(self, program: Program) -> int:
        pid = os.fork()
        if pid == 0:
            self._child(program)
        self._forked += 1
        return pid

    def open(self) -> None:
        """A batch is far smaller than a pipe, so this cannot block."""
        os.write(self._gate_write, b"g" * self._forked)

    def close(self) -> None:
        os.close(self._gate)
        os.close(self._gate_write)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def _child(self, program: Program) -> NoReturn:
        status = NOT_RUNNABLE_STATUS
        try:
            os.setsid()
            os.close(self._gate_write)
            for number in _RESET_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            _enter(program.sandbox)
            if os.read(self._gate, 1) != b"g":
                os._exit(NEVER_STARTED_STATUS)
            os.execvpe(program.value, program.arguments, program.environment)
        except FileNotFoundError as trouble:
            status = NOT_FOUND_STATUS
            self._write_exec_error(program, trouble)
        except BaseException as trouble:  # a copy of the keeper must not survive
            self._write_exec_error(program, trouble)
        finally:
            os._exit(status)

    def _write_exec_error(self, program: Program, trouble: BaseException) -> None:
        why = os.strerror(trouble.errno or 0) if isinstance(trouble, OSError) else repr(trouble)
        text = f"cannot run {program.value!r}: {why}"[:_EXEC_ERROR_CHARS_MAX]
        os.write(self._exec_errors, json.dumps([os.getpid(), text]).encode() + b"\n")


def _enter(sandbox: str) -> None:
    os.chdir(sandbox)
    nothing = os.open(os.devnull, os.O_RDONLY)
    out = os.open("stdout", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    err = os.open("stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number, fd in enumerate((nothing, out, err)):
        os.dup2(fd, number)
    os.umask(0o022)  # the keeper's own is stricter than what tasks expect


def signal_group(pid: int, number: int) -> None:
    """To the whole group of an unreaped child or a process just seen alive: its pid cannot be
    reused then. A child that has no group yet is alone, and gets the signal itself."""
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        signal_one(pid, number)
    except PermissionError:
        return


def signal_one(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


def stat(pid: int) -> Stat | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name may hold blanks and brackets; what follows the last bracket may not.
            fields = file.read().rpartition(b")")[2].split()
    except OSError as trouble:
        if trouble.errno in (errno.ENOENT, errno.ESRCH):
            return None
        raise
    return Stat(
        state=fields[0].decode(),
        parent=int(fields[1]),
        session=int(fields[3]),
        birth=int(fields[19]),
        rss_bytes=int(fields[21]) * _PAGE_BYTES,
    )


def is_alive(pid: int, birth: int) -> bool:
    """Whether this very process lives, not another one with its pid; a zombie has ended."""
    found = stat(pid)
    return found is not None and found.birth == birth and found.state not in "ZX"


def all_processes() -> Iterator[tuple[int, Stat]]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            found = stat(int(name))
            if found is not None:
                yield int(name), found


def children() -> list[int]:
    """Of the keeper: runs, helpers, and reparented orphans."""
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children", "rb") as file:
            return [int(pid) for pid in file.read().split()]
    except FileNotFoundError:  # a kernel built without this file
        return [pid for pid, found in all_processes() if found.parent == me]


def marked_run(pid: int, keeper: str) -> str | None:
    """The run a process was started for, by its initial environment."""
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


def rss_by_session(wanted: Mapping[int, object]) -> dict[int, int]:
    """Resident bytes per session, for those wanted. Shared pages count once per process, which
    is why limits compared with this sum must leave a margin."""
    sums: dict[int, int] = {}
    for _, found in all_processes():
        if found.session in wanted:
            sums[found.session] = sums.get(found.session, 0) + found.rss_bytes
    return sums


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
