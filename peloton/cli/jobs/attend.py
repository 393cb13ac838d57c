"""Stays with a job that `run` or `map` made: until it ends, or the user leaves.

On a terminal Ctrl-C asks what to do with the job; if the user cannot be asked, it stops the job, as
it would have stopped the command itself.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from peloton.cli.shared.output import command, hint
from peloton.sdk.errors import CanNeverRun, PelotonError

if TYPE_CHECKING:
    from peloton.sdk.client import Client
    from peloton.sdk.ops import WaitResult

STOP_MAX_S = 45.0
"""How long a stopped job is waited for; its tasks have 30 s between SIGTERM and SIGKILL."""
ENDING = (signal.SIGTERM, signal.SIGHUP)
CHOICES = {"s": "stop", "d": "detach", "c": "continue"}


class Detached(Exception):
    """The user left the job running."""


class StoppedHere(Exception):
    """The job was stopped because the command was interrupted."""


def attend(
    peloton: Client,
    job: str,
    *,
    seen: Callable[[WaitResult], None],
    can_detach: bool = True,
    asking: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> WaitResult:
    """Wait for the end of the job. `seen` is told about every second how far it is.

    Within `asking` nothing else may print: a bar would be painted over the question. Raises
    Detached or StoppedHere, and CanNeverRun of `seen`, once the job is stopped.
    """
    with signals_interrupt():
        while True:
            try:
                return peloton.ops.wait(job, silent=hint, seen=seen)
            except CanNeverRun:
                with asking():
                    stop(peloton, job)
                raise
            except KeyboardInterrupt as interrupted:
                asked = not interrupted.args and sys.stdin.isatty() and sys.stderr.isatty()
                with asking():
                    choose(peloton, job, choice=ask(can_detach) if asked else "stop")


def choose(peloton: Client, job: str, *, choice: str) -> None:
    """Do what was chosen; return if the job is attended to further."""
    if choice == "detach":
        hint(f"job {job} goes on; `{command('job', 'stop', job)}` ends it")
        raise Detached from None
    if choice == "stop":
        stop(peloton, job)
        raise StoppedHere from None


def ask(can_detach: bool) -> str:
    """Ask what to do. A second Ctrl-C, or an end of the input, means stop."""
    known = CHOICES if can_detach else {"s": "stop", "c": "continue"}
    text = ", ".join(f"[{key}]{word[1:]}" for key, word in known.items())
    try:
        while True:
            typed = click.prompt(f"\n{text}", default="s", show_default=False, err=True)
            found = known.get(typed.strip().lower()[:1])
            if found is not None:
                return found
    except (click.Abort, KeyboardInterrupt):
        return "stop"


def stop(peloton: Client, job: str) -> None:
    """Stop the job, and wait a while for its end."""
    hint(f"stopping job {job}")
    try:
        peloton.jobs.stop(job)
        ended = peloton.ops.wait(job, timeout_s=STOP_MAX_S)
    except PelotonError as error:
        hint(f"job {job} could not be stopped: {error}")
        return
    hint(f"job {job} is {ended.state}" if ended.done else f"job {job} has not ended yet")


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the command as Ctrl-C does, without a question."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(number)

    try:
        before: dict[int, Any] = {number: signal.signal(number, leave) for number in ENDING}
    except ValueError:  # not the main thread, such as in a program that calls this
        before = {}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
