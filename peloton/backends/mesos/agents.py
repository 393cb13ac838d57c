"""The agents of a cluster as hosts: the host of each agent, its resources, and its state.

An agent that registers under a new id on the same hostname is the same host. Of its runs only the
names are known once the agent has left, until another one of its host is there.

Of several agents on one machine one is the host. The others get no orders, but their runs count as
the host's: one of them may have been it before, or for the daemon before us.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from peloton.actors.host.messages import HostAppeared
from peloton.actors.resources import Resources
from peloton.backends.mesos.listed_agents import ListedAgent, ListedAgents, listed_id
from peloton.backends.mesos.run_table import AgentRuns, PendingList, Run
from peloton.backends.mesos.runs.groups import ContainerTaskId
from peloton.backends.mesos.runs.keeper_ends import (
    killed_before_it,
    lacks_executor,
    speaks,
    why_not_there,
)
from peloton.backends.mesos.runs.keeper_tasks import (
    EXECUTOR_NEED,
    START_AGAIN_S,
    KeeperAt,
    KeeperProgram,
)
from peloton.backends.mesos.runs.task_info import WHY_MAX
from peloton.backends.mesos.runs.words import sum_of
from peloton.placement.conditions import HOST_IP
from peloton.placement.messages import Label
from peloton.runtime.vocabulary import Key, key

CLUSTER_LABEL = "mesos.cluster"


@dataclass(slots=True, eq=False)
class Agent:
    """A registered agent, and the host that it is."""

    host: Key
    agent_id: str
    capacity: Resources = field(default_factory=Resources)
    labels: tuple[Label, ...] = ()
    ports: tuple[int, int] = (0, 0)
    ip: str = ""
    epoch: int = 0
    confirmed: bool = False  # the host has given an order since it appeared
    appear_at: float = 0.0  # when it is to be announced again
    runs: AgentRuns = field(default_factory=AgentRuns)
    listing: PendingList | None = None
    keeper: KeeperAt | None = None  # our own executor there, if batch tasks run by one

    def left_for_tasks(self, found: Resources, executors: Sequence[Mapping[str, Any]]) -> Resources:
        """Return the resources that remain for tasks beside our own executor.

        Executors of another description count as well: they stay while they have tasks.
        """
        if self.keeper is None:
            return found
        for info in executors:
            self.keeper.listed(info)
        left = found - EXECUTOR_NEED
        for info in executors:
            if self.keeper.is_beside(info):
                left -= sum_of(info.get("resources") or [])
        return msgspec.structs.replace(left, cpu=max(left.cpu, 0), memory=max(left.memory, 0))

    def believes_in(self, run: str) -> bool:
        """Return whether we know this run, or its host has asked for its state."""
        return run in self.runs.runs or (self.listing is not None and run in self.listing.open)

    def where(self, run: Run) -> str:
        """Return the id of the agent that has this run of its host."""
        return run.at or self.agent_id

    def appeared(self, backend: Key) -> HostAppeared:
        """Return the announcement of the host."""
        return HostAppeared(self.capacity, self.labels, backend, self.ports)


class Agents:
    """The agents of one cluster, by host and by id.

    Of an agent that has left only the names of its runs are kept.
    """

    keeper: KeeperProgram | None = None
    """Our own executor, set before there are any; None: all tasks run by those of Mesos."""

    def __init__(self, cluster: str, role: str) -> None:
        self._cluster, self._role = cluster, role
        self.by_host: dict[Key, Agent] = {}
        self._by_id: dict[str, Agent] = {}
        self._beside: dict[str, Key] = {}
        """Agents that are not the host of their machine, by id."""
        self._former = FormerRuns()
        self._told = 0
        self._listed: set[str] | None = None
        """The ids of all in the last list of this subscription."""
        self.unreadable: list[str] = []
        """What of the last list could not be read."""
        self._failing: dict[Key, float] = {}
        """The hosts where our own executor cannot be started, and since when, in that order."""

    def host_of(self, hostname: str) -> Key:
        """Return the host of this machine; hosts of two clusters have different keys."""
        return key("host", f"{self._cluster}.{hostname}")

    def machine_of(self, host: Key) -> tuple[str, str]:
        """Return the name and address of a host's machine; no address while no agent is there."""
        name = host.partition("/")[2].removeprefix(f"{self._cluster}.")
        agent = self.by_host.get(host)
        return name, "" if agent is None else agent.ip

    def of(self, agent_id: str) -> Agent | None:
        """Return the agent of this id, which is a host."""
        return self._by_id.get(agent_id)

    def at(self, agent_id: str) -> Agent | None:
        """Return the agent that is the host of this one's machine: mostly itself."""
        host = self._beside.get(agent_id)
        return self._by_id.get(agent_id) if host is None else self.by_host.get(host)

    def heard_failure(self, what: Mapping[str, Any], now: float) -> None:
        """Take a failure: an agent has left, or an executor of it has ended."""
        agent = self._by_id.get((what.get("agent_id") or {}).get("value", ""))
        executor = (what.get("executor_id") or {}).get("value", "")
        if agent is not None and agent.keeper is not None and executor:
            agent.keeper.over(executor)
            if agent.keeper.fails:
                self._failing[agent.host] = now

    def learn_of_keeper(self, agent: Agent, status: Mapping[str, Any]) -> None:
        """Learn from an update whether our executor runs at the agent."""
        keeper = agent.keeper
        if keeper is None or (status.get("agent_id") or {}).get("value") != agent.agent_id:
            return
        if lacks_executor(status):
            keeper.missing()
        elif speaks(status):
            keeper.spoke()
            self._failing.pop(agent.host, None)
        elif killed_before_it(status):
            keeper.needed_no_more(status["executor_id"]["value"])
        elif why := why_not_there(status):
            keeper.why_not_there = why

    def try_again(self, now: float) -> None:
        """Try again to start our own executor if it could not be started long ago."""
        due = [host for host, since in self._failing.items() if now >= since + START_AGAIN_S]
        for host in due:
            del self._failing[host]
            keeper = self.by_host[host].keeper
            if keeper is not None:
                keeper.try_again()

    def is_news(self, number: int) -> bool:
        """Return whether the list of this number is to be taken: not after a later one was."""
        newest = number >= self._told
        self._told = max(number, self._told)
        return newest

    def subscribed(self) -> None:
        """Begin a subscription, at which all tasks are asked for anyway."""
        self._listed = None

    def lists_newcomers(self, registered: Iterable[Mapping[str, Any]]) -> bool:
        """Return whether a list has agents that the subscription's previous one had not."""
        before, self._listed = self._listed, {*map(listed_id, registered)}
        return before is not None and not self._listed <= before

    def told(
        self,
        registered: Iterable[Mapping[str, Any]],
        executors: Iterable[Mapping[str, Any]] = (),
    ) -> tuple[list[Agent], list[Agent]]:
        """Take the master's lists; return the agents that are new or changed, and those that left.

        The lists are of agents, and of the executors of this framework. Runs of an agent that left
        may go on: they are known again at the next agent of its host, the same or another one, so
        that lists ask for them, and they are not begun twice. If an agent that is not the host has
        left, the host counts as changed, and compares.
        """
        read = ListedAgents.of(registered, executors, role=self._role)
        self.unreadable = read.problems
        listed = self._by_machine(read)
        left = [
            agent
            for host, agent in self.by_host.items()
            if agent.agent_id not in read.unread
            and (host not in listed or listed[host].id != agent.agent_id)
        ]
        for agent in left:
            del self._by_id[agent.agent_id]
            self._failing.pop(agent.host, None)
            for run in agent.runs.launched():
                self._former.keep(agent.host, run.name, agent_id=agent.where(run))
        changed = [
            new
            for host, each in listed.items()
            if (new := self._told_of(host, each, executors=read.executors_at(each.id)))
        ]
        for agent in left:
            if agent.host not in listed:
                del self.by_host[agent.host]
        before, self._beside = self._beside, self._not_hosts(read)
        changed += self._lost_beside(before, changed)
        for host in self._former.hosts:
            if host in self.by_host:
                for name, agent_id in self._former.take(host).items():
                    self.by_host[host].runs.found(ContainerTaskId(name))[0].at = agent_id
        return changed, left

    @property
    def keeper_problem(self) -> str:
        """Where our own executor cannot be started; empty if it can everywhere."""
        if not self._failing:
            return ""
        first, others = next(iter(self._failing)), len(self._failing) - 1
        more = f" and {others} more" if others else ""
        keeper = self.by_host[first].keeper
        why = keeper.why_not_there[-WHY_MAX:] if keeper is not None else ""
        return (
            f"the executor of batch tasks (backend.mesos.executor) does not start on "
            f"{first.partition('/')[2]}{more}: tasks there run by the command executor"
            + (f"; the agent says: {why}" if why else "")
        )

    def is_here(self, agent: Agent) -> bool:
        return self._by_id.get(agent.agent_id) is agent

    def _by_machine(self, read: ListedAgents) -> dict[Key, ListedAgent]:
        """Return one agent for each host: of several the one that we know, or the first.

        A known agent whose entry cannot be read just now stays as it was.
        """
        found: dict[Key, ListedAgent] = {}
        for each in read.agents:
            host = self.host_of(each.hostname)
            if each.here and (host not in found or each.id in self._by_id):
                found[host] = each
        known = ((host, self.by_host.get(host)) for host in [*found])
        for host, agent in known:
            if agent is not None and agent.agent_id in read.unread:
                del found[host]
        return found

    def _not_hosts(self, read: ListedAgents) -> dict[str, Key]:
        """Return the agents of machines that another agent is the host of, connected or not.

        An agent that was one and whose entry cannot be read just now still is.
        """
        hosts = {id_: host for id_, host in self._beside.items() if id_ in read.unread}
        hosts |= {one.id: self.host_of(one.hostname) for one in read.agents}
        return {
            agent_id: host
            for agent_id, host in hosts.items()
            if agent_id not in self._by_id and host in self.by_host
        }

    def _lost_beside(self, before: Mapping[str, Key], changed: Iterable[Agent]) -> list[Agent]:
        """Return the agents beside which one has left, but for those that have changed anyhow."""
        left = [host for id_, host in before.items() if self.at(id_) is None]
        found = dict.fromkeys(self.by_host[host] for host in left if host in self.by_host)
        return [agent for agent in found if agent not in changed]

    def _told_of(
        self, host: Key, listed: ListedAgent, *, executors: Sequence[Mapping[str, Any]]
    ) -> Agent | None:
        """Return the agent if its entry changes anything."""
        labels = (*listed.labels, *self._own_labels(listed.ip))
        agent = self.by_host.get(host)
        is_new = agent is None or agent.agent_id != listed.id
        if agent is None or is_new:
            epoch = 0 if agent is None else agent.epoch
            agent = self.by_host[host] = self._by_id[listed.id] = Agent(
                host, listed.id, epoch=epoch
            )
            agent.keeper = None if self.keeper is None else KeeperAt(self.keeper)
        capacity = agent.left_for_tasks(listed.capacity, executors)
        known = agent.capacity, agent.labels, agent.ports
        if not is_new and (capacity, labels, listed.ports) == known:
            return None
        agent.capacity, agent.labels, agent.ports = capacity, labels, listed.ports
        agent.ip = listed.ip
        return agent

    def _own_labels(self, ip: str) -> tuple[Label, ...]:
        """Return the labels that are no attributes of the agent."""
        ours = Label(CLUSTER_LABEL, self._cluster)
        return (ours, Label(HOST_IP, ip)) if ip else (ours,)


NAMES_MAX = 50_000
"""So many are kept; of more those of the hosts that left first are dropped, and are found when all
tasks are asked for."""


class FormerRuns:
    """Runs by their host, with the agent of each."""

    def __init__(self) -> None:
        self._agents: dict[Key, dict[str, str]] = {}
        self._count = 0

    @property
    def hosts(self) -> list[Key]:
        """The hosts of which some runs are kept, those that left first at first."""
        return [*self._agents]

    def keep(self, host: Key, run: str, *, agent_id: str) -> None:
        """Keep a run that goes on there, as far as we know."""
        if run not in self._agents.get(host, {}):
            if self._count >= NAMES_MAX:
                self.take(next(iter(self._agents)))
            self._count += 1
        self._agents.setdefault(host, {})[run] = agent_id

    def take(self, host: Key) -> dict[str, str]:
        """Remove and return the runs of a host, with their agents."""
        taken = self._agents.pop(host, {})
        self._count -= len(taken)
        return taken
