"""Pods of several containers: one run, of which each container is a task of Mesos."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.actors.host import messages as m
from peloton.actors.host.live.live_messages import RunsChanged
from peloton.actors.host.run_spec import Container, RunSpec
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task.messages import End
from peloton.backends.mesos.conversation import HEARSAY_WAIT_S
from peloton.backends.mesos.lists import LIST_WAIT_S
from peloton.backends.mesos.masters.calls import of_framework
from peloton.backends.mesos.runs.groups import executor_id, task_id
from peloton.backends.mesos.runs.keeper_tasks import CHOICE, KEEPER, KeeperProgram
from peloton.placement.messages import Label
from tests.backends.known_sets import known_sets
from tests.backends.mesos.bench import HOST, Talk, name, start
from tests.backends.mesos.words import Json, agent, offer, reconciled, status

RUN = name(0)
A, B = (task_id(RUN, at, of=2) for at in range(2))
EXECUTOR = {"executor_id": {"value": executor_id(RUN, of=2)}}
EXITED = "Command exited with status 3"


def pod(instance: int = 0, **spec: Any) -> m.StartRun:
    """A run of two containers."""
    containers = (Container("a", "sleep 1"), Container("b", "sleep 2"))
    need = Resources(UNIT, 128 * UNIT)
    return m.StartRun(name(instance), RunSpec(need, "", containers=containers, **spec))


def told(task: str, state: str, **more: Any) -> Json:
    """An update of the executor, as the agent passes it on."""
    return status(task, state, **{**EXECUTOR, **more})


def known(task: str, state: str, **more: Any) -> Json:
    """The master's answer for a task that it knows."""
    return reconciled(task, state, **{**EXECUTOR, **more})


def launched() -> Talk:
    talk = Talk.begun()
    talk.start(pod())
    talk.offer()
    return talk.clear()


def running() -> Talk:
    talk = launched()
    talk.update(told(A, "RUNNING", uuid="a1", timestamp=50.0))
    talk.update(told(B, "RUNNING", uuid="b1", timestamp=51.0))
    return talk.clear()


def listed(*known: str) -> m.ListRuns:
    return m.ListRuns(HOST, 1, 7.0, known_sets(*known))


# ---- launches ----


def test_it_goes_in_the_same_call_as_the_others() -> None:
    talk = Talk.begun()
    talk.offer()
    talk.start(start(1), pod(), pod(2))
    others = [executor_id(name(2), of=2), name(2), task_id(name(2), 1, of=2)]
    (accept,) = talk.called("ACCEPT")
    assert [one["type"] for one in accept["operations"]] == ["LAUNCH", *["LAUNCH_GROUP"] * 2]
    assert talk.launched() == [[name(1)]]
    assert talk.grouped() == [[executor_id(RUN, of=2), A, B], others]
    talk.start(pod())
    assert len(talk.called("ACCEPT")) == 1, "it is launched"


def test_alone_it_is_the_only_operation_and_the_executor_has_the_framework() -> None:
    talk = Talk.begun()
    talk.offer()
    talk.start(pod())
    (call,) = [one for one in talk.calls if one["type"] == "ACCEPT"]
    sent = of_framework(call, "f")
    (operation,) = sent["accept"]["operations"]
    assert sent["framework_id"] == {"value": "f"}
    assert operation["launch_group"]["executor"]["framework_id"] == {"value": "f"}
    assert {**sent["accept"], "operations": []} == {**call["accept"], "operations": []}
    assert of_framework({"type": "REVIVE"}, "f") == {
        "type": "REVIVE", "framework_id": {"value": "f"}
    }  # fmt: skip


def test_what_finds_no_offer_waits_for_one_as_a_whole() -> None:
    talk = Talk.begun()
    talk.offer(offer("O1", cpus=0.4))
    talk.start(pod())
    assert talk.kinds == ["REVIVE"]
    talk.clear().offer(offer("O2"))
    assert talk.grouped() == [[executor_id(RUN, of=2), A, B]]


def test_the_keeper_is_demanded_in_vain() -> None:
    talk = Talk(KeeperProgram("run"))
    talk.subscribe(agent())
    talk.offer()
    talk.start(pod(0, labels=(Label(CHOICE, KEEPER),)), pod(1))
    (end,) = talk.ends()
    assert end.run == RUN and "several containers" in end.outcome.message
    assert [one[1] for one in talk.grouped()] == [name(1)]


def test_a_launch_that_is_refused_fails_the_run() -> None:
    talk = launched()
    refusal = {"source": "SOURCE_MASTER", "reason": "REASON_TASK_GROUP_INVALID", "message": "no"}
    talk.update(*(status(task, "ERROR", **refusal) for task in (A, B)))
    (end,) = talk.ends()
    assert (end.run, end.outcome.end, end.outcome.message) == (RUN, End.FAILED, "container a: no")


