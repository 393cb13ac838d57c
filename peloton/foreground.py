"""A process in the foreground: signals, first and last words, exit codes.

Turns whatever can be started and stopped into one exit code: it runs until a signal comes, or
until it fails of itself. What it runs is the affair of its caller; it must not start it again when
it has ended.
"""

from __future__ import annotations

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
        click.echo(f"{manner.name}: {error}", err=True)
        return CANNOT_START
    greet(running)
    sys.stdout.flush()
    leaving.wait()
    click.echo(manner.leaving, err=True)
    try:
        clean = running.stop()
    except ClusterFailed as error:
        click.echo(f"{manner.name}: {error}", err=True)
        return manner.failed
    if clean:
        return 0
    if manner.left_text:
        click.echo(manner.left_text, err=True)
    return manner.left
