"""An agent of Mesos that does as it is told, as an executor sees it.

It speaks the executor API, version 1, in JSON, with one executor. By itself it does what a real one
does: it takes a subscription, and acknowledges each update once. All else is said by a test: what
is launched, what is refused, how the stream breaks. Every call is kept.
"""

from __future__ import annotations

import json
from typing import Any

from tests.servers.scripted_http import Event, Reply, Scripted, Subscriber

PATH = "/api/v1/executor"
NOT_SUBSCRIBED = "Executor is not subscribed"


class ScriptedExecutorsAgent(Scripted):
    """A server on a port of its own; `with` it."""

    def __init__(self) -> None:
        super().__init__((PATH,))
        self.acknowledgements = 1
        """How often each update is acknowledged."""
        self.begin()

    # ---- what a test asks for ----

    def wait_calls(self, kind: str, count: int = 1) -> list[Event]:
        """What was said in calls of a type, once so many have come."""

        def found() -> list[Event]:
            return [call[kind.lower()] for call in self.calls if call["type"] == kind]

        return self.wait(lambda: found() if len(found()) >= count else None)

    def wait_update(self, task: str, state: str) -> Event:
        """The status in the first update of a task with such a state."""

        def found() -> Event | None:
            each = (call["update"]["status"] for call in self.calls if call["type"] == "UPDATE")
            fits = (one for one in each if (one["task_id"]["value"], one["state"]) == (task, state))
            return next(fits, None)

        return self.wait(found)

    def say(self, kind: str, **what: Any) -> None:
        """An event on the open stream."""
        self.send({"type": kind, kind.lower(): what})

    def launch(self, task: str, data: str) -> None:
        info = {"name": task, "task_id": {"value": task}, "data": data}
        self.say("LAUNCH", task=info)

    def kill(self, task: str) -> None:
        self.say("KILL", task_id={"value": task})

    def acknowledge(self, task: str, uuid: str) -> None:
        self.say("ACKNOWLEDGED", task_id={"value": task}, uuid=uuid)

    def end_stream(self) -> None:
        """End it in good order."""
        self.wait_subscribed().end()

    # ---- how it works ----

    def take(self, body: bytes, headers: dict[str, str]) -> Reply | Subscriber:
        """What a request is answered; for a subscription, its stream."""
        call = json.loads(body)
        kind = call["type"]
        with self._changed:
            self.calls.append(call)
            self._changed.notify_all()
            told = self._replies.get(kind, [])
            if told:
                return told.pop(0)
            if kind == "SUBSCRIBE":
                return self._subscribe(call["subscribe"])
            if self.subscriber is None:
                return Reply(403, NOT_SUBSCRIBED)
            if kind == "UPDATE":
                self._updated(call["update"])
            return Reply(202)

    def _subscribe(self, said: Event) -> Subscriber:
        if self.subscriber is not None:
            self.subscriber.end()
        self.subscriber = Subscriber()
        self.subscriber.send({"type": "SUBSCRIBED", "subscribed": {}})
        for update in said["unacknowledged_updates"]:
            self._updated(update)
        self._changed.notify_all()
        return self.subscriber

    def _updated(self, update: Event) -> None:
        status = update["status"]
        for _ in range(self.acknowledgements):
            self.acknowledge(status["task_id"]["value"], status["uuid"])