def test_a_launch_that_is_a_repeat_ends_nothing() -> None:
    talk = launched()
    refusal = {"source": "SOURCE_MASTER", "reason": "REASON_TASK_GROUP_INVALID"}
    text = f"Task '{A}' is invalid: Task has duplicate ID: {A}"
    talk.update(*(status(task, "ERROR", message=text, **refusal) for task in (A, B)))
    assert talk.reports == [] and talk.asked() == [[A], [B]]


# ---- updates ----


def test_it_runs_when_all_do_and_starts_are_acknowledged_at_once() -> None:
    talk = launched()
    talk.update(told(A, "STARTING", uuid="a0"), told(B, "STARTING", uuid="b0"))
    talk.update(told(B, "RUNNING", uuid="b1", timestamp=51.0))
    assert talk.reports == []
    talk.update(told(A, "RUNNING", uuid="a1", timestamp=50.0))
    assert talk.told(m.RunsStarted) == [m.RunsStarted((RUN,), (51.0,))]
    assert talk.acknowledged() == [(A, "a0"), (B, "b0"), (B, "b1"), (A, "a1")]
    talk.clear().update(told(A, "RUNNING", uuid="a1", timestamp=50.0))
    talk.start(pod())
    assert talk.told(m.RunsStarted) == [m.RunsStarted((RUN,), (51.0,))], "to the order alone"


def test_a_short_container_does_not_hide_that_the_run_began() -> None:
    talk = launched()
    talk.update(told(B, "RUNNING", uuid="b1", timestamp=51.0))
    talk.update(told(A, "FINISHED", uuid="a2", timestamp=52.0))
    assert talk.told(m.RunsStarted) == [m.RunsStarted((RUN,), (51.0,))]
    assert talk.ends() == []


def test_it_ends_when_all_have_and_no_end_is_acknowledged_before_it_is_journaled() -> None:
    talk = running()
    talk.update(told(B, "FAILED", uuid="b2", message=EXITED, timestamp=60.0))
    assert talk.reports == [] and talk.calls == []
    text = "Command terminated with signal Terminated"
    talk.update(told(A, "KILLING", uuid="a2"))
    talk.clear().update(told(A, "KILLED", uuid="a3", message=text, timestamp=61.0))
    (end,) = talk.ends()
    assert (end.run, end.at, end.started_at) == (RUN, 61.0, 51.0)
    assert (end.outcome.end, end.outcome.exit_code) == (End.FAILED, 3)
    ends = [(one.name, one.exit_code, one.signal) for one in end.outcome.containers]
    assert ends == [("a", None, "SIGTERM"), ("b", 3, "")]
    assert talk.calls == []
    talk.order(m.ForgetRuns(HOST, (RUN,)))
    assert sorted(talk.acknowledged()) == [(A, "a3"), (B, "b2")]
    assert talk.it.agents.by_host[HOST].runs.runs == {}


def test_an_end_that_is_not_the_runs_survives_a_forget_that_came_too_early() -> None:
    talk = running()
    talk.update(told(A, "FINISHED", uuid="a2"))
    talk.order(m.ForgetRuns(HOST, (RUN,)))
    assert talk.calls == []
    talk.update(told(B, "FINISHED", uuid="b2"))
    (end,) = talk.ends()
    assert end.outcome.end is End.SUCCEEDED


def test_ends_that_are_delivered_again_are_reported_again_and_are_the_same() -> None:
    talk = running()
    updates = [told(A, "FINISHED", uuid="a2"), told(B, "FINISHED", uuid="b2")]
    talk.update(*updates)
    (end,) = talk.ends()
    talk.clear().update(told(A, "FAILED", uuid="a2"))
    assert talk.ends() == [end] and talk.calls == []


@pytest.mark.parametrize("state", ["LOST", "GONE", "DROPPED", "GONE_BY_OPERATOR"])
def test_with_one_that_is_lost_the_run_is_and_no_container_goes_on(state: str) -> None:
    talk = running()
    talk.update(status(B, state, source="SOURCE_MASTER"))
    (end,) = talk.ends()
    assert (end.outcome.end, end.outcome.system) == (End.LOST, True)
    assert talk.killed() == [(A, 0.0)]
    talk.clear().update(told(A, "KILLED", uuid="a2"))
    assert talk.ends() == [end]
    talk.order(m.ForgetRuns(HOST, (RUN,)))
    assert talk.acknowledged() == [(A, "a2")]


def test_out_of_reach_nothing_is_known() -> None:
    talk = running()
    talk.update(status(A, "UNREACHABLE"), status(B, "UNREACHABLE"))
    assert talk.reports == [] and talk.calls == []


