"""How a Mesos master answers calls of its framework.

The master has all state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from tests.backends.mesos.words import Json
from tests.servers.mesos_model.agents import TERMINAL
from tests.servers.mesos_model.master import Known, Master, Registered
from tests.servers.mesos_model.offers import Amounts, amounts_of, fits
from tests.servers.mesos_model.said import too_much

LATEST = "REASON_RECONCILIATION"
GRACE = {"grace_period": {"nanoseconds": 3_000_000_000}}


class Launch(NamedTuple):
    """What is launched: a task, or a group of tasks; with the executor that its framework names."""

    infos: Sequence[Json]
    named: Json | None
    group: bool = False

    @property
    def executor(self) -> Json:
        """The one that runs it."""
        own = {"type": "COMMAND", "executor_id": self.infos[0]["task_id"], "resources": []}
        return own if self.named is None else self.named

    @property
    def name(self) -> str:
        return str(self.executor["executor_id"]["value"])


class Refused(NamedTuple):
    """Why something is not launched."""

    state: str
    reason: str
    message: str


class Answers:
    """Those of one master. `broken` is told what no framework of ours may do."""

    def __init__(self, master: Master, broken: Callable[[str], None] = lambda text: None) -> None:
        self._master, self._broken = master, broken
        self._begun: Amounts = Amounts()
        """What the executors take that the call at hand begins, which its framework may not have
        reckoned with: it has not heard yet that they had ended."""

    def call(self, call: Json) -> None:
        """A call of the framework that is subscribed. Of others than these nothing follows."""
        kind = call["type"].lower()
        handler = getattr(self, f"_do_{kind}", None)
        if handler is not None:
            handler(call.get(kind, {}))

    # ---- offers ----

    def _do_decline(self, what: Json) -> None:
        for each in what.get("offer_ids", ()):
            offer = self._master.offers.take(each["value"])
            if offer is not None:
                refuse_s = what.get("filters", {}).get("refuse_seconds", 5.0)
                self._master.offers.decline(offer.agent, refuse_s)

    def _do_revive(self, _: Json) -> None:
        self._master.offers.refused.clear()
        self._master.allocate()

    def _do_accept(self, what: Json) -> None:
        asked = [each["value"] for each in what.get("offer_ids", ())]
        found = [self._master.offers.take(name) for name in asked]
        there: Amounts = Amounts()
        for offer in found:
            there.update(offer.amounts if offer is not None else {})
        self._begun.clear()
        void = "" if found else "No offers specified"
        if None in found:
            void = f"Offer {asked[found.index(None)]} is no longer valid"
        at = next((self._master.agents.get(one.agent) for one in found if one is not None), None)
        for operation in what.get("operations", ()):
            launches = [
                Launch([info], info.get("executor"))
                for info in operation.get("launch", {}).get("task_infos", ())
            ]
            group = operation.get("launch_group")
            if group is not None:
                tasks, executor = group["task_group"]["tasks"], group.get("executor")
                launches.append(Launch(tasks, executor, group=True))
            for launch in launches:
                self._launch(launch, there, void=void, at=at)

    def _launch(self, launch: Launch, there: Amounts, *, void: str, at: Registered | None) -> None:
        if void:
            text = f"Task launched with invalid offers: {void}"
            self._refuse(launch, Refused("TASK_DROPPED", "REASON_INVALID_OFFERS", text))
        elif at is None or not at.connected:
            away = Refused("TASK_DROPPED", "REASON_AGENT_DISCONNECTED", "the agent is away")
            self._refuse(launch, away)
        else:
            wrong = self._invalid(launch, there, at)
            if wrong:
                reason = f"REASON_TASK{'_GROUP' if launch.group else ''}_INVALID"
                self._refuse(launch, Refused("TASK_ERROR", reason, wrong))
            else:
                self._begin(launch, there, at)

    def _invalid(self, launch: Launch, there: Amounts, at: Registered) -> str:
        """Why these cannot be launched; empty if they can."""
        for info in launch.infos:
            name = info["task_id"]["value"]
            if self._master.known(name) is not None:
                text = f"Task has duplicate ID: {name}"
                return f"Task '{name}' is invalid: {text}" if launch.group else text
            if info["agent_id"]["value"] != at.agent.name:
                self._broken(f"{name} goes on the offer of another agent")
        known = at.executors.get(launch.name)
        if known is not None and known != launch.executor:
            self._broken(f"the executor {launch.name} is described in two ways")
        need = amounts_of([entry for info in launch.infos for entry in info["resources"]])
        if not fits(need, there + self._begun):
            self._broken(f"{need} is launched on offers of {there}")
        if known is None:
            need.update(amounts_of(launch.executor.get("resources", ())))
        if fits(need, there):
            return ""
        return too_much(need, there, role=self._master.role, group=launch.group)

    def _refuse(self, launch: Launch, why: Refused) -> None:
        for info in launch.infos:
            executor = launch.name if "executor" in info else ""
            task = Known(info["task_id"]["value"], info["agent_id"]["value"], executor)
            self._master.say(task, why.state, reason=why.reason, message=why.message)

    def _begin(self, launch: Launch, there: Amounts, at: Registered) -> None:
        if launch.named is not None and launch.name not in at.executors:
            takes = amounts_of(launch.executor.get("resources", ()))
            there.subtract(takes)
            self._begun.update(takes)
            at.executors[launch.name] = launch.executor
        for info in launch.infos:
            need = amounts_of(info["resources"])
            there.subtract(need)
            task = info["task_id"]["value"]
            self._master.amounts[task] = need
            executor = launch.name if launch.named is not None else ""
            at.tasks[task] = Known(task, at.agent.name, executor, need)
            self._master.times.note(f"master: launches {task[-6:]} at {at.agent.name}")
        self._send(at, partial(at.agent.run, launch.executor, launch.infos, group=launch.group))

    # ---- tasks ----

    def _do_acknowledge(self, what: Json) -> None:
        name, at = what["task_id"]["value"], self._at(what)
        if at is None or not at.connected:
            return
        task = at.tasks.get(name)
        if task is not None:
            if not task.uuid:
                return
            if task.told in TERMINAL and task.uuid == what["uuid"]:
                del at.tasks[name]
        self._send(at, partial(at.agent.acknowledged, name, what["uuid"]))

    def _do_kill(self, what: Json) -> None:
        task = self._master.known(what["task_id"]["value"])
        if task is None:
            self._explain(what)
            return
        policy = what.get("kill_policy", GRACE)
        grace_s = policy["grace_period"]["nanoseconds"] / 1e9
        at = self._master.agents[task.agent]
        if at.connected:
            self._send(at, partial(at.agent.kill, task.name, grace_s))

    def _do_shutdown(self, what: Json) -> None:
        at = self._at(what)
        if at is not None and at.connected:
            self._send(at, partial(at.agent.shut_down, what["executor_id"]["value"]))

    def _do_reconcile(self, what: Json) -> None:
        asked = what.get("tasks", ())
        for each in asked:
            self._explain(each)
        for task in () if asked else self._master.tasks.values():
            self._say_latest(task)

    def _explain(self, what: Json) -> None:
        """How this task is."""
        master, name = self._master, what["task_id"]["value"]
        agent = what.get("agent_id", {}).get("value", "")
        task = master.known(name)
        if task is not None:
            self._say_latest(task)
        elif agent not in master.recovered:
            state, how = "TASK_UNKNOWN", "unknown"
            if agent in master.agents:
                state, how = "TASK_GONE", "unknown to the agent"
            elif agent in master.unreachable:
                state, how = "TASK_UNREACHABLE", "unreachable"
            message = f"Reconciliation: Task is {how}"
            master.say(Known(name, agent), state, reason=LATEST, message=message)

    def _say_latest(self, task: Known) -> None:
        state = task.told or task.state
        self._master.say_latest(task, state, LATEST, "Reconciliation: Latest task state")

    def _at(self, what: Json) -> Registered | None:
        return self._master.agents.get(what["agent_id"]["value"])

    @staticmethod
    def _send(at: Registered, act: Callable[[], None]) -> None:
        if at.agent.linked:
            at.agent.to_agent.send(act)
