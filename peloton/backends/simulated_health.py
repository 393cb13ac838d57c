"""The health and readiness of simulated runs, by a seed.

Turns runs that are checked into changes of health. The changes of a run follow from the seed, its
name, its check and its start, so they survive a restart like its end. Nothing may be held that a
restart would miss.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import NamedTuple

from peloton.actors.host.live.live_messages import RunsChanged
from peloton.actors.task.run_messages import HealthCheck
from peloton.backends.check_progress import Verdict
from peloton.backends.run_news import RunNews
from peloton.runtime.vocabulary import Key

Chance = Callable[[str, str], float]
"""From the name of a run and what is drawn: a number from 0 to 1."""
HealthMoment = tuple[float, bool, bool]
"""Seconds since the start, whether it is well from then on, and whether it has failed for good."""
ILL = "the simulated check fails"
UNREADY = "the simulated readiness check fails"
ROUNDS_MAX = 20
"""Intervals after which a run becomes ill that was well."""


def moments(run: str, check: HealthCheck, *, ill: float, chance: Chance) -> list[HealthMoment]:
    """Return the changes of a run's health; of a share `ill`, half become ill later."""
    fate, first = chance(run, "health"), check.initial_s
    if fate >= ill:
        return [(first, True, False)]
    found: list[HealthMoment] = []
    if fate >= ill / 2:
        found.append((first, True, False))
        first += check.interval_s * (1 + int(chance(run, "illness") * ROUNDS_MAX))
    over_at = first + check.interval_s * (check.max_failures - 1)
    if check.max_failures > 1:
        found.append((first, False, False))
    return [*found, (over_at, False, True)]


def ready_moments(
    run: str, check: HealthCheck, *, ill: float, chance: Chance
) -> list[tuple[float, bool]]:
    """Return the changes of a run's readiness; a share `ill` is late, or interrupted."""
    fate, first = chance(run, "readiness"), check.initial_s
    if fate >= ill:
        return [(first, True)]
    again = first + check.interval_s * (1 + int(chance(run, "unreadiness") * ROUNDS_MAX))
    if fate >= ill / 2:
        return [(first, False), (again, True)]
    return [(first, True), (again, False), (again + check.interval_s, True)]


class _Change(NamedTuple):
    """A change of a run: of its health, or of its readiness."""

    at: float
    run: str
    well: bool
    over: bool = False
    of_health: bool = True


class SimulatedHealth:
    """The health of the runs of one backend."""

    def __init__(self, ill: float, chance: Chance) -> None:
        self.ill = ill
        self._chance = chance
        self._news = RunNews()
        self._hosts: dict[str, Key] = {}  # of runs that are checked
        self._coming: list[_Change] = []  # heap, by time

    @property
    def wake_at(self) -> float | None:
        """When something is to be reported next."""
        times = [self._coming[0][0]] if self._coming else []
        return min([*times, *(at for at in (self._news.wake_at,) if at is not None)], default=None)

    def watch(self, host: Key, run: str, *, check: HealthCheck, since: float, now: float) -> None:
        """Check this run, which runs since then. Of changes that are past, the last one counts."""
        if run in self._hosts:
            return
        self._hosts[run] = host
        found: list[_Change] = []
        if check.of_health:
            for after_s, well, over in moments(run, check, ill=self.ill, chance=self._chance):
                found.append(_Change(since + after_s, run, well, over))
        self._await(found, now)
        if check.readiness is not None:
            ready = ready_moments(run, check.readiness, ill=self.ill, chance=self._chance)
            self._await([_Change(since + at, run, one, of_health=False) for at, one in ready], now)

    def _await(self, found: list[_Change], now: float) -> None:
        past = [change for change in found if change.at <= now]
        for change in found[max(len(past) - 1, 0) :]:
            heapq.heappush(self._coming, change)

    def drop(self, runs: Iterable[str]) -> None:
        for run in runs:
            if self._hosts.pop(run, None) is not None:
                self._news.drop(run)

    def noted(self, runs: Iterable[str], number: int, *, now: float) -> None:
        """Stop reporting this change: the tasks of these runs have noted it."""
        self._news.noted(runs, number, now=now)

    def due(self, now: float) -> list[tuple[Key, RunsChanged]]:
        """Return what is to be reported now, by host."""
        while self._coming and self._coming[0][0] <= now:
            _, run, well, over, of_health = heapq.heappop(self._coming)
            host = self._hosts.get(run)
            if host is not None and not of_health:
                self._news.ready(host, run, ready=well, text=UNREADY, now=now)
            elif host is not None:
                text = "" if well else ILL
                self._news.change(host, run, verdict=Verdict(well, over), text=text, now=now)
        return self._news.due(now)
