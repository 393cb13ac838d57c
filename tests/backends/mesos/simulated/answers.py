"""How a simulated master answers calls of its framework.

Must not keep anything: what it knows is the master's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from tests.backends.mesos.simulated.agents import TERMINAL
from tests.backends.mesos.simulated.master import Known, Master, Registered
from tests.backends.mesos.simulated.offers import Amounts, amounts_of, fits
from tests.backends.mesos.words import Json

LATEST = "REASON_RECONCILIATION"


class Answers:
    """Those of one master. `broken` is told what no framework may do."""

    def __init__(self, master: Master, broken: Callable[[str], None]) -> None:
        self._master, self._broken = master, broken
        self._begun: Amounts = Counter()
        """What the executors take that the call at hand begins, which its framework may not have
        reckoned with: it has not heard yet that they had ended."""

    def call(self, call: Json) -> None:
        """A call of the framework that is subscribed."""
        kind = call["type"]
        getattr(self, f"_{kind.lower()}")(call.get(kind.lower()))

    # ---- offers ----

    def _decline(self, what: Json) -> None:
        for each in what["offer_ids"]:
            offer = self._master.offers.take(each["value"])
            if offer is not None:
                self._master.offers.decline(offer.agent, what["filters"]["refuse_seconds"])

    def _revive(self, _: None) -> None:
        self._master.offers.refused.clear()
        self._master.allocate()

    def _accept(self, what: Json) -> None:
        master = self._master
        found = [master.offers.take(each["value"]) for each in what["offer_ids"]]
        there: Amounts = Counter()
        for offer in found:
            there.update(offer.amounts if offer is not None else {})
        self._begun.clear()
        valid = None not in found
        agents = {offer.agent for offer in found if offer is not None}
        each = master.agents.get(next(iter(agents), ""))
        for operation in what["operations"]:
            if operation["type"] == "LAUNCH":
                for info in operation["launch"]["task_infos"]:
                    self._launch(info, there, valid=valid, at=each)
            else:
                self._launch_group(operation["launch_group"], there, valid=valid, at=each)

    def _launch(self, info: Json, there: Amounts, *, valid: bool, at: Registered | None) -> None:
        own = {"type": "COMMAND", "executor_id": info["task_id"], "resources": []}
        executor = info.get("executor", own)
        why = self._invalid([info], executor, there, valid=valid, at=at)
        if why is not None:
            self._refuse([info], executor, why)
            return
        assert at is not None
        self._begin([info], executor, there, at=at)

    def _launch_group(
        self, what: Json, there: Amounts, *, valid: bool, at: Registered | None
    ) -> None:
        infos, executor = what["task_group"]["tasks"], what["executor"]
        why = self._invalid(infos, executor, there, valid=valid, at=at)
        if why is not None:
            reason = why[1].replace("REASON_TASK_INVALID", "REASON_TASK_GROUP_INVALID")
            self._refuse(infos, executor, (why[0], reason, why[2]))
            return
        assert at is not None
        self._begin(infos, executor, there, at=at, group=True)

    def _invalid(
        self,
        infos: Sequence[Json],
        executor: Json,
        there: Amounts,
        *,
        valid: bool,
        at: Registered | None,
    ) -> tuple[str, str, str] | None:
        """State, reason and text if these cannot be launched."""
        if not valid:
            return "TASK_DROPPED", "REASON_INVALID_OFFERS", "the offer is no longer valid"
        if at is None or not at.connected:
            return "TASK_DROPPED", "REASON_AGENT_DISCONNECTED", "the agent is away"
        for info in infos:
            if self._master.known(info["task_id"]["value"]) is not None:
                text = f"Task has duplicate ID: {info['task_id']['value']}"
                return "TASK_ERROR", "REASON_TASK_INVALID", text
            if info["agent_id"]["value"] != at.agent.name:
                self._broken(f"{info['task_id']['value']} goes on the offer of another agent")
        name = executor["executor_id"]["value"]
        known = at.executors.get(name)
        if known is not None and known != executor:
            self._broken(f"the executor {name} is described in two ways")
        need = amounts_of([entry for info in infos for entry in info["resources"]])
        if not fits(need, there + self._begun):
            self._broken(f"{need} is launched on offers of {there}")
        if known is None:
            need.update(amounts_of(executor.get("resources", ())))
        if not fits(need, there):
            text = "required by task and its executor is more than available"
            return "TASK_ERROR", "REASON_TASK_INVALID", text
        return None

    def _refuse(self, infos: Sequence[Json], executor: Json, why: tuple[str, str, str]) -> None:
        for info in infos:
            name = executor["executor_id"]["value"] if "executor" in info else ""
            ids = (info["task_id"]["value"], info["agent_id"]["value"])
            self._master.say(Known(*ids, name, Amounts()), why[0], why[1], message=why[2])

    def _begin(
        self,
        infos: Sequence[Json],
        executor: Json,
        there: Amounts,
        *,
        at: Registered,
        group: bool = False,
    ) -> None:
        name = executor["executor_id"]["value"]
        if name not in at.executors:
            takes = amounts_of(executor.get("resources", ()))
            there.subtract(takes)
            self._begun.update(takes)
            at.executors[name] = executor
        for info in infos:
            need = amounts_of(info["resources"])
            there.subtract(need)
            task = info["task_id"]["value"]
            self._master.amounts[task] = need
            at.tasks[task] = Known(task, at.agent.name, name, need)
            self._master.times.note(f"master: launches {task[-6:]} at {at.agent.name}")
        self._send(at, partial(at.agent.run, executor, infos, group=group))

    # ---- tasks ----

    def _acknowledge(self, what: Json) -> None:
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

    def _kill(self, what: Json) -> None:
        at, task = self._at(what), self._master.known(what["task_id"]["value"])
        if task is None:
            self._explain(what)
            return
        grace_s = what["kill_policy"]["grace_period"]["nanoseconds"] / 1e9
        at = self._master.agents[task.agent]
        if at.connected:
            self._send(at, partial(at.agent.kill, task.name, grace_s))

    def _shutdown(self, what: Json) -> None:
        at = self._at(what)
        if at is not None and at.connected:
            self._send(at, partial(at.agent.shut_down, what["executor_id"]["value"]))

    def _reconcile(self, what: Json) -> None:
        for each in what["tasks"]:
            self._explain(each)
        if what["tasks"]:
            return
        for at in self._master.agents.values():
            for task in at.tasks.values():
                self._master.say(task, task.told or task.state, LATEST)

    def _explain(self, what: Json) -> None:
        """How this task is."""
        master, name, agent_id = self._master, what["task_id"]["value"], what["agent_id"]["value"]
        task = master.known(name)
        asked = Known(name, agent_id, "", Amounts())
        if task is not None:
            master.say(task, task.told or task.state, LATEST)
        elif agent_id in master.recovered:
            return
        elif agent_id in master.agents:
            master.say(asked, "TASK_GONE", LATEST)
        elif agent_id in master.unreachable:
            master.say(asked, "TASK_UNREACHABLE", LATEST)
        else:
            master.say(asked, "TASK_UNKNOWN", LATEST)

    def _at(self, what: Json) -> Registered | None:
        return self._master.agents.get(what["agent_id"]["value"])

    @staticmethod
    def _send(at: Registered, act: Callable[[], None]) -> None:
        if at.agent.linked:
            at.agent.to_agent.send(act)
