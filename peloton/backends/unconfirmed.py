"""The last change of each run, told again at its times until its task knows of it.

Must not judge which confirmation is of which change: numbers mean what whoever counts them says.
"""

from __future__ import annotations

from functools import partial
from typing import Generic, NamedTuple, TypeVar

from peloton.backends.due_times import DueTimes

REPEAT_S = 10.0
"""After which a change that nobody has confirmed is told again."""


H = TypeVar("H", bound=str)
T = TypeVar("T")


class _Told(NamedTuple, Generic[H, T]):
    host: H
    change: T
    due_at: float | None = None  # None: not to be told again


class Unconfirmed(Generic[H, T]):
    """Of all runs of one backend. Whatever happens to one run costs the same however many go on."""

    def __init__(self) -> None:
        self._last: dict[str, _Told[H, T]] = {}
        self._times = DueTimes()
        self._due: dict[H, list[T]] = {}

    @property
    def wake_at(self) -> float | None:
        """When `due` has something next, or would find that it has not."""
        return self._times.wake_at

    def last(self, run: str) -> T | None:
        """The last change of this run, confirmed or not."""
        told = self._last.get(run)
        return told.change if told is not None else None

    def awaits(self, run: str) -> bool:
        """Whether the last change of this run is to be told at some time."""
        told = self._last.get(run)
        return told is not None and told.due_at is not None

    def put(self, host: H, run: str, *, change: T) -> None:
        """It takes the place of the last one of the run, and is due once a time is set."""
        self._last[run] = _Told(host, change)

    def tell_at(self, run: str, when: float) -> None:
        """The last change of this run is to be told then, and every while from then on."""
        told = self._last.get(run)
        if told is not None:
            self._last[run] = told._replace(due_at=when)
            self._times.at(when, partial(self._reached, run, when))

    def confirm(self, run: str) -> None:
        """Its task knows of the last change."""
        told = self._last.get(run)
        if told is not None:
            self._last[run] = told._replace(due_at=None)

    def drop(self, run: str) -> None:
        """Nothing is told of this run any more."""
        self._last.pop(run, None)

    def due(self, now: float) -> dict[H, list[T]]:
        """What is to be told now, by host."""
        self._times.do(now)
        found, self._due = self._due, {}
        return found

    def _reached(self, run: str, when: float, now: float) -> None:
        told = self._last.get(run)
        if told is not None and told.due_at == when:  # else that was changed since
            self._due.setdefault(told.host, []).append(told.change)
            self.tell_at(run, now + REPEAT_S)
