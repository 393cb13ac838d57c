"""The agents of a cluster as hosts: which host an agent is, what it has, and what is known of it.

An agent that registers under a new id on the same hostname is the same host. Must not know what
runs there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from peloton.actors.host.messages import HostAppeared
from peloton.actors.resources import Resources
from peloton.backends.mesos.run_table import AgentRuns, Listing
from peloton.backends.mesos.words import amounts, of_others, ranges
from peloton.placement.messages import Label
from peloton.runtime.vocabulary import Key, key

CLUSTER_LABEL = "mesos.cluster"


@dataclass(slots=True)
class Agent:
    """One host. `agent_id` is empty while no agent is registered there."""

    host: Key
    agent_id: str = ""
    capacity: Resources = field(default_factory=Resources)
    labels: tuple[Label, ...] = ()
    ports: tuple[int, int] = (0, 0)
    epoch: int = 0
    confirmed: bool = False  # the host has given an order since it appeared
    away: str = ""  # why nothing is known of it for now
    runs: AgentRuns = field(default_factory=AgentRuns)
    listing: Listing | None = None

    @property
    def is_here(self) -> bool:
        """Whether its orders can be obeyed."""
        return bool(self.agent_id) and not self.away

    def appeared(self, backend: Key) -> HostAppeared:
        """What the host is told."""
        return HostAppeared(self.capacity, self.labels, backend, self.ports)


class Agents:
    """The agents of one cluster, by host and by id."""

    def __init__(self, cluster: str, role: str) -> None:
        self._cluster, self._role = cluster, role
        self.by_host: dict[Key, Agent] = {}
        self._by_id: dict[str, Agent] = {}

    def host_of(self, hostname: str) -> Key:
        """The host that an agent on this machine is: of two clusters none have the same."""
        return key("host", f"{self._cluster}.{hostname}")

    def of(self, agent_id: str) -> Agent | None:
        """The agent of this id."""
        return self._by_id.get(agent_id)

    def at(self, host: Key) -> Agent:
        """The agent that is this host; one that is not registered if there is none."""
        agent = self.by_host.get(host)
        if agent is None:
            agent = self.by_host[host] = Agent(host)
        return agent

    def told(self, registered: Iterable[Mapping[str, Any]]) -> tuple[list[Agent], list[Agent]]:
        """By the master's list of agents: those that are new or changed, and those that left."""
        changed, seen = [], set[str]()
        for each in registered:
            info = each["agent_info"]
            if not each.get("active", True):
                continue
            agent_id = info["id"]["value"]
            seen.add(agent_id)
            if self._taken_over(agent_id, each):
                changed.append(self._by_id[agent_id])
        left = [agent for agent_id, agent in self._by_id.items() if agent_id not in seen]
        for agent in left:
            del self._by_id[agent.agent_id]
            agent.agent_id = ""
        return changed, left

    def _taken_over(self, agent_id: str, listed: Mapping[str, Any]) -> bool:
        """Whether anything is new of it."""
        info = listed["agent_info"]
        agent = self.at(self.host_of(info["hostname"]))
        total = listed.get("total_resources") or info.get("resources") or []
        others = of_others(listed.get("allocated_resources") or [], self._role)
        capacity = amounts(of_ours(total, self._role)) - amounts(others)
        widest = max(ranges(total), key=lambda each: each[1] - each[0], default=(0, 0))
        labels = (*_labels(info.get("attributes") or []), Label(CLUSTER_LABEL, self._cluster))
        now = agent_id, capacity, labels, widest
        if now == (agent.agent_id, agent.capacity, agent.labels, agent.ports):
            return False
        if agent.agent_id and agent.agent_id != agent_id:
            self._by_id.pop(agent.agent_id, None)
        agent.agent_id, agent.capacity, agent.labels, agent.ports = now
        agent.confirmed = False
        self._by_id[agent_id] = agent
        return True


def of_ours(entries: Iterable[Mapping[str, Any]], role: str) -> list[Mapping[str, Any]]:
    """The entries that nobody else has or has reserved."""
    theirs = of_others(entries := [*entries], role)
    return [entry for entry in entries if entry not in theirs]


def _labels(attributes: Iterable[Mapping[str, Any]]) -> tuple[Label, ...]:
    """Attributes of text and numbers, as they are written in constraints."""
    found = []
    for each in attributes:
        if "text" in each:
            found.append(Label(each["name"], each["text"]["value"]))
        elif "scalar" in each:
            found.append(Label(each["name"], f"{each['scalar']['value']:g}"))
    return tuple(found)
