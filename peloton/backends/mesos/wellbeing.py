"""What updates of Mesos say of the health and the readiness of runs, and what hosts are told of it.

Only changes are told, and nothing of a run that is to end. An update that says neither says nothing
of either. Must not know what else an update means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from peloton.actors.host.live.live_messages import ChangesNoted
from peloton.backends.check_progress import Verdict
from peloton.backends.due_times import DueTimes
from peloton.backends.mesos.agents import Agent
from peloton.backends.mesos.run_table import Run
from peloton.backends.mesos.runs.readiness import UNTOLD_CHECK, ReadinessCount, told_check
from peloton.backends.mesos.runs.statuses import RunAt, phase_of
from peloton.backends.port import Report
from peloton.backends.run_news import RunNews
from peloton.runtime.vocabulary import Key

ILL = "the check of Mesos failed"


def told_health(status: Mapping[str, Any]) -> bool | None:
    """Whether a run is well that is checked; None where an update does not say it."""
    return None if phase_of(status) is not RunAt.RUNNING else status.get("healthy")


class Wellbeing:
    """That of all runs of one framework. `tell` reports to a host, `knows` says whether anything
    may be said of an agent now, `first_number` is as in `RunNews`."""

    def __init__(
        self,
        first_number: int,
        times: DueTimes,
        *,
        tell: Callable[[Key, Report], None],
        knows: Callable[[Agent], bool],
    ) -> None:
        self._news = RunNews(first_number)
        self._times, self._tell, self._knows = times, tell, knows

    @property
    def wake_at(self) -> float | None:
        """When `due` has something to do."""
        return self._news.wake_at

    def heard(self, agent: Agent, run: Run, *, status: Mapping[str, Any], now: float) -> None:
        """An update of a run, or of a task of it, that goes on."""
        if run.grace_s is not None:
            return
        well = told_health(status)
        if well is not None and well != run.healthy:
            run.healthy = well
            text = "" if well else status.get("message") or ILL
            self._news.change(agent.host, run.name, verdict=Verdict(well), text=text, now=now)
        self._heard_check(agent, run, status=status, now=now)
        self.due(now)

    def drop(self, run: str) -> None:
        """It is over, or is to end."""
        self._news.drop(run)

    def cut_off(self, agent: Agent) -> None:
        """The connection is lost, or this agent has left: what checks find may escape us, and other
        daemons may tell it. What is true then is told anew, and what was is told no more."""
        for run in agent.runs.runs.values():
            self.drop(run.name)
            run.healthy = None
            if run.ready is not None:
                run.ready.interrupted()

    def noted(self, order: ChangesNoted, now: float) -> None:
        """Its tasks know of a change."""
        self._news.noted(order.runs, order.number, now=now)
        self.due(now)

    def due(self, now: float) -> None:
        """Tell what is to be told, or told again."""
        for host, report in self._news.due(now):
            self._tell(host, report)

    def _heard_check(
        self, agent: Agent, run: Run, *, status: Mapping[str, Any], now: float
    ) -> None:
        """What an executor of a task's own says of a check is nothing that we have asked for."""
        found = told_check(status)
        if found is None or run.executor or phase_of(status) is not RunAt.RUNNING:
            return
        if run.ready is None:
            run.ready = ReadinessCount()
        if status["state"] == "TASK_KILLING":  # by Mesos itself, which then checks no more
            run.ready.interrupted()
            return
        before, check = run.ready.due_at, agent.runs.checks.get(run.name, UNTOLD_CHECK)
        self._turned(agent, run, ready=run.ready.heard(found, now, check=check), now=now)
        due_at = run.ready.due_at
        if due_at is not None and due_at != before:
            self._times.at(due_at, partial(self._silent, agent, run))

    def _silent(self, agent: Agent, run: Run, now: float) -> None:
        """By now a check has failed as often as it may, unless something else was told."""
        ready = run.ready
        if ready is None or ready.due_at is None or now < ready.due_at:
            return
        if run.end is not None or run.grace_s is not None or not self._knows(agent):
            ready.interrupted()
            return
        self._turned(agent, run, ready=ready.failed(), now=now)
        self.due(now)

    def _turned(self, agent: Agent, run: Run, *, ready: bool | None, now: float) -> None:
        if ready is not None and run.ready is not None:
            self._news.ready(agent.host, run.name, ready=ready, text=run.ready.text, now=now)
