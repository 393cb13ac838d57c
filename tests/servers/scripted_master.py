"""A master of Mesos that does as it is told, and so what a real one does once in a year.

It speaks the scheduler API, version 1, in JSON, for one framework: the stream of events, calls with
their refusals, and 2,000 agents if they are wanted. What it answers with is `mesos_model`, where
time stands still: a task goes on when its update is acknowledged or when a test says so, and what
was declined is offered again when it is asked for. On demand it sends nonsense, cuts the stream in
a record, is no leader, never answers, and loses, doubles, reverses or delays updates; or it sends
what a real master once sent. Every call is kept in `calls`. It is as strict as a real master: one
table of calls is run against both (tests/contracts/test_mesos_master.py).
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.servers.mesos_model.agents import Agent
from tests.servers.mesos_model.answers import Answers
from tests.servers.mesos_model.master import Master
from tests.servers.mesos_model.offers import counted
from tests.servers.mesos_model.programs import Programs
from tests.servers.mesos_model.said import VERSION
from tests.servers.mesos_model.times import Times
from tests.servers.mesos_rules import RefusedCall, read_call
from tests.servers.scripted_http import PATHS, Event, Reply, Scripted, Subscriber

TOTAL = {"cpus": 8.0, "mem": 8192.0, "disk": 10240.0}
"""What each agent has."""
NOTHING_OF = dict.fromkeys(("GET_FRAMEWORKS", "GET_ROLES", "GET_QUOTA", "GET_FLAGS"), dict)
REMOVED = {"type": "ERROR", "error": {"message": "Framework has been removed"}}
FAILED_OVER = {"type": "ERROR", "error": {"message": "Framework failed over"}}


class Got(NamedTuple):
    """A request that came, and what it was answered; 0: nothing."""

    call: dict[str, Any]
    headers: dict[str, str]
    code: int
    body: str = ""

    @property
    def type(self) -> str:
        return str(self.call.get("type", ""))


class _Line:
    """A subscription, as the model knows it."""

    def __init__(self, tell: Callable[[Event], None]) -> None:
        self.open = True
        self._tell = tell

    def tell(self, event: Event) -> None:
        self._tell(event)

    def end(self) -> None:
        self.open = False


class ScriptedMaster(Scripted):
    """One master, of agents `h1` to `hN`."""

    def __init__(
        self, *, agents: int = 1, total: Mapping[str, float] = TOTAL,
        recorded: Sequence[Event] = (), heartbeat_s: float = Scripted.heartbeat_s,
    ) -> None:  # fmt: skip
        super().__init__(PATHS)
        self.id = str(uuid.uuid4())
        self._times = Times(now=time.time())
        self.model = Master(self._times, counted(total), framework={}, allocate_s=0.0)
        self._answers = Answers(self.model)
        programs = Programs()
        self._agents = {
            f"h{at + 1}": Agent(
                self._times, programs, name=f"{self.id}-S{at}", hostname=f"h{at + 1}"
            )
            for at in range(agents)
        }
        for agent in self._agents.values():
            agent.master = self.model
            agent.tell_master("register")
        self._times.settle()
        self.recorded = recorded
        self.heartbeat_s = heartbeat_s
        self.framework_id: str | None = None
        self.removed: set[str] = set()
        self._ignored: set[str] = set()
        self._frameworks = 0
        self._copies = 1
        self._held: list[Event] | None = None
        self.begin()

    # ---- what a test asks for ----

    def wait_calls(self, type_: str, count: int = 1) -> list[Got]:
        """The calls of one type, once so many have come."""

        def found() -> list[Got]:
            return [got for got in self.calls if got.type == type_]

        return self.wait(lambda: found() if len(found()) >= count else None)

    def ignore(self, *types: str) -> None:
        """Answer these as accepted, and do nothing; none: do everything again."""
        self._ignored = {*types}

    def double_updates(self, copies: int = 2) -> None:
        """Send each update so often from now on."""
        self._copies = copies

    def hold_updates(self) -> None:
        """Keep updates back from now on."""
        with self._changed:
            self._held = [] if self._held is None else self._held

    def release_updates(self, *, reverse: bool = False) -> list[Event]:
        """Send what was held, the newest first if so wished, and hold no more."""
        with self._changed:
            held, self._held = self._held or [], None
            held = held[::-1] if reverse else held
            self._publish(held)
            return held

    # ---- what happens to tasks and agents ----

    def exits(self, task: str, code: int) -> None:
        """The task's command ends by itself."""
        with self._happening():
            next(each for each in self._agents.values() if task in each.tasks).exits(task, code)

    def lose_agent(self, hostname: str) -> None:
        """An agent is out of reach, and has been for long. What runs there goes on."""
        with self._happening():
            self._agents[hostname].cut()
            self.model.mark_unreachable(self._agents[hostname])

    def return_agent(self, hostname: str) -> None:
        """It was only out of reach."""
        with self._happening():
            agent = self._agents[hostname]
            agent.linked = True
            agent.tell_master("register")
            self._times.settle()
            self.model.allocate([agent.name])

    def tear_down(self) -> None:
        """An operator has removed the framework, which hears of it when it subscribes."""
        with self._happening():
            self.removed.add(str(self.framework_id))
            self.model.tear_down()

    def obey(self, call: Mapping[str, Any]) -> None:
        """Do what was called, whatever that was answered."""
        with self._happening():
            asked = call.get(call["type"].lower(), {})
            offers = asked.get("offer_ids", ())
            agents = {self.model.offers.agent_of(one["value"]): None for one in offers}
            self._answers.call({**call})
            self._times.settle()
            if asked.get("filters", {}).get("refuse_seconds") == 0:
                self.model.allocate(agents)

    @contextmanager
    def _happening(self) -> Iterator[None]:
        with self._changed:
            yield
            self._times.settle()

    # ---- how it works ----

    def _publish(self, events: Iterable[Event]) -> None:
        for event in events:
            if event["type"] == "UPDATE" and self._held is not None:
                self._held.append(event)
                continue
            copies = self._copies if event["type"] == "UPDATE" else 1
            for _ in range(copies if self.subscriber is not None else 0):
                self.subscriber.send(event)

    def take(self, body: bytes, headers: dict[str, str]) -> Reply | Subscriber:
        """What a request is answered; for a subscription, its stream."""
        with self._changed:
            try:
                call = read_call(body, headers)
            except RefusedCall as refused:
                return self._noted(_maybe_json(body), headers, Reply(refused.code, refused.body))
            told = self._replies.get(call["type"], [])
            if told:
                return self._noted(call, headers, told.pop(0))
            if call["type"] == "SUBSCRIBE":
                self._noted(call, headers, Reply(200))
                return self._subscribe(call)
            reply = self._refusal(call, headers) or Reply(202)
            self._noted(call, headers, reply)
            if reply.code != 202 or call["type"] in self._ignored or self.recorded:
                return reply
            self.obey(call)
            if call["type"] == "TEARDOWN":
                self.tear_down()
                self.subscriber.end()
            return reply

    def told(self, body: bytes) -> Reply:
        """Operators ask for the agents, and for much of which there is nothing."""
        call = _maybe_json(body)
        with self._changed:
            scripted = self._replies.get(call.get("type", ""), [])
            reply = scripted.pop(0) if scripted else Reply(200)
            known = {
                "GET_AGENTS": self._agents_told, "GET_EXECUTORS": self._executors_told,
                "GET_VERSION": _version, **NOTHING_OF,
            }  # fmt: skip
            if call.get("type") not in known:
                reply = Reply(400, "Failed to validate v1::master::Call")
            elif reply.code == 200 and not reply.body:
                kind = call["type"]
                answer = {"type": kind, kind.lower(): known[kind]()}
                reply = reply._replace(body=json.dumps(answer))
            return self._noted(call, {}, reply)

    def _agents_told(self) -> dict[str, Any]:
        return {"agents": self.model.listed_agents(), "recovered_agents": []}

    def _executors_told(self) -> dict[str, Any]:
        return {"executors": self.model.listed_executors()}

    def _noted(self, call: dict[str, Any], headers: dict[str, str], reply: Reply) -> Reply:
        self.calls.append(Got(call, headers, reply.code, reply.body))
        self._changed.notify_all()
        return reply

    def _refusal(self, call: Mapping[str, Any], headers: Mapping[str, str]) -> Reply | None:
        name = call["framework_id"]["value"]
        if name != self.framework_id or name in self.removed:
            return Reply(400, "Framework cannot be found")
        if self.subscriber is None:
            return Reply(403, "Framework is not subscribed")
        stream_id = headers.get("mesos-stream-id")
        if stream_id is None:
            text = "All non-subscribe calls should include the 'Mesos-Stream-Id' header"
            return Reply(400, text)
        if stream_id != self.subscriber.stream_id:
            return Reply(
                400,
                f"The stream ID '{stream_id}' included in this request didn't match the stream ID "
                f"currently associated with framework ID {name}",
            )
        return None

    def _subscribe(self, call: Mapping[str, Any]) -> Subscriber:
        new = Subscriber()
        name = call.get("framework_id", {}).get("value")
        if name in self.removed:
            new.send(REMOVED)
            new.end()
            return new
        if self.subscriber is not None:
            self.subscriber.send(FAILED_OVER)
            self.subscriber.end()
        self.subscriber = new
        if self.recorded:
            subscribed = next(e for e in self.recorded if e["type"] == "SUBSCRIBED")
            self.framework_id = subscribed["subscribed"]["framework_id"]["value"]
            for event in self.recorded:
                new.send(event)
        else:
            self._frameworks += 0 if name else 1
            self.framework_id = name or f"{self.id}-{self._frameworks - 1:04}"
            if self.model.framework.get("id") != {"value": self.framework_id}:
                self.model.tear_down()
            info = call["subscribe"]["framework_info"] | {"id": {"value": self.framework_id}}
            self.model.framework = info
            self.model.subscribe(_Line(lambda event: self._publish([event])), **self._words())
            self._times.settle()
            self.model.allocate()
        self._changed.notify_all()
        return new

    def _words(self) -> Event:
        """Of us, to whoever subscribes."""
        where = {"hostname": "127.0.0.1", "ip": "127.0.0.1", "port": self.port}
        return {
            "framework_id": {"value": self.framework_id},
            "heartbeat_interval_seconds": self.heartbeat_s,
            "master_info": {
                "id": self.id,
                "ip": 16777343,
                "port": self.port,
                "pid": f"master@{self.address}",
                "hostname": "127.0.0.1",
                "version": VERSION,
                "address": where,
                "capabilities": [
                    {"type": name} for name in ("AGENT_UPDATE", "AGENT_DRAINING", "QUOTA_V2")
                ],
            },
        }

    def closed(self, subscriber: Subscriber) -> bool:
        """A stream has ended, at whichever end. Whether it was the open one."""
        with self._changed:
            is_open = super().closed(subscriber)
            if is_open:
                self.model.hang_up()
                if not float(self.model.framework.get("failover_timeout", 0)):
                    self.removed.add(str(self.framework_id))
            return is_open


def _version() -> dict[str, Any]:
    return {"version_info": {"version": VERSION}}


def _maybe_json(body: bytes) -> dict[str, Any]:
    try:
        call = json.loads(body)
    except ValueError:
        return {}
    return call if isinstance(call, dict) else {}
