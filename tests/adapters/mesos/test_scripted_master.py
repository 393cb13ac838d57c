"""The scripted master of Mesos: that it does on demand what a real one will not.

That it else does what a real one does stands in tests/contracts.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.mesos_calls import Run, framework
from tests.servers.pymesos_client import Client
from tests.servers.scripted_http import PATH, Reply
from tests.servers.scripted_master import ScriptedMaster
from tests.servers.v1_client import Ended, Stream, post

DATA = Path(__file__).resolve().parents[2] / "data" / "mesos"


@pytest.fixture
def master() -> Iterator[ScriptedMaster]:
    with ScriptedMaster() as made:
        yield made


@pytest.fixture
def run(master: ScriptedMaster) -> Iterator[Run]:
    """A framework that has an offer."""
    made = Run(master.port, framework())
    made.subscribe()
    made.next("OFFERS")
    made.agent_id = made.offers[0]["agent_id"]
    yield made
    made.close()


def launch(run: Run, name: str, command: str = "sleep 1000") -> None:
    run.launch(name, command, offer=run.offers.pop()["id"]["value"])


def states(run: Run, count: int) -> list[str]:
    """The states in so many updates, none acknowledged."""
    return [run.next("UPDATE")["update"]["status"]["state"] for _ in range(count)]


# ---- the stream ----


def test_bad_json_is_a_record_like_any_other(master: ScriptedMaster, run: Run) -> None:
    master.send_record(b'{"type": "OFF')
    with pytest.raises(Ended, match="JSONDecodeError"):
        run.next("OFFERS")


def test_a_record_without_its_length(master: ScriptedMaster, run: Run) -> None:
    master.send_bytes(b"nonsense\n{}")
    with pytest.raises(Ended, match="ValueError"):
        run.next("OFFERS")


def test_a_stream_that_is_cut_in_a_record(master: ScriptedMaster, run: Run) -> None:
    master.cut_in_record()
    assert "IncompleteRead" in run.streams[-1].end() or "cut" in run.streams[-1].end()
    master.wait(lambda: True if master.subscriber is None else None)


def test_a_stream_that_is_dropped_is_followed_by_another(master: ScriptedMaster, run: Run) -> None:
    launch(run, "a")
    assert states(run, 1) == ["TASK_STARTING"]
    before = master.subscriber
    master.drop_stream()
    run.streams[-1].end()
    run.subscribe()
    assert master.wait_subscribed(but=before).stream_id == run.streams[-1].stream_id
    assert states(run, 1) == ["TASK_STARTING"]  # nobody had acknowledged it


def test_heartbeats_come_when_nothing_else_does() -> None:
    with ScriptedMaster(agents=0, heartbeat_s=0.01) as master:
        run = Run(master.port, framework())
        run.subscribe()
        assert [run.next("HEARTBEAT") for _ in range(3)] == [{"type": "HEARTBEAT"}] * 3
        run.close()


def test_a_framework_without_failover_ends_with_its_stream(master: ScriptedMaster) -> None:
    run = Run(master.port, framework() | {"failover_timeout": 0})
    run.subscribe()
    run.streams[-1].close()
    master.wait(lambda: True if master.subscriber is None else None)
    run.subscribe()
    assert run.notes[-1]["event"]["error"]["message"] == "Framework has been removed"


def test_what_was_recorded_is_sent_again() -> None:
    lines = (DATA / "first_task.jsonl").read_text().splitlines()
    recorded = [json.loads(line) for line in lines]
    with ScriptedMaster(recorded=recorded) as master:
        call = {"type": "SUBSCRIBE", "subscribe": {"framework_info": framework()}}
        stream = Stream(master.port, call)
        assert [stream.next() for _ in recorded] == recorded
        ours = recorded[0]["subscribed"]["framework_id"]
        revive = {"type": "REVIVE", "framework_id": ours}
        assert post(master.port, revive, stream_id=stream.stream_id).code == 202
        stream.close()


# ---- answers ----


def test_no_leader_and_another_leader(master: ScriptedMaster) -> None:
    call = {"type": "SUBSCRIBE", "subscribe": {"framework_info": framework()}}
    location = f"//127.0.0.1:1/master{PATH}"
    master.reply("SUBSCRIBE", Reply(503, "No leader elected"), Reply(307, location=location))
    assert post(master.port, call).code == 503
    answer = post(master.port, call)
    assert (answer.code, answer.headers["Location"]) == (307, location)
    stream = Stream(master.port, call)
    assert stream.next()["type"] == "SUBSCRIBED"
    stream.close()
    assert [got.code for got in master.calls] == [503, 307, 200]


def test_an_accept_that_is_never_answered(master: ScriptedMaster, run: Run) -> None:
    master.reply("ACCEPT", Reply(0))
    body = {"offer_ids": [run.offers[0]["id"]], "operations": []}
    call = {"type": "ACCEPT", "framework_id": run.framework_id, "accept": body}
    text = json.dumps(call).encode()
    with socket.create_connection(("127.0.0.1", master.port)) as sent:
        head = f"POST {PATH} HTTP/1.1\r\nContent-Type: application/json\r\n"
        head += f"Mesos-Stream-Id: {run.streams[-1].stream_id}\r\nContent-Length: {len(text)}\r\n"
        sent.sendall(head.encode() + b"\r\n" + text)
        assert master.wait_calls("ACCEPT")[0].call == call
        sent.settimeout(0.2)
        with pytest.raises(TimeoutError):
            sent.recv(1)
    assert run.call("REVIVE").code == 202  # others are answered meanwhile


def test_an_accept_that_is_accepted_and_lost(master: ScriptedMaster, run: Run) -> None:
    master.ignore("ACCEPT")
    launch(run, "a")
    run.reconcile(("a", False))
    assert states(run, 1) == ["TASK_LOST"]


def test_every_request_is_kept(master: ScriptedMaster, run: Run) -> None:
    post(master.port, "{nope")
    run.call("SUPPRESS")
    assert [(got.type, got.code) for got in master.calls] == [
        ("SUBSCRIBE", 200), ("", 400), ("SUPPRESS", 202),
    ]  # fmt: skip
    assert master.calls[-1].headers["mesos-stream-id"] == run.streams[-1].stream_id


# ---- updates ----


def test_updates_come_twice(master: ScriptedMaster, run: Run) -> None:
    master.double_updates()
    launch(run, "a")
    first, second = (run.next("UPDATE") for _ in range(2))
    assert first == second


def test_updates_come_late_and_the_wrong_way_round(master: ScriptedMaster, run: Run) -> None:
    master.hold_updates()
    for name in ("a", "b"):
        launch(run, name)
        if not run.offers:
            run.next("OFFERS")
    master.obey({"type": "RECONCILE"})
    assert len(master.release_updates(reverse=True)) == 4
    tasks = [run.next("UPDATE")["update"]["status"] for _ in range(4)]
    assert [status["task_id"]["value"] for status in tasks] == ["b", "a", "b", "a"]
    assert ["uuid" in status for status in tasks] == [False, False, True, True]


def test_what_is_not_acknowledged_is_all_that_comes(master: ScriptedMaster, run: Run) -> None:
    """Nor does the master speak of more than it has passed on, where it is asked."""
    launch(run, "a")
    assert states(run, 1) == ["TASK_STARTING"]
    master.exits("a", 3)
    run.reconcile(("a", False))
    assert states(run, 1) == ["TASK_STARTING"]


def test_an_agent_is_lost(master: ScriptedMaster, run: Run) -> None:
    launch(run, "a")
    states(run, 1)
    run.next("OFFERS")
    master.lose_agent("h1")
    assert run.next("RESCIND")["rescind"]["offer_id"] == run.offers[-1]["id"]
    status: Any = run.next("UPDATE")["update"]["status"]
    assert (status["state"], status["reason"]) == ("TASK_LOST", "REASON_AGENT_REMOVED")
    assert run.next("FAILURE")["failure"]["agent_id"] == run.agent_id


def test_two_thousand_agents_are_offered_at_once() -> None:
    with ScriptedMaster(agents=2000) as master:
        run = Run(master.port, framework())
        run.subscribe()
        run.next("OFFERS")
        assert len({offer["hostname"] for offer in run.offers}) == 2000
        run.close()


# ---- with pymesos as the client ----


@pytest.fixture
def client(master: ScriptedMaster) -> Iterator[Client]:
    made = Client(master.address, framework())
    yield made
    made.close()


def accept(client: Client, name: str) -> None:
    """Launch a task on the next offer."""
    offer = client.next("offers")[0]
    scalar = {"type": "SCALAR", "scalar": {"value": 0.1}}
    task = {
        "name": name, "task_id": {"value": name}, "agent_id": offer["agent_id"],
        "command": {"value": "true"}, "resources": [{"name": "cpus"} | scalar],
    }  # fmt: skip
    client.call("launchTasks", offer["id"], [task])


def test_pymesos_runs_a_task_to_its_end(client: Client) -> None:
    client.next("registered")
    accept(client, "a")
    states = []
    while not states or states[-1] != "TASK_FINISHED":
        status = client.next("update")
        states.append(status["state"])
        client.call("acknowledgeStatusUpdate", status)
    assert states == ["TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED"]


def test_pymesos_follows_a_redirect_and_subscribes_again(master: ScriptedMaster) -> None:
    with ScriptedMaster() as other:
        master.reply("SUBSCRIBE", Reply(307, location=f"//{other.address}/master{PATH}"))
        client = Client(master.address, framework())
        client.next("registered")
        before = other.wait_subscribed()
        other.drop_stream()
        client.next("disconnected")
        other.wait_subscribed(but=before)
        client.next("reregistered")
        client.close()


def test_pymesos_ends_by_an_event_that_is_no_json(master: ScriptedMaster, client: Client) -> None:
    """What a scheduler on it has to reckon with: the main thread hears of it when it wakes."""
    client.next("registered")
    master.send_record(b"{nope")
    client.next("disconnected")
    client.call("reviveOffers")
    assert "JSONDecodeError" in client.wait_end()
    assert [got for got in master.calls if got.type == "TEARDOWN"] == []


def test_pymesos_then_ends_all_tasks_unless_told_not_to(master: ScriptedMaster) -> None:
    client = Client(master.address, framework(), failover=False)
    client.next("registered")
    master.send_record(b"{nope")
    assert master.wait_calls("TEARDOWN")[0].code == 202
    client.close()


def test_pymesos_takes_half_an_event_for_none(master: ScriptedMaster, client: Client) -> None:
    client.next("registered")
    before = master.wait_subscribed()
    master.cut_in_record()
    client.next("disconnected")
    master.wait_subscribed(but=before)
    client.next("reregistered")


def test_pymesos_says_that_a_framework_was_removed(master: ScriptedMaster) -> None:
    master.removed.add("gone")
    client = Client(master.address, framework() | {"id": {"value": "gone"}})
    assert client.next("error") == "Framework has been removed"
    client.close()


def test_pymesos_raises_what_a_call_is_refused_with(master: ScriptedMaster, client: Client) -> None:
    client.next("registered")
    master.reply("REVIVE", Reply(400, "The stream ID 'x' included in this request didn't match"))
    client.call("reviveOffers")
    method, text = client.next("failed")
    assert method == "reviveOffers" and "Failed to send request 400" in text
