"""Why a job that was typed here has not begun, on stderr, while it is attended to.

Must not print where stderr is no terminal: it is the stderr of the command then. Must not end the
attending, whatever becomes of the question.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from peloton.cli.output import hint
from peloton.sdk.errors import PelotonError

if TYPE_CHECKING:
    from peloton.sdk.client import Client
    from peloton.sdk.ops import WaitResult

FIRST_S, PAUSE_S, PAUSE_S_MAX, GROWTH = 3.0, 3.0, 30.0, 1.5
BEFORE = ("INITIALIZED", "PENDING")
NUMBER = re.compile(r"\d+", re.ASCII)


class WhyWaiting:
    """Says the main reason once, and again when it is another one; numbers in it do not count."""

    def __init__(
        self,
        peloton: Client,
        job: str,
        *,
        now_s: Callable[[], float] = time.monotonic,
        shown: bool | None = None,
    ) -> None:
        """`shown`: whether somebody looks; by default where stderr is a terminal."""
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._peloton, self._job, self._now_s = peloton, job, now_s
        self._next_s = now_s() + FIRST_S
        self._pause_s = PAUSE_S
        self._said = ""

    def seen(self, now: WaitResult) -> None:
        """Take how far the job is; the question is asked in growing pauses."""
        if now.done or any(count for state, count in now.counts.items() if state not in BEFORE):
            return
        now_s = self._now_s()
        if now_s < self._next_s or not self._shown:
            return
        self._next_s = now_s + self._pause_s
        self._pause_s = min(self._pause_s * GROWTH, PAUSE_S_MAX)
        text = self._reason()
        if NUMBER.sub("", text) != NUMBER.sub("", self._said):
            hint(f"job {self._job} waits: {text}")
            self._said = text

    def _reason(self) -> str:
        """The main reason; the last one where there is none."""
        try:
            reasons = self._peloton.ops.why(self._job).reasons
        except PelotonError:  # the waiting itself says where nobody answers
            return self._said
        return reasons[0].text if reasons else self._said
