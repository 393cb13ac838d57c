"""What an executor says and does about what it hears, in virtual time."""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any

import pytest

from peloton.backends.mesos.executor.talk import (
    EXECUTOR_LOST,
    KILL_GRACE_S,
    SHUTDOWN_GRACE_S,
    ExecutorConfig,
    ExecutorTalk,
)

Json = dict[str, Any]
IDLE_S, RECOVERY_S = 60.0, 900.0


def end(outcome: str = "SUCCEEDED", code: int | None = 0) -> Json:
    return {
        "outcome": outcome, "reason": "exited", "message": f"exit code {code}",
        "exit_code": code, "signal": None, "at": 9.0,
    }  # fmt: skip


def task(name: str, **more: Any) -> Json:
    data = base64.b64encode(json.dumps({"run": name, "value": "true"}).encode()).decode()
    return {"task_id": {"value": name}, "data": data, **more}


class Spoken:
    """The talk, and what came of it since it was asked last."""

    def __init__(self, *, recovers: bool = True) -> None:
        numbers = itertools.count(1)
        self.it = ExecutorTalk(
            ExecutorConfig("F", "E", recovers, RECOVERY_S, IDLE_S),
            lambda: next(numbers).to_bytes(16, "big"),
            now=0.0,
        )

    def connect(self, now: float = 0.0) -> Json:
        """The call that subscribes; then the agent takes us."""
        self.it.connected()
        (call,) = self.calls()
        assert (call["type"], call["framework_id"], call["executor_id"]) == (
            "SUBSCRIBE", {"value": "F"}, {"value": "E"}
        )  # fmt: skip
        self.hear("SUBSCRIBED", now)
        return dict(call["subscribe"])

    def hear(self, kind: str, now: float = 0.0, **what: Any) -> None:
        self.it.heard({"type": kind, kind.lower(): what}, now)

    def launch(self, *infos: Json) -> None:
        for info in infos:
            self.hear("LAUNCH", task=info)

    def acknowledge(self, update: Json, now: float = 0.0) -> None:
        status = update["status"]
        self.hear("ACKNOWLEDGED", now, task_id=status["task_id"], uuid=status["uuid"])

    def calls(self) -> list[Json]:
        found, self.it.calls = self.it.calls, []
        return found

    def updates(self) -> list[Json]:
        """What was said of runs, without other calls."""
        return [call["update"] for call in self.calls() if call["type"] == "UPDATE"]


def states(updates: list[Json]) -> list[tuple[str, str]]:
    return [(one["status"]["task_id"]["value"], one["status"]["state"]) for one in updates]


def test_a_run_from_its_launch_to_its_end() -> None:
    talk = Spoken()
    assert talk.connect() == {"unacknowledged_tasks": [], "unacknowledged_updates": []}
    talk.launch(task("a"))
    assert talk.it.launches == [{"run": "a", "value": "true"}]
    talk.it.started("a", 5.0)
    talk.it.ended("a", end("FAILED", 3), at=9.0)
    running, failed = talk.updates()
    assert running["status"] | {"uuid": ""} == {
        "task_id": {"value": "a"}, "executor_id": {"value": "E"}, "source": "SOURCE_EXECUTOR",
        "state": "TASK_RUNNING", "timestamp": 5.0, "uuid": "",
    }  # fmt: skip
    status = failed["status"]
    assert (status["state"], status["message"], status["timestamp"]) == (
        "TASK_FAILED", "exit code 3", 9.0
    )  # fmt: skip
    assert json.loads(base64.b64decode(status["data"])) == end("FAILED", 3)
    assert len(base64.b64decode(status["uuid"])) == 16
    talk.acknowledge(running)
    assert talk.it.forgotten == [] and not talk.it.has_told_all
    talk.acknowledge(failed)
    talk.acknowledge(failed)
    assert talk.it.forgotten == ["a"] and talk.it.has_told_all and talk.it.tasks == {}


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        ("SUCCEEDED", "TASK_FINISHED"),
        ("FAILED", "TASK_FAILED"),
        ("KILLED", "TASK_KILLED"),
        ("LOST", "TASK_DROPPED"),
    ],
)
def test_outcomes_are_states(outcome: str, state: str) -> None:
    talk = Spoken()
    talk.connect()
    talk.launch(task("a"))
    talk.it.ended("a", end(outcome), at=1.0)
    talk.it.started("a", 2.0)
    talk.it.ended("a", end(), at=3.0)
    assert states(talk.updates()) == [("a", state)], "after the end nothing is said"


