"""Which runs of the process backend are checked, and how, or have containers to tell of.

Turns orders of hosts and reports of the keeper into words for the loop that checks and tells, which
begins with the first. Must not report anything itself, nor outlive what a host would tell it again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from peloton.actors.host import messages as m
from peloton.actors.host.ledger import names_of
from peloton.actors.host.live.live_messages import ChangesNoted, CheckedSet
from peloton.actors.task.messages import ContainerEnd
from peloton.actors.task.run_messages import HealthCheck
from peloton.backends import keeper_messages as km
from peloton.backends.health_loop import CheckedRun, CheckOrder, HealthLoop, TellChanges
from peloton.runtime.vocabulary import Key


class ProcessHealth:
    """`order` has a command checked by the keeper. From any thread."""

    def __init__(self, tell: TellChanges, order: CheckOrder) -> None:
        self._tell, self._order = tell, order
        self._checks: dict[str, HealthCheck | None] = {}  # None: told of, and not checked
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
            self._begun().watch(CheckedRun(host, run, check, started_at))

    def moved(self, host: Key, run: str, *, containers: tuple[ContainerEnd, ...]) -> None:
        """Its containers are so far."""
        with self._lock:
            self._checks.setdefault(run)
            self._begun().moved(host, run, containers=containers)

    def _begun(self) -> HealthLoop:
        if self._loop is None:
            self._loop = HealthLoop(self._tell, self._order)
        return self._loop

    def to_end(self, runs: Iterable[str]) -> None:
        """These are to end, and are not checked any more."""
        with self._lock:
            known = dict.fromkeys(run for run in runs if run in self._checks)
            self._checks.update(known)
            if known and self._loop is not None:
                self._loop.to_end(known)

    def over(self, run: str) -> None:
        """It has ended."""
        with self._lock:
            if run in self._checks:
                del self._checks[run]
                if self._loop is not None:
                    self._loop.drop((run,))

    def noted(self, message: ChangesNoted) -> None:
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
