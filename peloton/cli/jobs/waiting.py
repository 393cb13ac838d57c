"""Prints, on stderr, why a job that was typed here has not begun, while it is attended to.

On a terminal soon and for each new reason; otherwise, where stderr belongs to the command, once a
minute. A job that can never run ends the attending.
"""

from __future__ import annotations

import math
import re
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from peloton.cli.shared.output import hint
from peloton.sdk.errors import CanNeverRun, PelotonError

if TYPE_CHECKING:
    from peloton.sdk.client import Client
    from peloton.sdk.ops import WaitResult

FIRST_S, PAUSE_S, PAUSE_S_MAX, GROWTH = 3.0, 3.0, 30.0, 1.5
REPEAT_S = 60.0
"""After so long the same is said again: who waits sees that it is still so."""
Paused = AbstractContextManager[None]
BEFORE = ("INITIALIZED", "PENDING")
NUMBER = re.compile(r"\d+", re.ASCII)


class WhyWaiting:
    """Prints the main reason, again when it changes (numbers do not count), and each minute.

    A job that waits for hosts is told that it can never run as they are; for all others that is an
    error.
    """

    def __init__(
        self,
        peloton: Client,
        job: str,
        *,
        waits_for_hosts: bool,
        now_s: Callable[[], float] = time.monotonic,
        shown: bool | None = None,
    ) -> None:
        """Take the job. `shown`: whether a person looks; by default if stderr is a terminal."""
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._peloton, self._job, self._now_s = peloton, job, now_s
        self._waits_for_hosts = waits_for_hosts
        self._begun_s = self._next_s = now_s()
        self._said_s = self._begun_s  # of nothing at first: a minute of silence is the most
        self._pause_s = PAUSE_S
        self._said = ""

    def seen(self, now: WaitResult, *, paused: Callable[[], Paused] = nullcontext) -> None:
        """Take how far the job is; the cluster is asked in growing pauses.

        Within `paused` nothing else prints on the terminal. Raises CanNeverRun.
        """
        if now.done or any(count for state, count in now.counts.items() if state not in BEFORE):
            return
        now_s = self._now_s()
        if now_s < self._next_s:
            return
        self._next_s = self._next_after(now_s)
        text, never = self._reason()
        if never and not self._waits_for_hosts:
            told = f"job {self._job} can never run as things are: {text} (--wait-for-hosts waits)"
            raise CanNeverRun(told, reasons=never)
        is_due = now_s - self._said_s >= REPEAT_S
        is_soon = self._shown or bool(never)
        is_other = NUMBER.sub("", text) != NUMBER.sub("", self._said)
        is_early = now_s - self._begun_s < FIRST_S and not never
        if text and (is_due or (is_soon and is_other and not is_early)):
            with paused():
                hint(f"job {self._job} waits: {text}")
            self._said, self._said_s = text, now_s

    def _next_after(self, now_s: float) -> float:
        """Return when to ask again: not after a moment at which something is to be printed."""
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * GROWTH, PAUSE_S_MAX)
        moments = self._begun_s + FIRST_S, self._said_s + REPEAT_S
        return min(now_s + pause_s, *(at for at in (*moments, math.inf) if at > now_s))

    def _reason(self) -> tuple[str, tuple[str, ...]]:
        """Return the main reason, the last one if there is none; and why waiting is in vain, by
        codes, if it is."""
        try:
            reasons = self._peloton.ops.why(self._job).reasons
        except PelotonError:  # the waiting itself says where nobody answers
            return self._said, ()
        for one in reasons:
            never = tuple(blocker.code for blocker in one.blockers if blocker.never)
            if never:
                return one.text, (one.code, *never)
        return (reasons[0].text if reasons else self._said), ()
