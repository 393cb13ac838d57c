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
from peloton.actors.task.messages import SECRETS_UNAVAILABLE, End, RunOutcome
from peloton.actors.task.run_messages import HealthCheck
from peloton.backends.keeper.secret_files import RunSecret
from peloton.backends.mesos.runs.groups import ContainerTaskId, Group
from peloton.backends.mesos.runs.readiness import ReadinessCount
from peloton.backends.mesos.runs.statuses import RunAt, mesos_outcome, tells_start
from peloton.backends.mesos.runs.task_info import OWN_EXECUTOR
from peloton.backends.secrets_first import RunRefusal

KILLED_FIRST = RunOutcome(End.KILLED, reason="killed", message="killed before it began")
"""The end of a run that is killed while it waits for an offer."""


def refused(refusal: RunRefusal) -> RunOutcome:
    """The end of a run whose secrets cannot be had."""
    return RunOutcome(
        End[refusal.outcome],
        reason=refusal.reason,
        message=refusal.message,
        system=refusal.reason == SECRETS_UNAVAILABLE,
    )


@dataclass(slots=True, eq=False)
class Run:
    """One run. `order` and `secrets`, its values, are kept until it is sent; `uuids` are of the
    final updates of its tasks, of those that have one; `hearsay` is what the master has told of
    their ends. With a `refusal` we have not launched it: that is its end, unless the master has it.
    """

    name: str
    order: StartRun | None = None
    phase: RunAt = RunAt.COMING
    started_at: float | None = None
    knows_start: bool = False  # else it was running then, and may have begun earlier
    end: RunEnd | None = None
    group: Group | None = None  # of several tasks
    uuids: dict[str, tuple[str, str]] = field(default_factory=dict)  # behind their agents
    hearsay: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    grace_s: float | None = None  # it is to end
    healthy: bool | None = None  # as its host was told since the last outage
    ready: ReadinessCount | None = None  # once something was told of that
    at: str = ""  # the id of its agent, which may be another than that which is the host
    executor: str = ""  # the id of one of its own
    secrets: tuple[RunSecret, ...] = ()
    refusal: RunOutcome | None = None

    def told_of(self, status: Mapping[str, Any]) -> None:
        """An update says at which agent it is, and of which executor."""
        self.at = status["agent_id"]["value"]
        executor = (status.get("executor_id") or {}).get("value", "")
        if executor.startswith(OWN_EXECUTOR):
            self.executor = executor

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
            self.uuids[task] = (status["agent_id"]["value"], status["uuid"])
        if self.group is None or self.end is not None:
            return False
        self.group.end(task, status)
        return not self.group.is_over and self._begin_all()

    def over_by(self, status: Mapping[str, Any]) -> RunEnd | None:
        """Its end, if it is over with this end of a task; the first one counts."""
        if self.end is not None:
            return self.end
        began = self.started_at if self.knows_start else None
        if self.group is not None and not self.group.is_over:
            return None
        if self.group is None:
            at = status.get("timestamp")
            outcome = mesos_outcome(status, began=self.phase is RunAt.RUNNING)
        else:
            at, outcome = self.group.ended_at, self.group.outcome()
        if self.refusal and outcome.end is End.LOST:
            outcome = self.refusal
        return RunEnd(self.name, outcome, at, began)

    def _begin_all(self) -> bool:
        assert self.group is not None
        if self.phase is RunAt.RUNNING or not self.group.has_begun:
            return False
        self.phase, self.started_at = RunAt.RUNNING, self.group.started_at
        self.knows_start = self.group.knows_start
        return True


