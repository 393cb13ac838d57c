"""An agent of Mesos: executors, tasks, and updates that are told until acknowledged.

Keeps of each task the updates in order; the next one is told once the one before was acknowledged.
What the program does is told with the run.
"""

from __future__ import annotations

import base64
import hashlib
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.backends.mesos.words import Json
from tests.servers.mesos_model.programs import Program, Programs, TrueEnd, told_end
from tests.servers.mesos_model.said import container
from tests.servers.mesos_model.times import Times, Wire

if TYPE_CHECKING:
    from tests.servers.mesos_model.master import Master

AGAIN_S, AGAIN_MAX_S = 10.0, 80.0
"""Between two tellings of the same update: each pause is twice the one before."""
IDLE_S = 25.0
"""How long our own executor stays without tasks."""
WIRE_S = 0.6
TERMINAL = frozenset(
    f"TASK_{name}" for name in ("FINISHED", "FAILED", "KILLED", "ERROR", "LOST", "DROPPED", "GONE")
)


@dataclass(eq=False)
class Task:
    """One task at the agent. `updates`: those not acknowledged."""

    name: str
    executor: str
    program: Program
    state: str = "TASK_STAGING"
    begun: bool = False
    killed: bool = False
    updates: deque[Json] = field(default_factory=deque)

    @property
    def over(self) -> bool:
        return self.state in TERMINAL


@dataclass(eq=False)
class Executor:
    """One executor, and what it runs. `keeps`: it stays without tasks; `deaf`: to kills."""

    info: Json
    keeps: bool = False
    group: bool = False
    deaf: bool = False
    registered: bool = False
    over: bool = False
    idle_since: float = 0.0
    tasks: list[Task] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.info["executor_id"]["value"])

    @property
    def open(self) -> list[Task]:
        return [task for task in self.tasks if not task.over]

    @property
    def known_to_master(self) -> bool:
        """Those that agents make themselves are not."""
        return not self.over and self.info["type"] != "COMMAND"


