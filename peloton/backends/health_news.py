"""The last change of health and readiness of each run, until its task knows of it.

Turns changes and confirmations into what is to be told now. A confirmation that names another
change than the last one means that the task may believe that one, so the last is told again. Must
not know how a run is checked.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from peloton.actors.host.live.health_messages import HealthReported, RunHealth
from peloton.actors.task.health_messages import TaskHealth
from peloton.backends.check_progress import Verdict
from peloton.backends.unconfirmed import Unconfirmed
from peloton.runtime.vocabulary import Key


class HealthNews:
    """Of all runs of one backend. Times are those of its callers, in seconds. Where these are no
    times of day, `first_number` has to be above all numbers of a process before."""

    def __init__(self, first_number: int = 0) -> None:
        self._told = Unconfirmed[Key, RunHealth]()
        self._number = first_number

    @property
    def wake_at(self) -> float | None:
        """When `due` has something next, or would find that it has not."""
        return self._told.wake_at

    def change(self, host: Key, run: str, *, verdict: Verdict, text: str = "", now: float) -> None:
        """A run is well or not: to be told at once. Numbers of a process that follows are higher,
        so that a confirmation of one of ours means none of its own."""
        known = self._known(run)
        self._put(
            host,
            replace(known, healthy=verdict.healthy, text=text, over=verdict.over, unknown=False),
            now=now,
        )

    def ready(self, host: Key, run: str, *, ready: bool, text: str = "", now: float) -> None:
        """A run is ready or not: the same. A change says all that is known of a run."""
        found = TaskHealth.HEALTHY if ready else TaskHealth.UNHEALTHY
        unready_text = "" if ready else text
        change = replace(self._known(run), ready=found, unready_text=unready_text)
        self._put(host, change, now=now)

    def unchecked(self, host: Key, run: str, *, text: str, now: float) -> None:
        """Nobody checks the health of a run: it is as one without such a check."""
        self._put(host, replace(self._known(run), text=text, unchecked=True), now=now)

    def ungated(self, host: Key, run: str, *, text: str, now: float) -> None:
        """Nor its readiness."""
        self._put(host, replace(self._known(run), unready_text=text, ungated=True), now=now)

    def not_run(self, host: Key, run: str, *, text: str, now: float) -> None:
        """A check of the health could not be carried out: told while nothing is known of it."""
        known = self._known(run)
        if known.unknown and not known.unchecked and known.text != text:
            self._put(host, replace(known, text=text), now=now)

    def not_run_ready(self, host: Key, run: str, *, text: str, now: float) -> None:
        """Nor one of the readiness."""
        known = self._known(run)
        open_ = known.ready == TaskHealth.DISABLED and not known.ungated
        if open_ and known.unready_text != text:
            self._put(host, replace(known, unready_text=text), now=now)

    def _known(self, run: str) -> RunHealth:
        return self._told.last(run) or RunHealth(run, 0, False, unknown=True)

    def _put(self, host: Key, change: RunHealth, *, now: float) -> None:
        self._number = max(self._number + 1, int(now * 1000))
        self._told.put(host, change.run, change=replace(change, number=self._number))
        self._told.tell_at(change.run, now)

    def noted(self, runs: Iterable[str], number: int, *, now: float) -> None:
        """Their tasks know of the change of this number."""
        for run in runs:
            last = self._told.last(run)
            if last is None:
                continue
            if last.number == number:
                self._told.confirm(run)
            elif not self._told.awaits(run):  # else it is still to be told anyway
                self._told.tell_at(run, now)

    def drop(self, run: str) -> None:
        """The run is over, or is to end: nothing is told of it any more."""
        self._told.drop(run)

    def due(self, now: float) -> list[tuple[Key, HealthReported]]:
        """What is to be told now, by host; it is due again later, until it is confirmed."""
        found = self._told.due(now)
        return [(host, HealthReported(tuple(changes))) for host, changes in found.items()]
