"""The judgement of one run's checks, from the sequence of their results."""

from __future__ import annotations

from typing import NamedTuple


class Verdict(NamedTuple):
    """A change of health to be reported; `over`: the check has failed too often in a row."""

    healthy: bool
    over: bool = False


class CheckProgress:
    """The health of a run whose check may fail fewer than `max_failures` times in a row.

    Nothing is known at the beginning, also if another daemon has checked the run before.
    """

    def __init__(self, max_failures: int) -> None:
        self._max_failures = max_failures
        self._failures = 0
        self._healthy: bool | None = None

    def result(self, ok: bool | None) -> Verdict | None:
        """Take a check's result, None if it found nothing; return the change, if any."""
        if ok is None:
            return None
        before, self._healthy = self._healthy, ok
        self._failures = 0 if ok else self._failures + 1
        over = self._failures >= self._max_failures
        return Verdict(ok, over) if over or ok != before else None


class ReadyProgress:
    """The readiness of a run: ready once its check passes, until it fails too often in a row."""

    def __init__(self, max_failures: int) -> None:
        self._max_failures = max_failures
        self._failures = 0
        self._ready: bool | None = None

    def result(self, ok: bool | None) -> bool | None:
        """Take a check's result, None if it found nothing; return the new readiness, if changed."""
        if ok is None:
            return None
        self._failures = 0 if ok else self._failures + 1
        if not ok and self._ready and self._failures < self._max_failures:
            return None
        before, self._ready = self._ready, ok
        return ok if ok != before else None
