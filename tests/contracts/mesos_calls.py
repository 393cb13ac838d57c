"""What is asked of a master of Mesos, be it real or scripted: one table of calls, one of refusals.

A run gives the transcript of what was answered and sent, with ids, times and ports taken out. The
test compares transcripts with the one of a real master, which is recorded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from tests.servers.scripted_http import OPERATORS
from tests.servers.v1_client import Answer, Stream, post

Json = dict[str, Any]
CPUS = 8.0
DRAWN = ("framework_id", "agent_id", "container_id", "id", "offer_id")
NUMBERS = ("timestamp", "nanoseconds", "uuid", "executor_pid", "port", "pid", "ip")


def framework(*capabilities: str) -> Json:
    """One that survives the end of its stream."""
    told = [{"type": name} for name in ("MULTI_ROLE", *capabilities)]
    return {
        "user": "root", "name": "table", "roles": ["edge"], "checkpoint": True,
        "failover_timeout": 600.0, "capabilities": told,
    }  # fmt: skip


def plain(value: Any, key: str = "") -> Any:
    """The same with a star for what differs from run to run."""
    if key in DRAWN and (isinstance(value, str) or isinstance(value.get("value"), str)):
        return "*"
    if key in NUMBERS:
        return "*"
    if isinstance(value, dict):
        return {name: plain(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return value


def agents(port: int) -> Any:
    """What operators are told of the agents."""
    answer = post(port, {"type": "GET_AGENTS"}, path=OPERATORS)
    return plain(json.loads(answer.body))


class Run:
    """A framework's conversation with a master, noted."""

    def __init__(self, port: int, info: Json) -> None:
        self.port = port
        self.info = info
        self.framework_id: Json = {}
        self.agent_id: Json = {}
        self.notes: list[Json] = []
        self.streams: list[Stream] = []
        self.offers: list[Json] = []

    # ---- steps ----

    def subscribe(self) -> None:
        call: Json = {"type": "SUBSCRIBE", "subscribe": {"framework_info": self.info}}
        if self.framework_id:
            call["framework_id"] = self.framework_id
            call["subscribe"]["framework_info"] = self.info | {"id": self.framework_id}
        self.streams.append(Stream(self.port, call))
        self.offers.clear()
        self.note("SUBSCRIBE", self.streams[-1].code)
        first = self.streams[-1].next()
        self.saw(first)
        if first["type"] == "SUBSCRIBED":
            self.framework_id = first["subscribed"]["framework_id"]

    def call(self, type_: str, body: Json | None = None, *, stream: int = -1) -> Answer:
        message: Json = {"type": type_, "framework_id": self.framework_id}
        if body is not None:
            message[type_.lower()] = body
        answer = post(self.port, message, stream_id=self.streams[stream].stream_id)
        text = answer.body.replace(self.framework_id["value"], "FRAMEWORK")
        self.note(type_, answer.code, text.replace(str(self.streams[stream].stream_id), "STREAM"))
        return answer

    def next(self, type_: str, *, where: Callable[[Any], bool] = lambda _: True) -> Json:
        """The next event of the type; offers that come meanwhile are kept."""
        while True:
            event = self.streams[-1].next()
            if event["type"] == "OFFERS":
                self.offers += event["offers"]["offers"]
            if event["type"] == type_ and where(event):
                return event

    def whole_offer(self) -> Json:
        """An offer of a whole agent; parts of one are declined until they are one."""
        while True:
            if not self.offers:
                self.next("OFFERS")
            offer = self.offers.pop()
            cpus = [one for one in offer["resources"] if one["name"] == "cpus"]
            if cpus and cpus[0]["scalar"]["value"] == CPUS:
                return offer
            body = {"offer_ids": [offer["id"]], "filters": {"refuse_seconds": 0}}
            decline = {"type": "DECLINE", "framework_id": self.framework_id, "decline": body}
            post(self.port, decline, stream_id=self.streams[-1].stream_id)

    def launch(self, task: str, command: str, *, cpus: float = 0.1, offer: str = "") -> None:
        """A task on a whole agent, or on an offer that is named."""
        offer_id = {"value": offer} if offer else self.whole_offer()["id"]
        info = {"name": task, "task_id": {"value": task}, "agent_id": self.agent_id}
        info |= {"command": {"value": command}, "resources": _resources(cpus=cpus, mem=32)}
        launch = {"type": "LAUNCH", "launch": {"task_infos": [info]}}
        filters = {"refuse_seconds": 0}
        body = {"offer_ids": [offer_id], "operations": [launch], "filters": filters}
        self.call("ACCEPT", body)

    def launch_group(self, *tasks: str, cpus: float = 0.1) -> None:
        """Tasks that go on, under one executor, on a whole agent."""
        offer_id = self.whole_offer()["id"]
        infos = [
            {
                "name": task, "task_id": {"value": task}, "agent_id": self.agent_id,
                "command": {"value": "sleep 1000"}, "resources": _resources(cpus=cpus, mem=32),
            }
            for task in tasks
        ]  # fmt: skip
        executor = {
            "type": "DEFAULT", "executor_id": {"value": f"of-{tasks[0]}"},
            "framework_id": self.framework_id, "resources": _resources(cpus=0.1, mem=32, disk=1),
        }  # fmt: skip
        group = {"executor": executor, "task_group": {"tasks": infos}}
        launch = {"type": "LAUNCH_GROUP", "launch_group": group}
        filters = {"refuse_seconds": 0}
        self.call("ACCEPT", {"offer_ids": [offer_id], "operations": [launch], "filters": filters})

    def updates(self, task: str, count: int = 1) -> None:
        """So many updates of the task, each acknowledged if it has to be."""
        for _ in range(count):
            event = self.next("UPDATE", where=lambda e: _task(e) == task)
            self.saw(event)
            self.acknowledge(event)

    def updates_of_all(self, *tasks: str, count: int = 1) -> None:
        """The same of each task of a group, whichever comes first. What is known of its container
        by then, and with which signal that is killed, is left to chance."""
        found: dict[str, list[Json]] = {task: [] for task in tasks}
        while any(len(events) < count for events in found.values()):
            event = self.next("UPDATE", where=lambda e: _task(e) in tasks)
            found[_task(event)].append(event)
            self.acknowledge(event, noted=False)
        for event in (event for events in found.values() for event in events):
            status = event["update"]["status"]
            status.pop("container_status", None)
            if status["state"] == "TASK_KILLED":
                status["message"] = "*"
            self.saw(event)

    def acknowledge(self, event: Json, *, noted: bool = True) -> None:
        """If it has to be."""
        status = event["update"]["status"]
        if "uuid" in status:
            body = {key: status[key] for key in ("agent_id", "task_id", "uuid")}
            self.call("ACKNOWLEDGE", body)
            if not noted:
                del self.notes[-1]

    def reconcile(self, *tasks: tuple[str, bool | str]) -> None:
        """Ask for tasks; each with the agent's id, with an unknown one, or without."""
        asked = []
        for name, agent in tasks:
            with_agent = self.agent_id if agent is True else {"value": agent}
            asked.append({"task_id": {"value": name}} | ({"agent_id": with_agent} if agent else {}))
        self.call("RECONCILE", {"tasks": asked})

    # ---- notes ----

    def note(self, call: str, code: int, body: str = "") -> None:
        self.notes.append({"call": call, "code": code, "body": body})

    def saw(self, event: Json) -> None:
        self.notes.append({"event": plain(event)})

    def close(self) -> None:
        for stream in self.streams:
            stream.close()


