"""The runs of the process backend that are checked, or that have containers to report.

Turns orders of hosts and reports of the keeper into calls of the loop that checks and reports,
which begins with the first.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from peloton.actors.host import messages as m
from peloton.actors.host.ledger import names_of
from peloton.actors.host.live.live_messages import ChangesNoted, CheckedSet
from peloton.actors.task.run_messages import ContainerEnd, HealthCheck
from peloton.backends import keeper_messages as km
from peloton.backends.health_loop import CheckedRun, CheckOrder, HealthLoop, TellChanges
from peloton.runtime.vocabulary import Key


class ProcessHealth:
    """The checked runs of one backend. `order` lets the keeper check a command. From any thread."""

    def __init__(self, tell: TellChanges, order: CheckOrder) -> None:
        self._tell, self._order = tell, order
        self._checks: dict[str, HealthCheck | None] = {}  # None: told of, and not checked
        self._loop: HealthLoop | None = None
        self._lock = threading.Lock()  # a run that is over must not begin to be watched

    def ordered(self, runs: Iterable[m.StartRun]) -> None:
        """Take the checks of these runs, which begin."""
        for run in runs:
            if run.spec.check is not None:
                self._checks[run.run] = run.spec.check

    def compared(self, checked: Iterable[CheckedSet]) -> None:
        """Take the checks of runs that may have begun under another daemon."""
        for some in checked:
            for name in names_of(some.crowd, some.members.raw, run=some.run):
                self._checks[name] = some.check

    def running(self, host: Key, run: str, *, started_at: float) -> None:
        """Start the checks of a run that is running, since then."""
        with self._lock:
            check = self._checks.get(run)
            if check is None:
                return
            self._begun().watch(CheckedRun(host, run, check, started_at))

    def moved(self, host: Key, run: str, *, containers: tuple[ContainerEnd, ...]) -> None:
        """Report the states of the run's containers."""
        with self._lock:
            self._checks.setdefault(run)
            self._begun().moved(host, run, containers=containers)

    def _begun(self) -> HealthLoop:
        if self._loop is None:
            self._loop = HealthLoop(self._tell, self._order)
        return self._loop

    def to_end(self, runs: Iterable[str]) -> None:
        """Stop checking these runs, which are to end."""
        with self._lock:
            known = dict.fromkeys(run for run in runs if run in self._checks)
            self._checks.update(known)
            if known and self._loop is not None:
                self._loop.to_end(known)

    def over(self, run: str) -> None:
        """Forget a run that has ended."""
        with self._lock:
            if run in self._checks:
                del self._checks[run]
                if self._loop is not None:
                    self._loop.drop((run,))

    def noted(self, message: ChangesNoted) -> None:
        """Note that the tasks of these runs know of a change."""
        if self._loop is not None:
            self._loop.noted(message.runs, message.number)

    def answered(self, report: km.RunChecked) -> None:
        """Take the outcome of a command."""
        if self._loop is None:
            return
        if report.never:
            self._loop.refused(report.number, report.text)
        else:
            self._loop.answered(report.number, (report.ok, report.text))

    def close(self) -> None:
        if self._loop is not None:
            self._loop.close()