def test_a_repeated_launch_starts_nothing_and_an_unreadable_one_is_refused_by_the_keeper() -> None:
    talk = Spoken()
    talk.connect()
    other = task("b")["data"]
    talk.launch(task("a"), task("a"), task("c", data="?"), task("d", data=other))
    talk.launch({"task_id": {"value": "e"}})
    assert talk.it.launches == [{"run": "a", "value": "true"}, *({"run": one} for one in "cde")]


def test_the_grace_of_a_kill_is_that_of_the_kill_of_the_task_or_the_usual() -> None:
    def policy(seconds: int) -> Json:
        return {"grace_period": {"nanoseconds": seconds * 10**9}}

    talk = Spoken()
    talk.connect()
    talk.launch(task("a", kill_policy=policy(7)), task("b"))
    talk.hear("KILL", task_id={"value": "a"}, kill_policy=policy(2))
    talk.hear("KILL", task_id={"value": "a"})
    talk.hear("KILL", task_id={"value": "b"})
    talk.hear("KILL", task_id={"value": "unknown"})
    assert talk.it.kills == [("a", 2.0), ("a", 7.0), ("b", KILL_GRACE_S)]
    talk.it.ended("b", end("KILLED"), at=1.0)
    talk.hear("KILL", task_id={"value": "b"})
    assert len(talk.it.kills) == 3


def test_what_is_open_goes_with_the_next_subscription() -> None:
    talk = Spoken()
    talk.connect()
    talk.launch(task("a"), task("b"), task("c"))
    for name in "ab":
        talk.it.started(name, 1.0)
    running = talk.updates()
    talk.acknowledge(running[0])
    talk.it.disconnected(10.0)
    talk.it.ended("a", end(), at=11.0)
    talk.it.started("c", 11.0)
    assert talk.calls() == [], "nobody would hear it"
    said = talk.connect(12.0)
    assert [one["task_id"]["value"] for one in said["unacknowledged_tasks"]] == ["b", "c"]
    assert states(said["unacknowledged_updates"]) == [
        ("a", "TASK_FINISHED"), ("b", "TASK_RUNNING"), ("c", "TASK_RUNNING")
    ]  # fmt: skip
    assert talk.calls() == []


def test_what_happens_between_the_call_and_its_answer_is_told_after_it() -> None:
    talk = Spoken()
    talk.connect()
    talk.launch(task("a"))
    talk.it.disconnected(1.0)
    talk.it.connected()
    talk.it.started("a", 1.0)
    talk.it.ended("a", end(), at=2.0)
    (call,) = talk.calls()
    assert call["subscribe"]["unacknowledged_updates"] == []
    talk.hear("SUBSCRIBED", 1.0)
    assert states(talk.updates()) == [("a", "TASK_RUNNING"), ("a", "TASK_FINISHED")]


def test_without_tasks_it_is_over_after_a_while() -> None:
    talk = Spoken()
    talk.connect()
    assert talk.it.wake_at == IDLE_S
    talk.launch(task("a"))
    assert talk.it.wake_at is None
    talk.it.ended("a", end(), at=100.0)
    talk.acknowledge(talk.updates()[0], 100.0)
    assert talk.it.wake_at == 100.0 + IDLE_S
    talk.it.due(100.0 + IDLE_S - 1)
    assert talk.it.over == ""
    talk.it.due(100.0 + IDLE_S)
    assert talk.it.over == "nothing to do" and talk.it.kills == [] and talk.it.wake_at is None