def _resources(**amounts: float) -> list[Json]:
    return [
        {"name": name, "type": "SCALAR", "scalar": {"value": value}}
        for name, value in amounts.items()
    ]


def _task(event: Json) -> str:
    return str(event["update"]["status"]["task_id"]["value"])


# ---- the table ----

TABLE: list[tuple[Callable[..., Any], tuple[Any, ...], Json]] = [
    (Run.subscribe, (), {}),
    (Run.launch, ("early", "true"), {"offer": "no-such-offer"}),
    (Run.updates, ("early",), {}),
    (Run.launch, ("t-true", "true"), {}),
    (Run.updates, ("t-true", 3), {}),
    (Run.launch, ("t-fails", "exit 3"), {}),
    (Run.updates, ("t-fails", 3), {}),
    (Run.launch, ("t-big", "true"), {"cpus": 99.0}),
    (Run.updates, ("t-big",), {}),
    (Run.launch_group, ("g-a", "g-b"), {"cpus": 99.0}),
    (Run.updates_of_all, ("g-a", "g-b"), {}),
    (Run.launch_group, ("g-1", "g-2"), {}),
    (Run.updates_of_all, ("g-1", "g-2"), {"count": 2}),
    (Run.reconcile, (("g-2", True),), {}),
    (Run.updates_of_all, ("g-2",), {}),
    (Run.call, ("KILL", {"task_id": {"value": "g-1"}}), {}),
    (Run.updates_of_all, ("g-1", "g-2"), {}),
    (Run.launch, ("t-long", "sleep 1000"), {}),
    (Run.updates, ("t-long", 2), {}),
    (Run.reconcile, (("t-long", True),), {}),
    (Run.updates, ("t-long",), {}),
    (Run.reconcile, (("t-long", False),), {}),
    (Run.updates, ("t-long",), {}),
    (Run.reconcile, (), {}),
    (Run.updates, ("t-long",), {}),
    (Run.reconcile, (("ghost-1", False),), {}),
    (Run.updates, ("ghost-1",), {}),
    (Run.reconcile, (("ghost-2", True),), {}),
    (Run.updates, ("ghost-2",), {}),
    (Run.reconcile, (("ghost-3", "no-such-agent"),), {}),
    (Run.updates, ("ghost-3",), {}),
    (Run.call, ("KILL", {"task_id": {"value": "ghost-4"}}), {}),
    (Run.updates, ("ghost-4",), {}),
    (Run.call, ("SUPPRESS", {}), {}),
    (Run.call, ("REVIVE", {}), {}),
    (Run.subscribe, (), {}),
    (Run.call, ("REVIVE", {}), {"stream": 0}),
    (Run.call, ("KILL", {"task_id": {"value": "t-long"}}), {}),
    (Run.updates, ("t-long",), {}),
    (Run.call, ("TEARDOWN",), {}),
    (Run.call, ("REVIVE", {}), {}),
    (Run.subscribe, (), {}),
]


