"""The conversation between the hosts of a Mesos cluster and its master, for one framework.

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
- *Hosts come and go.* Of an agent that has left the names of its runs are remembered, but not those
  that waited for an offer, then or when the connection was lost: hosts order them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from peloton.actors.host import messages as m
from peloton.actors.host.live.live_messages import ChangesNoted
from peloton.actors.host.machine_messages import RemoveVolumes, SetUse, VolumesRemoved
from peloton.backends.due_times import DueTimes
from peloton.backends.mesos.agents import Agent, Agents
from peloton.backends.mesos.announcing import Announcements
from peloton.backends.mesos.early_updates import EarlyUpdates
from peloton.backends.mesos.kills import Kills
from peloton.backends.mesos.lists import Lists
from peloton.backends.mesos.master_list import MasterList
from peloton.backends.mesos.masters import calls
from peloton.backends.mesos.offering import Offering
from peloton.backends.mesos.reconciliation import Reconciliation
from peloton.backends.mesos.run_table import KILLED_FIRST, Run, refused, started
from peloton.backends.mesos.runs.groups import container_task_id
from peloton.backends.mesos.runs.statuses import (
    RunAt,
    is_hearsay,
    is_repeat_of_a_launch,
    mesos_outcome,
    phase_of,
)
from peloton.backends.mesos.unreadable import Unreadable, check_update
from peloton.backends.mesos.uses import Uses
from peloton.backends.mesos.wellbeing import Wellbeing
from peloton.backends.port import POISON, Order, Report
from peloton.backends.secrets_first import NO_VALUES, SecretValues
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.vocabulary import Key

HEARSAY_WAIT_S = 5.0
"""How long we wait for what a run's own executor says of its end, once the master has told it."""
NOT_SUBSCRIBED = "not subscribed at the master"
LEFT = "its agent is not registered at the master"


