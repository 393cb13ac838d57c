"""The keeper's side of its supervisor (`supervisor.py`): its start, and its messages.

Turns the lines of a pipe into ends of runs that an earlier keeper had, and this process into a
supervisor where there is none.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple, NoReturn

from . import supervisor
from .disk import replace_file
from .wire import PipeLines

LOCK, HELD_STATUS = "supervisor", 3
_ALL = b"all"


class LeftEnd(NamedTuple):
    """The end of a process whose parent was gone.

    `status` as in subprocess; `at`: by the kernel's clock since the machine's start.
    """

    pid: int
    birth: int
    status: int
    cpu_s: float
    peak_mb: float
    at: float


class SupervisorGone(Exception):
    """The supervisor has ended: nobody keeps the ends of runs if this keeper ends as well."""


class Supervised:
    """The connection to this keeper's supervisor.

    `inherited`: the processes whose ends it will report.
    """

    def __init__(self, descriptors: Sequence[int], command: list[str]) -> None:
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        self.descriptor, self._up_fd, self._lock_fd = descriptors
        for pipe in (self.descriptor, self._up_fd):
            os.set_blocking(pipe, False)
        self._command = command
        self._lines = PipeLines()
        self._unsent = bytearray()
        self.inherited: set[tuple[int, int]] = set()

    @classmethod
    def of(cls, arguments: list[str]) -> Supervised:
        """Connect by a supervisor's arguments: three descriptors, then the command's words."""
        return cls([*map(int, arguments[:3])], command_of(arguments[3:]))

    def first(self) -> list[LeftEnd]:
        """Return the ends that no journal has; wait until all are reported. Raises
        SupervisorGone."""
        found: list[bytes] = []
        while _ALL not in found:
            select.select([self.descriptor], [], [])
            found += self._read()
        return self._ends(found)

    def read(self) -> list[LeftEnd]:
        """Return the ends reported since. Raises SupervisorGone once all were read."""
        return self._ends(self._read())

    def say(self, status: int) -> None:
        """Report to the process that has asked for a keeper whether this is one; called once."""
        self._unsent += b"%d\n" % status
        self._send()

    def forget(self, processes: Iterable[tuple[int, int]]) -> None:
        """Tell the supervisor that the ends of these processes are in the journal, or of no use."""
        for process in processes:
            self.inherited.discard(process)
            self._unsent += b"%d %d\n" % process
        self._send()

    def take_place(self) -> NoReturn:
        """Become the supervisor, whose keeper is another one: our children are its children then.

        Raises OSError.
        """
        supervise(self._lock_fd, -1, command=self._command)

    def _read(self) -> list[bytes]:
        lines = self._lines.read(self.descriptor)
        if self._lines.over and not lines:
            raise SupervisorGone
        self._send()
        return lines

    def _ends(self, lines: list[bytes]) -> list[LeftEnd]:
        found = []
        for line in lines:
            word, *rest = line.split()
            if word == b"inherited":
                self.inherited.add((int(rest[0]), int(rest[1])))
            elif word == b"end":
                pid, birth, status = map(int, rest[:3])
                found.append(LeftEnd(pid, birth, status, *map(float, rest[3:])))
        return found

    def _send(self) -> None:
        try:
            while self._unsent:
                sent = os.write(self._up_fd, self._unsent)
                del self._unsent[:sent]
        except BlockingIOError:
            return  # with the next words
        except BrokenPipeError:
            self._unsent.clear()  # what is read next says that it is gone


def command_of(arguments: list[str]) -> list[str]:
    """Return the words that start a keeper with these arguments: the folder, and its settings."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
    return [sys.executable, "-I", "-S", program, *arguments]


def begin(arguments: list[str], status_fd: int) -> None:
    """Become the supervisor of the working folder, unless it has one. Raises OSError.

    An existing supervisor starts the wanted command as soon as its keeper has ended.
    """
    if os.stat(".").st_uid != os.geteuid():  # another user could hold the lock
        raise PermissionError(errno.EPERM, "the folder belongs to another user")
    command = command_of(arguments)
    lock_fd = os.open(LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        words = b"".join(os.fsencode(word) + b"\0" for word in command)
        replace_file(supervisor.PROGRAM_FILE, words)
    except OSError as trouble:  # a full disk, say; then a successor is started as this one is
        supervisor.say(f"{supervisor.PROGRAM_FILE}: {trouble}")
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.write(status_fd, bytes([HELD_STATUS]))
        return
    supervise(lock_fd, status_fd, command=command)


def supervise(lock_fd: int, status_fd: int, *, command: list[str]) -> NoReturn:
    """Execute the supervisor in this process, which must be a subreaper. Raises OSError."""
    passed = [descriptor for descriptor in (lock_fd, status_fd) if descriptor >= 0]
    for descriptor in passed:
        os.set_inheritable(descriptor, True)
    words = [sys.executable, "-I", "-S", os.path.abspath(supervisor.__file__)]
    try:
        os.execv(words[0], [*words, str(lock_fd), str(status_fd), *command])
    finally:
        for descriptor in passed:
            os.set_inheritable(descriptor, False)
