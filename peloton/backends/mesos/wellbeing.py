"""The health and the readiness of runs, from updates of Mesos, and the reports to hosts.

Only changes are reported, and none for a run that is to end. An update without either changes
neither.
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
    """Return whether a checked run is healthy; None if an update does not say it."""
    return None if phase_of(status) is not RunAt.RUNNING else status.get("healthy")


class Wellbeing:
    """The health and readiness of all runs of one framework.

    `tell` reports to a host, `knows` returns whether the state of an agent is known now,
    `first_number` is as in `RunNews`.
    """

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
        """Take an update of a run, or of a task of it, that goes on."""
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
        """Forget a run that is over, or is to end."""
        self._news.drop(run)

    def cut_off(self, agent: Agent) -> None:
        """Forget what was known: the connection is lost, or this agent has left.

        Results of checks may be lost, and other daemons may report them. What is true afterwards is
        reported anew.
        """
        for run in agent.runs.runs.values():
            self.drop(run.name)
            run.healthy = None
            if run.ready is not None:
                run.ready.interrupted()

    def noted(self, order: ChangesNoted, now: float) -> None:
        """Note that the tasks of runs know of a change."""
        self._news.noted(order.runs, order.number, now=now)
        self.due(now)

    def due(self, now: float) -> None:
        """Report what is due, or due again."""
        for host, report in self._news.due(now):
            self._tell(host, report)

    def _heard_check(
        self, agent: Agent, run: Run, *, status: Mapping[str, Any], now: float
    ) -> None:
        """Take the result of a check; ignore one of a task's own executor."""
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
        """Note that a check has failed as often as it may, if nothing else was reported."""
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
