"""A Mesos master with one framework: what it knows of agents and tasks, and says of them.

Does what a real one does: knows a task from its launch until its end is acknowledged, says of a
task whose agent is out of reach that it is, and of one that it does not know where it should be
that it is gone. It forgets all that when it fails over, and learns it from its agents.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from tests.backends.mesos.words import Json
from tests.servers.mesos_model.agents import TERMINAL, Agent
from tests.servers.mesos_model.offers import Amounts, Offers, amounts_of
from tests.servers.mesos_model.said import listed, offered
from tests.servers.mesos_model.times import Times

UNREACHABLE_S = 75.0
ALLOCATE_S = 1.0
REMOVED = {"reason": "REASON_AGENT_REMOVED", "message": "health check timed out"}
PARTITIONS = frozenset(f"TASK_{name}" for name in ("DROPPED", "GONE", "UNREACHABLE", "UNKNOWN"))
"""States that are told to frameworks alone that know of partitions."""


@dataclass(eq=False)
class Known:
    """A task as the master knows it. `told`: the state and the uuid of the update that it passed
    on last; `state`: the newest that the agent has named with it."""

    name: str
    agent: str
    executor: str = ""
    amounts: Amounts = field(default_factory=Amounts)
    state: str = "TASK_STAGING"
    told: str = ""
    uuid: str = ""
    container: Json | None = None


@dataclass(eq=False)
class Registered:
    """An agent at the master."""

    agent: Agent
    connected: bool = True
    tasks: dict[str, Known] = field(default_factory=dict)
    executors: dict[str, Json] = field(default_factory=dict)


class Stream(Protocol):
    """One subscription."""

    open: bool

    def tell(self, event: Json) -> None:
        """The framework hears this."""

    def end(self) -> None:
        """What is under way is lost, both ways."""


class Master:
    """The one that leads, and the next one after a failover. `allocate_s`: how often it offers by
    itself; 0: never."""

    def __init__(
        self, times: Times, has: Amounts, *, framework: Json, allocate_s: float = ALLOCATE_S
    ) -> None:
        self.times = times
        self.framework = framework
        self.agents: dict[str, Registered] = {}
        self.recovered: set[str] = set()
        self.unreachable: dict[str, dict[str, Known]] = {}
        self.removed: set[str] = set()
        self.offers = Offers(times, has)
        self.stream: Stream | None = None
        self.here = True
        self.amounts: dict[str, Amounts] = {}
        """What each task has, which its agent knows as well."""
        self.said: dict[str, list[Json]] = {}
        """All updates of each task that were told."""
        self.allocate_s = allocate_s
        self.others: dict[str, Amounts] = {}
        """What other frameworks have of each agent."""
        if allocate_s:
            times.later(allocate_s, self._allocate)

    # ---- the framework ----

    @property
    def role(self) -> str:
        return [*self.framework.get("roles", []), self.framework.get("role", "*")][0]

    def has(self, capability: str) -> bool:
        """Whether the framework has this."""
        return {"type": capability} in self.framework.get("capabilities", [])

    def subscribe(self, stream: Stream, **words: Any) -> Stream | None:
        """This subscription begins; the one that ends with it. Agents tell anew what nobody has
        acknowledged."""
        former, self.stream = self.hang_up(), stream
        self.tell("SUBSCRIBED", **{"heartbeat_interval_seconds": 15.0, **words})
        for each in self.agents.values():
            if each.agent.linked:
                each.agent.to_agent.send(each.agent.resume)
        return former

    def tear_down(self) -> None:
        """The framework is no more, and nor is what it had."""
        self.hang_up()
        self.amounts.clear()
        for each in self.agents.values():
            for known in (each.tasks, each.executors, each.agent.tasks, each.agent.executors):
                known.clear()

    def hang_up(self) -> Stream | None:
        """The subscription is over, which whoever has it does not know yet."""
        former, self.stream = self.stream, None
        self.offers.clear()
        if former is not None:
            former.end()
        return former

    def tell(self, kind: str, **what: Any) -> None:
        """An event, if anybody listens."""
        if self.stream is not None and self.stream.open:
            self.stream.tell({"type": kind, kind.lower(): what})

    def tell_status(self, status: Json) -> None:
        """An update."""
        if self.stream is not None and self.stream.open:
            self.said.setdefault(status["task_id"]["value"], []).append(status)
        self.tell("UPDATE", status=status)

    def say(self, task: Known, state: str, **more: Any) -> None:
        """What the master itself says of a task: nothing that has to be acknowledged."""
        if state in PARTITIONS and not self.has("PARTITION_AWARE"):
            state = "TASK_LOST"
        ids = {"task_id": {"value": task.name}}
        ids |= {"agent_id": {"value": task.agent}} if task.agent else {}
        ids |= {"executor_id": {"value": task.executor}} if task.executor else {}
        words = {"source": "SOURCE_MASTER", "timestamp": self.times.now}
        self.times.note(f"master: {task.name[-6:]} {state} {more['reason']} {more['message']}")
        self.tell_status({**ids, "state": state, **words, **more})

    def say_latest(self, task: Known, state: str, reason: str, message: str) -> None:
        """The same of one that is there."""
        what = {} if task.container is None else {"container_status": task.container}
        self.say(task, state, reason=reason, message=message, **what)

    @property
    def tasks(self) -> dict[str, Known]:
        """Those of registered agents."""
        return {name: task for each in self.agents.values() for name, task in each.tasks.items()}

    def known(self, name: str) -> Known | None:
        """A task of a registered agent."""
        found = (each.tasks.get(name) for each in self.agents.values())
        return next((task for task in found if task is not None), None)

    def listed_agents(self) -> list[Json]:
        has, now = self.offers.has, self.times.now
        return [
            listed(name, each.agent.hostname, has, active=each.connected, now=now)
            for name, each in self.agents.items()
        ]

    def listed_executors(self) -> list[Json]:
        return [
            {"agent_id": {"value": name}, "executor_info": info}
            for name, each in self.agents.items()
            for info in each.executors.values()
        ]

    # ---- offers ----

    def _allocate(self) -> None:
        self.times.later(self.allocate_s, self._allocate)
        self.allocate()

    def allocate(self, agents: Iterable[str] | None = None) -> None:
        """Offer what is free of all agents, or of these."""
        if not self.here or self.stream is None or not self.stream.open:
            return
        made = []
        for name in self.agents if agents is None else agents:
            each = self.agents.get(name)
            if each is None or not each.connected:
                continue
            offer = self.offers.make(name, self.used(each))
            if offer is not None:
                ours = {"role": self.role, "framework_id": self.framework["id"]}
                made.append(offered(offer, each.agent.hostname, **ours))
        if made:
            self.tell("OFFERS", offers=made)

    def used(self, of: Registered) -> Amounts:
        """What tasks and executors have."""
        used = Amounts(self.others.get(of.agent.name, {}))
        for task in of.tasks.values():
            if task.state not in TERMINAL:
                used.update(task.amounts)
        for info in of.executors.values():
            used.update(amounts_of(info.get("resources", ())))
        return used

    def rescind(self, agent_id: str) -> None:
        """Take back all offers of an agent."""
        for name in self.offers.of(agent_id):
            self.offers.take(name)
            self.tell("RESCIND", offer_id={"value": name})

    # ---- what agents say ----

    def told(self, of: Agent, status: Json, latest: str) -> None:
        """An update of a task."""
        each = self.agents.get(of.name)
        if each is None:
            return
        task = each.tasks.get(status["task_id"]["value"])
        if task is not None:
            if task.state not in TERMINAL:
                task.state = latest
            task.told, task.uuid = status["state"], status["uuid"]
            task.container = status.get("container_status", task.container)
        self.tell_status(status)

    def executor_over(self, of: Agent, name: str) -> None:
        each = self.agents.get(of.name)
        if each is not None and each.executors.pop(name, None) is not None:
            failure = {"agent_id": {"value": of.name}, "executor_id": {"value": name}, "status": 0}
            self.tell("FAILURE", **failure)

    def register(self, of: Agent) -> None:
        """An agent comes, or comes back."""
        if not self.here:
            return
        if of.name in self.removed:
            of.die()
            return
        known = each = self.agents.get(of.name)
        was_away = self.unreachable.pop(of.name, None)
        self.recovered.discard(of.name)
        self.times.note(f"master: {of.name} registers, {'known' if known else 'anew'}")
        if each is None:
            each = self.agents[of.name] = Registered(of)
        for task in [*each.tasks.values()]:
            if task.name not in of.tasks:
                of.to_agent.send(partial(of.lacks, task.name, task.executor))
        self._learn(each, is_new=known is None)
        each.connected = True
        for task in each.tasks.values():
            if was_away is not None and task.name in was_away:
                back = ("REASON_AGENT_REREGISTERED", "Agent reregistered")
                self.say_latest(task, task.state, *back)
        of.to_agent.send(of.resume)

    def _learn(self, each: Registered, *, is_new: bool) -> None:
        """What runs at the agent, as that says. What the master of an agent that it knows does not
        know has ended, and is acknowledged."""
        of = each.agent
        each.executors = {e.name: e.info for e in of.executors.values() if e.known_to_master}
        for task in of.tasks.values():
            head = task.updates[0] if task.updates else None
            known = each.tasks.get(task.name)
            if known is None and not is_new:
                continue
            if known is None:
                amounts = self.amounts.get(task.name, Amounts())
                executor = "" if task.executor == task.name else task.executor
                known = Known(task.name, of.name, executor, amounts)
                each.tasks[task.name] = known
            known.state = task.state
            if head is not None:
                known.told, known.uuid = head["state"], head["uuid"]

    def disconnected(self, of: Agent) -> None:
        """It has hung up, or does not answer."""
        each = self.agents.get(of.name)
        if each is not None and each.connected:
            each.connected = False
            self.rescind(of.name)

    def mark_unreachable(self, of: Agent) -> None:
        """It was away for too long."""
        self.recovered.discard(of.name)
        each = self.agents.get(of.name)
        if each is None:
            return
        self.times.note(f"master: {of.name} unreachable")
        self.rescind(of.name)
        del self.agents[of.name]
        self.unreachable[of.name] = each.tasks
        for task in each.tasks.values():
            if task.state not in TERMINAL:
                gone = {"unreachable_time": {"nanoseconds": int(self.times.now * 1e9)}}
                self.say(task, "TASK_UNREACHABLE", **REMOVED, **gone)
        self.tell("FAILURE", agent_id={"value": of.name})

    def remove(self, of: Agent) -> None:
        """It has said that it leaves for good."""
        each = self.agents.get(of.name)
        self.removed.add(of.name)
        if each is None:
            return
        self.rescind(of.name)
        del self.agents[of.name]
        for task in each.tasks.values():
            if task.state not in TERMINAL:
                self.say(task, "TASK_GONE", **REMOVED)
        self.tell("FAILURE", agent_id={"value": of.name})

    def fail_over(self, agents: Iterable[Agent]) -> Stream | None:
        """It ends, and another one leads, which knows only which agents there were."""
        self.here = False
        former = self.hang_up()
        self.recovered |= set(self.agents)
        self.agents.clear()
        self.unreachable = {name: {} for name in self.unreachable}
        for each in agents:
            each.to_master.cut()
            each.to_agent.cut()
        return former
