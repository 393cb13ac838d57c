"""The protocol of an executor with its agent and its runs.

Events of the agent and of the keeper's runs go in; calls for the agent, and orders for the runs,
are taken out by the loop, which has the sockets and the processes. All times and ids are arguments,
so the same protocol is run with a real agent, a scripted one, and none.

- An update is kept until the agent has acknowledged it: after each outage of the agent those that
  are open go with the subscription, and so do tasks of which it has acknowledged nothing yet.
- The run is forgotten when the update of its end is acknowledged: then the agent has it on disk.
- Without tasks for a while, since it was subscribed, the executor is over. So it is when the agent
  says so, when the agent does not come back in time, and at once when it leaves where nothing may
  outlive it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

AgentJson = dict[str, Any]
HOST = "mesos"
"""What the keeper calls the host of all runs."""
SHUTDOWN_GRACE_S = 3.0
"""What tasks get that end with their executor: the agent waits 5 s, unless told otherwise."""
KILL_GRACE_S = 3.0
"""As Mesos has it where nobody says one."""
_NANO = 1_000_000_000
_STATES = {"SUCCEEDED": "TASK_FINISHED", "FAILED": "TASK_FAILED", "KILLED": "TASK_KILLED"}
EXECUTOR_LOST = "executor lost"
LOST_STATE = "TASK_DROPPED"
"""Of a run that was not started, without fault of its program."""


class ExecutorConfig(NamedTuple):
    """The identity of the executor at the agent, and how long it stays.

    Without `recovers` it ends with the agent.
    """

    framework: str
    executor: str
    recovers: bool = True
    recovery_s: float = 900.0
    idle_s: float = 60.0


@dataclass(slots=True)
class ExecutorTask:
    """A task, from its launch to the acknowledgement of its end."""

    info: Mapping[str, Any]
    acknowledged: bool = False
    updates: dict[str, AgentJson] = field(default_factory=dict)
    """Those that are open, by uuid, in order."""
    last: str = ""
    """The uuid of the update of its end."""
    asked: bool = False
    """Whether the agent has asked to kill it."""


class ExecutorTalk:
    """The protocol of one executor and its agent."""

    def __init__(
        self, config: ExecutorConfig, new_uuid: Callable[[], bytes], *, now: float
    ) -> None:
        self._config, self._new_uuid = config, new_uuid
        self.tasks: dict[str, ExecutorTask] = {}
        self.calls: list[AgentJson] = []
        self.launches: list[AgentJson] = []
        self.kills: list[tuple[str, float]] = []
        self.forgotten: list[str] = []
        self._subscribed = False
        self._told: set[str] = set()
        """Updates that went with the subscription, until that is answered."""
        self._away_since: float | None = now
        self._idle_since: float | None = None
        self._over = ""
        self._mute = False

    # ---- the connection ----

    def connected(self) -> None:
        """Begin a connection: the first call has our identity, and what is open."""
        every = [update for task in self.tasks.values() for update in task.updates.values()]
        self._told = {update["status"]["uuid"] for update in every}
        infos = [task.info for task in self.tasks.values() if not task.acknowledged]
        self.calls.clear()
        what = {"unacknowledged_tasks": infos, "unacknowledged_updates": every}
        self.calls.append(self._call("SUBSCRIBE", what))

    def disconnected(self, now: float) -> None:
        """Note that the connection is over, or could not be had."""
        self._subscribed = False
        self.calls.clear()
        if self._away_since is None:
            self._away_since = now
        if not self._config.recovers:
            self._end("the agent has left, and recovers nothing")

    def refused(self, why: str) -> None:
        """End: the agent does not know us, and nobody asks for our tasks any more."""
        self._end(f"the agent does not know this executor: {why}", grace_s=0.0)

    # ---- events of the agent ----

    def heard(self, event: Mapping[str, Any], now: float) -> None:
        """Take one event. Unknown events are ignored."""
        kind = event.get("type")
        if kind == "SUBSCRIBED":
            self._subscribed, self._away_since = True, None
            self._idle_since = None if self.tasks else now  # what it is for comes after this
            for task in self.tasks.values():
                for uuid, update in task.updates.items():
                    if uuid not in self._told:
                        self._tell(update)
            self._told = set()
        elif kind == "LAUNCH":
            self._launch(event["launch"]["task"])
        elif kind == "KILL":
            self._kill(event["kill"])
        elif kind == "ACKNOWLEDGED":
            what = event["acknowledged"]
            self._acknowledged(what["task_id"]["value"], what["uuid"], now=now)
        elif kind == "SHUTDOWN":
            self._end("the agent said so")
        elif kind == "ERROR":
            self._end(event.get("error", {}).get("message", "the agent reports an error"))

    def _launch(self, info: Mapping[str, Any]) -> None:
        name = info["task_id"]["value"]
        if name in self.tasks:
            return
        # What it is to run is not kept: there may be secrets in it, and nobody asks for it again.
        self.tasks[name] = ExecutorTask({key: info[key] for key in info if key != "data"})
        self._idle_since = None
        try:
            request = json.loads(base64.b64decode(info["data"], validate=True))
            if request["run"] != name:
                raise ValueError("the order of another run")
        except (KeyError, ValueError, TypeError):
            request = {"run": name}  # which the keeper refuses
        self.launches.append(request)
        if self._over:  # nobody else would end it
            self.kills.append((name, 0.0))

    def _kill(self, what: Mapping[str, Any]) -> None:
        name = what["task_id"]["value"]
        task = self.tasks.get(name)
        if task is not None and not task.last:
            policy = what.get("kill_policy") or task.info.get("kill_policy") or {}
            grace = policy.get("grace_period")
            grace_s = KILL_GRACE_S if grace is None else grace["nanoseconds"] / _NANO
            self.kills.append((name, grace_s))
            task.asked = True

    def _acknowledged(self, name: str, uuid: str, *, now: float) -> None:
        task = self.tasks.get(name)
        if task is None or task.updates.pop(uuid, None) is None:
            return
        task.acknowledged = True
        if uuid == task.last:
            del self.tasks[name]
            self.forgotten.append(name)
            if not self.tasks:
                self._idle_since = now

    # ---- events of runs ----

    def started(self, name: str, at: float) -> None:
        """Note that the task's process exists, since then."""
        self._update(name, "TASK_RUNNING", at=at)

    def ended(self, name: str, end: AgentJson, *, at: float) -> None:
        """Note the end of a task. `end` is the keeper's record, which is passed on as it is.

        A task that was killed because the executor ends is lost.
        """
        task = self.tasks.get(name)
        if self._over and task is not None and not task.asked and end["outcome"] == "KILLED":
            end = {**end, "outcome": "LOST", "reason": EXECUTOR_LOST, "message": self._over}
        state = _STATES.get(end["outcome"], LOST_STATE)
        data = base64.b64encode(json.dumps(end).encode()).decode()
        self._update(name, state, at=at, message=end["message"] or end["reason"], data=data)

    def _update(self, name: str, state: str, *, at: float, **more: str) -> None:
        task = self.tasks.get(name)
        if task is None or task.last:
            return
        uuid = base64.b64encode(self._new_uuid()).decode()
        status = {
            "task_id": {"value": name},
            "executor_id": {"value": self._config.executor},
            "source": "SOURCE_EXECUTOR",
            "state": state,
            "timestamp": at,
            "uuid": uuid,
            **more,
        }
        task.updates[uuid] = {"status": status}
        if state != "TASK_RUNNING":
            task.last = uuid
        if self._subscribed and not self._mute:
            self._tell(task.updates[uuid])

    def _tell(self, update: AgentJson) -> None:
        self.calls.append(self._call("UPDATE", update))

    def _call(self, kind: str, what: AgentJson) -> AgentJson:
        names = {"framework_id": self._config.framework, "executor_id": self._config.executor}
        ids = {name: {"value": value} for name, value in names.items()}
        return {**ids, "type": kind, kind.lower(): what}

    # ---- the end ----

    def due(self, now: float) -> None:
        """Check the times: nothing to do for long enough, or no agent."""
        if self._idle_since is not None and now >= self._idle_since + self._config.idle_s:
            self._end("nothing to do")
        if self._away_since is not None and now >= self._away_since + self._config.recovery_s:
            self._end("the agent did not come back in time")

    @property
    def wake_at(self) -> float | None:
        """When `due` has something to do."""
        return min(self._ends_at(), default=None)

    def _ends_at(self) -> Iterator[float]:
        if self._over:
            return
        if self._idle_since is not None:
            yield self._idle_since + self._config.idle_s
        if self._away_since is not None:
            yield self._away_since + self._config.recovery_s

    def guardian_gone(self) -> None:
        """End: the process that the agent knows was killed.

        For the agent this executor is gone, and others may run its tasks already. The agent itself
        reports how the tasks end.
        """
        self._mute = True
        self.calls.clear()
        self._end("the guardian was killed", grace_s=0.0)

    def asked_to_end(self) -> None:
        """End, by a signal."""
        self._end("a signal said so")

    def _end(self, why: str, grace_s: float = SHUTDOWN_GRACE_S) -> None:
        if not self._over:
            self._over = why
            live = (name for name, task in self.tasks.items() if not task.last)
            self.kills += [(name, grace_s) for name in live]

    @property
    def over(self) -> str:
        """Why this executor is to end; empty while it is not. Its tasks are told to end."""
        return self._over

    @property
    def has_told_all(self) -> bool:
        """Whether the agent needs nothing more of us."""
        return self._mute or not any(task.updates for task in self.tasks.values())
