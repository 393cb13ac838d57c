"""Which sandboxes of ended runs are kept: the newest, for a while, and no more than so many bytes.

Turns ended runs, in the order of their ends, into those whose sandboxes are to go, and by which
rule. Each is measured once, by a helper. It must not remove anything.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from .sizes import SizeHelper

BATCH_MAX = 256
HELPER_S_MAX = 60.0
"""A batch that takes longer is given up: the sandbox at which it stands counts as empty."""
COUNT, AGE, BYTES = "count", "age", "bytes"


class KeepRules(NamedTuple):
    """`age_s` or `mb` of 0: no such rule."""

    most: int
    age_s: float = 0.0
    mb: int = 0


class KeptSandbox:
    __slots__ = ("ended_at", "kib", "run_id")

    def __init__(self, run_id: str, ended_at: float) -> None:
        self.run_id = run_id
        self.ended_at = ended_at
        self.kib: int | None = None  # not known yet


class KeptSandboxes:
    """Those of ended runs, oldest first. `path` gives that of a run."""

    def __init__(
        self,
        path: Callable[[str], str],
        rules: KeepRules,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.rules = rules
        self._path = path
        self._clock = clock
        self._order: deque[KeptSandbox] = deque()
        self._unmeasured: deque[KeptSandbox] = deque()
        self._batch: dict[str, KeptSandbox] = {}  # without those that are measured
        self._helper = SizeHelper()
        self._began = 0.0
        self._kib = 0  # of all that are measured

    @property
    def helper_pid(self) -> int:
        return self._helper.pid

    def add(self, run_id: str, ended_at: float | None = None) -> None:
        """The newest; now, if not said."""
        kept = KeptSandbox(run_id, self._clock() if ended_at is None else ended_at)
        self._order.append(kept)
        if self.rules.mb:
            self._unmeasured.append(kept)

    def take_due(self, most: int) -> list[tuple[KeptSandbox, str]]:
        """The oldest that are to go, each with the rule; they are not kept any more."""
        found: list[tuple[KeptSandbox, str]] = []
        while len(found) < most and (rule := self._rule()):
            kept = self._order.popleft()
            kept.kib = kept.kib or 0  # it needs not be measured any more
            self._kib -= kept.kib
            found.append((kept, rule))
        return found

    def put_back(self, kept: KeptSandbox) -> None:
        """It could not be removed: it waits behind the others, which it must not hold up."""
        self._kib += kept.kib or 0
        self._order.append(kept)

    def measure(self) -> None:
        """Called each round."""
        for path, kib in self._helper.read():
            self._measured(self._batch.pop(path, None), kib)
        if self.helper_pid:
            if self._clock() - self._began > HELPER_S_MAX:
                os.kill(self.helper_pid, signal.SIGKILL)  # not reaped, so the pid is its own
                self._give_up_one()
        elif self._batch or self._unmeasured:
            self._begin()

    def reaped(self) -> None:
        """The helper has ended. What it did not name is no folder any more, or cannot be read."""
        for path, kib in self._helper.read():
            self._measured(self._batch.pop(path, None), kib)
        self._helper.pid = 0
        for kept in self._batch.values():
            self._measured(kept, 0)
        self._batch = {}

    def _rule(self) -> str:
        if len(self._order) > self.rules.most:
            return COUNT
        if not self._order:
            return ""
        oldest = self._order[0]
        if self.rules.age_s and oldest.ended_at + self.rules.age_s <= self._clock():
            return AGE
        # The newest stays, however large it is: else it would be gone before anybody read it.
        over = self.rules.mb and self._kib > self.rules.mb * 1024 and len(self._order) > 1
        return BYTES if over and oldest.kib is not None else ""

    def _begin(self) -> None:
        while self._unmeasured and len(self._batch) < BATCH_MAX:
            kept = self._unmeasured.popleft()
            if kept.kib is None:
                self._batch[self._path(kept.run_id)] = kept
        if self._batch:
            self._began = self._clock()
            self._helper.begin(self._batch)

    def _measured(self, kept: KeptSandbox | None, kib: int) -> None:
        if kept is not None and kept.kib is None:
            kept.kib = kib
            self._kib += kib

    def _give_up_one(self) -> None:
        """The others of the batch are measured by the next helper."""
        first, *others = self._batch.values() if self._batch else (None,)
        self._measured(first, 0)
        self._unmeasured.extendleft(reversed(others))
        self._batch = {}
