"""Kills that are lost, or not obeyed: they are given again until the end was heard."""

from __future__ import annotations

import json

import pytest

from peloton.actors.host import messages as m
from peloton.actors.host.run_spec import MesosWords
from peloton.backends.mesos.kills import AGAIN, OVERDUE_S
from peloton.backends.mesos.runs.task_info import OWN_EXECUTOR
from tests.backends.known_sets import known_sets
from tests.backends.mesos.bench import HOST, Talk, name, start
from tests.backends.mesos.words import agent, reconciled, status

GRACE_S = 20.0
OWN = MesosWords(executor=json.dumps({"data": ""}))


def stop(*instances: int, grace_s: float = GRACE_S) -> m.StopRuns:
    return m.StopRuns(HOST, 1, tuple(name(one) for one in instances), grace_s)


def shut_down(talk: Talk) -> list[str]:
    return [each["executor_id"]["value"] for each in talk.called("SHUTDOWN")]


def test_an_orphan_is_killed_again_until_its_end_is_heard() -> None:
    """Its host has ordered it once, and asks for nothing any more; the master has lost the kill."""
    talk = Talk.begun()
    talk.update(reconciled(name(8), "RUNNING"))
    talk.clear().order(stop(8))
    assert talk.killed() == [(name(8), GRACE_S)]
    talk.clear().until(GRACE_S + OVERDUE_S - 1)
    assert talk.calls == []
    talk.until(GRACE_S + OVERDUE_S)
    assert talk.killed() == [(name(8), GRACE_S)] and shut_down(talk) == []
    talk.update(status(name(8), "KILLED", uuid="e"))
    talk.clear().until(1000.0)
    assert talk.killed() == []


def test_what_goes_on_though_its_end_was_reported_is_killed_again() -> None:
    talk = Talk.begun().running(0)
    talk.update(status(name(0), "LOST", source="SOURCE_MASTER"))
    talk.until(10.0)
    assert talk.ends()
    talk.clear().update(reconciled(name(0), "RUNNING"))
    assert talk.killed() == [(name(0), 0.0)]
    talk.clear().until(talk.now + OVERDUE_S)
    assert talk.killed() == [(name(0), 0.0)]
    talk.clear().update(status(name(0), "KILLED", uuid="e"))
    talk.until(1000.0)
    assert talk.killed() == []


def test_the_pace_slows_down_and_stays_modest() -> None:
    talk = Talk.begun().running(0)
    talk.order(stop(0, grace_s=0.0))
    talk.clear().until(1700.0)
    assert 5 < len(talk.killed()) < 12
    talk.clear().until(1700.0 + 10 * AGAIN.most_s)
    assert len(talk.killed()) == 10


def test_a_second_order_does_not_put_off_the_next_kill_and_a_shorter_grace_hastens_it() -> None:
    talk = Talk.begun().running(0)
    talk.order(stop(0))
    talk.until(10.0)
    talk.order(stop(0))
    talk.clear().until(GRACE_S + OVERDUE_S)
    assert talk.killed() == [(name(0), GRACE_S)]
    talk.clear().order(stop(0, grace_s=0.0))
    talk.clear().until(talk.now + OVERDUE_S)
    assert talk.killed() == [(name(0), 0.0)]


def test_without_a_connection_nothing_is_killed_and_after_it_hosts_order_anew() -> None:
    talk = Talk.begun().running(0)
    talk.order(stop(0))
    talk.disconnect()
    talk.clear().until(200.0)
    assert talk.calls == []
    talk.subscribe(agent())
    talk.clear().until(400.0)
    assert talk.killed() == []