class Conversation:
    """A framework at the master of one cluster. `first_number` as in `RunNews`."""

    def __init__(self, cluster: str, *, role: str, backend: Key, first_number: int = 0) -> None:
        self._backend = backend
        self.agents = Agents(cluster, role)
        self._early = EarlyUpdates()
        self._times = DueTimes()
        self._reconciliation = Reconciliation(
            self._times, lambda: self._calls.append(calls.reconcile_all())
        )
        self._announcements = Announcements(
            self._times, tell=self._tell_of, is_here=self.agents.is_here, away=lambda: self._away
        )
        self._kills = Kills(
            self._times,
            send=lambda some: self._calls.extend(some),
            knows=lambda agent_id: self.agents.at(agent_id) is not None,
        )
        self._offers = Offering(
            self._times,
            send=lambda call: self._calls.append(call),
            tell=self._report,
            knows=self._knows,
        )
        self._lists = Lists(self._times, tell=self._report, knows=self._knows)
        self._wellbeing = Wellbeing(first_number, self._times, tell=self._report, knows=self._knows)
        self.uses = Uses()
        self.unreadable = Unreadable()
        self._calls: list[calls.Call] = []
        self._reports: list[Envelope] = []
        self._away = NOT_SUBSCRIBED

    def take(self) -> tuple[list[calls.Call], list[Envelope]]:
        """Return what is to be sent since the last call: to the master, and to hosts."""
        taken = self._calls, self._reports
        self._calls, self._reports = [], []
        return taken

    # ---- the connection ----

    def subscribed(self, now: float) -> None:
        """Begin a subscription. All hosts compare, as orders may be lost."""
        self._away = ""
        self.agents.subscribed()
        self._offers.clear()
        self._reconciliation.now(now)
        for agent in self.agents.by_host.values():
            self._report(agent.host, m.BackendUp())

    def disconnected(self, text: str) -> None:
        """Note the end of the connection: for now nothing is known of any host."""
        self._away = text
        self._offers.clear()
        self._early.clear()
        self._kills.clear()
        self._reconciliation.stop()
        self._calls.clear()
        self.uses.clear()
        for agent in self.agents.by_host.values():
            agent.listing = None
            self._cut_off(agent)
            self._report(agent.host, m.BackendDown(text))

    def _cut_off(self, agent: Agent) -> None:
        self._wellbeing.cut_off(agent)
        agent.runs.cut_off()

    def told_agents(self, listed: MasterList, now: float) -> None:
        """Take the master's lists of agents and executors, unless newer ones were taken."""
        if not self.agents.is_news(listed.number):
            return
        if self.agents.lists_newcomers(listed.agents):
            self._reconciliation.soon(now)
        self.agents.try_again(now)
        changed, left = self.agents.told(listed.agents, listed.executors)
        self.unreadable.listed(self.agents.unreadable)
        for agent in left:
            self._cut_off(agent)
            self._report(agent.host, m.BackendDown(LEFT))
        for agent in changed:
            self._announcements.announce(agent, now)
        for status in self._early.take_known(self.agents.at):
            self.heard({"type": "UPDATE", "update": {"status": status}}, now)
        if changed and self._early.take_missed():
            self._reconciliation.now(now)

    # ---- events ----

    def heard(self, event: Mapping[str, Any], now: float) -> None:
        """Take an event of the master; skip one that cannot be read."""
        try:
            self._heard(event.get("type"), event, now)
        except POISON as why:
            self.unreadable.skip(f"event {event.get('type')}", why, now)

    def _heard(self, kind: Any, event: Mapping[str, Any], now: float) -> None:
        if kind == "OFFERS":
            offers = event["offers"].get("offers", ())
            for what, why in self._offers.made(offers, now, of=self.agents.of):
                self.unreadable.skip(what, why, now)
        elif kind == "RESCIND":
            self._offers.rescinded(event["rescind"]["offer_id"]["value"])
        elif kind == "UPDATE":
            self._updated(event["update"]["status"], now)
        elif kind == "INVERSE_OFFERS":
            self._calls += self.uses.answers(event["inverse_offers"], self.agents)
        elif kind == "FAILURE":
            self.agents.heard_failure(event["failure"], now)

    def _updated(self, status: Mapping[str, Any], now: float) -> None:
        check_update(status)
        agent_id = (status.get("agent_id") or {}).get("value", "")
        agent, phase = self.agents.at(agent_id), phase_of(status)
        if phase is RunAt.ENDED and not is_repeat_of_a_launch(status):
            self._kills.over(status["task_id"]["value"])
        if agent is None:
            if phase is not RunAt.UNKNOWN:
                self._early.keep(agent_id, status)
            return
        self.agents.learn_of_keeper(agent, status)
        task, id_ = status["task_id"]["value"], container_task_id(status)
        if status.get("uuid") and phase is not RunAt.ENDED:
            self._calls.append(calls.acknowledge(task, agent_id, uuid=status["uuid"]))
        if phase is RunAt.UNKNOWN:
            return
        if is_repeat_of_a_launch(status):
            self._calls += calls.reconcile((task,), agent_id)
            return
        if is_hearsay(status) and not agent.believes_in(id_.run):
            return  # the host may have forgotten it just now; if not, its own update comes
        run, learned = agent.runs.found(id_)
        run.told_of(status)
        if learned:
            self._calls += self._lists.learned(agent, run, task=task)
        if phase is not RunAt.ENDED:
            self._goes_on(agent, run, status=status, now=now)
        elif is_hearsay(status) and not run.has_ended(task):
            mesos_outcome(status)  # what cannot be read is so now, not when it is believed
            if run.hearsay.setdefault(task, status) is status:
                self._times.at(now + HEARSAY_WAIT_S, partial(self._believe, agent, run, of=status))
            return
        else:
            self._ended(agent, run, status=status, now=now)
        self._lists.answered(agent, run, task=task)

    def _goes_on(self, agent: Agent, run: Run, *, status: Mapping[str, Any], now: float) -> None:
        task = status["task_id"]["value"]
        if run.has_ended(task):
            # If its own executor has said that it is over, this is an old word of the master.
            if task not in run.uuids and status["state"] != "TASK_KILLING":
                self._kill(agent, run, tasks=(task,), grace_s=0.0, now=now)
            return
        agent.runs.sent(run)
        run.refusal = None  # the master has it
        if phase_of(status) is RunAt.RUNNING and not run.runs(task):
            if run.begin(task, status):
                self._report(agent.host, started([run]))
            if run.grace_s is not None:  # the order to end it came before the agent had it
                self._kill(agent, run, tasks=(task,), grace_s=run.grace_s, now=now)
        self._wellbeing.heard(agent, run, status=status, now=now)

    def _ended(self, agent: Agent, run: Run, *, status: Mapping[str, Any], now: float) -> None:
        """End a run, a task of which has ended, unless other tasks of it go on."""
        if run.finish(status["task_id"]["value"], status):
            self._report(agent.host, started([run]))
        end = run.over_by(status)
        if end is None:
            agent.runs.sent(run)
            return
        left = run.open_tasks if run.group is not None and run.end is None else ()
        agent.runs.ended(run, end)
        self._wellbeing.drop(run.name)
        self._report(agent.host, m.RunsEnded((end,)))
        self._kill(agent, run, tasks=left, grace_s=0.0, now=now)

    def _believe(self, agent: Agent, run: Run, now: float, *, of: Mapping[str, Any]) -> None:
        """Believe the master about the end of a task: its executor reports nothing more."""
        task = of["task_id"]["value"]
        if run.hearsay.get(task) is not of:  # there was an outage since
            return
        del run.hearsay[task]
        if not run.has_ended(task) and self._knows(agent):
            self._ended(agent, run, status=of, now=now)
            self._lists.answered(agent, run, task=task)

    # ---- orders ----

    def ordered(self, order: Order, now: float, *, values: SecretValues = NO_VALUES) -> None:
        """Take an order of a host, with the values of the secrets that it names."""
        agent = self.agents.by_host.get(order.host)
        if isinstance(order, ChangesNoted):
            self._wellbeing.noted(order, now)
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
            self._report(order.host, m.BackendDown(LEFT))
        else:
            agent.confirmed = True
            self._obey(agent, order, now, values=values)

    def _obey(self, agent: Agent, order: Order, now: float, *, values: SecretValues) -> None:
        if isinstance(order, RemoveVolumes):  # there are none
            self._report(agent.host, VolumesRemoved(order.volumes))
        elif isinstance(order, m.PingBackend):
            self._report(agent.host, m.BackendUp())
        elif isinstance(order, m.StartRuns | m.StopRuns | m.ListRuns):
            if order.epoch < agent.epoch:
                return
            agent.epoch = order.epoch
            if isinstance(order, m.StartRuns):
                if order.incarnation in ("", agent.agent_id):
                    self._start(agent, order.runs, now, values=values)
                else:  # the agent before may have got this order, and it must not be obeyed twice
                    self._report(agent.host, m.BackendUp())
            elif isinstance(order, m.StopRuns):
                self._stop(agent, order, now)
            else:
                agent.runs.compared(order)
                self._calls += self._lists.asked(agent, order, now)

    def _start(
        self, agent: Agent, orders: Iterable[m.StartRun], now: float, *, values: SecretValues
    ) -> None:
        new, running, ends = [], [], []
        asked: list[str] = []
        for order in orders:
            run = agent.runs.runs.get(order.run)
            if run is None:
                files, refusal = values.of(order)
                run = agent.runs.ordered(order, files)
                if refusal is None:
                    new.append(run)
                else:
                    agent.runs.refuse(run, refused(refusal))
                    asked += run.tasks
            elif run.end is not None:
                ends.append(run.end)
            elif run.phase is RunAt.RUNNING:
                running.append(run)
        if running:
            self._report(agent.host, started(running))
        if ends:
            self._report(agent.host, m.RunsEnded(tuple(ends)))
        self._calls += calls.reconcile(asked, agent.agent_id)
        self._offers.wait(agent, new, now)

    def _stop(self, agent: Agent, order: m.StopRuns, now: float) -> None:
        ends, unknown, asked = [], False, list[str]()
        for name in order.runs:
            run = agent.runs.runs.get(name)
            if run is None:
                unknown = True
                continue
            if run.waits:
                agent.runs.refuse(run, KILLED_FIRST)
                run.grace_s = order.grace_s
                asked += run.tasks
                continue
            if run.end is not None:
                ends.append(run.end)
                continue
            run.grace_s = order.grace_s
            self._wellbeing.drop(name)
            self._kill(agent, run, tasks=run.open_tasks, grace_s=order.grace_s, now=now)
        self._calls += calls.reconcile(asked, agent.agent_id)
        if ends:
            self._report(agent.host, m.RunsEnded(tuple(ends)))
        if unknown:
            self._report(agent.host, m.BackendUp())

    def _forget(self, agent: Agent, runs: Iterable[str]) -> None:
        """Forget runs; their ends come again if an acknowledgement is lost."""
        for name in runs:
            run = agent.runs.forget(name)
            if run is None or self._away:
                continue
            for task, (agent_id, uuid) in run.uuids.items():
                self._calls.append(calls.acknowledge(task, agent_id, uuid=uuid))

    # ---- times ----

    @property
    def wake_at(self) -> float | None:
        """When `due` has something to do, or would find that it has not."""
        times = self._offers.wake_at, self._times.wake_at, self._wellbeing.wake_at
        return min((at for at in times if at is not None), default=None)

    def due(self, now: float) -> None:
        """Do what is due: offers nobody wanted, runs that found none, lists too late.

        What fails because of a message that could not be read is skipped, and the rest goes on.
        """
        for act in (self._offers.due, self._times.do, self._wellbeing.due):
            try:
                act(now)
            except POISON as why:
                self.unreadable.skip("what is due", why, now)

    def _knows(self, agent: Agent) -> bool:
        """Return whether the state of this agent is known now."""
        return not self._away and self.agents.is_here(agent)

    def _tell_of(self, agent: Agent) -> None:
        self._report(agent.host, agent.appeared(self._backend))

    def _kill(
        self, agent: Agent, run: Run, *, tasks: Iterable[str], grace_s: float, now: float
    ) -> None:
        where, executor = agent.where(run), run.executor
        self._kills.order(tasks, where, grace_s=grace_s, now=now, executor=executor)

    def _report(self, host: Key, report: Report) -> None:
        self._reports.append(Envelope(host, report, sender=self._backend))
