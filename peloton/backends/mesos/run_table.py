"""The known runs, by agent, with their orders and last updates.

A run is one task of Mesos, or a group of them: those of a pod of several containers.

A final update is acknowledged only once the host has journaled the end: until then Mesos delivers
it again to the next subscriber.
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
    """Return the end of a run whose secrets cannot be had."""
    return RunOutcome(
        End[refusal.outcome],
        reason=refusal.reason,
        message=refusal.message,
        system=refusal.reason == SECRETS_UNAVAILABLE,
    )


@dataclass(slots=True, eq=False)
class Run:
    """A run.

    `order` and `secrets`, its values, are kept until it is sent; `uuids` are of the final updates
    of its tasks, of those that have one; `hearsay` is what the master has reported of their ends.
    With a `refusal` we have not launched it: that is its end, unless the master has it.
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
        """Take the agent and the executor of the run from an update."""
        self.at = status["agent_id"]["value"]
        executor = (status.get("executor_id") or {}).get("value", "")
        if executor.startswith(OWN_EXECUTOR):
            self.executor = executor

    @property
    def waits(self) -> bool:
        return self.order is not None and self.end is None

    @property
    def tasks(self) -> tuple[str, ...]:
        return (self.name,) if self.group is None else tuple(self.group.parts)

    @property
    def open_tasks(self) -> tuple[str, ...]:
        """The tasks that have not ended, as far as is known."""
        if self.group is not None:
            return self.group.open
        return () if self.end is not None else (self.name,)

    def has_ended(self, task: str) -> bool:
        """Return whether this task of the run has ended, or the run with all of them."""
        return self.end is not None or (self.group is not None and self.group.has_ended(task))

    def runs(self, task: str) -> bool:
        """Return whether it is known that this task of the run is running."""
        return self.group.runs(task) if self.group is not None else self.phase is RunAt.RUNNING

    def begin(self, task: str, status: Mapping[str, Any]) -> bool:
        """Note that this task of the run is running; return whether the run has begun with that."""
        if self.group is None:
            self.phase, self.started_at = RunAt.RUNNING, status.get("timestamp")
            self.knows_start = tells_start(status)
            return True
        self.group.begin(task, status)
        return self._begin_all()

    def finish(self, task: str, status: Mapping[str, Any]) -> bool:
        """Note the end of this task, after `over_by`; return whether the run has begun with it.

        It has if this was the last task that was not known to run, as it has run.
        """
        if status.get("uuid"):
            self.uuids[task] = (status["agent_id"]["value"], status["uuid"])
        if self.group is None or self.end is not None:
            return False
        self.group.end(task, status)
        return not self.group.is_over and self._begin_all()

    def over_by(self, status: Mapping[str, Any]) -> RunEnd | None:
        """Return the run's end, if it is over with this end of a task; the first one counts."""
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
    """The runs of one agent, by name; those that wait for an offer are in order.

    `checks` are of the readiness of runs that are known here, or to their host.
    """

    runs: dict[str, Run] = field(default_factory=dict)
    waiting: dict[str, Run] = field(default_factory=dict)
    checks: dict[str, HealthCheck] = field(default_factory=dict)

    def ordered(self, order: StartRun, secrets: tuple[RunSecret, ...] = ()) -> Run:
        """Add a run that is to start; the caller has seen that it is not known."""
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
        """Take the checks of the host's runs, including those that others have ordered."""
        self.checks = {name: one for name, one in self.checks.items() if name in self.runs}
        for some in order.checked:
            if some.check.readiness is not None:
                names = names_of(some.crowd, some.members.raw, run=some.run)
                self.checks.update(dict.fromkeys(names, some.check.readiness))

    def cut_off(self) -> None:
        """Forget waiting orders and reported ends: the connection is lost.

        The orders are void, as hosts give them again, and the master reports the ends again.
        """
        for name, waiting in self.waiting.items():
            del self.runs[name]
            waiting.secrets = ()
        self.waiting.clear()
        for run in self.runs.values():
            run.hearsay.clear()

    def sent(self, run: Run) -> None:
        """Note that the run is launched: from now on updates report its state."""
        run.order, run.secrets = None, ()
        self.waiting.pop(run.name, None)

    def refuse(self, run: Run, why: RunOutcome) -> None:
        """Refuse a run that is not to be launched.

        An earlier owner of its host may have launched it: the master has to be asked.
        """
        self.sent(run)
        run.refusal = why

    def found(self, id_: ContainerTaskId) -> tuple[Run, bool]:
        """Return the run of a task, and whether that task shows that the run has several.

        A run that nobody here has ordered is known from now on.
        """
        run = self.runs.get(id_.run)
        if run is None:
            run = self.runs[id_.run] = Run(id_.run)
        learned = bool(id_.of) and run.group is None and run.end is None
        if learned:
            run.group = Group(id_.run, id_.of)
        return run, learned

    def ended(self, run: Run, end: RunEnd) -> None:
        """Note the end of a run; a second end changes nothing."""
        self.sent(run)
        run.phase = RunAt.ENDED
        run.end = run.end or end

    def forget(self, name: str) -> Run | None:
        """Remove and return a run whose end is journaled; None if it goes on, or is unknown.

        A run that waits was ended under an earlier owner of its host, and is not to be launched.
        """
        run = self.runs.get(name)
        if run is None or (run.end is None and not run.waits):
            return None
        self.sent(run)
        self.checks.pop(name, None)
        return self.runs.pop(name)

    def launched(self) -> Iterator[Run]:
        """Yield the runs that Mesos has, or may have, and that have not ended."""
        return (run for run in self.running() if run.order is None)

    def running(self) -> Iterator[Run]:
        """Yield the runs that are launched, or about to be, and have not ended."""
        return (run for run in self.runs.values() if run.end is None)

    def ends(self) -> tuple[RunEnd, ...]:
        """Return the ends that wait to be journaled."""
        return tuple(run.end for run in self.runs.values() if run.end is not None)

    def open_of(self, order: ListRuns) -> list[str]:
        """Return the tasks of believed and launched runs whose states only Mesos knows.

        A run that is not known is asked for by its name, as a task: if it has others, the answer
        shows it.
        """
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
        """Return the list that the host has asked for then. `incarnation`: of its machine.

        A run that is yet to begin at another agent of that machine counts as begun then: the host
        would take it for a run of this agent, and order it again once it is lost with the other.
        """
        running = [*self.running()]
        times = tuple(
            run.started_at or (0.0 if run.at in ("", incarnation) else asked_at) for run in running
        )
        ends = self.ends()
        return RunsListed(names(running), ends, asked_at, started=times, incarnation=incarnation)


@dataclass(slots=True)
class PendingList:
    """A list that a host has asked for, complete when these tasks have been answered for.

    `since`: when the master was asked for them.
    """

    asked_at: float
    open: set[str]
    since: float = 0.0

    def heard(self, tasks: Iterable[str]) -> bool:
        """Note the states of these tasks as known; return whether the list is complete."""
        self.open.difference_update(tasks)
        return not self.open


def names(runs: Iterable[Run]) -> tuple[str, ...]:
    return tuple(run.name for run in runs)


def started(runs: Sequence[Run]) -> RunsStarted:
    """Return the report that these runs have started, with the times if those of all are known."""
    times = tuple(run.started_at for run in runs if run.started_at is not None)
    return RunsStarted(names(runs), times if len(times) == len(runs) else ())
