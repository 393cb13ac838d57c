"""Processes: forking a run behind a gate, signals to its group, and what /proc tells.

Turns a command into a process group and a process number into facts. It must not know what a
run is, decide when one is to die, or wait for anything.

Why a gate: a keeper killed between the fork and the note of its process number would leave a
task behind that its successor knows nothing of.

1. The keeper forks; the child makes its session and reads one byte from the gate.
2. The keeper writes the numbers of the whole batch to its journal.
3. Only then it writes to the gate, and the children become their commands.

Killed before 3, the gate closes with the keeper and the children leave without having done
anything; killed after 2, the successor finds their numbers.
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
_COMPLAINT_CHARS_MAX = 500
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
    """Orphans of our runs come to us instead of to init, so none escapes by a double fork."""
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot become a subreaper")


class Nursery:
    """One batch of forks behind one gate.

    The complaints pipe outlives the batch: a child that cannot become its command says why
    before it leaves, so the reason is there when its exit is seen.
    """

    def __init__(self, complaints: int) -> None:
        self._complaints = complaints
        self._born = 0
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ALL_SIGNALS)
        try:
            self._gate, self._opener = os.pipe()
        except OSError:
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            raise

    def fork(self, program: Program) -> int:
        pid = os.fork()
        if pid == 0:
            self._child(program)
        self._born += 1
        return pid

    def open(self) -> None:
        """A batch is far smaller than a pipe, so this cannot block."""
        os.write(self._opener, b"g" * self._born)

    def close(self) -> None:
        os.close(self._gate)
        os.close(self._opener)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def _child(self, program: Program) -> NoReturn:
        status = NOT_RUNNABLE_STATUS
        try:
            os.setsid()
            os.close(self._opener)
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
            self._complain(program, trouble)
        except BaseException as trouble:  # a copy of the keeper must not live on
            self._complain(program, trouble)
        finally:
            os._exit(status)

    def _complain(self, program: Program, trouble: BaseException) -> None:
        why = os.strerror(trouble.errno or 0) if isinstance(trouble, OSError) else repr(trouble)
        text = f"cannot run {program.value!r}: {why}"[:_COMPLAINT_CHARS_MAX]
        os.write(self._complaints, json.dumps([os.getpid(), text]).encode() + b"\n")


def _enter(sandbox: str) -> None:
    os.chdir(sandbox)
    nothing = os.open(os.devnull, os.O_RDONLY)
    out = os.open("stdout", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    err = os.open("stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number, fd in enumerate((nothing, out, err)):
        os.dup2(fd, number)
    os.umask(0o022)  # the keeper's own is stricter than what tasks expect


def signal_group(pid: int, number: int) -> None:
    """To the whole group of an unreaped child or a process just seen alive: its number is then
    nobody else's. A child that has no group yet is alone, and gets the signal itself."""
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
    """The same process, not another one with its number; a zombie has ended."""
    found = stat(pid)
    return found is not None and found.birth == birth and found.state not in "ZX"


def everybody() -> Iterator[tuple[int, Stat]]:
    for name in os.listdir("/proc"):
        if name.isdigit():
            found = stat(int(name))
            if found is not None:
                yield int(name), found


def children() -> list[int]:
    """Our own: runs, helpers, and orphans that came to us."""
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children", "rb") as file:
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:  # a kernel built without this file
        return [pid for pid, found in everybody() if found.parent == me]


def marked_run(pid: int, keeper: str) -> str | None:
    """The run a process was started for, by the environment it was given at its birth."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return None
    if f"{KEEPER_MARK}={keeper}".encode() not in words:
        return None
    start = f"{RUN_MARK}=".encode()
    for word in words:
        if word.startswith(start):
            return word[len(start) :].decode(errors="replace")
    return None


def rss_by_session(wanted: Mapping[int, object]) -> dict[int, int]:
    """Resident bytes per session, for those wanted. Shared pages count once per process, which
    is why limits compared with this sum must leave room."""
    sums: dict[int, int] = {}
    for _, found in everybody():
        if found.session in wanted:
            sums[found.session] = sums.get(found.session, 0) + found.rss_bytes
    return sums


def boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
