"""The agents of a cluster as hosts: which host an agent is, what it has, and what is known of it.

An agent that registers under a new id on the same hostname is the same host. Must not know what
runs there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from peloton.actors.host.messages import HostAppeared
from peloton.actors.resources import Resources
from peloton.backends.mesos.keeper_ends import killed_before_it, lacks_executor, speaks
from peloton.backends.mesos.keeper_tasks import (
    EXECUTOR_NEED,
    START_AGAIN_S,
    KeeperAt,
    KeeperProgram,
)
from peloton.backends.mesos.run_table import AgentRuns, Listing
from peloton.backends.mesos.words import of_others, ranges, reserved_by, sum_of
from peloton.placement.conditions import HOST_IP
from peloton.placement.messages import Label
from peloton.runtime.vocabulary import Key, key

CLUSTER_LABEL = "mesos.cluster"


@dataclass(slots=True, eq=False)
class Agent:
    """One agent that is registered, and the host that it is."""

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
    listing: Listing | None = None
    keeper: KeeperAt | None = None  # our own executor there, if batch tasks run by one

    def left_for_tasks(self, found: Resources, executors: Sequence[Mapping[str, Any]]) -> Resources:
        """What our own executor leaves of this, and those of another description beside it, which
        stay while they have tasks."""
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
        """Whether we know this run, or its host has asked how it is."""
        return run in self.runs.runs or (self.listing is not None and run in self.listing.open)

    def appeared(self, backend: Key) -> HostAppeared:
        """What the host is told."""
        return HostAppeared(self.capacity, self.labels, backend, self.ports)


class Agents:
    """The agents of one cluster, by host and by id. One that has left is not remembered."""

    keeper: KeeperProgram | None = None
    """Our own executor, set before there are any; None: all tasks run by those of Mesos."""

    def __init__(self, cluster: str, role: str) -> None:
        self._cluster, self._role = cluster, role
        self.by_host: dict[Key, Agent] = {}
        self._by_id: dict[str, Agent] = {}
        self._failing: dict[Key, float] = {}
        """The hosts where our own executor cannot be started, and since when, in that order."""

    def host_of(self, hostname: str) -> Key:
        """The host that an agent on this machine is: of two clusters none have the same."""
        return key("host", f"{self._cluster}.{hostname}")

    def machine_of(self, host: Key) -> tuple[str, str]:
        """The name of its machine, and the address, which is empty while no agent is there."""
        name = host.partition("/")[2].removeprefix(f"{self._cluster}.")
        agent = self.by_host.get(host)
        return name, "" if agent is None else agent.ip

    def of(self, agent_id: str) -> Agent | None:
        """The agent of this id."""
        return self._by_id.get(agent_id)

    def heard_failure(self, what: Mapping[str, Any], now: float) -> None:
        """An agent has left, which its list says as well, or an executor of it has ended."""
        agent = self._by_id.get((what.get("agent_id") or {}).get("value", ""))
        executor = (what.get("executor_id") or {}).get("value", "")
        if agent is not None and agent.keeper is not None and executor:
            agent.keeper.over(executor)
            if agent.keeper.fails:
                self._failing[agent.host] = now

    def learn_of_keeper(self, agent: Agent, status: Mapping[str, Any]) -> None:
        """An update may say that our executor is there, or that it is not."""
        if agent.keeper is not None and lacks_executor(status):
            agent.keeper.missing()
        elif agent.keeper is not None and speaks(status):
            agent.keeper.spoke()
            self._failing.pop(agent.host, None)
        elif agent.keeper is not None and killed_before_it(status):
            agent.keeper.needed_no_more(status["executor_id"]["value"])

    def try_again(self, now: float) -> None:
        """Where our own executor could not be started long ago, it may be tried again."""
        due = [host for host, since in self._failing.items() if now >= since + START_AGAIN_S]
        for host in due:
            del self._failing[host]
            keeper = self.by_host[host].keeper
            if keeper is not None:
                keeper.try_again()

    def told(
        self,
        registered: Iterable[Mapping[str, Any]],
        executors: Iterable[Mapping[str, Any]] = (),
    ) -> tuple[list[Agent], list[Agent]]:
        """By the master's lists of agents, and of the executors of this framework: those that are
        new or changed, and those that left.

        Under a new id on the same machine an agent knows nothing of the runs of the one before,
        which has left.
        """
        listed = self._by_machine(registered)
        ids = {host: each["agent_info"]["id"]["value"] for host, each in listed.items()}
        left = [agent for host, agent in self.by_host.items() if ids.get(host) != agent.agent_id]
        for agent in left:
            del self._by_id[agent.agent_id]
            self._failing.pop(agent.host, None)
        infos = _by_agent(executors)
        changed = [
            new
            for host, each in listed.items()
            if (new := self._told_of(host, each, executors=infos.get(ids[host], ())))
        ]
        for agent in left:
            if agent.host not in listed:
                del self.by_host[agent.host]
        return changed, left

    @property
    def keeper_problem(self) -> str:
        """Where our own executor cannot be started; empty if that is nowhere."""
        if not self._failing:
            return ""
        first, others = next(iter(self._failing)), len(self._failing) - 1
        more = f" and {others} more" if others else ""
        return (
            f"the executor of batch tasks (backend.mesos.executor) does not start on "
            f"{first.partition('/')[2]}{more}: tasks there run by the command executor"
        )

    def is_here(self, agent: Agent) -> bool:
        """Whether it is still registered."""
        return self._by_id.get(agent.agent_id) is agent

    def _by_machine(self, registered: Iterable[Mapping[str, Any]]) -> dict[Key, Mapping[str, Any]]:
        """One agent for each host: of several on one machine the one that we know, or the first."""
        found: dict[Key, Mapping[str, Any]] = {}
        for each in registered:
            info = each["agent_info"]
            # One that is deactivated gets no tasks, and goes on with those that it has.
            if each.get("active", True) or each.get("deactivated"):
                host = self.host_of(info["hostname"])
                if host not in found or info["id"]["value"] in self._by_id:
                    found[host] = each
        return found

    def _told_of(
        self, host: Key, listed: Mapping[str, Any], *, executors: Sequence[Mapping[str, Any]]
    ) -> Agent | None:
        """The agent, if anything is new of it."""
        info = listed["agent_info"]
        agent_id = info["id"]["value"]
        total = listed.get("total_resources") or info.get("resources") or []
        others = of_others(
            _unreserved(listed.get("allocated_resources") or [], self._role), self._role
        )
        widest = max(ranges(total), key=lambda each: each[1] - each[0], default=(0, 0))
        ip = ip_of(listed.get("pid", ""))
        labels = (*_labels(info.get("attributes") or []), *self._own_labels(ip))
        agent = self.by_host.get(host)
        is_new = agent is None or agent.agent_id != agent_id
        if agent is None or is_new:
            epoch = 0 if agent is None else agent.epoch
            agent = self.by_host[host] = self._by_id[agent_id] = Agent(host, agent_id, epoch=epoch)
            agent.keeper = None if self.keeper is None else KeeperAt(self.keeper)
        found = sum_of(of_ours(total, self._role)) - sum_of(others)
        capacity = agent.left_for_tasks(found, executors)
        known = agent.capacity, agent.labels, agent.ports
        if not is_new and (capacity, labels, widest) == known:
            return None
        agent.capacity, agent.labels, agent.ports, agent.ip = capacity, labels, widest, ip
        return agent

    def _own_labels(self, ip: str) -> tuple[Label, ...]:
        """Those that are no attributes of the agent."""
        ours = Label(CLUSTER_LABEL, self._cluster)
        return (ours, Label(HOST_IP, ip)) if ip else (ours,)


def _by_agent(executors: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """What executors are, by the id of their agent."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for each in executors:
        found.setdefault(each["agent_id"]["value"], []).append(each["executor_info"])
    return found


def of_ours(entries: Iterable[Mapping[str, Any]], role: str) -> list[Mapping[str, Any]]:
    """The entries that nobody else has or has reserved."""
    theirs = of_others(entries := [*entries], role)
    return [entry for entry in entries if entry not in theirs]


def _unreserved(entries: Iterable[Mapping[str, Any]], role: str) -> list[Mapping[str, Any]]:
    """The entries that nobody else has reserved, whoever has got them."""
    return [entry for entry in entries if reserved_by(entry) in ("*", role)]


def ip_of(pid: str) -> str:
    """The address in the name of an agent's process, `slave(1)@127.0.0.1:5051`."""
    return pid.rpartition("@")[2].rpartition(":")[0].strip("[]")


def _labels(attributes: Iterable[Mapping[str, Any]]) -> tuple[Label, ...]:
    """Attributes of text and numbers, as they are written in constraints."""
    found = []
    for each in attributes:
        if "text" in each:
            found.append(Label(each["name"], each["text"]["value"]))
        elif "scalar" in each:
            found.append(Label(each["name"], f"{each['scalar']['value']:g}"))
    return tuple(found)