def transcript(port: int, info: Json) -> list[Json]:
    """What came of the whole table."""
    run = Run(port, info)
    try:
        for step, words, options in TABLE:
            step(run, *words, **options)
            if step is Run.subscribe and len(run.streams) == 1:
                event = run.next("OFFERS")
                run.agent_id = event["offers"]["offers"][0]["agent_id"]
                run.saw(event)
                ids = [offer["id"] for offer in event["offers"]["offers"]]
                run.call("DECLINE", {"offer_ids": ids, "filters": {"refuse_seconds": 0}})
                run.offers.clear()
        for stream, words in zip(run.streams, ENDS, strict=True):
            run.notes.append({"ends": stream.end(), "as": words})
    finally:
        run.close()
    return run.notes


def loss(port: int, info: Json, lose: Callable[[], None]) -> list[Json]:
    """What is said of an agent that is lost with a task and an offer; the order is left open."""
    run = Run(port, info)
    run.subscribe()
    try:
        run.next("OFFERS")
        run.agent_id = run.offers[0]["agent_id"]
        run.launch("lost", "sleep 1000")
        run.updates("lost", 2)
        if not run.offers:
            run.next("OFFERS")
        lose()
        found = {}
        while "FAILURE" not in found or "UPDATE" not in found:
            event = run.streams[-1].next()
            found[event["type"]] = plain(event)
        run.call("TEARDOWN")
        return [found[name] for name in ("RESCIND", "UPDATE", "FAILURE")]
    finally:
        run.close()


ENDS = ("failed over", "torn down", "removed")


# ---- refusals ----


class Bad(NamedTuple):
    """A request that is refused, or just not. `stream`: none, a strange one, or the right one."""

    name: str
    call: Any
    stream: str | None = "right"
    headers: Mapping[str, str | None] = {}


INFO = framework()
OTHER, THIRD = {"value": "a"}, {"value": "b"}
BODIES = (
    "ACCEPT DECLINE ACCEPT_INVERSE_OFFERS DECLINE_INVERSE_OFFERS KILL SHUTDOWN ACKNOWLEDGE "
    "ACKNOWLEDGE_OPERATION_STATUS RECONCILE RECONCILE_OPERATIONS MESSAGE REQUEST REVIVE SUPPRESS "
    "UPDATE_FRAMEWORK"
).split()


