"""What is said between the hosts of a Mesos cluster and its master, as one framework hears it.

Takes orders of hosts and events of the master; gives calls for the master and reports for hosts,
which whoever has the connection carries away (`take`). All times are arguments, so the same
conversation is held with a real master, a scripted one, and none.

How the promises of `port.py` are kept:

- *Attempts at least once.* A run is ordered again by its host until it is heard of. The master
  refuses to launch what is there already, by the id of the task, until its end is acknowledged.
- *Results at most once.* A final update is acknowledged when the host forgets the run, because it
  has journaled the end then; before, Mesos delivers it again to whoever subscribes next.
- *Lists.* The master is asked for each run that the host believes in, and for all there are after
  each subscription. A list is given once all have been answered for.

An order that finds no offer waits for one, and asks for it (`REVIVE`); after `OFFER_WAIT_S` the run
ends as lost, without fault of its program, so that its task goes to another host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from peloton.actors.host import messages as m
from peloton.actors.host.ledger import names_of
from peloton.actors.host.volume_messages import RemoveVolumes, VolumesRemoved
from peloton.actors.task.messages import End, RunOutcome
from peloton.backends.mesos import calls
from peloton.backends.mesos.agents import Agent, Agents
from peloton.backends.mesos.offer_book import OfferBook
from peloton.backends.mesos.run_table import Listing, Run, names
from peloton.backends.mesos.statuses import Phase, is_repeat_of_a_launch, outcome_of, phase_of
from peloton.backends.mesos.task_info import task_info
from peloton.backends.mesos.words import Bundle, NotOffered
from peloton.backends.port import POISON, Order, Report, cannot_be_ordered
from peloton.runtime.core.envelope import Envelope
from peloton.runtime.vocabulary import Key

OFFER_WAIT_S = 30.0
"""How long a run waits for an offer of its host before it goes elsewhere."""
REFUSE_S = 5.0
"""For how long others come first on what we decline; an order asks for it at once."""
LIST_WAIT_S = 10.0
"""How long a list waits for answers of the master; after it the host is told that nobody knows."""
APPEAR_AGAIN_S = 2.0
"""Between two reports of a host that has not answered."""
NOT_SUBSCRIBED = "not subscribed at the master"


class Conversation:
    """One framework at the master of one cluster."""

    def __init__(self, cluster: str, *, role: str, backend: Key) -> None:
        self._backend = backend
        self.agents = Agents(cluster, role)
        self._offers = OfferBook()
        self._calls: list[calls.Call] = []
        self._reports: list[Envelope] = []
        self._away = NOT_SUBSCRIBED
        self._revived = False  # since the last offers: one call asks for all
        self._appear_at: float | None = None

    def take(self) -> tuple[list[calls.Call], list[Envelope]]:
        """What is to be sent since it was asked last: to the master, and to hosts."""
        taken = self._calls, self._reports
        self._calls, self._reports = [], []
        return taken

    # ---- the connection ----

    def subscribed(self, now: float) -> None:
        """The master takes us for the framework. All hosts compare, as orders may be lost."""
        self._away = ""
        self._offers.clear()
        self._calls.append(calls.reconcile_all())
        for agent in self.agents.by_host.values():
            for run in agent.runs.running():
                if not run.waits and agent.agent_id:
                    self._calls += calls.reconcile((run.name,), agent.agent_id)
            if agent.is_here:
                self._report(agent, m.BackendUp())

    def disconnected(self, text: str) -> None:
        """For now nothing is known of any host."""
        self._away = text
        self._offers.clear()
        self._calls.clear()
        for agent in self.agents.by_host.values():
            agent.listing = None
            self._report(agent, m.BackendDown(text))

    def told_agents(self, registered: Iterable[Mapping[str, Any]], now: float) -> None:
        """The master's list of agents."""
        changed, left = self.agents.told(registered)
        for agent in changed:
            agent.away = ""
            self._appeared(agent, now)
        for agent in left:
            self._report(agent, m.HostLeft("its agent is not registered at the master"))

    # ---- events ----

    def heard(self, event: Mapping[str, Any], now: float) -> None:
        """An event of the master. One that we do not know says nothing to us."""
        kind = event.get("type")
        if kind == "OFFERS":
            for offer in event["offers"].get("offers", ()):
                self._offered(offer, now)
        elif kind == "RESCIND":
            self._offers.rescinded(event["rescind"]["offer_id"]["value"])
        elif kind == "UPDATE":
            self._updated(event["update"]["status"], now)

    def _offered(self, offer: Mapping[str, Any], now: float) -> None:
        self._revived = False
        self._offers.add(offer, now)
        agent = self.agents.of(offer["agent_id"]["value"])
        if agent is not None:
            self._launch(agent, now)

    def _updated(self, status: Mapping[str, Any], now: float) -> None:
        agent = self.agents.of((status.get("agent_id") or {}).get("value", ""))
        if agent is None:
            return  # it comes again once the agent is known: nothing was acknowledged
        name, uuid = status["task_id"]["value"], status.get("uuid", "")
        if is_repeat_of_a_launch(status):
            self._calls += calls.reconcile((name,), agent.agent_id)
            return
        phase, run = phase_of(status), agent.runs.found(name)
        if phase is Phase.ENDED:
            self._ended(agent, run, status)
        elif run.end is None and phase is not Phase.UNKNOWN:
            self._goes_on(agent, run, phase, at=status.get("timestamp"))
        if uuid and phase is not Phase.ENDED:
            self._calls.append(calls.acknowledge(name, agent.agent_id, uuid))
        if phase is not Phase.UNKNOWN and agent.listing is not None and agent.listing.heard(name):
            self._list(agent)

    def _goes_on(self, agent: Agent, run: Run, phase: Phase, *, at: float | None) -> None:
        agent.runs.sent(run)
        if phase is not Phase.RUNNING or run.phase is Phase.RUNNING:
            return
        run.phase, run.started_at = phase, at
        times = (at,) if at is not None else ()
        self._report(agent, m.RunsStarted((run.name,), times))
        if run.stops:  # the order to end it came before the agent had it
            self._calls.append(calls.kill(run.name, agent.agent_id, 0.0))

    def _ended(self, agent: Agent, run: Run, status: Mapping[str, Any]) -> None:
        run.uuid = status.get("uuid", run.uuid)
        end = m.RunEnd(run.name, outcome_of(status), status.get("timestamp"), run.started_at)
        agent.runs.ended(run, end)
        assert run.end is not None
        self._report(agent, m.RunsEnded((run.end,)))

    # ---- orders ----

    def ordered(self, order: Order, now: float) -> None:
        """An order of a host."""
        agent = self.agents.at(order.host)
        if isinstance(order, m.ForgetRuns):
            self._forget(agent, order.runs)
            return
        agent.confirmed = True
        if isinstance(order, RemoveVolumes):  # there are none
            self._report(agent, VolumesRemoved(order.volumes))
        elif self._away or not agent.is_here:
            self._report(agent, m.BackendDown(self._away or agent.away or "no agent is registered"))
        elif isinstance(order, m.PingBackend):
            self._report(agent, m.BackendUp())
        elif isinstance(order, m.StartRuns | m.StopRuns | m.ListRuns):
            if order.epoch < agent.epoch:
                return
            agent.epoch = order.epoch
            self._obey(agent, order, now)

    def _obey(self, agent: Agent, order: m.StartRuns | m.StopRuns | m.ListRuns, now: float) -> None:
        if isinstance(order, m.StartRuns):
            self._start(agent, order.runs, now)
        elif isinstance(order, m.StopRuns):
            self._stop(agent, order)
        else:
            self._asked(agent, order, now)

    def _start(self, agent: Agent, orders: Iterable[m.StartRun], now: float) -> None:
        started, ends = [], []
        for order in orders:
            run = agent.runs.runs.get(order.run)
            if run is None:
                agent.runs.ordered(order, now)
            elif run.end is not None:
                ends.append(run.end)
            elif run.phase is Phase.RUNNING:
                started.append(run)
        if started:
            self._report(agent, m.RunsStarted(names(started)))
        if ends:
            self._report(agent, m.RunsEnded(tuple(ends)))
        self._launch(agent, now)

    def _launch(self, agent: Agent, now: float) -> None:
        """Launch what waits and fits, in one call."""
        if not agent.runs.waiting or not agent.is_here:
            return
        offers = self._offers.of(agent.agent_id)
        bundle = Bundle(entry for offer in offers for entry in offer["resources"])
        tasks, refused = [], []
        for run in [*agent.runs.waiting.values()] if offers else ():
            assert run.order is not None
            try:
                tasks.append(task_info(run.order, agent=agent.agent_id, bundle=bundle))
                agent.runs.sent(run)
            except NotOffered:
                continue
            except POISON as why:
                end = cannot_be_ordered(run.name, why, reason="bad order")
                agent.runs.ended(run, end)
                refused.append(end)
        if tasks:
            self._calls.append(calls.accept(self._offers.use(agent.agent_id), tasks))
        if refused:
            self._report(agent, m.RunsEnded(tuple(refused)))
        if agent.runs.waiting and not self._revived:
            self._revived = True
            self._calls.append(calls.revive())

    def _stop(self, agent: Agent, order: m.StopRuns) -> None:
        ends, unknown = [], False
        for name in order.runs:
            run = agent.runs.runs.get(name)
            if run is None:
                unknown = True
                continue
            if run.waits:
                killed = RunOutcome(End.KILLED, reason="killed", message="killed before it began")
                agent.runs.ended(run, m.RunEnd(name, killed))
            if run.end is not None:
                ends.append(run.end)
                continue
            run.stops = True
            self._calls.append(calls.kill(name, agent.agent_id, order.grace_s))
        if ends:
            self._report(agent, m.RunsEnded(tuple(ends)))
        if unknown:
            self._report(agent, m.BackendUp())

    def _forget(self, agent: Agent, runs: Iterable[str]) -> None:
        for name in runs:
            run = agent.runs.forget(name)
            if run is not None and run.uuid and agent.agent_id and not self._away:
                self._calls.append(calls.acknowledge(name, agent.agent_id, run.uuid))

    # ---- lists ----

    def _asked(self, agent: Agent, order: m.ListRuns, now: float) -> None:
        """A list: complete once the master has answered for all that it is asked about."""
        known = {run.run for run in order.known}
        for some in order.sets:
            known.update(names_of(some.crowd, some.members.raw, run=some.run))
        runs = agent.runs.runs
        asked = sorted(
            name for name in known if not ((run := runs.get(name)) and (run.end or run.waits))
        )
        agent.listing = Listing(order.asked_at, set(asked), now + LIST_WAIT_S)
        self._calls += calls.reconcile(asked, agent.agent_id)
        if not asked:
            self._list(agent)

    def _list(self, agent: Agent) -> None:
        listing = agent.listing
        assert listing is not None
        agent.listing = None
        running = [*agent.runs.running()]
        started = tuple(run.started_at or 0.0 for run in running)
        listed = m.RunsListed(names(running), agent.runs.ends(), listing.asked_at, started=started)
        self._report(agent, listed)

    # ---- times ----

    @property
    def wake_at(self) -> float | None:
        """When `due` has something to do."""
        times = [self._offers.wake_at, self._appear_at]
        for agent in self.agents.by_host.values():
            first = next(iter(agent.runs.waiting.values()), None)
            times.append(first.since + OFFER_WAIT_S if first is not None else None)
            times.append(agent.listing.late_at if agent.listing is not None else None)
        return min((at for at in times if at is not None), default=None)

    def due(self, now: float) -> None:
        """What time has brought: offers nobody wanted, runs that found none, lists too late."""
        unwanted = [*self._offers.due(now)]
        if unwanted:
            self._calls.append(calls.decline(unwanted, REFUSE_S))
        if self._appear_at is not None and self._appear_at <= now:
            self._appear_at = None
            for agent in self.agents.by_host.values():
                if not agent.confirmed and agent.is_here:
                    self._appeared(agent, now)
        for agent in self.agents.by_host.values():
            self._due_of(agent, now)

    def _due_of(self, agent: Agent, now: float) -> None:
        ends = []
        for run in agent.runs.overdue(now - OFFER_WAIT_S):
            text = f"no offer of its host within {OFFER_WAIT_S:g} s"
            lost = RunOutcome(End.LOST, reason="no offer", message=text, system=True)
            end = m.RunEnd(run.name, lost)
            agent.runs.ended(run, end)
            ends.append(end)
        if ends:
            self._report(agent, m.RunsEnded(tuple(ends)))
        if agent.listing is not None and agent.listing.late_at <= now:
            agent.listing = None
            self._report(agent, m.BackendDown("the master does not say how its tasks are"))

    def _appeared(self, agent: Agent, now: float) -> None:
        agent.confirmed = False
        self._appear_at = now + APPEAR_AGAIN_S
        self._report(agent, agent.appeared(self._backend))

    def _report(self, agent: Agent, report: Report) -> None:
        self._reports.append(Envelope(agent.host, report, sender=self._backend))
