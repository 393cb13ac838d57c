"""Which runs of the process backend are checked, and how: what it knows from orders of hosts.

Turns orders and reports of the keeper into runs for the loop that checks them, which begins with
the first. Must not report anything itself, nor outlive what a host would tell it again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from peloton.actors.host import messages as m
from peloton.actors.host.ledger import names_of
from peloton.actors.host.live.health_messages import CheckedSet, HealthNoted
from peloton.actors.task.health_messages import HealthCheck
from peloton.backends import keeper_messages as km
from peloton.backends.health_loop import CheckedRun, CheckOrder, HealthLoop, TellHealth
from peloton.runtime.vocabulary import Key


class ProcessHealth:
    """`order` has a command checked by the keeper. From any thread."""

    def __init__(self, tell: TellHealth, order: CheckOrder) -> None:
        self._tell, self._order = tell, order
        self._checks: dict[str, HealthCheck] = {}
        self._loop: HealthLoop | None = None
        self._lock = threading.Lock()  # a run that is over must not begin to be watched

    def ordered(self, runs: Iterable[m.StartRun]) -> None:
        """These runs begin, and some of them are to be checked from then on."""
        for run in runs:
            if run.spec.check is not None:
                self._checks[run.run] = run.spec.check

    def compared(self, checked: Iterable[CheckedSet]) -> None:
        """The same of runs that may have begun under another daemon, before they are listed."""
        for some in checked:
            for name in names_of(some.crowd, some.members.raw, run=some.run):
                self._checks[name] = some.check

    def running(self, host: Key, run: str, *, started_at: float) -> None:
        """It runs, since then."""
        with self._lock:
            check = self._checks.get(run)
            if check is None:
                return
            if self._loop is None:
                self._loop = HealthLoop(self._tell, self._order)
            self._loop.watch(CheckedRun(host, run, check, started_at))

    def over(self, runs: Iterable[str]) -> None:
        """These have ended, or are to."""
        with self._lock:
            dropped = [run for run in runs if self._checks.pop(run, None) is not None]
            if dropped and self._loop is not None:
                self._loop.drop(dropped)

    def noted(self, message: HealthNoted) -> None:
        """The tasks of these runs know of a change."""
        if self._loop is not None:
            self._loop.noted(message.runs, message.number)

    def answered(self, report: km.RunChecked) -> None:
        """The outcome of a command."""
        if self._loop is None:
            return
        if report.never:
            self._loop.refused(report.number, report.text)
        else:
            self._loop.answered(report.number, (report.ok, report.text))

    def close(self) -> None:
        """Check nothing any more."""
        if self._loop is not None:
            self._loop.close()
