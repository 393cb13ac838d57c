"""The runs that we know of, by agent: what was ordered, and what the last update said.

A final update is acknowledged only once the host has journaled the end: until then Mesos delivers
it again to whoever subscribes. Must not speak to anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from peloton.actors.host.ledger import names_of
from peloton.actors.host.messages import ListRuns, RunEnd, RunsListed, RunsStarted, StartRun
from peloton.backends.mesos.statuses import RunAt

LIST_WAIT_S = 10.0
"""How long a list waits for answers of the master; after it the host is told that nobody knows."""


@dataclass(slots=True, eq=False)
class Run:
    """One run. `order` is kept until it is sent; `uuid` is of the final update, if it has one."""

    name: str
    order: StartRun | None = None
    phase: RunAt = RunAt.COMING
    started_at: float | None = None
    knows_start: bool = False  # else it was running then, and may have begun earlier
    end: RunEnd | None = None
    uuid: str = ""
    hearsay: Mapping[str, Any] | None = None  # of its end, by the master
    grace_s: float | None = None  # it is to end
    healthy: bool | None = None  # as its host was told
    at: str = ""  # the id of its agent, which may be another than that which is the host

    @property
    def waits(self) -> bool:
        """Whether it waits for an offer."""
        return self.order is not None and self.end is None


@dataclass(slots=True)
class AgentRuns:
    """The runs of one agent, by name; those that wait for an offer come in order."""

    runs: dict[str, Run] = field(default_factory=dict)
    waiting: dict[str, Run] = field(default_factory=dict)

    def ordered(self, order: StartRun) -> Run:
        """A run that is to start; the caller has seen that it is not known."""
        run = self.runs[order.run] = self.waiting[order.run] = Run(order.run, order)
        return run

    def cut_off(self) -> None:
        """The connection is lost: orders that wait are void, as hosts give them again, and what the
        master has told of ends it tells again."""
        for name in self.waiting:
            del self.runs[name]
        self.waiting.clear()
        for run in self.runs.values():
            run.hearsay = None

    def sent(self, run: Run) -> None:
        """It is launched: whatever becomes of it, an update says so."""
        run.order = None
        self.waiting.pop(run.name, None)

    def found(self, name: str) -> Run:
        """The run of this name; one that nobody here has ordered is known from now on."""
        run = self.runs.get(name)
        if run is None:
            run = self.runs[name] = Run(name)
        return run

    def ended(self, run: Run, end: RunEnd) -> None:
        """It has ended so; a second end changes nothing."""
        self.sent(run)
        run.phase = RunAt.ENDED
        run.end = run.end or end

    def forget(self, name: str) -> Run | None:
        """Its end is journaled; None where it has not ended, or is unknown."""
        run = self.runs.get(name)
        if run is None or run.end is None:
            return None
        return self.runs.pop(name)

    def launched(self) -> Iterator[Run]:
        """Those that Mesos has, or may have, and that have not ended."""
        return (run for run in self.running() if run.order is None)

    def running(self) -> Iterator[Run]:
        """Those that are launched, or about to be, and have not ended."""
        return (run for run in self.runs.values() if run.end is None)

    def ends(self) -> tuple[RunEnd, ...]:
        """Those that wait to be journaled."""
        return tuple(run.end for run in self.runs.values() if run.end is not None)

    def open_of(self, order: ListRuns) -> list[str]:
        """Of those that the host believes in, and those that we have launched, by name: the ones
        of which only Mesos knows how they are."""
        known = {run.run for run in order.known}
        for some in order.sets:
            known.update(names_of(some.crowd, some.members.raw, run=some.run))
        known.update(run.name for run in self.launched())
        found = ((name, self.runs.get(name)) for name in known)
        return sorted(name for name, run in found if not (run and (run.end or run.waits)))

    def listed(self, asked_at: float) -> RunsListed:
        """The list of all, as its host has asked for it then."""
        running = [*self.running()]
        times = tuple(run.started_at or 0.0 for run in running)
        return RunsListed(names(running), self.ends(), asked_at, started=times)


@dataclass(slots=True)
class Listing:
    """A list that a host has asked for: it is complete when these have been answered. `since`: when
    the master was asked for them."""

    asked_at: float
    open: set[str]
    since: float = 0.0

    def heard(self, name: str) -> bool:
        """The state of this one is known; whether the list is complete now."""
        self.open.discard(name)
        return not self.open

    def unasked(self, before: Listing | None) -> list[str]:
        """What the master is to be asked for: nothing that it is about to answer for the list
        before. A host asks again sooner than a master with much to say has said it all."""
        if before is None or self.since >= before.since + LIST_WAIT_S:
            return sorted(self.open)
        self.since = before.since
        return sorted(self.open - before.open)


def names(runs: Iterable[Run]) -> tuple[str, ...]:
    """Their names."""
    return tuple(run.name for run in runs)


def started(runs: Sequence[Run]) -> RunsStarted:
    """These run, since when if that is known of all."""
    times = tuple(run.started_at for run in runs if run.started_at is not None)
    return RunsStarted(names(runs), times if len(times) == len(runs) else ())