def test_an_executor_of_a_tasks_own_that_does_not_obey_is_shut_down() -> None:
    talk = Talk.begun()
    talk.start(start(0, mesos=OWN))
    talk.offer()
    talk.update(status(name(0), "RUNNING", uuid="u"))
    talk.order(stop(0))
    talk.clear().until(GRACE_S + OVERDUE_S - 1)
    assert shut_down(talk) == []
    talk.until(GRACE_S + OVERDUE_S)
    assert shut_down(talk) == [f"{OWN_EXECUTOR}{name(0)}"]
    (call,) = talk.called("SHUTDOWN")
    assert call["agent_id"] == {"value": "S0"}
    gone = {"source": "SOURCE_AGENT", "reason": "REASON_EXECUTOR_TERMINATED", "uuid": "e"}
    talk.update(status(name(0), "FAILED", **gone))
    assert [end.run for end in talk.ends()] == [name(0)]
    talk.clear().until(1000.0)
    assert talk.calls == talk.called("KILL") == []


def test_after_a_takeover_its_executor_is_known_by_what_the_master_says_of_it() -> None:
    talk = Talk.begun()
    own = {"executor_id": {"value": f"{OWN_EXECUTOR}{name(0)}"}}
    talk.update(reconciled(name(0), "RUNNING", **own), reconciled(name(1), "RUNNING"))
    talk.order(stop(0, 1))
    talk.clear().until(GRACE_S + OVERDUE_S)
    assert shut_down(talk) == [f"{OWN_EXECUTOR}{name(0)}"]
    assert sorted(task for task, _ in talk.killed()) == [name(0), name(1)]


@pytest.mark.parametrize("said", ["UNREACHABLE", "KILLING"])
def test_what_is_no_end_does_not_end_the_kills(said: str) -> None:
    talk = Talk.begun().running(0)
    talk.order(stop(0))
    talk.update(reconciled(name(0), said))
    talk.clear().until(GRACE_S + OVERDUE_S)
    assert [task for task, _ in talk.killed()] == [name(0)]


@pytest.mark.parametrize("of", ["TASK", "TASK_GROUP"])
def test_a_refused_repeat_of_its_launch_does_not_end_the_kills(of: str) -> None:
    talk = Talk.begun().running(0)
    talk.order(stop(0))
    more = {"reason": f"REASON_{of}_INVALID", "message": "Task has duplicate ID: it"}
    talk.update(status(name(0), "ERROR", source="SOURCE_MASTER", **more))
    talk.clear().until(GRACE_S + OVERDUE_S)
    assert talk.killed() == [(name(0), GRACE_S)]


def test_an_end_that_is_told_of_no_agent_that_we_know_ends_the_kills() -> None:
    talk = Talk.begun().running(0)
    talk.order(stop(0))
    talk.update(reconciled(name(0), "UNKNOWN", "S9"))
    talk.clear().until(1000.0)
    assert talk.calls == []


@pytest.mark.parametrize("beside", [False, True])
def test_at_an_agent_that_has_left_nothing_is_killed_until_the_host_orders_it_anew(
    beside: bool,
) -> None:
    talk = Talk.begun().running(0)
    others = [agent("S1")] if beside else []
    if beside:  # S1 becomes the host, and S0 comes back beside it
        talk.agents(agent(active=False), *others)
        talk.agents(agent(), *others)
        talk.update(reconciled(name(0), "RUNNING"))
    talk.order(stop(0))
    assert [each["agent_id"] for each in talk.called("KILL")] == [{"value": "S0"}]
    talk.clear().agents(*others)
    talk.until(1000.0)
    assert talk.killed() == []
    talk.agents(agent(), *others)
    assert talk.told(m.HostAppeared), "so the host compares"
    talk.clear().order(m.ListRuns(HOST, 1, 7.0, known_sets(name(0))))
    talk.update(reconciled(name(0), "RUNNING"))
    (listed,) = talk.told(m.RunsListed)
    assert listed.running == (name(0),)
    talk.order(stop(0))
    talk.clear().until(talk.now + GRACE_S + OVERDUE_S)
    assert talk.killed() == [(name(0), GRACE_S)]
