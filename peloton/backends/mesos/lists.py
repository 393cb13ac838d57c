"""Lists of the runs of a host: complete once the master has answered for each task in question.

A list that is not complete in time is dropped, and its host is told that nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from peloton.actors.host.messages import BackendDown, ListRuns
from peloton.backends.due_times import DueTimes
from peloton.backends.mesos.agents import Agent
from peloton.backends.mesos.masters import calls
from peloton.backends.mesos.run_table import PendingList, Run
from peloton.backends.port import Report
from peloton.runtime.vocabulary import Key

LIST_WAIT_S = 10.0
"""How long a list waits for answers of the master; after it the host is told that nobody knows."""


class Lists:
    """The lists of one framework.

    `tell` reports to a host, `knows` returns whether the state of an agent is known now.
    """

    def __init__(
        self,
        times: DueTimes,
        *,
        tell: Callable[[Key, Report], None],
        knows: Callable[[Agent], bool],
    ) -> None:
        self._times, self._tell, self._knows = times, tell, knows

    def asked(self, agent: Agent, order: ListRuns, now: float) -> list[calls.Call]:
        """Take a host's request of a list; return the calls to the master.

        Nothing is asked that the master is about to answer for the previous request: a host asks
        again sooner than a busy master has answered everything.
        """
        before, asked = agent.listing, agent.runs.open_of(order)
        agent.listing = listing = PendingList(order.asked_at, set(asked), now)
        if asked:
            self._times.at(now + LIST_WAIT_S, partial(self._not_listed, agent, listing))
        else:
            self._give(agent, listing)
        if before is not None and now < before.since + LIST_WAIT_S:
            listing.since = before.since
            asked = [task for task in asked if task not in before.open]
        return calls.reconcile(asked, agent.agent_id)

    def learned(self, agent: Agent, run: Run, *, task: str) -> list[calls.Call]:
        """Take a task that shows that its run has more; return the calls to the master.

        If the run is on a list, these tasks are as well.
        """
        others = [one for one in run.open_tasks if one != task]
        if agent.listing is not None and run.name in agent.listing.open:
            agent.listing.open.update(others)
        return calls.reconcile(others, agent.where(run))

    def answered(self, agent: Agent, run: Run, *, task: str) -> None:
        """Note that the state of this task of a run is known, or that of the run as a whole."""
        tasks = (task,) if run.end is None else (task, *run.tasks)
        if agent.listing is not None and agent.listing.heard(tasks):
            self._give(agent, agent.listing)

    def _give(self, agent: Agent, listing: PendingList) -> None:
        agent.listing = None
        self._tell(agent.host, agent.runs.listed(listing.asked_at, incarnation=agent.agent_id))

    def _not_listed(self, agent: Agent, listing: PendingList, now: float) -> None:
        if agent.listing is listing and self._knows(agent):
            agent.listing = None
            self._tell(agent.host, BackendDown("the master does not say how its tasks are"))
