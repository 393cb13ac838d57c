"""The agents, offers and tasks of the scripted master: what becomes of a call, as events.

Turns calls that passed `mesos_rules` into the events that a real master and its agents would send.
Nothing happens by itself: a task goes on when its update is acknowledged or when a test says so,
and what was declined is offered again when it is asked for. It must not know HTTP.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.servers.mesos_rules import new_uuid
from tests.servers.scripted_http import VERSION, Event

Amounts = dict[str, float]
TOTAL: Amounts = {"cpus": 8.0, "mem": 8192.0, "disk": 10240.0}
PORTS = (31000, 32000)
CAPABILITIES = (
    "MULTI_ROLE", "HIERARCHICAL_ROLE", "RESERVATION_REFINEMENT", "RESOURCE_PROVIDER",
    "RESIZE_VOLUME", "AGENT_OPERATION_FEEDBACK", "AGENT_DRAINING", "TASK_RESOURCE_LIMITS",
)  # fmt: skip
ENDS = {"TASK_FINISHED", "TASK_FAILED", "TASK_KILLED", "TASK_LOST", "TASK_ERROR", "TASK_GONE"}


@dataclass
class FakeAgent:
    """One host; `free` is what neither tasks nor offers hold."""

    id: str
    hostname: str
    total: Amounts
    free: Amounts = field(init=False)

    def __post_init__(self) -> None:
        self.free = dict(self.total)


@dataclass
class FakeTask:
    """One task; `owed` are its updates, of which the first was sent and is not acknowledged."""

    id: str
    agent: FakeAgent
    amounts: Amounts
    command: str
    state: str = "TASK_STAGING"
    owed: deque[Event] = field(default_factory=deque)
    container: str = field(default_factory=lambda: str(uuid.uuid4()))


@dataclass
class FakeOffer:
    """One offer that is neither accepted nor declined."""

    id: str
    agent: FakeAgent
    amounts: Amounts


class FakeAgents:
    """All agents of a master with one framework."""

    def __init__(self, count: int, total: Amounts = TOTAL) -> None:
        self.master_id = str(uuid.uuid4())
        self.agents = [
            FakeAgent(f"{self.master_id}-S{at}", f"h{at + 1}", total) for at in range(count)
        ]
        self.away: dict[str, list[FakeTask]] = {}
        """Of each agent that was lost, by its host name, what goes on there."""
        self.gone: dict[str, FakeAgent] = {}
        self.offers: dict[str, FakeOffer] = {}
        self.tasks: dict[str, FakeTask] = {}
        self.framework: dict[str, Any] = {}
        self._offers_made = 0

    # ---- offers ----

    @property
    def role(self) -> str:
        return [*self.framework.get("roles", []), self.framework.get("role", "*")][0]

    @property
    def partition_aware(self) -> bool:
        capabilities = self.framework.get("capabilities", [])
        return {"type": "PARTITION_AWARE"} in capabilities

    def offer(self) -> list[Event]:
        """All that is free, in one event."""
        made = [self._offer(agent) for agent in self.agents if any(agent.free.values())]
        return [{"type": "OFFERS", "offers": {"offers": made}}] if made else []

    def _offer(self, agent: FakeAgent) -> Event:
        offer = FakeOffer(f"{self.master_id}-O{self._offers_made}", agent, agent.free)
        self._offers_made += 1
        self.offers[offer.id] = offer
        agent.free = dict.fromkeys(TOTAL, 0.0)
        allocation = {"allocation_info": {"role": self.role}}
        ports = {"range": [{"begin": PORTS[0], "end": PORTS[1]}]}
        resources = [{"name": "ports", "type": "RANGES", "ranges": ports, "role": "*"} | allocation]
        resources += [
            {"name": name, "type": "SCALAR", "scalar": {"value": value}, "role": "*"} | allocation
            for name, value in offer.amounts.items()
            if value
        ]
        address = {"hostname": agent.hostname, "ip": "127.0.0.1", "port": 5051}
        return {
            "id": {"value": offer.id},
            "framework_id": self.framework["id"],
            "agent_id": {"value": agent.id},
            "hostname": agent.hostname,
            "url": {"scheme": "http", "address": address, "path": "/slave(1)"},
            "resources": resources,
            "attributes": _attributes(agent),
        } | allocation

    def listed(self) -> list[Event]:
        """The agents as operators are told of them."""
        return [self._listed(agent) for agent in self.agents]

    def _listed(self, agent: FakeAgent) -> Event:
        ports = {"range": [{"begin": PORTS[0], "end": PORTS[1]}]}
        total: list[Event] = [
            {"name": name, "type": "SCALAR", "scalar": {"value": value}}
            for name, value in agent.total.items()
        ]
        total.append({"name": "ports", "type": "RANGES", "ranges": ports})
        info: Event = {"hostname": agent.hostname, "port": 5051, "id": {"value": agent.id}}
        info |= {"attributes": _attributes(agent), "checkpoint": True, "resources": total}
        return {
            "agent_info": info, "active": True, "deactivated": False, "version": VERSION,
            "pid": "slave(1)@127.0.0.1:5051", "registered_time": {"nanoseconds": time.time_ns()},
            "total_resources": [{**entry, "role": "*"} for entry in total],
            "capabilities": [{"type": name} for name in CAPABILITIES],
        }  # fmt: skip

    def take_back_offers(self) -> None:
        """As when the framework's stream ends: what was offered is free again."""
        for name in [*self.offers]:
            self._take(name)

    def _take(self, offer_id: str) -> FakeOffer:
        offer = self.offers.pop(offer_id)
        _add(offer.agent.free, offer.amounts)
        return offer

    # ---- calls ----

    def handle(self, call: Mapping[str, Any]) -> list[Event]:
        """What follows from a call at once."""
        handler = getattr(self, f"_{call['type'].lower()}", None)
        return [] if handler is None else [*handler(call.get(call["type"].lower(), {}))]

    def _decline(self, body: Mapping[str, Any]) -> Iterator[Event]:
        for offer_id in body.get("offer_ids", []):
            if offer_id["value"] in self.offers:
                self._take(offer_id["value"])
        yield from self._at_once(body)

    def _at_once(self, body: Mapping[str, Any]) -> list[Event]:
        return self.offer() if body.get("filters", {}).get("refuse_seconds") == 0 else []

    def _revive(self, body: Mapping[str, Any]) -> Iterator[Event]:
        yield from self.offer()

    def _accept(self, body: Mapping[str, Any]) -> Iterator[Event]:
        asked = [offer_id["value"] for offer_id in body.get("offer_ids", [])]
        stale = [name for name in asked if name not in self.offers]
        taken = [self._take(name) for name in asked if name in self.offers]
        left = _sum(offer.amounts for offer in taken)
        for operation in body.get("operations", []):
            for info in operation.get("launch", {}).get("task_infos", []):
                if stale or not taken:
                    text = (
                        f"Offer {stale[0]} is no longer valid" if stale else "No offers specified"
                    )
                    text = f"Task launched with invalid offers: {text}"
                    yield self._of_master(
                        info["task_id"]["value"],
                        "TASK_DROPPED" if self.partition_aware else "TASK_LOST", text,
                        reason="REASON_INVALID_OFFERS", agent_id=info["agent_id"]["value"],
                    )  # fmt: skip
                else:
                    yield from self._launch(info, taken[0].agent, left)
        yield from self._at_once(body)

    def _launch(self, info: Mapping[str, Any], agent: FakeAgent, left: Amounts) -> Iterator[Event]:
        wanted: Amounts = {}
        for one in info.get("resources", []):
            if one["type"] == "SCALAR":
                wanted[one["name"]] = wanted.get(one["name"], 0.0) + one["scalar"]["value"]
        name = info["task_id"]["value"]
        if name in self.tasks:
            text = f"Task has duplicate ID: {name}"
            yield self._of_master(
                name, "TASK_ERROR", text, reason="REASON_TASK_INVALID", agent_id=agent.id
            )
            return
        if any(wanted.get(kind, 0) > left[kind] for kind in TOTAL):
            text = (
                f"Total resources {self._text(wanted)} required by task and its executor is more "
                f"than available ports(allocated: {self.role}):[{PORTS[0]}-{PORTS[1]}]; "
                f"{self._text(left)}"
            )
            yield self._of_master(
                name, "TASK_ERROR", text, reason="REASON_TASK_INVALID", agent_id=agent.id
            )
            return
        _add(left, wanted, -1)
        _add(agent.free, wanted, -1)
        task = FakeTask(name, agent, wanted, info.get("command", {}).get("value", ""))
        self.tasks[name] = task
        yield from self.go(name, "TASK_STARTING")

    def _text(self, amounts: Amounts) -> str:
        return "; ".join(
            f"{name}(allocated: {self.role}):{amounts[name]:g}" for name in TOTAL if name in amounts
        )

    def _acknowledge(self, body: Mapping[str, Any]) -> Iterator[Event]:
        task = self.tasks.get(body["task_id"]["value"])
        if task is None or not task.owed:
            return
        if task.owed[0]["update"]["status"]["uuid"] != body["uuid"]:
            return
        state = task.owed.popleft()["update"]["status"]["state"]
        if task.owed:
            yield task.owed[0]
        elif state in ENDS:
            del self.tasks[task.id]
        elif state == "TASK_STARTING":
            yield from self.go(task.id, "TASK_RUNNING")
        elif state == "TASK_RUNNING" and (status := _status(task.command)) is not None:
            yield from self.exits(task.id, status)

    def _kill(self, body: Mapping[str, Any]) -> Iterator[Event]:
        task = self.tasks.get(body["task_id"]["value"])
        if task is None:
            yield from self._reconcile({"tasks": [body]})
        elif task.state not in ENDS:
            message = "Command terminated with signal Terminated"
            yield from self.go(task.id, "TASK_KILLED", message)

    def _reconcile(self, body: Mapping[str, Any]) -> Iterator[Event]:
        asked = body.get("tasks", [])
        for name, task in [*self.tasks.items()] if not asked else []:
            yield self._of_master(name, task.state, "Reconciliation: Latest task state", task=task)
        known = {agent.id for agent in self.agents}
        for one in asked:
            name, agent_id = one["task_id"]["value"], one.get("agent_id", {}).get("value")
            if name in self.tasks:
                task = self.tasks[name]
                text = "Reconciliation: Latest task state"
                yield self._of_master(name, task.state, text, task=task)
            elif agent_id in known:
                state = "TASK_GONE" if self.partition_aware else "TASK_LOST"
                text = "Reconciliation: Task is unknown to the agent"
                yield self._of_master(name, state, text, agent_id=agent_id)
            else:
                state = "TASK_UNKNOWN" if self.partition_aware else "TASK_LOST"
                text = "Reconciliation: Task is unknown"
                yield self._of_master(name, state, text, agent_id=agent_id)

    # ---- what happens to tasks and agents ----

    def exits(self, task_id: str, status: int) -> list[Event]:
        """A task's command ends by itself."""
        state = "TASK_FAILED" if status else "TASK_FINISHED"
        return self.go(task_id, state, f"Command exited with status {status}")

    def go(self, task_id: str, state: str, message: str = "") -> list[Event]:
        """The task is in another state: an update, sent unless one before it is unacknowledged."""
        there = task_id in self.tasks
        task = self.tasks[task_id] if there else self._out_of_reach(task_id)
        task.state = state
        if state in ENDS:
            _add(task.agent.free, task.amounts)
        status = {"task_id": {"value": task.id}, "state": state}
        status |= {"message": message} if message else {}
        status |= {"source": "SOURCE_EXECUTOR", "agent_id": {"value": task.agent.id}}
        status |= {"executor_id": {"value": task.id}, "timestamp": time.time()}
        status |= {"uuid": new_uuid(), "container_status": _container(task)}
        task.owed.append({"type": "UPDATE", "update": {"status": status}})
        return [task.owed[0]] if there and len(task.owed) == 1 else []

    def _out_of_reach(self, task_id: str) -> FakeTask:
        return next(task for some in self.away.values() for task in some if task.id == task_id)

    def unacknowledged(self) -> list[Event]:
        """The first update of each task that still owes one: an agent sends them again."""
        return [task.owed[0] for task in self.tasks.values() if task.owed]

    def lose_agent(self, hostname: str) -> list[Event]:
        """An agent is removed: its offers, its tasks, and the word of it."""
        agent = next(agent for agent in self.agents if agent.hostname == hostname)
        self.agents.remove(agent)
        events: list[Event] = []
        for offer in [offer for offer in self.offers.values() if offer.agent is agent]:
            del self.offers[offer.id]
            events.append({"type": "RESCIND", "rescind": {"offer_id": {"value": offer.id}}})
        state = "TASK_UNREACHABLE" if self.partition_aware else "TASK_LOST"
        self.gone[hostname] = agent
        self.away[hostname] = [task for task in self.tasks.values() if task.agent is agent]
        for task in self.away[hostname]:
            del self.tasks[task.id]
            update = self._of_master(
                task.id, state, "health check timed out",
                reason="REASON_AGENT_REMOVED", agent_id=agent.id,
            )  # fmt: skip
            now_ns = time.time_ns()
            update["update"]["status"]["unreachable_time"] = {"nanoseconds": now_ns}
            events.append(update)
        return [*events, {"type": "FAILURE", "failure": {"agent_id": {"value": agent.id}}}]

    def return_agent(self, hostname: str) -> list[Event]:
        """It was only out of reach, and what ran there went on; its framework must be one that
        knows partitions."""
        agent, tasks = self.gone.pop(hostname), self.away.pop(hostname)
        self.agents.append(agent)
        agent.free = dict(agent.total)
        events: list[Event] = []
        for task in tasks:
            self.tasks[task.id] = task
            if task.state not in ENDS:
                _add(agent.free, task.amounts, -1)
                reason = "REASON_AGENT_REREGISTERED"
                text = "Agent reregistered"
                events.append(self._of_master(task.id, task.state, text, reason=reason, task=task))
            events += [task.owed[0]] if task.owed else []
        return [*events, *self.offer()]

    def _of_master(
        self, name: str, state: str, message: str, *, reason: str = "REASON_RECONCILIATION",
        agent_id: str | None = None, task: FakeTask | None = None,
    ) -> Event:  # fmt: skip
        """An update that nobody acknowledges."""
        status: Event = {"task_id": {"value": name}, "state": state, "message": message}
        status |= {"source": "SOURCE_MASTER", "reason": reason}
        if task is not None:
            agent_id = task.agent.id
        status |= {"agent_id": {"value": agent_id}} if agent_id is not None else {}
        status |= {"timestamp": time.time()}
        status |= {"container_status": _container(task)} if task is not None else {}
        return {"type": "UPDATE", "update": {"status": status}}