def test_it_is_not_idle_before_it_is_subscribed() -> None:
    talk = Spoken()
    assert talk.it.wake_at == RECOVERY_S
    talk.it.due(IDLE_S)
    talk.it.connected()
    talk.it.due(2 * IDLE_S)
    assert talk.it.over == ""
    talk.hear("SUBSCRIBED", 3 * IDLE_S)
    assert talk.it.wake_at == 4 * IDLE_S
    talk.launch(task("a"))
    talk.it.disconnected(3 * IDLE_S)
    talk.connect(3 * IDLE_S)
    assert talk.it.wake_at is None, "it has a task"


def test_an_agent_that_stays_away_ends_it_and_its_tasks_are_lost() -> None:
    talk = Spoken()
    talk.connect()
    talk.launch(task("a"))
    talk.it.disconnected(10.0)
    talk.it.disconnected(500.0)
    assert talk.it.wake_at == 10.0 + RECOVERY_S
    talk.it.due(10.0 + RECOVERY_S)
    assert talk.it.over and talk.it.kills == [("a", SHUTDOWN_GRACE_S)]


def test_where_the_framework_recovers_nothing_it_ends_with_the_agent() -> None:
    talk = Spoken(recovers=False)
    talk.connect()
    talk.launch(task("a"))
    talk.it.disconnected(10.0)
    assert talk.it.over and talk.it.kills == [("a", SHUTDOWN_GRACE_S)]


def test_what_ends_because_the_executor_does_is_lost_and_what_was_killed_is_killed() -> None:
    talk = Spoken()
    talk.connect()
    talk.launch(task("a"), task("b"), task("c"))
    talk.hear("KILL", task_id={"value": "a"})
    talk.hear("SHUTDOWN")
    assert {name for name, _ in talk.it.kills[1:]} == {"a", "b", "c"}
    for name, how in (("a", "KILLED"), ("b", "KILLED"), ("c", "FAILED")):
        talk.it.ended(name, end(how, None), at=1.0)
    said = talk.updates()
    assert states(said) == [("a", "TASK_KILLED"), ("b", "TASK_DROPPED"), ("c", "TASK_FAILED")]
    lost = json.loads(base64.b64decode(said[1]["status"]["data"]))
    assert (lost["outcome"], lost["reason"]) == ("LOST", EXECUTOR_LOST)
    assert not talk.it.has_told_all


def test_without_its_guardian_it_ends_at_once_and_says_nothing() -> None:
    talk = Spoken()
    talk.connect()
    talk.launch(task("a"))
    talk.it.started("a", 1.0)
    talk.it.guardian_gone()
    assert talk.it.kills == [("a", 0.0)] and talk.calls() == []
    talk.it.ended("a", end("KILLED", None), at=1.0)
    assert talk.calls() == [] and talk.it.has_told_all


def test_an_agent_that_does_not_know_it_ends_it_at_once() -> None:
    talk = Spoken()
    talk.connect()
    talk.launch(task("a"))
    talk.it.disconnected(1.0)
    talk.it.connected()
    talk.it.refused("400")
    assert talk.it.over.endswith("400") and talk.it.kills == [("a", 0.0)]


def test_an_error_of_the_agent_is_the_end() -> None:
    talk = Spoken()
    talk.connect()
    talk.hear("HEARTBEAT")
    talk.it.heard({}, 0.0)
    assert talk.it.over == ""
    talk.hear("ERROR", message="no such executor")
    talk.it.asked_to_end()
    assert talk.it.over == "no such executor"


@pytest.mark.parametrize("how", ["guardian_gone", "asked_to_end"])
def test_what_is_launched_at_an_executor_that_is_over_does_not_go_on(how: str) -> None:
    """The agent has not noticed yet; once it does, others run in its place."""
    talk = Spoken()
    talk.connect()
    getattr(talk.it, how)()
    talk.launch(task("a"))
    assert talk.it.kills == [("a", 0.0)] and len(talk.it.launches) == 1
    talk.it.ended("a", end("KILLED", None), at=1.0)
    told = [] if how == "guardian_gone" else [("a", "TASK_DROPPED")]
    assert states(talk.updates()) == told
