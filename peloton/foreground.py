"""A process in the foreground: signals, first and last words, exit codes.

Turns whatever can be started and stopped into one exit code: it runs until a signal comes, or
until it fails of itself. What it runs is the affair of its caller; it must not start it again when
it has ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import NamedTuple, Protocol, TypeVar

import click

from peloton.assembly import CannotStart, ClusterFailed

CANNOT_START = 69


class Running(Protocol):
    """From its construction to `stop`."""

    def stop(self) -> bool:
        """Whether nothing was left behind. Raises `ClusterFailed` when it had ended by itself."""


RunningProcess = TypeVar("RunningProcess", bound=Running)


class Manner(NamedTuple):
    """What a process says when it ends, and with which code."""

    name: str  # in front of all that went wrong
    leaving: str
    failed: int
    left: int  # where something was left behind
    left_text: str = ""


def run(
    start: Callable[[Callable[[], None]], RunningProcess],
    *,
    greet: Callable[[RunningProcess], None],
    manner: Manner,
) -> int:
    """Start, greet, wait for a signal or for the call that `start` was given, stop; the exit code.

    What `greet` says on stdout is heard at once.
    """
    leaving = threading.Event()

    def leave(number: int, frame: FrameType | None) -> None:
        leaving.set()

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    try:
        running = start(leaving.set)
    except CannotStart as error:
        say(f"{manner.name}: {error}")
        return CANNOT_START
    except OSError as error:
        # A full disk, a folder that is not ours to write: nothing that a traceback would explain.
        where = f"{error.filename}: " if error.filename is not None else ""
        say(f"{manner.name}: {where}{error.strerror or error}")
        return CANNOT_START
    try:
        greet(running)
        if sys.stdout is not None:  # a program may be started without one
            sys.stdout.flush()
    except OSError as error:
        # Nobody reads what we print. The cluster runs all the same, and others may use it.
        forget_stdout()
        say(f"{manner.name}: stdout: {error.strerror}")
    leaving.wait()
    say(manner.leaving)
    try:
        clean = running.stop()
    except ClusterFailed as error:
        say(f"{manner.name}: {error}")
        return manner.failed
    if clean:
        return 0
    if manner.left_text:
        say(manner.left_text)
    return manner.left


def say(line: str) -> None:
    """A line on stderr; it may be closed, or its reader may be gone."""
    with contextlib.suppress(OSError, ValueError):
        click.echo(line, err=True)


def forget_stdout() -> None:
    """What Python still wants to flush when it ends would fail as well."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