def test_an_end_by_the_master_waits_for_the_executors_own() -> None:
    talk = running()
    talk.order(listed(RUN))
    talk.clear().update(known(A, "FAILED"), known(B, "FAILED"))
    talk.update(told(A, "FAILED", uuid="a2", message=EXITED, timestamp=60.0))
    assert talk.reports == []
    talk.update(told(B, "FAILED", uuid="b2", message=EXITED, timestamp=59.0))
    (end,) = talk.ends()
    assert [one.exit_code for one in end.outcome.containers] == [3, 3]
    assert talk.told(m.RunsListed)[0].ends == (end,)
    talk.clear().until(2 * HEARSAY_WAIT_S)
    assert talk.reports == []


def test_an_end_by_the_master_is_believed_after_a_while() -> None:
    talk = running()
    talk.order(listed(RUN))
    talk.update(known(A, "FINISHED"), told(B, "FINISHED", uuid="b2"))
    assert talk.reports == []
    talk.until(HEARSAY_WAIT_S)
    (end,) = talk.ends()
    assert end.outcome.end is End.SUCCEEDED and talk.told(m.RunsListed)[0].ends == (end,)


def test_the_check_of_a_container_is_that_of_the_run() -> None:
    talk = running()
    checked = "REASON_TASK_HEALTH_CHECK_STATUS_UPDATED"
    talk.update(told(B, "RUNNING", uuid="b2", reason=checked, healthy=True))
    talk.update(told(B, "RUNNING", uuid="b3", reason=checked, healthy=False, message="ill"))
    changes = [one for each in talk.told(RunsChanged) for one in each.runs]
    assert [(one.run, one.live.healthy) for one in changes] == [(RUN, True), (RUN, False)]


# ---- kills ----


def test_a_kill_is_one_of_each_container_that_goes_on() -> None:
    talk = running()
    talk.update(told(A, "FINISHED", uuid="a2"))
    talk.order(m.StopRuns(HOST, 1, (RUN,), 9.0))
    assert talk.killed() == [(B, 9.0)] and talk.ends() == []
    text = "Command terminated with signal Terminated"
    talk.update(told(B, "KILLED", uuid="b2", message=text))
    (end,) = talk.ends()
    assert (end.outcome.end, end.outcome.signal) == (End.KILLED, "SIGTERM")


def test_a_kill_that_overtakes_the_launch_is_repeated_once_they_run() -> None:
    talk = launched()
    talk.order(m.StopRuns(HOST, 1, (RUN,), 9.0))
    assert talk.killed() == [(A, 9.0), (B, 9.0)]
    talk.clear().update(told(B, "RUNNING", uuid="b1"), told(A, "RUNNING", uuid="a1"))
    assert talk.killed() == [(B, 9.0), (A, 9.0)]


def test_what_waits_is_killed_before_it_began() -> None:
    talk = Talk.begun()
    talk.start(pod())
    talk.clear().order(m.StopRuns(HOST, 1, (RUN,), 9.0))
    assert talk.asked() == [[A, B]] and talk.ends() == []
    talk.update(known(A, "UNKNOWN"), known(B, "UNKNOWN"))
    assert {end.outcome.end for end in talk.ends()} == {End.KILLED}


def test_what_goes_on_though_the_runs_end_was_reported_is_killed() -> None:
    talk = running()
    talk.update(status(B, "GONE", source="SOURCE_MASTER"))
    talk.clear().update(known(A, "RUNNING"))
    assert talk.killed() == [(A, 0.0)] and talk.reports == []


# ---- lists, and what a daemon finds that has just begun ----


def test_each_container_is_asked_for() -> None:
    talk = running()
    talk.order(listed(RUN))
    assert talk.asked() == [[A, B]]
    talk.update(known(B, "RUNNING", timestamp=70.0))
    assert talk.told(m.RunsListed) == []
    talk.update(known(A, "RUNNING", timestamp=70.0))
    assert talk.told(m.RunsListed) == [
        m.RunsListed((RUN,), (), 7.0, started=(51.0,), incarnation="S0")
    ]


def test_containers_that_have_ended_are_not_asked_for() -> None:
    talk = running()
    talk.update(told(A, "FINISHED", uuid="a2"))
    talk.clear().order(listed(RUN))
    assert talk.asked() == [[B]]


def taken_over() -> Talk:
    """The daemon has just begun, and its host has a run of which nothing else is known."""
    talk = Talk()
    talk.subscribe(agent())
    talk.order(m.PingBackend(HOST))
    talk.clear().order(listed(RUN))
    return talk


