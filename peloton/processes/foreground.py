"""Runs a process in the foreground: signals, messages at start and end, exit codes.

Turns whatever can be started and stopped into one exit code: it runs until a signal arrives or it
fails.
"""

from __future__ import annotations

import enum
import errno
import os
import signal
import sys
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import FrameType
from typing import NamedTuple, Protocol, TypeVar

from peloton.assembly.dead_threads import DEAD_THREADS
from peloton.assembly.process_log import log_line, nonblocking_stderr
from peloton.cli.main import discard_stdout
from peloton.failures import CannotStart, ClusterFailed, JournalBehind

CANNOT_START = 69
JOURNAL_BEHIND = 65
"""The journal was rolled back: to start again does not help."""
SIGNAL_S_MAX = 1.0
"""After so long a signal is noticed that the kernel gave to another thread."""


class Running(Protocol):
    """A process that runs from its construction to `stop`."""

    def stop(self) -> bool:
        """Stop; return whether nothing was left behind. Raises `ClusterFailed`."""


RunningProcess = TypeVar("RunningProcess", bound=Running)


class ProcessTexts(NamedTuple):
    """The texts and exit codes of a process when it ends."""

    name: str  # prefix of errors
    leaving: str
    failed: int
    left: int  # if something was left behind
    left_text: str = ""


class ProcessOrder(enum.Enum):
    """An order to a process in the foreground."""

    LEAVE = "leave"
    RELOAD = "reload"


class Orders:
    """The orders of signals and other threads.

    It is no Event: its `set` waits for a lock that the interrupted thread may hold, inside its own
    `wait`, and a process whose signal comes then never ends. A `put` may interrupt a `get`.
    """

    def __init__(self) -> None:
        self._orders: SimpleQueue[ProcessOrder] = SimpleQueue()
        self.is_hung_up: Callable[[], bool] = lambda: False
        """Whether to leave, though a signal that says so came before that could be seen."""

    def leave(self) -> None:
        """Order the process to leave; a second order changes nothing."""
        self._orders.put(ProcessOrder.LEAVE)

    def reload(self) -> None:
        """Order a reload, to be done before the next order."""
        self._orders.put(ProcessOrder.RELOAD)

    def wait(self) -> ProcessOrder:
        """Return the next order.

        If the kernel gives a signal to another thread, Python runs its handler only once this one
        wakes: without a time it would never leave.
        """
        while True:
            try:
                return self._orders.get(timeout=SIGNAL_S_MAX)
            except Empty:
                if self.is_hung_up():
                    return ProcessOrder.LEAVE


class ControllingTerminal:
    """The terminal of the process, which gets SIGHUP when it closes, and by `kill` to reload."""

    def __init__(self) -> None:
        self._was_there = self._is_there()
        self.ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        """Whether its end is none of our business, as with `nohup`."""

    @property
    def is_gone(self) -> bool:
        return self._was_there and not self._is_there()

    @property
    def ends_us(self) -> bool:
        """Whether the terminal has closed, and that is to end the process."""
        return not self.ignored and self.is_gone

    @staticmethod
    def _is_there() -> bool:
        try:
            os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK))
        except OSError as error:
            return error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
        return True


def run_process(
    start: Callable[[Callable[[], None]], RunningProcess],
    *,
    greet: Callable[[RunningProcess], object],
    texts: ProcessTexts,
    reload: Callable[[RunningProcess], object] = lambda running: None,
) -> int:
    """Start, greet, wait for a signal or the call given to `start`, stop; return the exit code.

    What `greet` prints on stdout is flushed at once. The process logs on stderr, and nothing that
    it prints there can block it (`process_log`). Files that it makes are for its user alone. SIGHUP
    opens the file of the log anew, and calls `reload`, which must not raise; SIGHUP of a terminal
    that closes ends the process, as SIGTERM does.
    """
    os.umask(0o077)
    DEAD_THREADS.watch()
    orders = Orders()
    _obey_signals(orders)
    with nonblocking_stderr() as log:

        def again(running: RunningProcess) -> None:
            try:
                log.reopen()
            except OSError as error:
                log_line(f"{texts.name}: {error.filename}: {error.strerror}: the log goes on")
            reload(running)

        return _run_process(start, greet=greet, texts=texts, orders=orders, reload=again)


def _obey_signals(orders: Orders) -> None:
    """Handle signals from the beginning on: SIGHUP would end a process that still starts."""
    terminal = ControllingTerminal()

    def leave(number: int, frame: FrameType | None) -> None:
        orders.leave()

    def hang_up(number: int, frame: FrameType | None) -> None:
        if not terminal.is_gone:
            orders.reload()
        elif terminal.ends_us:
            orders.leave()

    orders.is_hung_up = lambda: terminal.ends_us
    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    signal.signal(signal.SIGHUP, hang_up)


def _run_process(
    start: Callable[[Callable[[], None]], RunningProcess],
    *,
    greet: Callable[[RunningProcess], object],
    texts: ProcessTexts,
    orders: Orders,
    reload: Callable[[RunningProcess], object],
) -> int:
    try:
        running = start(orders.leave)
    except CannotStart as error:
        log_line(f"{texts.name}: {error}")
        return JOURNAL_BEHIND if isinstance(error, JournalBehind) else CANNOT_START
    except OSError as error:
        # Such as a full disk or a folder without write permission: a traceback would not help.
        where = f"{error.filename}: " if error.filename is not None else ""
        log_line(f"{texts.name}: {where}{error.strerror or error}")
        return CANNOT_START
    try:
        greet(running)
        if sys.stdout is not None:  # a program may be started without one
            sys.stdout.flush()
    except OSError as error:
        # Stdout is closed. The cluster runs nevertheless, and others may use it.
        discard_stdout()
        log_line(f"{texts.name}: stdout: {error.strerror}")
    while orders.wait() is ProcessOrder.RELOAD:
        reload(running)
    log_line(texts.leaving)
    try:
        clean = running.stop()
    except ClusterFailed as error:
        log_line(f"{texts.name}: {error}")
        return texts.failed
    if clean:
        return 0
    if texts.left_text:
        log_line(texts.left_text)
    return texts.left
