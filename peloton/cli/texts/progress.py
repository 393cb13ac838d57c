"""How far a job is: a bar on a terminal, else lines on stderr in growing pauses, at changes."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from peloton.cli.shared.output import hint
from peloton.cli.shared.times import span
from peloton.cli.texts.task_texts import ended_of

FIRST_S, PAUSE_S, PAUSE_S_MAX, GROWTH = 2.0, 5.0, 60.0, 1.5


class Shown(Protocol):
    """The shown progress; a context manager."""

    def __enter__(self) -> Shown: ...

    def __exit__(self, *error: object) -> None: ...

    def seen(self, state: str, counts: Mapping[str, int]) -> None:
        """Take the state of the job, and its instances by state."""

    def paused(self) -> AbstractContextManager[None]:
        """Stop the display within the context, so that others may print."""


def progress(total: int) -> Shown:
    """Return the progress of so many instances."""
    if sys.stderr.isatty():
        from peloton.cli.shared import screen

        return screen.Bar(total)
    return PlainProgress(total)


class PlainProgress:
    """Plain lines, for logs and pipes."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._begun_s = time.monotonic()
        self._next_s = self._begun_s + FIRST_S
        self._pause_s = PAUSE_S
        self._printed = ""

    def __enter__(self) -> PlainProgress:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def paused(self) -> AbstractContextManager[None]:
        return nullcontext()

    def seen(self, state: str, counts: Mapping[str, int]) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        text = progress_line(self._total, counts, elapsed_s=now_s - self._begun_s)
        if text != self._printed:
            hint(text)
            self._printed = text
        self._next_s = now_s + self._pause_s
        self._pause_s = min(self._pause_s * GROWTH, PAUSE_S_MAX)


def progress_line(total: int, counts: Mapping[str, int], *, elapsed_s: float) -> str:
    """Return how many have ended, how fast, and how long the rest takes at that rate."""
    ended = ended_of(counts)
    states = ", ".join(f"{counts[name]} {name}" for name in sorted(counts) if counts[name])
    rate = ended / elapsed_s if elapsed_s > 0 else 0.0
    left = f", {rate:.3g}/s, {span((total - ended) / rate)} left" if rate and ended < total else ""
    return f"{ended} of {total} ended{left}: {states}"
