"""Why a job that was typed here has not begun, on stderr, while it is attended to.

A terminal is told soon and of each other reason; what is not one, where stderr is the command's,
once a minute. Must not end the attending, but for a job that can never run.
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
    """Says the main reason, again when it is another one (numbers do not count), and each minute.

    Who waits for hosts is told that it can never run as they are; for all others it is an error.
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
        """`shown`: whether somebody looks; by default where stderr is a terminal."""
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._peloton, self._job, self._now_s = peloton, job, now_s
        self._waits_for_hosts = waits_for_hosts
        self._begun_s = self._next_s = now_s()
        self._said_s = self._begun_s  # of nothing at first: a minute of silence is the most
        self._pause_s = PAUSE_S
        self._said = ""

    def seen(self, now: WaitResult, *, paused: Callable[[], Paused] = nullcontext) -> None:
        """Take how far the job is; the question is asked in growing pauses.

        Inside of `paused` the terminal is ours. Raises CanNeverRun.
        """
        if now.done or any(count for state, count in now.counts.items() if state not in BEFORE):
            return
        now_s = self._now_s()
        if now_s < self._next_s:
            return
        self._next_s = self._next_after(now_s)
        text, never = self._reason()
        if never and not self._waits_for_hosts:
            raise CanNeverRun(
                f"job {self._job} can never run as things are: {text} (--wait-for-hosts waits)"
            )
        is_due = now_s - self._said_s >= REPEAT_S
        is_soon = self._shown or never
        is_other = NUMBER.sub("", text) != NUMBER.sub("", self._said)
        is_early = now_s - self._begun_s < FIRST_S and not never
        if text and (is_due or (is_soon and is_other and not is_early)):
            with paused():
                hint(f"job {self._job} waits: {text}")
            self._said, self._said_s = text, now_s

    def _next_after(self, now_s: float) -> float:
        """When to ask again: not after a moment at which something is to be said."""
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * GROWTH, PAUSE_S_MAX)
        moments = self._begun_s + FIRST_S, self._said_s + REPEAT_S
        return min(now_s + pause_s, *(at for at in (*moments, math.inf) if at > now_s))

    def _reason(self) -> tuple[str, bool]:
        """The main reason, the last one where there is none, and whether waiting is in vain."""
        try:
            reasons = self._peloton.ops.why(self._job).reasons
        except PelotonError:  # the waiting itself says where nobody answers
            return self._said, False
        for one in reasons:
            if any(blocker.never for blocker in one.blockers):
                return one.text, True
        return (reasons[0].text if reasons else self._said), False
