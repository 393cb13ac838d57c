"""The runs that we know of, by agent: what was ordered, and what the last update said.

A run is one task of Mesos, or a group of them: those of a pod of several containers.

A final update is acknowledged only once the host has journaled the end: until then Mesos delivers
it again to whoever subscribes. Must not speak to anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from peloton.actors.host.ledger import names_of
from peloton.actors.host.messages import ListRuns, RunEnd, RunsListed, RunsStarted, StartRun
from peloton.backends.mesos.groups import Group, Seat
from peloton.backends.mesos.statuses import RunAt, mesos_outcome, tells_start


@dataclass(slots=True, eq=False)
class Run:
    """One run. `order` is kept until it is sent; `uuids` are of the final updates of its tasks, of
    those that have one; `hearsay` is what the master has told of their ends."""

    name: str
    order: StartRun | None = None
    phase: RunAt = RunAt.COMING
    started_at: float | None = None
    knows_start: bool = False  # else it was running then, and may have begun earlier
    end: RunEnd | None = None
    group: Group | None = None  # of several tasks
    uuids: dict[str, str] = field(default_factory=dict)
    hearsay: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    grace_s: float | None = None  # it is to end
    healthy: bool | None = None  # as its host was told

    @property
    def waits(self) -> bool:
        """Whether it waits for an offer."""
        return self.order is not None and self.end is None

    @property
    def tasks(self) -> tuple[str, ...]:
        """Its tasks at Mesos."""
        return (self.name,) if self.group is None else tuple(self.group.parts)

    @property
    def open_tasks(self) -> tuple[str, ...]:
        """Those that have not ended, as far as we know."""
        if self.group is not None:
            return self.group.open
        return () if self.end is not None else (self.name,)

    def has_ended(self, task: str) -> bool:
        """Whether this task of it has, or the run with all of them."""
        return self.end is not None or (self.group is not None and self.group.has_ended(task))

    def runs(self, task: str) -> bool:
        """Whether it is known that this task of it runs."""
        return self.group.runs(task) if self.group is not None else self.phase is RunAt.RUNNING

    def begin(self, task: str, status: Mapping[str, Any]) -> bool:
        """This task of it runs; whether the run has begun with that."""
        if self.group is None:
            self.phase, self.started_at = RunAt.RUNNING, status.get("timestamp")
            self.knows_start = tells_start(status)
            return True
        self.group.begin(task, status)
        return self._begin_all()

    def finish(self, task: str, status: Mapping[str, Any]) -> bool:
        """This task of it has ended, as `over_by` says; whether the run has begun with that, as
        the last one that was not known to run has run."""
        if status.get("uuid"):
            self.uuids[task] = status["uuid"]
        if self.group is None or self.end is not None:
            return False
        self.group.end(task, status)
        return not self.group.is_over and self._begin_all()

    def over_by(self, status: Mapping[str, Any]) -> RunEnd | None:
        """Its end, if it is over with this end of a task; the first one counts."""
        if self.end is not None:
            return self.end
        began = self.started_at if self.knows_start else None
        if self.group is None:
            outcome = mesos_outcome(status, began=self.phase is RunAt.RUNNING)
            return RunEnd(self.name, outcome, status.get("timestamp"), began)
        if not self.group.is_over:
            return None
        return RunEnd(self.name, self.group.outcome(), self.group.ended_at, began)

    def _begin_all(self) -> bool:
        assert self.group is not None
        if self.phase is RunAt.RUNNING or not self.group.has_begun:
            return False
        self.phase, self.started_at = RunAt.RUNNING, self.group.started_at
        self.knows_start = self.group.knows_start
        return True


@dataclass(slots=True)
class AgentRuns:
    """The runs of one agent, by name; those that wait for an offer come in order."""

    runs: dict[str, Run] = field(default_factory=dict)
    waiting: dict[str, Run] = field(default_factory=dict)

    def ordered(self, order: StartRun) -> Run:
        """A run that is to start; the caller has seen that it is not known."""
        run = self.runs[order.run] = self.waiting[order.run] = Run(order.run, order)
        names = [one.name for one in order.spec.containers]
        run.group = Group(order.run, len(names), names=names) if names else None
        return run

    def drop_waiting(self) -> None:
        """Their orders are void: hosts give them again."""
        for name in self.waiting:
            del self.runs[name]
        self.waiting.clear()

    def sent(self, run: Run) -> None:
        """It is launched: whatever becomes of it, an update says so."""
        run.order = None
        self.waiting.pop(run.name, None)

    def found(self, seat: Seat) -> tuple[Run, bool]:
        """The run of a task, and whether that is how we learn that it has several: one that nobody
        here has ordered is known from now on."""
        run = self.runs.get(seat.run)
        if run is None:
            run = self.runs[seat.run] = Run(seat.run)
        learned = bool(seat.of) and run.group is None and run.end is None
        if learned:
            run.group = Group(seat.run, seat.of)
        return run, learned

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
        """Of those that the host believes in, and those that we have launched: the tasks of which
        only Mesos knows how they are. A run that we do not know is asked for by its name, as a
        task: if it has others, we learn of them so."""
        known = {run.run for run in order.known}
        for some in order.sets:
            known.update(names_of(some.crowd, some.members.raw, run=some.run))
        known.update(run.name for run in self.launched())
        found = ((name, self.runs.get(name)) for name in known)
        return sorted(
            task
            for name, run in found
            if not (run and (run.end or run.waits))
            for task in (run.open_tasks if run else (name,))
        )

    def listed(self, asked_at: float) -> RunsListed:
        """The list of all, as its host has asked for it then."""
        running = [*self.running()]
        times = tuple(run.started_at or 0.0 for run in running)
        return RunsListed(names(running), self.ends(), asked_at, started=times)


@dataclass(slots=True)
class Listing:
    """A list that a host has asked for: it is complete when these tasks have been answered for."""

    asked_at: float
    open: set[str]

    def heard(self, tasks: Iterable[str]) -> bool:
        """The state of these is known; whether the list is complete now."""
        self.open.difference_update(tasks)
        return not self.open


def names(runs: Iterable[Run]) -> tuple[str, ...]:
    """Their names."""
    return tuple(run.name for run in runs)


def started(runs: Sequence[Run]) -> RunsStarted:
    """These run, since when if that is known of all."""
    times = tuple(run.started_at for run in runs if run.started_at is not None)
    return RunsStarted(names(runs), times if len(times) == len(runs) else ())
