"""The state of each run that goes on, reported repeatedly until its task has noted it.

Turns changes and confirmations into the reports that are due. A change has all that is known of a
run. A confirmation that names another change than the last one means that the task may believe that
one, so the last is reported again.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from peloton.actors.host.live.live_messages import RunChange, RunsChanged
from peloton.actors.task.run_messages import ContainerEnd, LiveRun, TaskHealth, steps_of
from peloton.backends.check_progress import Verdict
from peloton.backends.due_times import DueTimes
from peloton.runtime.vocabulary import Key

REPEAT_S = 10.0
"""After which a change that nobody has confirmed is told again."""


class _Told(NamedTuple):
    host: Key
    change: RunChange
    due_at: float | None  # None: its task knows of it


class RunNews:
    """The changes of all runs of one backend. Each call costs the same however many runs go on.

    Times are those of its callers, in seconds. If these are no times of day, `first_number` has to
    be above all numbers of an earlier process.
    """

    def __init__(self, first_number: int = 0) -> None:
        self._last: dict[str, _Told] = {}
        self._times = DueTimes()
        self._due: dict[Key, list[RunChange]] = {}
        self._number = first_number

    @property
    def wake_at(self) -> float | None:
        """When `due` has something next, or would find that it has not."""
        return self._times.wake_at

    def change(self, host: Key, run: str, *, verdict: Verdict, text: str = "", now: float) -> None:
        """Note that a run is healthy or not, to be reported at once.

        Numbers of a later process are higher, so that a confirmation of one of ours means none of
        its own.
        """
        self._put(host, run, now=now, healthy=verdict.healthy, text=text, over=verdict.over)

    def ready(self, host: Key, run: str, *, ready: bool, text: str = "", now: float) -> None:
        """Note that a run is ready or not, to be reported at once."""
        found = TaskHealth.HEALTHY if ready else TaskHealth.UNHEALTHY
        self._put(host, run, now=now, ready=found, unready_text="" if ready else text)

    def unchecked(self, host: Key, run: str, *, text: str, now: float) -> None:
        """Note that nobody checks the health of a run: it is as one without such a check."""
        self._put(host, run, now=now, text=text, unchecked=True)

    def ungated(self, host: Key, run: str, *, text: str, now: float) -> None:
        """Note that nobody checks the readiness of a run."""
        self._put(host, run, now=now, unready_text=text, ungated=True)

    def not_run(self, host: Key, run: str, *, text: str, now: float) -> None:
        """Note that a health check could not be made; reported while nothing else is known."""
        known = self._known(run)
        if known.healthy is None and not known.unchecked and known.text != text:
            self._put(host, run, now=now, text=text)

    def not_run_ready(self, host: Key, run: str, *, text: str, now: float) -> None:
        """Note that a check of the readiness could not be carried out."""
        known = self._known(run)
        open_ = known.ready == TaskHealth.DISABLED and not known.ungated
        if open_ and known.unready_text != text:
            self._put(host, run, now=now, unready_text=text)

    def moved(
        self, host: Key, run: str, *, containers: tuple[ContainerEnd, ...], now: float
    ) -> None:
        """Note the states of a run's containers; a late or repeated one changes nothing."""
        if steps_of(containers) > steps_of(self._known(run).containers):
            self._put(host, run, now=now, containers=containers)

    def _known(self, run: str) -> LiveRun:
        told = self._last.get(run)
        return told.change.live if told is not None else LiveRun()

    def _put(self, host: Key, run: str, *, now: float, **changed: Any) -> None:
        self._number = max(self._number + 1, int(now * 1000))
        change = RunChange(run, self._number, replace(self._known(run), **changed))
        self._tell_at(run, _Told(host, change, now))

    def _tell_at(self, run: str, told: _Told) -> None:
        """Report at that time, and periodically from then on."""
        self._last[run] = told
        assert told.due_at is not None
        self._times.at(told.due_at, partial(self._reached, run, told.due_at))

    def _reached(self, run: str, when: float, now: float) -> None:
        told = self._last.get(run)
        if told is not None and told.due_at == when:  # else that was changed since
            self._due.setdefault(told.host, []).append(told.change)
            self._tell_at(run, told._replace(due_at=now + REPEAT_S))

    def noted(self, runs: Iterable[str], number: int, *, now: float) -> None:
        """Stop reporting the change of this number: the runs' tasks have noted it."""
        for run in runs:
            told = self._last.get(run)
            if told is None:
                continue
            if told.change.number == number:
                self._last[run] = told._replace(due_at=None)
            elif told.due_at is None:  # else it is still to be told anyway
                self._tell_at(run, told._replace(due_at=now))

    def to_end(self, run: str) -> None:
        """Stop reporting anything but the containers of a run that is to end."""
        told = self._last.get(run)
        if told is not None:
            live = told.change.live.unjudged
            self._last[run] = told._replace(change=replace(told.change, live=live))
            if live == LiveRun():
                self.drop(run)

    def drop(self, run: str) -> None:
        self._last.pop(run, None)

    def due(self, now: float) -> list[tuple[Key, RunsChanged]]:
        """Return what is to be reported now, by host, again until it is confirmed."""
        self._times.do(now)
        found, self._due = self._due, {}
        return [(host, RunsChanged(tuple(changes))) for host, changes in found.items()]
