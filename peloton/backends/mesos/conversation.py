"""What is said between the hosts of a Mesos cluster and its master, as one framework hears it.

Takes orders of hosts and events of the master; gives calls for the master and reports for hosts,
which whoever has the connection carries away (`take`). All times are arguments, so the same
conversation is held with a real master, a scripted one, and none.

How the promises of `port.py` are kept:

- *Attempts at least once.* A run is ordered again by its host until it is heard of. The master
  refuses to launch what is there already, by the id of the task, until its end is acknowledged.
- *Results at most once.* A final update is acknowledged when the host forgets the run, because it
  has journaled the end then; before, Mesos delivers it again to whoever subscribes next. What runs
  on although its end was reported is killed.
- *Lists.* The master is asked for each run that the host believes in or that we have launched, and
  for all there are after each subscription and every while. A list is given once all have been
  answered for.
- *Hosts come and go.* Nothing is remembered of an agent that has left, nor of runs that waited for
  an offer when the connection was lost: Mesos and the hosts say again what is true.

An order that finds no offer waits for one, and asks for it (`REVIVE`); after `OFFER_WAIT_S` the run
ends as lost, without fault of its program, so that its task goes to another host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from peloton.actors.host import messages as m
from peloton.actors.host.health_messages import HealthNoted
from peloton.actors.host.use_messages import SetUse
from peloton.actors.host.volume_messages import RemoveVolumes, VolumesRemoved
from peloton.actors.task.messages import End, RunOutcome
from peloton.backends.check_progress import Verdict
from peloton.backends.health_news import HealthNews
from peloton.backends.mesos import calls
from peloton.backends.mesos.agents import Agent, Agents
from peloton.backends.mesos.announcing import Announcements
from peloton.backends.mesos.due_times import DueTimes
from peloton.backends.mesos.early_updates import EarlyUpdates
from peloton.backends.mesos.groups import seat_of
from peloton.backends.mesos.launching import launch
from peloton.backends.mesos.lists import Lists
from peloton.backends.mesos.master_list import MasterList
from peloton.backends.mesos.offer_book import OfferBook
from peloton.backends.mesos.reconciliation import Reconciliation
from peloton.backends.mesos.run_table import Run, started
from peloton.backends.mesos.statuses import (
    RunAt,
    is_hearsay,
    is_repeat_of_a_launch,
    phase_of,
    told_health,
)
from peloton.backends.mesos.uses import Uses
from peloton.backends.port import Order, Report
from peloton.runtime.core.envelope import Envelope
from peloton.runtime.vocabulary import Key

OFFER_WAIT_S = 30.0
"""How long a run waits for an offer of its host before it goes elsewhere."""
REFUSE_S = 5.0
"""For how long others come first on what we decline; an order asks for it at once."""
HEARSAY_WAIT_S = 5.0
"""How long we wait for what a run's own executor says of its end, once the master has told it."""
NOT_SUBSCRIBED = "not subscribed at the master"
LEFT = "its agent is not registered at the master"
ILL = "the check of Mesos failed"


