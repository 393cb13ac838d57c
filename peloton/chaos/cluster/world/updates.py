"""The updates of a cluster's agents about single runs, and the orders to them, with their faults.

Turns reports of machines into updates of single runs, each with a fate of its own, as a Mesos makes
them: lost and repeated until somebody has noted them, repeated though they were noted, an end
before its start, updates of runs that are long over, lists older than later orders. And launches
and kills are taken out of orders on their way. No end may be invented: a launch that is lost for
good is entered into the truth of the machines.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from peloton.actors.host import messages as m
from peloton.actors.host.live.live_messages import RunsChanged
from peloton.chaos.cluster.world.machines import Machines, machine_report
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.simulation.draws import FaultDraws
from peloton.runtime.simulation.world import World
from peloton.runtime.vocabulary import Key, Message

AGAIN_S = 10.0
"""In s: after so long an agent tells an update again that nobody has noted."""
HELD_S_MAX = 20.0
"""For so long at most a start waits for the end of its run."""
REPEATED_S_MAX = 30.0
"""So long after its first delivery an update may come again that was noted."""
PAST_MAX = 40
"""Updates of a machine that may come again however old they are."""


class UpdateFaults(NamedTuple):
    """Shares of updates, launches, kills and lists. All off is a calm."""

    lost: float = 0.0  # told again after `AGAIN_S`, unless the end is noted by then
    repeated: float = 0.0
    reversed: float = 0.0  # starts that come behind the end of their run
    stale: float = 0.0  # updates with which an older one of the same machine comes again
    late_s: float = 0.0  # each update by itself, so they pass those of other runs and hosts
    rescinded: float = 0.0  # launches that end as lost before they begin
    dropped: float = 0.0  # launches of which nothing is heard
    unheard: float = 0.0  # kills of which nothing is heard
    lists_late_s: float = 0.0
    lists_old: float = 0.0  # lists behind which the one before comes again


CALM_UPDATES = UpdateFaults()


class Updates:
    """The messages under way between all machines of a cluster and their hosts."""

    def __init__(
        self, world: World, machines: Machines, *, deliver: Callable[[Envelope], None]
    ) -> None:
        self.faults = CALM_UPDATES
        self._draws = FaultDraws(world.chance)
        self.struck = self._draws.struck
        self._world = world
        self._machines = machines
        self._deliver = deliver
        self._held: dict[str, Envelope] = {}  # starts, by their run
        self._past: dict[Key, deque[Envelope]] = {}
        self._lists: dict[Key, Envelope] = {}

    # ---- from machines to hosts ----

    def pass_on(self, report: Envelope) -> None:
        """Pass a report of a machine on: now, later, in another order, or more than once."""
        if self.faults == CALM_UPDATES:
            self._tell(report)
        elif isinstance(report.message, m.RunsListed):
            self._list(report)
        elif isinstance(report.message, m.RunsStarted | m.RunsEnded | RunsChanged):
            for one in _apart(report):
                self._update(one)
        else:
            self._deliver(report)

    def _update(self, update: Envelope) -> None:
        faults, message = self.faults, update.message
        if isinstance(message, m.RunsStarted) and self._draws.strikes("reversed", faults.reversed):
            (run,) = message.runs
            self._held[run] = update
            self._later(HELD_S_MAX, lambda: self._release(run))
            return
        after_s = self._draws.up_to(faults.late_s)
        if self._draws.strikes("lost", faults.lost):
            self._later(AGAIN_S, lambda: self._tell_unless_noted(update))
        else:
            self._later(after_s, lambda: self._tell(update))
        if self._draws.strikes("repeated", faults.repeated):
            again_s = after_s + self._draws.up_to(REPEATED_S_MAX)
            self._later(again_s, lambda: self._deliver(update))
        past = self._past.setdefault(update.to, deque(maxlen=PAST_MAX))
        if past and self._draws.strikes("stale", faults.stale):
            old = past[self._world.chance.randrange(len(past))]
            self._later(after_s, lambda: self._deliver(old))
        past.append(update)

    def _tell(self, update: Envelope) -> None:
        """Deliver an update; starts that waited for it come right behind it."""
        self._deliver(update)
        if isinstance(update.message, m.RunsEnded) and self._held:
            for end in update.message.ends:
                self._release(end.run)

    def _tell_unless_noted(self, update: Envelope) -> None:
        ended = self._machines.ended
        message = update.message
        if not isinstance(message, m.RunsEnded) or any(end.run in ended for end in message.ends):
            self._tell(update)

    def _release(self, run: str) -> None:
        update = self._held.pop(run, None)
        if update is not None:
            self._deliver(update)

    def _list(self, report: Envelope) -> None:
        after_s = self._draws.up_to(self.faults.lists_late_s)
        if after_s:
            self.struck["list late"] += 1
        self._later(after_s, lambda: self._deliver(report))
        old = self._lists.get(report.to)
        if old is not None and self._draws.strikes("old list", self.faults.lists_old):
            self._later(after_s + self._draws.up_to(AGAIN_S), lambda: self._deliver(old))
        self._lists[report.to] = report

    # ---- from hosts to machines ----

    def obeyed(self, order: Message) -> tuple[Message, list[Envelope]]:
        """Return what arrives of an order at a machine, and reports about the rest."""
        if isinstance(order, m.StartRuns) and (self.faults.rescinded or self.faults.dropped):
            return self._launched(order)
        share = self.faults.unheard
        if isinstance(order, m.StopRuns) and share:
            left = [run for run in order.runs if not self._draws.strikes("unheard", share)]
            host, epoch, grace_s = order.host, order.epoch, order.grace_s
            return m.StopRuns(host, epoch, tuple(left), grace_s, order.notice), []
        return order, []

    def _launched(self, order: m.StartRuns) -> tuple[Message, list[Envelope]]:
        left: list[m.StartRun] = []
        ends: list[m.RunEnd] = []
        for start in order.runs:
            if start.run in self._machines.started:
                left.append(start)  # it is known there
            elif self._draws.strikes("rescinded", self.faults.rescinded):
                end = self._machines.rescind(start.run, order.host, self._world.now)
                ends.append(end)
            elif not self._draws.strikes("dropped", self.faults.dropped):
                left.append(start)
        reports = [machine_report(order.host, m.RunsEnded(tuple(ends)))] if ends else []
        return m.StartRuns(order.host, order.epoch, tuple(left), order.keeper), reports

    # ---- chance and time ----

    def _later(self, after_s: float, do: Callable[[], None]) -> None:
        self._world.later.at(self._world.now + after_s, do)


def _apart(report: Envelope) -> Iterator[Envelope]:
    """Yield the updates of single runs that make up a report."""
    message, to, sender = report.message, report.to, report.sender
    if isinstance(message, m.RunsStarted):
        for at, run in enumerate(message.runs):
            times = message.at[at : at + 1]
            yield Envelope(to, m.RunsStarted((run,), times), sender=sender)
    elif isinstance(message, m.RunsEnded):
        for end in message.ends:
            yield Envelope(to, m.RunsEnded((end,)), sender=sender)
    else:
        yield report