def _subscribe(info: Json, **more: Any) -> Json:
    return {"type": "SUBSCRIBE", "subscribe": {"framework_info": info}} | more


def _acknowledge(uuid: str) -> Json:
    body = {"agent_id": OTHER, "task_id": OTHER, "uuid": uuid}
    return {"type": "ACKNOWLEDGE", "framework_id": "ours", "acknowledge": body}


def _accept(**body: Any) -> Json:
    return {"type": "ACCEPT", "framework_id": "ours", "accept": body}


def refused_requests() -> Iterator[Bad]:
    """All of them; "ours" stands for the id of the framework that is subscribed."""
    yield Bad("no JSON", "{nope", None)
    yield Bad("an array", "[]", None)
    yield Bad("no type", {}, None)
    yield Bad("unknown type", {"type": "NOPE"}, None)
    yield Bad("no Content-Type", {}, None, {"Content-Type": None})
    yield Bad("strange Content-Type", {}, None, {"Content-Type": "text/plain"})
    yield Bad("strange Accept", _subscribe(INFO), None, {"Accept": "text/plain"})
    yield Bad("no subscribe", {"type": "SUBSCRIBE"}, None)
    yield Bad("no framework_info", {"type": "SUBSCRIBE", "subscribe": {}}, None)
    yield Bad("no name", _subscribe({"user": "root"}), None)
    yield Bad("no user", _subscribe({"name": "x"}), None)
    yield Bad("subscribe with a stream id", _subscribe(INFO), "strange")
    yield Bad("two ids", _subscribe(INFO | {"id": THIRD}, framework_id=OTHER), None)
    yield Bad("id above only", _subscribe(INFO, framework_id=OTHER), None)
    yield Bad("id in framework_info only", _subscribe(INFO | {"id": OTHER}), None)
    yield Bad("no framework_id", {"type": "DECLINE", "decline": {}})
    unknown = {"type": "DECLINE", "framework_id": OTHER, "decline": {}}
    yield Bad("unknown framework", unknown, None)
    yield Bad("unknown framework with a stream", unknown, "strange")
    for name in BODIES:
        yield Bad(f"{name} without its body", {"type": name, "framework_id": "ours"})
        empty = {"type": name, "framework_id": "ours", name.lower(): {}}
        yield Bad(f"{name} with nothing in it", empty)
    yield Bad("no uuid", _acknowledge("AAAA"))
    yield Bad("no base64", _acknowledge("%%%"))
    yield Bad("nobody's update", _acknowledge("yYByHhsPT9Wvf53TMOk3+g=="))
    yield Bad("no list", _accept(offer_ids="x"))
    yield Bad("bare operation", _accept(offer_ids=[], operations=[{}]))
    launch = {"type": "LAUNCH", "launch": {"task_infos": [{}]}}
    yield Bad("bare task", _accept(offer_ids=[], operations=[launch]))
    yield Bad("strange stream", {"type": "REVIVE", "framework_id": "ours"}, "strange")
    yield Bad("no stream", {"type": "REVIVE", "framework_id": "ours"}, None)


def refusals(port: int) -> dict[str, list[Any]]:
    """Code and body of each answer; the last two are asked once the stream is closed."""
    stream = Stream(port, _subscribe(INFO))
    ours = stream.next("SUBSCRIBED")["subscribed"]["framework_id"]
    found = {}
    for bad in refused_requests():
        call = bad.call
        if isinstance(call, dict) and call.get("framework_id") == "ours":
            call = call | {"framework_id": ours}
        streams = {None: None, "strange": "bogus", "right": stream.stream_id}
        answer = post(port, call, stream_id=streams[bad.stream], headers=bad.headers)
        found[bad.name] = [answer.code, answer.body.replace(ours["value"], "FRAMEWORK")]
    stream.close()
    revive = {"type": "REVIVE", "framework_id": ours}
    while True:  # it notices when it notices
        answer = post(port, revive, stream_id=stream.stream_id)
        if answer.code != 202:
            found["not subscribed"] = [answer.code, answer.body]
            return found


def lines(notes: list[Json]) -> str:
    """One note in each line, as it is recorded."""
    return "".join(json.dumps(note, sort_keys=True) + "\n" for note in notes)
