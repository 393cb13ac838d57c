"""An agent of Mesos that does as it is told, as an executor sees it.

It speaks the executor API, version 1, in JSON, with one executor. By itself it does what a real
one does: it takes a subscription, and acknowledges each update once. All else is said by a test:
what is launched, what is refused, how the stream breaks. Every call is kept. It must not know what
runs.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from tests.servers.scripted_http import Event, Reply, ScriptedServer, Subscriber, record

PATH = "/api/v1/executor"
WAIT_S = 60.0
NOT_SUBSCRIBED = "Executor is not subscribed"


class ScriptedExecutorsAgent:
    """A server on a port of its own; `with` it."""

    heartbeat_s = 15.0
    silent = False

    def __init__(self) -> None:
        self.calls: list[Event] = []
        self.subscriber: Subscriber | None = None
        self.acknowledgements = 1
        """How often each update is acknowledged."""
        self._changed = threading.Condition(threading.RLock())
        self._replies: dict[str, list[Reply]] = {}
        self._stopping = threading.Event()
        self._server = ScriptedServer(self, (PATH,))
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> ScriptedExecutorsAgent:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self.drop_stream()
        self._server.shutdown()
        self._server.server_close()

    # ---- what a test asks for ----

    def reply(self, kind: str, *replies: Reply) -> None:
        """Answer the next calls of a type so, one each, and do nothing about them."""
        with self._changed:
            self._replies.setdefault(kind, []).extend(replies)

    def wait(self, fact: Callable[[], Any]) -> Any:
        """What this finds in the calls, as soon as it finds something."""
        with self._changed:
            assert self._changed.wait_for(fact, WAIT_S), self.calls
            return fact()

    def wait_calls(self, kind: str, count: int = 1) -> list[Event]:
        """What was said in calls of a type, once so many have come."""

        def found() -> list[Event]:
            return [call[kind.lower()] for call in self.calls if call["type"] == kind]

        return list(self.wait(lambda: found() if len(found()) >= count else None))

    def wait_update(self, task: str, state: str) -> Event:
        """The status in the first update of a task with such a state."""

        def found() -> Event | None:
            each = (call["update"]["status"] for call in self.calls if call["type"] == "UPDATE")
            fits = (one for one in each if (one["task_id"]["value"], one["state"]) == (task, state))
            return next(fits, None)

        return dict(self.wait(found))

    def wait_subscribed(self, *, but: Subscriber | None = None) -> Subscriber:
        """The stream that is open now, or another one than this."""
        found: Subscriber = self.wait(
            lambda: self.subscriber if self.subscriber is not but else None
        )
        return found

    def send(self, kind: str, **what: Any) -> None:
        """An event on the open stream."""
        self.wait_subscribed().send({"type": kind, kind.lower(): what})

    def launch(self, task: str, data: str) -> None:
        info = {"name": task, "task_id": {"value": task}, "data": data}
        self.send("LAUNCH", task=info)

    def kill(self, task: str) -> None:
        self.send("KILL", task_id={"value": task})

    def acknowledge(self, task: str, uuid: str) -> None:
        self.send("ACKNOWLEDGED", task_id={"value": task}, uuid=uuid)

    def send_record(self, data: bytes) -> None:
        """One record, whatever is in it."""
        self.send_bytes(record(data))

    def send_bytes(self, data: bytes) -> None:
        """Bytes of the stream that need not be a record, in a chunk of their own."""
        self.wait_subscribed().parts.put(data)

    def cut_in_record(self) -> None:
        """Send half of an event, and hang up."""
        with self._changed:
            whole = record(json.dumps({"type": "ERROR", "error": {"message": "x" * 1000}}).encode())
            subscriber = self.wait_subscribed()
            subscriber.cut = True
            subscriber.parts.put(whole[: len(whole) // 2])
            subscriber.end()

    def drop_stream(self) -> None:
        """Hang up between two records, as an agent that is killed."""
        with self._changed:
            if self.subscriber is not None:
                self.subscriber.cut = True
                self.subscriber.end()

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

    def told(self, body: bytes) -> Reply:
        """No operator asks."""
        return Reply(404)

    def closed(self, subscriber: Subscriber) -> None:
        """A stream has ended, at whichever end."""
        with self._changed:
            if self.subscriber is subscriber:
                self.subscriber = None
            self._changed.notify_all()

    def wait_stop(self) -> None:
        """For those who are never answered."""
        self._stopping.wait()
