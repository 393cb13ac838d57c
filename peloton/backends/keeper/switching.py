"""Starting a program as another account, and handing its sandbox to that account.

Turns (program, account) into a running process. Only a keeper that is root can do it. No file may
be opened by its path once the account has the folder: a task of the same account could have put a
link to one of root's files there. Nor may the keeper wait for the program's file, which belongs to
the account: a lease on it, or a file system that does not answer, may delay an exec for ever.

So the child first executes a program of ours (account_start.py), which becomes the account and
executes the command; the keeper waits for the first exec alone. `setpriv` starts faster (2 ms, not
10), but would be loaded as root with the task's environment, and cannot choose the first argument.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import signal
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .account_start import EXEC, REPORT_FD, TASK_FD
from .accounts import Account
from .wire import PipeLines

START_MAX_S = 60.0
"""How long a process may take until it executes its command; longer than a lease can delay it."""

OUTPUTS = ("stdout", "stderr")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_NEW_OUTPUT = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW
_FIRST_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "account_start.py")
_ARGUMENTS = [sys.executable, "-I", "-S", _FIRST_PROGRAM]
_CMDLINE_BYTES_MAX = 65536
_FREE_FD_MIN = 10  # above the numbers that descriptors get in the child


class SwitchFailed(Exception):
    """The process could not become the account: nothing was executed."""


class StartFailure(NamedTuple):
    """Why a process has not executed its command: an errno, or 0 if it took too long."""

    value: str
    switched: bool
    number: int


class AccountTask(NamedTuple):
    """The program of a task and its place. `marks` are set before its own environment is."""

    value: str
    arguments: list[str]
    environment: dict[str, str]
    sandbox: str
    marks: dict[str, str]


class _Start:
    """A process that may not have executed its command yet."""

    def __init__(self, value: str, deadline: float) -> None:
        self.value = value
        self.deadline = deadline
        self.failure: StartFailure | None = None


class AccountStarts:
    """Processes started as other accounts, until they are reaped.

    Their reports of failures come by one pipe; a process that executes its command reports nothing.
    """

    def __init__(self, signals_reset: Sequence[int] = ()) -> None:
        self._signals_reset = signals_reset
        self._starts: dict[int, _Start] = {}
        self._deadlines: deque[tuple[int, _Start]] = deque()
        self._reports, write_end = os.pipe()
        os.set_blocking(self._reports, False)
        self._write_end = _moved_up(write_end)
        self._lines = PipeLines()

    def spawn(self, task: AccountTask, account: Account, *, now: float) -> int:
        """Start a process; return its pid. Raises SwitchFailed, OSError, ValueError.

        It leaves the sandbox as the working folder of this process.
        """
        opened = hand_over(task.sandbox, account)
        try:
            box, output, errors = opened
            os.fchdir(box)
            return self.begin(task, account, outputs=(output, errors), now=now)
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def begin(
        self,
        task: AccountTask,
        account: Account,
        *,
        outputs: tuple[int, int],
        now: float,
        **place: Any,
    ) -> int:
        """Start a process as `spawn` does, in the working folder, writing to these descriptors.

        `place`: where the process is, if it is not in a session of its own. Raises as `spawn`.
        """
        output, errors = outputs
        described = _description(task, account)
        try:
            pid = os.posix_spawn(
                _ARGUMENTS[0],
                _ARGUMENTS,
                task.marks,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, output, 1),
                    (os.POSIX_SPAWN_DUP2, errors, 2),
                    (os.POSIX_SPAWN_DUP2, self._write_end, REPORT_FD),
                    (os.POSIX_SPAWN_DUP2, described, TASK_FD),
                ],
                setsigmask=(),
                setsigdef=self._signals_reset,
                **(place or {"setsid": True}),
            )
        except OSError as trouble:
            raise SwitchFailed(_cannot_become(account.name, trouble.errno or 0)) from trouble
        finally:
            os.close(described)
        start = self._starts[pid] = _Start(task.value, now + START_MAX_S)
        self._deadlines.append((pid, start))
        return pid

    def ended(self, pid: int) -> StartFailure | None:
        """Forget a process that was just reaped; return why it has not executed its command."""
        start = self._starts.pop(pid, None)
        if start is None:
            return None
        self._read_reports({pid: start})
        return start.failure

    def next_deadline(self) -> float | None:
        """Return the deadline of the first process which may still have to execute its command."""
        while self._deadlines:
            pid, start = self._deadlines[0]
            if self._starts.get(pid) is start:
                return start.deadline
            self._deadlines.popleft()
        return None

    def kill_overdue(self, now: float) -> None:
        """Kill processes that still run our own first program, also stopped ones."""
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            pid, start = self._deadlines.popleft()
            if _runs_first_program(pid):
                start.failure = StartFailure(start.value, switched=True, number=0)
                os.kill(pid, signal.SIGKILL)  # not reaped, so the pid is its own

    def _read_reports(self, reaped: Mapping[int, _Start]) -> None:
        for line in self._lines.read(self._reports):
            pid, step, number = line.decode().split()
            start = reaped.get(int(pid)) or self._starts.get(int(pid))
            if start is not None:
                switched = step == EXEC
                start.failure = StartFailure(start.value, switched, int(number))


def _description(task: AccountTask, account: Account) -> int:
    """Return a file in memory with what account_start.py reads. Raises ValueError, OSError."""
    folders = [""] if os.path.dirname(task.value) else os.get_exec_path(task.environment)
    paths = [_encoded(os.path.join(folder, task.value)) for folder in folders]
    arguments = [_encoded(argument) for argument in task.arguments]
    environment = {_encoded(name): _encoded(text) for name, text in task.environment.items()}
    if any(b"=" in name for name in environment):
        raise ValueError("illegal environment variable name")
    groups = list(account.groups)
    data = marshal.dumps((account.uid, account.gid, groups, paths, arguments, environment))
    return in_memory(data)


def in_memory(data: bytes) -> int:
    """Return the descriptor of a file in memory with this content. Raises OSError."""
    descriptor = _moved_up(os.memfd_create("task"))
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _encoded(text: str) -> bytes:
    if "\0" in text:
        raise ValueError("embedded null byte")
    return os.fsencode(text)


def _moved_up(descriptor: int) -> int:
    """Return the same file by a number that is free in every child."""
    try:
        return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FREE_FD_MIN)
    finally:
        os.close(descriptor)


def _runs_first_program(pid: int) -> bool:
    """Return whether a process has not executed its command yet: an exec replaces the arguments."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            found = file.read(_CMDLINE_BYTES_MAX)
    except OSError:
        return False
    return found == b"".join(os.fsencode(one) + b"\0" for one in _ARGUMENTS)


def _cannot_become(name: str, number: int) -> str:
    return f"cannot become {name}: {os.strerror(number)}"


def hand_over(
    sandbox: str, account: Account | None, *, outputs: Sequence[str] = OUTPUTS
) -> list[int]:
    """Give the logs and the folder to the account, or the keeper's own; return descriptors.

    The folder is given away last: until then nobody else can put anything into it.
    """
    opened = [os.open(sandbox, _FOLDER)]
    try:
        for name in outputs:
            opened.append(os.open(name, _NEW_OUTPUT, 0o600, dir_fd=opened[0]))
            _give(opened[-1], account)
        _give(opened[0], account)
    except OSError:
        for descriptor in opened:
            os.close(descriptor)
        raise
    return opened


def _give(descriptor: int, account: Account | None) -> None:
    if account is not None:
        os.fchown(descriptor, account.uid, account.gid)
