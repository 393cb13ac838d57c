"""A host as its backend knows it: what it orders, journals, believes and asks.

A small model of `peloton/actors/host`, in which a turn and its journal are one. It orders a run
again until it has heard of it, and has a run forgotten once its end is journaled. Must not know
agents, nor Mesos.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, nextafter
from typing import Any

from peloton.actors.host import messages as m
from peloton.actors.host.goals import POLL_EVERY_S
from peloton.actors.host.state import HostStates
from peloton.actors.resources import Resources
from peloton.actors.task.messages import End, RunOutcome
from peloton.backends.port import Order
from peloton.runtime.vocabulary import Key
from tests.backends.known_sets import known_sets
from tests.servers.mesos_model.times import Times

ACCEPTED, STARTED, KILLING = "accepted", "started", "killing"
LOST_BY_HOST = "lost by its host"
GRACE_S = 10.0


@dataclass(eq=False)
class Held:
    """A run that the host holds."""

    order: m.StartRun
    since: float
    phase: str = ACCEPTED
    begun: bool = False

    def begin(self) -> None:
        """It is told that it has begun."""
        self.phase, self.begun = STARTED, True


class Host:
    """One host. `lost`: is told of a run that a list proves lost, and of the list."""

    def __init__(
        self,
        times: Times,
        key: Key,
        *,
        order: Callable[[Order], None],
        lost: Callable[[str, m.RunsListed], None],
    ) -> None:
        self.key, self.epoch = key, 1
        self.state = HostStates.LOST
        self.capacity = Resources()
        self.incarnation = ""
        self.runs: dict[str, Held] = {}
        self.ends: dict[str, RunOutcome] = {}
        """The outcome of each run, as it is journaled."""
        self.forgotten: set[str] = set()
        """Of which the backend was told that their ends are journaled."""
        self._times, self._order, self._lost = times, order, lost
        self._proof_from = 0.0
        self._polls = self._downs = 0
        self._poll_later()

    # ---- orders ----

    @property
    def free(self) -> Resources:
        left = self.capacity
        for held in self.runs.values():
            left -= held.order.spec.resources
        return left

    def start(self, order: m.StartRun) -> bool:
        """Accept a run, if it is up and has room."""
        if self.state is not HostStates.UP or not order.spec.resources.within(self.free):
            return False
        self.runs[order.run] = Held(order, self._times.now)
        self._start([order])
        return True

    def kill(self, run: str) -> None:
        """Its task wants it ended."""
        held = self.runs.get(run)
        if held is not None:
            held.phase = KILLING
            self._stop([run])

    def move(self) -> None:
        """Another daemon has its shard; it polls."""
        self.epoch += 1
        self._recheck()

    def _start(self, orders: list[m.StartRun]) -> None:
        order = m.StartRuns(self.key, self.epoch, tuple(orders), incarnation=self.incarnation)
        self._order(order)

    def _stop(self, runs: list[str]) -> None:
        if runs:
            self._order(m.StopRuns(self.key, self.epoch, tuple(runs), GRACE_S))

    def _forget(self, ends: tuple[m.RunEnd, ...]) -> None:
        if ends:
            self.forgotten.update(end.run for end in ends)
            self._order(m.ForgetRuns(self.key, tuple(end.run for end in ends)))

    def _list(self) -> None:
        held = ((run, one) for run, one in self.runs.items() if one.phase is not ACCEPTED)
        known = tuple(some for run, one in held for some in known_sets(run, since=one.since))
        self._order(m.ListRuns(self.key, self.epoch, self._times.now, known))

    def _recheck(self) -> None:
        if self.state in (HostStates.UNREACHABLE, HostStates.LOST):
            self._order(m.PingBackend(self.key))
        else:
            self._up()

    def _poll_later(self) -> None:
        self._polls += 1
        count = self._polls
        after_s = POLL_EVERY_S[self.state]
        self._times.later(after_s, lambda: self._poll(count))

    def _poll(self, count: int) -> None:
        if count == self._polls:
            self._recheck()
            self._poll_later()

    def _to(self, state: HostStates) -> None:
        if state is not self.state:
            self._times.note(f"{self.key}: {state}")
            self.state = state
            self._poll_later()

    # ---- reports ----

    def told(self, report: Any) -> None:
        """A report of the backend."""
        kind = type(report).__name__
        self._times.note(f"{self.key} is told {_short(report)}")
        handle = getattr(self, f"_told_{kind}", None)
        if handle is not None:
            handle(report)

    def _told_HostAppeared(self, report: m.HostAppeared) -> None:
        self.capacity = report.capacity
        if self.state in (HostStates.UNREACHABLE, HostStates.LOST):
            self._up()
        else:
            self._list()

    def _told_BackendUp(self, _: m.BackendUp) -> None:
        self._up()

    def _up(self) -> None:
        if self.state is not HostStates.RECONCILING:
            self._proof_from = self._times.now
            self._to(HostStates.RECONCILING)
        self._list()

    def _told_BackendDown(self, _: m.BackendDown) -> None:
        self._down()

    def _down(self) -> None:
        if self.state in (HostStates.UNREACHABLE, HostStates.LOST):
            return
        self._to(HostStates.UNREACHABLE)
        self._downs += 1
        count = self._downs
        self._times.later(m.UNREACHABLE_TIMEOUT_S, lambda: self._too_long(count))

    def _too_long(self, count: int) -> None:
        if self.state is HostStates.UNREACHABLE and self._downs == count:
            for run in [*self.runs]:
                self._end(run, RunOutcome(End.LOST, reason=LOST_BY_HOST, system=True))
            self._to(HostStates.LOST)

    def _told_RunsStarted(self, report: m.RunsStarted) -> None:
        unowned = []
        for run in report.runs:
            held = self.runs.get(run)
            if held is None:
                unowned.append(run)
            elif held.phase is ACCEPTED:
                held.begin()
                self._proof_from = nextafter(self._times.now, inf)
        self._stop(unowned)

    def _told_RunsEnded(self, report: m.RunsEnded) -> None:
        for end in report.ends:
            self._end(end.run, end.outcome)
        self._forget(report.ends)
        if self.state is HostStates.RECONCILING:
            self._list()

    def _end(self, run: str, outcome: RunOutcome) -> None:
        if self.runs.pop(run, None) is not None:
            self.ends[run] = outcome

    def _told_RunsListed(self, report: m.RunsListed) -> None:
        if self.state in (HostStates.UNREACHABLE, HostStates.LOST):
            return
        other = report.incarnation not in ("", self.incarnation) and self.incarnation != ""
        running, ended = set(report.running), {end.run for end in report.ends}
        waiting = {run for run, at in zip(report.running, report.started, strict=True) if not at}
        again, kills, skipped, proves = [], [], False, report.asked_at >= self._proof_from
        orphans = [run for run in report.running if run not in self.runs]
        for run, held in [*self.runs.items()]:
            if run in running:
                if held.phase is ACCEPTED and run not in waiting:
                    held.begin()
                    self._proof_from = nextafter(self._times.now, inf)
                elif held.phase is KILLING:
                    kills.append(run)
            elif run not in ended:
                unproven = not proves and held.phase is not ACCEPTED
                if unproven or held.since >= report.asked_at:
                    skipped = True
                elif held.phase is ACCEPTED and not other:
                    again.append(held.order)
                else:
                    if not other and held.begun:  # else the list was not asked for it
                        self._lost(run, report)
                    self._end(run, RunOutcome(End.LOST, reason=LOST_BY_HOST, system=True))
        for end in report.ends:
            self._end(end.run, end.outcome)
        agreed = not orphans and not skipped and proves
        if agreed and (
            self.state is HostStates.RECONCILING or report.incarnation != self.incarnation
        ):
            self.incarnation = report.incarnation
            self._proof_from = max(self._proof_from, self._times.now)
            self._to(HostStates.UP)
        if again and report.incarnation == self.incarnation:
            self._start(again)
        self._stop([*kills, *orphans])
        self._forget(report.ends)


def _short(report: Any) -> str:
    if isinstance(report, m.RunsStarted):
        return f"started {[run[-4:] for run in report.runs]}"
    if isinstance(report, m.RunsEnded):
        return f"ended {_ends(report.ends)}"
    if isinstance(report, m.RunsListed):
        running = [run[-4:] for run in report.running]
        return f"list of {report.asked_at:.3f} {running} {_ends(report.ends)} {report.incarnation}"
    return type(report).__name__


def _ends(ends: tuple[m.RunEnd, ...]) -> list[tuple[str, str]]:
    return [(end.run[-4:], end.outcome.end.name) for end in ends]
