"""What is known of each run that goes on, told again at its times until its task knows of it.

Turns changes and confirmations into what is to be told now. A change says all that is known of a
run. A confirmation that names another change than the last one means that the task may believe that
one, so the last is told again. Must not know how a run is checked, nor keep one that has ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from peloton.actors.host.live.live_messages import RunChange, RunsChanged
from peloton.actors.task.messages import ContainerEnd
from peloton.actors.task.run_messages import LiveRun, TaskHealth, steps_of
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
    """Of all runs of one backend. Whatever happens to one run costs the same however many go on.
    Times are those of its callers, in seconds. Where these are no times of day, `first_number` has
    to be above all numbers of a process before."""

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
        """A run is well or not: to be told at once. Numbers of a process that follows are higher,
        so that a confirmation of one of ours means none of its own."""
        self._put(host, run, now=now, healthy=verdict.healthy, text=text, over=verdict.over)

    def ready(self, host: Key, run: str, *, ready: bool, text: str = "", now: float) -> None:
        """A run is ready or not: the same."""
        found = TaskHealth.HEALTHY if ready else TaskHealth.UNHEALTHY
        self._put(host, run, now=now, ready=found, unready_text="" if ready else text)

    def unchecked(self, host: Key, run: str, *, text: str, now: float) -> None:
        """Nobody checks the health of a run: it is as one without such a check."""
        self._put(host, run, now=now, text=text, unchecked=True)

    def ungated(self, host: Key, run: str, *, text: str, now: float) -> None:
        """Nor its readiness."""
        self._put(host, run, now=now, unready_text=text, ungated=True)

    def not_run(self, host: Key, run: str, *, text: str, now: float) -> None:
        """A check of the health could not be carried out: told while nothing is known of it."""
        known = self._known(run)
        if known.healthy is None and not known.unchecked and known.text != text:
            self._put(host, run, now=now, text=text)

    def not_run_ready(self, host: Key, run: str, *, text: str, now: float) -> None:
        """Nor one of the readiness."""
        known = self._known(run)
        open_ = known.ready == TaskHealth.DISABLED and not known.ungated
        if open_ and known.unready_text != text:
            self._put(host, run, now=now, unready_text=text)

    def moved(
        self, host: Key, run: str, *, containers: tuple[ContainerEnd, ...], now: float
    ) -> None:
        """The containers of a run are so far; what is said late, or again, changes nothing."""
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
        """It is told then, and every while from then on."""
        self._last[run] = told
        assert told.due_at is not None
        self._times.at(told.due_at, partial(self._reached, run, told.due_at))

    def _reached(self, run: str, when: float, now: float) -> None:
        told = self._last.get(run)
        if told is not None and told.due_at == when:  # else that was changed since
            self._due.setdefault(told.host, []).append(told.change)
            self._tell_at(run, told._replace(due_at=now + REPEAT_S))

    def noted(self, runs: Iterable[str], number: int, *, now: float) -> None:
        """Their tasks know of the change of this number."""
        for run in runs:
            told = self._last.get(run)
            if told is None:
                continue
            if told.change.number == number:
                self._last[run] = told._replace(due_at=None)
            elif told.due_at is None:  # else it is still to be told anyway
                self._tell_at(run, told._replace(due_at=now))

    def to_end(self, run: str) -> None:
        """The run is to end: nothing is told any more but of its containers."""
        told = self._last.get(run)
        if told is not None:
            live = told.change.live.unjudged
            self._last[run] = told._replace(change=replace(told.change, live=live))
            if live == LiveRun():
                self.drop(run)

    def drop(self, run: str) -> None:
        """The run is over: nothing is told of it any more."""
        self._last.pop(run, None)

    def due(self, now: float) -> list[tuple[Key, RunsChanged]]:
        """What is to be told now, by host; it is due again later, until it is confirmed."""
        self._times.do(now)
        found, self._due = self._due, {}
        return [(host, RunsChanged(tuple(changes))) for host, changes in found.items()]
