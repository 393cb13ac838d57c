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
from typing import Any, NamedTuple

from tests.servers.mesos_rules import new_uuid
from tests.servers.scripted_http import Event
from tests.servers.scripted_words import (
    PORTS,
    TOTAL,
    Amounts,
    FakeAgent,
    FakeOffer,
    add,
    amounts_of,
    listed,
    offered,
    total_of,
)

ENDS = {"TASK_FINISHED", "TASK_FAILED", "TASK_KILLED", "TASK_LOST", "TASK_ERROR", "TASK_GONE"}


class FakeLaunch(NamedTuple):
    """What an operation launches: one task, or a group of tasks with their executor."""

    infos: Sequence[Mapping[str, Any]]
    executor: Mapping[str, Any] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(info["task_id"]["value"] for info in self.infos)

    @property
    def invalid(self) -> str:
        """With which reason it is refused."""
        return f"REASON_TASK{'' if self.executor is None else '_GROUP'}_INVALID"


class FakeGroup(NamedTuple):
    """Tasks of one executor, and what that has itself."""

    executor: str
    amounts: Amounts
    tasks: tuple[str, ...]


@dataclass
class FakeTask:
    """One task; `owed` are its updates, of which the first was sent and is not acknowledged."""

    id: str
    agent: FakeAgent
    amounts: Amounts
    command: str
    group: FakeGroup | None = None
    state: str = "TASK_STAGING"
    owed: deque[Event] = field(default_factory=deque)
    container: str = field(default_factory=lambda: str(uuid.uuid4()))


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
        return offered(offer, role=self.role, framework_id=self.framework["id"])

    def listed(self) -> list[Event]:
        """The agents as operators are told of them."""
        return [listed(agent) for agent in self.agents]

    def take_back_offers(self) -> None:
        """As when the framework's stream ends: what was offered is free again."""
        for name in [*self.offers]:
            self._take(name)

    def _take(self, offer_id: str) -> FakeOffer:
        offer = self.offers.pop(offer_id)
        add(offer.agent.free, offer.amounts)
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
        left = total_of(offer.amounts for offer in taken)
        for launch in _launches(body.get("operations", [])):
            if stale or not taken:
                yield from self._came_too_late(launch, stale)
            else:
                yield from self._launch(launch, taken[0].agent, left)
        yield from self._at_once(body)

    def _came_too_late(self, launch: FakeLaunch, stale: Sequence[str]) -> Iterator[Event]:
        text = f"Offer {stale[0]} is no longer valid" if stale else "No offers specified"
        for info in launch.infos:
            yield self._of_master(
                info["task_id"]["value"], "TASK_DROPPED" if self.partition_aware else "TASK_LOST",
                f"Task launched with invalid offers: {text}",
                reason="REASON_INVALID_OFFERS", agent_id=info["agent_id"]["value"],
            )  # fmt: skip

    def _launch(self, launch: FakeLaunch, agent: FakeAgent, left: Amounts) -> Iterator[Event]:
        parts = [amounts_of(info) for info in launch.infos]
        of_executor = amounts_of(launch.executor or {})
        wanted = total_of([*parts, of_executor])
        wrong = self._wrong(launch, wanted, left)
        if wrong:
            for name in launch.names:
                yield self._of_master(
                    name, "TASK_ERROR", wrong, reason=launch.invalid, agent_id=agent.id
                )
            return
        add(left, wanted, -1)
        add(agent.free, wanted, -1)
        group = None
        if launch.executor is not None:
            group = FakeGroup(launch.executor["executor_id"]["value"], of_executor, launch.names)
        for info, amounts in zip(launch.infos, parts, strict=True):
            name, command = info["task_id"]["value"], info.get("command", {}).get("value", "")
            self.tasks[name] = FakeTask(name, agent, amounts, command, group)
        for name in launch.names:
            yield from self.go(name, "TASK_STARTING")

    def _wrong(self, launch: FakeLaunch, wanted: Amounts, left: Amounts) -> str:
        """Why a launch is refused; empty if it is not."""
        whole = launch.executor is not None
        for name in launch.names:
            if name in self.tasks:
                text = f"Task has duplicate ID: {name}"
                return f"Task '{name}' is invalid: {text}" if whole else text
        if all(wanted[kind] <= left[kind] for kind in TOTAL):
            return ""
        whose = "task group and its executor are" if whole else "task and its executor is"
        named = {kind: amount for kind, amount in wanted.items() if amount}
        return (
            f"Total resources {self._text(named)} required by {whose} more than available "
            f"ports(allocated: {self.role}):[{PORTS[0]}-{PORTS[1]}]; {self._text(left)}"
        )

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
        """The task is in another state: an update, sent unless one before it is unacknowledged.
        Where one of a group does not end well, its executor kills the others."""
        there = task_id in self.tasks
        task = self.tasks[task_id] if there else self._out_of_reach(task_id)
        task.state = state
        status = {"task_id": {"value": task.id}, "state": state}
        status |= {"message": message} if message else {}
        status |= {"source": "SOURCE_EXECUTOR", "agent_id": {"value": task.agent.id}}
        executor = task.id if task.group is None else task.group.executor
        status |= {"executor_id": {"value": executor}, "timestamp": time.time()}
        status |= {"uuid": new_uuid(), "container_status": _container(task)}
        task.owed.append({"type": "UPDATE", "update": {"status": status}})
        found = [task.owed[0]] if there and len(task.owed) == 1 else []
        if state not in ENDS:
            return found
        add(task.agent.free, task.amounts)
        return found if task.group is None else found + self._ended_of(task.group, task)

    def _ended_of(self, group: FakeGroup, ended: FakeTask) -> list[Event]:
        every = [*self.tasks.values(), *(task for some in self.away.values() for task in some)]
        left = [task for task in every if task.group is group and task.state not in ENDS]
        if not left:
            add(ended.agent.free, group.amounts)
        elif ended.state != "TASK_FINISHED":
            return self.go(left[0].id, "TASK_KILLED", "Command terminated with signal Killed")
        return []

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
        alive = [task.group for task in tasks if task.group is not None and task.state not in ENDS]
        for amounts in {group.executor: group.amounts for group in alive}.values():
            add(agent.free, amounts, -1)
        for task in tasks:
            self.tasks[task.id] = task
            if task.state not in ENDS:
                add(agent.free, task.amounts, -1)
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
        if task is not None:
            status["container_status"] = _container(task)
            if task.group is not None:
                status["executor_id"] = {"value": task.group.executor}
        return {"type": "UPDATE", "update": {"status": status}}


def _launches(operations: Sequence[Mapping[str, Any]]) -> Iterator[FakeLaunch]:
    for operation in operations:
        for info in operation.get("launch", {}).get("task_infos", []):
            yield FakeLaunch([info])
        group = operation.get("launch_group")
        if group is not None:
            yield FakeLaunch(group["task_group"]["tasks"], group.get("executor", {}))


def _status(command: str) -> int | None:
    """The status that a command of a test ends with: `true`, `exit N`, or `sleep S; exit N`; None
    if it goes on, as what sleeps for a second or more does here."""
    first, _, second = command.partition("; ")
    if first.startswith("sleep "):
        return None if float(first.removeprefix("sleep ")) >= 1 else _status(second)
    return int(first.removeprefix("exit ")) if first.startswith("exit ") else 0


def _container(task: FakeTask) -> Event:
    addresses = [{"protocol": "IPv4", "ip_address": "127.0.0.1"}]
    return {
        "container_id": {"value": task.container},
        "network_infos": [{"ip_addresses": addresses}],
        "executor_pid": 1,
    }
