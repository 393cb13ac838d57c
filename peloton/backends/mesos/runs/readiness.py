"""The readiness of a run, from the results of its check by Mesos.

Mesos reports that a check has another result than the one before, and never how often one came: a
result that stays the same is not reported. So failures in a row are counted by the reports, and
beyond that by the time after which as many more have surely ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from peloton.actors.task.run_messages import HealthCheck

SLACK_S = 1.0
"""How much longer than it may take a check of Mesos is awaited: it has to begin, and to be told."""
CHECK_RESULTS = {"COMMAND": ("command", "exit_code"), "HTTP": ("http", "status_code")}
"""Where a check of each kind has its result."""
UNTOLD_CHECK = HealthCheck()
"""The check of a run whose host has not said yet how it is checked."""
_NO_RESULT = "the check of Mesos has no result: it took too long, or could not be carried out"


class CheckResult(NamedTuple):
    """The last result of a check.

    Without a code no check has ended yet, or the last one had no result, as one that took too long.
    """

    kind: str
    code: int | None = None

    @property
    def ok(self) -> bool:
        """Whether the check has passed."""
        if self.code is None:
            return False
        return 200 <= self.code < 400 if self.kind == "HTTP" else self.code == 0

    @property
    def text(self) -> str:
        """The text about a check that has failed."""
        if self.code is None:
            return _NO_RESULT
        what = "status" if self.kind == "HTTP" else "exit code"
        return f"the check of Mesos: {what} {self.code}"


def told_check(status: Mapping[str, Any]) -> CheckResult | None:
    """Return the result of the task's check in an update, if there is one."""
    told = status.get("check_status")
    if not told or told.get("type") not in CHECK_RESULTS:
        return None
    inner, code = CHECK_RESULTS[told["type"]]
    return CheckResult(told["type"], (told.get(inner) or {}).get(code))


class ReadinessCount:
    """The readiness of one run: ready once a check passes, until it fails too often in a row.

    At first one failure is enough to know that it is not ready, also if another daemon has known it
    before.
    """

    def __init__(self) -> None:
        self._ready: bool | None = None
        self._told: bool | None = None
        """What was told last, unless others may have told another thing since."""
        self._last: CheckResult | None = None
        self._failures = 0
        self.due_at: float | None = None
        """When it has failed as often as it may, unless something else is told before."""

    def heard(self, found: CheckResult, now: float, *, check: HealthCheck) -> bool | None:
        """Take the result of a check; return whether the run is ready, if that is news."""
        news, self._last = found != self._last, found
        if found.ok:
            self._failures, self.due_at = 0, None
            return self._turned(True)
        if self._ready is False:
            return self._turned(False)
        if not news:
            return None
        if self._ready is None and found.code is None:
            # Either none has ended yet, or each that has was without a result: it is the same word.
            self.due_at = now + check.initial_s + check.timeout_s + SLACK_S
            return None
        self._failures += 1
        left = check.max_failures - self._failures
        if self._ready is None or left <= 0:
            return self.failed()
        due_at = now + left * (check.interval_s + check.timeout_s + SLACK_S)
        self.due_at = due_at if self.due_at is None else min(self.due_at, due_at)
        return None

    def failed(self) -> bool | None:
        """Note that the check has failed for good; return whether the run is ready, if that is
        news."""
        self._failures, self.due_at = 0, None
        return self._turned(False)

    def interrupted(self) -> None:
        """Start counting anew: reports may be lost, and silence means nothing.

        The next result is reported even if it is as before: another daemon may have been
        subscribed.
        """
        self._failures, self.due_at, self._last, self._told = 0, None, None, None

    @property
    def text(self) -> str:
        """The text of the last result."""
        return "" if self._last is None else self._last.text

    def _turned(self, ready: bool) -> bool | None:
        before, self._ready, self._told = self._told, ready, ready
        return ready if ready != before else None