class Conversation:
    """One framework at the master of one cluster. `first_number` as in `HealthNews`."""

    def __init__(self, cluster: str, *, role: str, backend: Key, first_number: int = 0) -> None:
        self._backend = backend
        self.agents = Agents(cluster, role)
        self._offers = OfferBook()
        self._early = EarlyUpdates()
        self._times = DueTimes()
        self._reconciliation = Reconciliation(
            self._times, lambda: self._calls.append(calls.reconcile_all())
        )
        self._announcements = Announcements(
            self._times, tell=self._tell_of, is_here=self.agents.is_here, away=lambda: self._away
        )
        self._lists = Lists(self._times, tell=self._report, knows=self._knows)
        self._health = HealthNews(first_number)
        self.uses = Uses()
        self._calls: list[calls.Call] = []
        self._reports: list[Envelope] = []
        self._away = NOT_SUBSCRIBED
        self._revived = False  # since we got or gave back offers: one call asks for all

    def take(self) -> tuple[list[calls.Call], list[Envelope]]:
        """What is to be sent since it was asked last: to the master, and to hosts."""
        taken = self._calls, self._reports
        self._calls, self._reports = [], []
        return taken

    # ---- the connection ----

    def subscribed(self, now: float) -> None:
        """The master takes us for the framework. All hosts compare, as orders may be lost."""
        self._away, self._revived = "", False
        self._offers.clear()
        self._reconciliation.now(now)
        for agent in self.agents.by_host.values():
            self._report(agent.host, m.BackendUp())

    def disconnected(self, text: str) -> None:
        """For now nothing is known of any host."""
        self._away = text
        self._offers.clear()
        self._early.clear()
        self._reconciliation.stop()
        self._calls.clear()
        self.uses.clear()
        for agent in self.agents.by_host.values():
            agent.listing = None
            agent.runs.drop_waiting()
            self._report(agent.host, m.BackendDown(text))

    def told_agents(self, listed: MasterList, now: float) -> None:
        """The master's lists of agents, and of our executors there."""
        self.agents.try_again(now)
        changed, left = self.agents.told(listed.agents, listed.executors)
        for agent in left:
            for name in agent.runs.runs:
                self._health.drop(name)
            self._report(agent.host, m.HostLeft(LEFT))
        for agent in changed:
            self._announcements.announce(agent, now)
            for status in self._early.take(agent.agent_id):
                self._updated(status, now)
        if changed and self._early.take_missed():
            self._reconciliation.now(now)

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
        elif kind == "INVERSE_OFFERS":
            self._calls += self.uses.answers(event["inverse_offers"], self.agents)
        elif kind == "FAILURE":
            self.agents.heard_failure(event["failure"], now)

    def _offered(self, offer: Mapping[str, Any], now: float) -> None:
        self._revived = False
        self._offers.add(offer, now)
        agent = self.agents.of(offer["agent_id"]["value"])
        if agent is not None:
            self._launch(agent)

    def _updated(self, status: Mapping[str, Any], now: float) -> None:
        agent_id = (status.get("agent_id") or {}).get("value", "")
        agent = self.agents.of(agent_id)
        if agent is None:
            self._early.keep(agent_id, status)
            return
        self.agents.learn_of_keeper(agent, status)
        task, phase, seat = status["task_id"]["value"], phase_of(status), seat_of(status)
        if status.get("uuid") and phase is not RunAt.ENDED:
            self._calls.append(calls.acknowledge(task, agent.agent_id, uuid=status["uuid"]))
        if phase is RunAt.UNKNOWN:
            return
        if is_repeat_of_a_launch(status):
            self._calls += calls.reconcile((task,), agent.agent_id)
            return
        if is_hearsay(status) and not agent.believes_in(seat.run):
            return  # the host may have forgotten it just now; if not, its own update comes
        run, learned = agent.runs.found(seat)
        if learned:
            self._calls += self._lists.learned(agent, run, task=task)
        if phase is not RunAt.ENDED:
            self._goes_on(agent, run, status=status, now=now)
        elif is_hearsay(status) and not run.has_ended(task):
            if run.hearsay.setdefault(task, status) is status:
                self._times.at(now + HEARSAY_WAIT_S, partial(self._believe, agent, run, task=task))
            return
        else:
            self._ended(agent, run, status=status)
        self._lists.answered(agent, run, task=task)

    def _goes_on(self, agent: Agent, run: Run, *, status: Mapping[str, Any], now: float) -> None:
        task = status["task_id"]["value"]
        if run.has_ended(task):
            # If its own executor has said that it is over, this is an old word of the master.
            if task not in run.uuids and status["state"] != "TASK_KILLING":
                self._kill(agent, (task,), grace_s=0.0)
            return
        agent.runs.sent(run)
        if phase_of(status) is RunAt.RUNNING and not run.runs(task):
            if run.begin(task, status):
                self._report(agent.host, started([run]))
            if run.grace_s is not None:  # the order to end it came before the agent had it
                self._kill(agent, (task,), grace_s=run.grace_s)
        well = told_health(status)
        if well is not None and well != run.healthy and run.grace_s is None:
            run.healthy = well
            text = "" if well else status.get("message") or ILL
            self._health.change(agent.host, run.name, verdict=Verdict(well), text=text, now=now)
            self._tell_health(now)

    def _ended(self, agent: Agent, run: Run, *, status: Mapping[str, Any]) -> None:
        """A task of it has ended, and the run with it, unless others go on."""
        if run.finish(status["task_id"]["value"], status):
            self._report(agent.host, started([run]))
        end = run.over_by(status)
        if end is None:
            agent.runs.sent(run)
            return
        left = run.open_tasks if run.group is not None and run.end is None else ()
        agent.runs.ended(run, end)
        self._health.drop(run.name)
        self._report(agent.host, m.RunsEnded((end,)))
        self._kill(agent, left, grace_s=0.0)

    def _believe(self, agent: Agent, run: Run, now: float, *, task: str) -> None:
        """Its executor says nothing more: the end is what the master knows of it."""
        status = run.hearsay.pop(task)
        if not run.has_ended(task) and self._knows(agent):
            self._ended(agent, run, status=status)
            self._lists.answered(agent, run, task=task)

    # ---- orders ----

    def ordered(self, order: Order, now: float) -> None:
        """An order of a host."""
        agent = self.agents.by_host.get(order.host)
        if isinstance(order, HealthNoted):
            self._health.noted(order.runs, order.number, now=now)
            self._tell_health(now)
        elif isinstance(order, m.ForgetRuns):
            if agent is not None:
                self._forget(agent, order.runs)
        elif self._away:
            self._report(order.host, m.BackendDown(self._away))
        elif isinstance(order, SetUse):
            answer = self.uses.ordered(order, now)
            if answer is not None:
                self._report(order.host, answer)
        elif agent is None:
            self.uses.missed(order.host)
            self._report(order.host, m.HostLeft(LEFT))
        else:
            agent.confirmed = True
            self._obey(agent, order, now)

    def _obey(self, agent: Agent, order: Order, now: float) -> None:
        if isinstance(order, RemoveVolumes):  # there are none
            self._report(agent.host, VolumesRemoved(order.volumes))
        elif isinstance(order, m.PingBackend):
            self._report(agent.host, m.BackendUp())
        elif isinstance(order, m.StartRuns | m.StopRuns | m.ListRuns):
            if order.epoch < agent.epoch:
                return
            agent.epoch = order.epoch
            if isinstance(order, m.StartRuns):
                self._start(agent, order.runs, now)
            elif isinstance(order, m.StopRuns):
                self._stop(agent, order)
            else:
                self._calls += self._lists.asked(agent, order, now)

    def _start(self, agent: Agent, orders: Iterable[m.StartRun], now: float) -> None:
        new, running, ends = [], [], []
        for order in orders:
            run = agent.runs.runs.get(order.run)
            if run is None:
                new.append(agent.runs.ordered(order))
            elif run.end is not None:
                ends.append(run.end)
            elif run.phase is RunAt.RUNNING:
                running.append(run)
        if running:
            self._report(agent.host, started(running))
        if ends:
            self._report(agent.host, m.RunsEnded(tuple(ends)))
        self._launch(agent)
        if any(run.waits for run in new):
            self._times.at(now + OFFER_WAIT_S, partial(self._no_offer, agent, new))

    def _launch(self, agent: Agent) -> None:
        """Launch what waits and fits, in one call."""
        if not agent.runs.waiting:
            return
        found = launch(agent, self._offers.of(agent.agent_id))
        if found.tasks or found.groups:
            offers = self._offers.use(agent.agent_id)
            self._calls.append(calls.accept(offers, found.tasks, groups=found.groups))
        if found.refused:
            self._report(agent.host, m.RunsEnded(tuple(found.refused)))
        if agent.runs.waiting and not self._revived:
            self._revived = True
            self._calls.append(calls.revive())

    def _no_offer(self, agent: Agent, runs: Sequence[Run], now: float) -> None:
        """These have waited long enough, if they still do."""
        ends = []
        for run in runs:
            if agent.runs.waiting.get(run.name) is run and self._knows(agent):
                text = f"no offer of its host within {OFFER_WAIT_S:g} s"
                lost = RunOutcome(End.LOST, reason="no offer", message=text, system=True)
                ends.append(m.RunEnd(run.name, lost))
                agent.runs.ended(run, ends[-1])
        if ends:
            self._report(agent.host, m.RunsEnded(tuple(ends)))

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
            run.grace_s = order.grace_s
            self._health.drop(name)
            self._kill(agent, run.open_tasks, grace_s=order.grace_s)
        if ends:
            self._report(agent.host, m.RunsEnded(tuple(ends)))
        if unknown:
            self._report(agent.host, m.BackendUp())

    def _forget(self, agent: Agent, runs: Iterable[str]) -> None:
        """Where the acknowledgement is lost, the end is delivered, reported and forgotten again."""
        for name in runs:
            run = agent.runs.forget(name)
            for task, uuid in run.uuids.items() if run is not None and not self._away else ():
                self._calls.append(calls.acknowledge(task, agent.agent_id, uuid=uuid))

    # ---- times ----

    @property
    def wake_at(self) -> float | None:
        """When `due` has something to do, or would find that it has not."""
        times = self._offers.wake_at, self._times.wake_at, self._health.wake_at
        return min((at for at in times if at is not None), default=None)

    def due(self, now: float) -> None:
        """What time has brought: offers nobody wanted, runs that found none, lists too late."""
        unwanted = [*self._offers.due(now)]
        if unwanted:
            self._calls.append(calls.decline(unwanted, REFUSE_S))
            self._revived = False
        self._times.do(now)
        self._tell_health(now)

    def _knows(self, agent: Agent) -> bool:
        """Whether anything may be said of this agent now."""
        return not self._away and self.agents.is_here(agent)

    def _tell_health(self, now: float) -> None:
        for host, report in self._health.due(now):
            self._report(host, report)

    def _tell_of(self, agent: Agent) -> None:
        self._report(agent.host, agent.appeared(self._backend))

    def _kill(self, agent: Agent, tasks: Iterable[str], *, grace_s: float) -> None:
        self._calls += [calls.kill(task, agent.agent_id, grace_s=grace_s) for task in tasks]

    def _report(self, host: Key, report: Report) -> None:
        self._reports.append(Envelope(host, report, sender=self._backend))