def _container(task: FakeTask) -> Event:
    addresses = [{"protocol": "IPv4", "ip_address": "127.0.0.1"}]
    return {
        "container_id": {"value": task.container},
        "network_infos": [{"ip_addresses": addresses}],
        "executor_pid": 1,
    }


def _attributes(agent: FakeAgent) -> list[Event]:
    attributes = {"host": agent.hostname, "rack": agent.hostname.replace("h", "r")}
    return [
        {"name": name, "type": "TEXT", "text": {"value": value}}
        for name, value in attributes.items()
    ]


def _status(command: str) -> int | None:
    """The status that a command of a test ends with: `true`, `exit N`, or `sleep S; exit N`; None
    if it goes on, as what sleeps for a second or more does here."""
    first, _, second = command.partition("; ")
    if first.startswith("sleep "):
        return None if float(first.removeprefix("sleep ")) >= 1 else _status(second)
    return int(first.removeprefix("exit ")) if first.startswith("exit ") else 0


def _add(to: Amounts, amounts: Mapping[str, float], sign: int = 1) -> None:
    for name in to:
        to[name] = round(to[name] + sign * amounts.get(name, 0.0), 3)


def _sum(parts: Iterator[Amounts] | Sequence[Amounts]) -> Amounts:
    total = dict.fromkeys(TOTAL, 0.0)
    for part in parts:
        _add(total, part)
    return total