def test_by_the_answer_for_the_run_its_other_containers_are_known() -> None:
    talk = taken_over()
    assert talk.asked() == [[RUN]]
    talk.clear().update(known(A, "RUNNING", timestamp=70.0))
    assert talk.asked() == [[B]] and talk.reports == []
    talk.update(known(B, "RUNNING", timestamp=71.0))
    assert talk.told(m.RunsListed) == [
        m.RunsListed((RUN,), (), 7.0, started=(71.0,), incarnation="S0")
    ]
    talk.update(told(A, "FINISHED", uuid="a2"), told(B, "FAILED", uuid="b2", message=EXITED))
    (end,) = talk.ends()
    assert (end.outcome.end, end.outcome.exit_code, end.started_at) == (End.FAILED, 3, None)
    assert [one.name for one in end.outcome.containers] == ["", ""], "told in order"
    assert end.outcome.message == f"container 2: {EXITED}"


def test_by_another_container_they_are_as_well() -> None:
    talk = taken_over()
    talk.clear().update(told(B, "FINISHED", uuid="b2"))
    assert talk.asked() == [[A]] and talk.reports == [], "the other one may go on"
    talk.update(known(A, "RUNNING", timestamp=70.0))
    assert [one.running for one in talk.told(m.RunsListed)] == [(RUN,)]
    talk.update(told(A, "FINISHED", uuid="a2"))
    assert [end.outcome.end for end in talk.ends()] == [End.SUCCEEDED]
    talk.order(m.ForgetRuns(HOST, (RUN,)))
    assert sorted(talk.acknowledged()) == [(A, "a2"), (B, "b2")]


def test_a_run_that_is_gone_as_a_whole_is_lost() -> None:
    talk = taken_over()
    talk.update(reconciled(RUN, "GONE"))
    (listing,) = talk.told(m.RunsListed)
    assert [end.outcome.end for end in listing.ends] == [End.LOST]


def test_other_containers_of_which_nobody_knows_end_the_list_in_time() -> None:
    talk = taken_over()
    talk.update(known(A, "RUNNING", timestamp=70.0))
    talk.until(LIST_WAIT_S)
    assert talk.told(m.RunsListed) == [] and len(talk.told(m.BackendDown)) == 1


def test_an_orphan_is_killed_container_by_container() -> None:
    talk = Talk.begun()
    talk.update(known(B, "RUNNING", timestamp=70.0))
    assert talk.asked() == [[A]]
    talk.order(listed())
    talk.update(known(A, "RUNNING", timestamp=70.0), known(B, "RUNNING", timestamp=70.0))
    assert [one.running for one in talk.told(m.RunsListed)] == [(RUN,)]
    talk.clear().order(m.StopRuns(HOST, 1, (RUN,), 0.0))
    assert talk.killed() == [(A, 0.0), (B, 0.0)]


def test_an_order_that_is_repeated_to_another_daemon_launches_nothing() -> None:
    talk = taken_over()
    talk.update(known(A, "RUNNING", timestamp=70.0), known(B, "RUNNING", timestamp=71.0))
    talk.clear().offer()
    talk.start(pod())
    assert talk.grouped() == [] and talk.told(m.RunsStarted) == [m.RunsStarted((RUN,), (71.0,))]


def test_an_end_of_which_the_host_has_journaled_all_is_acknowledged_when_it_says_so() -> None:
    """The acknowledgement of one was lost, and Mesos delivers it again."""
    talk = Talk.begun()
    talk.update(told(B, "FINISHED", uuid="b2"))
    assert talk.asked() == [[A]] and talk.reports == []
    talk.update(reconciled(A, "GONE"))
    assert [end.run for end in talk.ends()] == [RUN]
    talk.order(m.ForgetRuns(HOST, (RUN,)))
    assert talk.acknowledged() == [(B, "b2")]


def test_what_waits_when_the_connection_is_lost_is_ordered_anew() -> None:
    talk = Talk.begun()
    talk.start(pod())
    talk.disconnect()
    talk.clear().subscribe(agent())
    talk.offer()
    assert talk.grouped() == []
    talk.start(pod())
    assert len(talk.grouped()) == 1


def test_an_end_is_acknowledged_at_the_agent_that_told_it_whatever_was_said_of_another() -> None:
    """Of two agents of one machine, of whose pods some ends were acknowledged before us: else it is
    told for ever."""
    talk = Talk.begun(agent("S0"), agent("S1"))
    talk.update(told(B, "KILLED", agent="S1", uuid="b2"))
    (question,) = talk.called("RECONCILE")
    assert question["tasks"] == [{"task_id": {"value": A}, "agent_id": {"value": "S1"}}]
    talk.update(reconciled(A, "GONE", "S0"))
    assert [end.run for end in talk.ends()] == [RUN]
    talk.order(m.ForgetRuns(HOST, (RUN,)))
    (call,) = talk.called("ACKNOWLEDGE")
    assert (call["agent_id"], call["uuid"]) == ({"value": "S1"}, "b2")