@dataclass(slots=True)
class AgentRuns:
    """The runs of one agent, by name; those that wait for an offer come in order. `checks` are of
    the readiness of runs that are known here, or to their host."""

    runs: dict[str, Run] = field(default_factory=dict)
    waiting: dict[str, Run] = field(default_factory=dict)
    checks: dict[str, HealthCheck] = field(default_factory=dict)

    def ordered(self, order: StartRun, secrets: tuple[RunSecret, ...] = ()) -> Run:
        """A run that is to start; the caller has seen that it is not known."""
        run = self.runs[order.run] = self.waiting[order.run] = Run(order.run, order)
        run.secrets = secrets
        if order.spec.mesos is not None and order.spec.mesos.executor:
            run.executor = f"{OWN_EXECUTOR}{order.run}"
        if order.spec.check is not None and order.spec.check.readiness is not None:
            self.checks[order.run] = order.spec.check.readiness
        names = [one.name for one in order.spec.containers]
        run.group = Group(order.run, len(names), names=names) if names else None
        return run

    def compared(self, order: ListRuns) -> None:
        """Its host says how its runs are checked, those included that others have ordered."""
        self.checks = {name: one for name, one in self.checks.items() if name in self.runs}
        for some in order.checked:
            if some.check.readiness is not None:
                names = names_of(some.crowd, some.members.raw, run=some.run)
                self.checks.update(dict.fromkeys(names, some.check.readiness))

    def cut_off(self) -> None:
        """The connection is lost: orders that wait are void, as hosts give them again, and what the
        master has told of ends it tells again."""
        for name, waiting in self.waiting.items():
            del self.runs[name]
            waiting.secrets = ()
        self.waiting.clear()
        for run in self.runs.values():
            run.hearsay.clear()

    def sent(self, run: Run) -> None:
        """It is launched: whatever becomes of it, an update says so."""
        run.order, run.secrets = None, ()
        self.waiting.pop(run.name, None)

    def refuse(self, run: Run, why: RunOutcome) -> None:
        """It is not to be launched. Whoever gave orders before us may have done so: the master has
        to be asked."""
        self.sent(run)
        run.refusal = why

    def found(self, id_: ContainerTaskId) -> tuple[Run, bool]:
        """The run of a task, and whether that is how we learn that it has several: one that nobody
        here has ordered is known from now on."""
        run = self.runs.get(id_.run)
        if run is None:
            run = self.runs[id_.run] = Run(id_.run)
        learned = bool(id_.of) and run.group is None and run.end is None
        if learned:
            run.group = Group(id_.run, id_.of)
        return run, learned

    def ended(self, run: Run, end: RunEnd) -> None:
        """It has ended so; a second end changes nothing."""
        self.sent(run)
        run.phase = RunAt.ENDED
        run.end = run.end or end

    def forget(self, name: str) -> Run | None:
        """Its end is journaled; None where it goes on, or is unknown. One that waits was ended by
        whoever gave orders before us, and is not to be launched."""
        run = self.runs.get(name)
        if run is None or (run.end is None and not run.waits):
            return None
        self.sent(run)
        self.checks.pop(name, None)
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
        known = {run.name for run in self.launched()}
        for some in order.sets:
            known.update(names_of(some.crowd, some.members.raw, run=some.run))
        found = ((name, self.runs.get(name)) for name in known)
        return sorted(
            task
            for name, run in found
            if not (run and (run.end or run.waits))
            for task in (run.open_tasks if run else (name,))
        )

    def listed(self, asked_at: float, *, incarnation: str) -> RunsListed:
        """The list of all, as its host has asked for it then. `incarnation`: of its machine.

        What is yet to begin at another agent of that counts as begun then: the host would take it
        for a run of this one, and order it again once it is lost with the other.
        """
        running = [*self.running()]
        times = tuple(
            run.started_at or (0.0 if run.at in ("", incarnation) else asked_at) for run in running
        )
        ends = self.ends()
        return RunsListed(names(running), ends, asked_at, started=times, incarnation=incarnation)


@dataclass(slots=True)
class PendingList:
    """A list that a host has asked for: it is complete when these tasks have been answered for.
    `since`: when the master was asked for them."""

    asked_at: float
    open: set[str]
    since: float = 0.0

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