class Agent:
    """One agent, of one id. `lives`: its machine does; `linked`: it reaches the master."""

    def __init__(self, times: Times, programs: Programs, *, name: str, hostname: str) -> None:
        self.name, self.hostname = name, hostname
        self.lives = self.linked = True
        self.starts_keeper = True
        self.cuts = 0
        self.tasks: dict[str, Task] = {}
        self.executors: dict[str, Executor] = {}
        self.master: Master | None = None
        self.to_master = Wire(times, delay_s=WIRE_S)
        self.to_agent = Wire(times, delay_s=WIRE_S)
        self._times, self._programs = times, programs
        self._uuids = 0

    # ---- the link ----

    def cut(self) -> None:
        """The master is out of reach."""
        self.linked = False
        self.cuts += 1
        self.to_master.cut()
        self.to_agent.cut()

    def tell_master(self, what: str, *args: Any) -> None:
        """A message, which is lost where there is no link."""
        master = self.master
        if self.linked and self.lives and master is not None:
            self.to_master.send(lambda: getattr(master, what)(self, *args))

    def resume(self) -> None:
        """The master has it, or the framework anew: what was not acknowledged is told at once."""
        for task in [*self.tasks.values()]:
            if task.updates:
                self._forward(task, task.updates[0])

    def die(self) -> None:
        """The machine ends, and all on it."""
        self.lives = False
        self.cut()
        for task in self.tasks.values():
            self._programs.gone(task.name, self.name)

    # ---- what the master says ----

    def run(self, executor: Json, tasks: Iterable[Json], *, group: bool = False) -> None:
        """Start these under this executor."""
        infos = [*tasks]
        name = executor["executor_id"]["value"]
        found = self.executors.get(name)
        if found is not None and found.over:
            for info in infos:
                self._refuse(info["task_id"]["value"], name, why="REASON_EXECUTOR_TERMINATED")
            return
        if found is None:
            keeps = name.startswith("peloton-keeper-")
            deaf = name.startswith("thermos-") and self._programs.of(infos[0]).deaf
            found = self.executors[name] = Executor(executor, keeps, group=group, deaf=deaf)
            self._times.later(self._times.upto(3.0), partial(self._executor_comes, found))
        for info in infos:
            task = Task(info["task_id"]["value"], name, self._programs.of(info))
            known = self.tasks.get(task.name)
            if known is not None and not known.over:
                self._times.note(f"{self.name} has {task.name} already")
            self.tasks[task.name] = task
            found.tasks.append(task)
            if found.registered:
                self._times.later(self._times.upto(0.5), partial(self._begin, found, task))

    def kill(self, name: str, grace_s: float) -> None:
        """End a task."""
        task = self.tasks.get(name)
        if task is None or task.over:
            if task is None:
                self._refuse(name, "", why="REASON_EXECUTOR_TERMINATED")
            return
        executor = self.executors[task.executor]
        if not executor.registered:
            self._end(task, "KILLED", "SOURCE_AGENT", reason="REASON_EXECUTOR_UNREGISTERED")
            if not executor.open:
                self._executor_ends(executor)
        elif not executor.deaf:
            task.killed = True
            if task.begun and self.master is not None and self.master.has("TASK_KILLING_STATE"):
                self._update(task, "KILLING")
            after_s = min(self._times.upto(8.0), grace_s)
            end = TrueEnd("KILLED", signal="SIGTERM")
            self._times.later(after_s, partial(self._exit, executor, task, end))

    def exits(self, name: str, code: int) -> None:
        """Its program ends by itself."""
        task = self.tasks[name]
        self._exit(self.executors[task.executor], task, _own_end(code))

    def shut_down(self, name: str) -> None:
        """End an executor, and all it has."""
        executor = self.executors.get(name)
        if executor is not None and not executor.over:
            self._times.later(self._times.upto(5.0), partial(self._executor_ends, executor))

    def acknowledged(self, name: str, uuid: str) -> None:
        """An update is known; the next one may be told."""
        task = self.tasks.get(name)
        if task is None or not task.updates or task.updates[0]["uuid"] != uuid:
            return
        last = task.updates.popleft()
        if task.updates:
            self._forward(task, task.updates[0])
        elif last["state"] in TERMINAL:
            del self.tasks[name]

    def lacks(self, name: str, executor: str) -> None:
        """The master thinks that this is here."""
        if name not in self.tasks:
            self._refuse(name, executor, why="REASON_RECONCILIATION")

    # ---- executors ----

    def executor_dies(self, executor: Executor) -> None:
        """For whatever reason."""
        if self.lives and not executor.over:
            self._times.note(f"{self.name}: executor {executor.name} dies")
            self._executor_ends(executor)

    def _executor_comes(self, executor: Executor) -> None:
        if executor.over or not self.lives:
            return
        if executor.keeps and not self.starts_keeper:
            self._executor_ends(executor, why="REASON_CONTAINER_LAUNCH_FAILED")
            return
        executor.registered, executor.idle_since = True, self._times.now
        for task in executor.open:
            self._begin(executor, task)
        self._look_for_idle(executor)

    def _executor_ends(self, executor: Executor, why: str = "REASON_EXECUTOR_TERMINATED") -> None:
        if executor.over or not self.lives:
            return
        executor.over = True
        for task in executor.open:
            self._programs.gone(task.name, self.name)
            self._end(task, "FAILED", "SOURCE_AGENT", reason=why)
        self._times.later(self._times.upto(1.0), partial(self._executor_gone, executor))

    def _executor_gone(self, executor: Executor) -> None:
        if self.executors.get(executor.name) is executor:
            del self.executors[executor.name]
        for task in executor.open:  # came meanwhile
            self._end(task, "FAILED", "SOURCE_AGENT", reason="REASON_EXECUTOR_TERMINATED")
        self.tell_master("executor_over", executor.name)

    def _look_for_idle(self, executor: Executor) -> None:
        if executor.over or not self.lives or executor.open:
            return
        if not executor.keeps:
            self._executor_ends(executor)
            return
        left = executor.idle_since + IDLE_S - self._times.now
        if left <= 0.0:
            self._executor_ends(executor)
        else:
            self._times.later(left + 0.001, partial(self._look_for_idle, executor))

    # ---- tasks ----

    def _begin(self, executor: Executor, task: Task) -> None:
        if task.over or executor.over or not self.lives or task.killed:
            return
        task.begun = True
        self._programs.begin(task.name, self.name)
        if not executor.keeps:
            self._update(task, "STARTING")
        self._update(task, "RUNNING")
        if task.program.runs_s is not None:
            end = partial(self._exit, executor, task, _own_end(task.program.code))
            self._times.later(task.program.runs_s, end)

    def _exit(self, executor: Executor, task: Task, end: TrueEnd) -> None:
        """Its program ends by itself, or is ended."""
        if task.over or executor.over or not self.lives:
            return
        end = self._programs.end(task.name, self.name, end)
        more = told_end(end) if executor.keeps else {"message": end.text}
        self._end(task, end.state, "SOURCE_EXECUTOR", **more)
        if executor.group and end.state != "FINISHED":
            killed = TrueEnd("KILLED", signal="SIGKILL")
            for other in executor.open:
                other.killed = True
                after_s = self._times.upto(4.0)
                self._times.later(after_s, partial(self._exit, executor, other, killed))
        executor.idle_since = self._times.now
        self._look_for_idle(executor)

    def _refuse(self, name: str, executor: str, *, why: str) -> None:
        task = self.tasks.setdefault(name, Task(name, executor, Program()))
        self._end(task, "DROPPED", "SOURCE_AGENT", reason=why)

    def _end(self, task: Task, state: str, source: str, **more: Any) -> None:
        if source == "SOURCE_AGENT" and task.begun:
            self._programs.end(task.name, self.name, TrueEnd("LOST"))
        self._update(task, state, source=source, **more)

    def _update(self, task: Task, state: str, source: str = "SOURCE_EXECUTOR", **more: Any) -> None:
        if task.over:
            return
        self._uuids += 1
        uuid = hashlib.sha256(f"{self.name}/{self._uuids}".encode()).digest()[:16]
        task.state = f"TASK_{state}"
        update = {
            "task_id": {"value": task.name},
            "agent_id": {"value": self.name},
            "executor_id": {"value": task.executor},
            "state": task.state,
            "source": source,
            "uuid": base64.b64encode(uuid).decode(),
            "timestamp": self._times.now,
            **more,
        }
        if source == "SOURCE_EXECUTOR":
            update["container_status"] = container(f"of {task.name}")
        self._times.note(f"{self.name}: {task.name[-6:]} {state} {more.get('reason', '')}")
        task.updates.append(update)
        if len(task.updates) == 1:
            self._forward(task, update)

    def _forward(self, task: Task, update: Json, again_s: float = AGAIN_S) -> None:
        if not self.lives or not task.updates or task.updates[0] is not update:
            return
        self.tell_master("told", update, task.state)
        again = partial(self._forward, task, update, min(2 * again_s, AGAIN_MAX_S))
        self._times.later(again_s, again)


def _own_end(code: int) -> TrueEnd:
    return TrueEnd("FAILED" if code else "FINISHED", code)
