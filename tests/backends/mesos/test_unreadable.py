"""What the master says and we cannot read: it is skipped and named, and the rest goes on."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from peloton.actors.host import messages as m
from peloton.actors.resources import UNIT
from peloton.backends.mesos.conversation import HEARSAY_WAIT_S
from peloton.backends.mesos.master_list import master_list
from peloton.backends.mesos.masters.calls import CallFailed
from peloton.backends.mesos.offering import REFUSE_S
from peloton.backends.mesos.unreadable import FRESH_S
from peloton.runtime.vocabulary import Key
from tests.backends.mesos.bench import HOST, OTHER, Talk, name, start
from tests.backends.mesos.test_backend import Link
from tests.backends.mesos.words import Json, agent, offer, ports, reconciled, scalar, status

WORDS = "cluster east words"


def bad(agent_id: str, hostname: str = "h1", **more: Any) -> Json:
    """An agent with a resource that we do not know how to read."""
    return agent(
        agent_id, hostname, **{"total_resources": [scalar("cpus", 1.0) | {"scalar": 7}], **more}
    )


def attributed(attribute: Json) -> Json:
    return agent("S1", "h1", info={"attributes": [attribute]})


def without_id(agent_id: str) -> Json:
    listed = agent(agent_id, "h1")
    del listed["agent_info"]["id"]
    return listed


# ---- events ----


@pytest.mark.parametrize(
    "event",
    [
        {"type": "OFFERS"},
        {"type": "OFFERS", "offers": {"offers": [7]}},
        {"type": "RESCIND", "rescind": {}},
        {"type": "UPDATE", "update": {"status": {"agent_id": {"value": "S0"}}}},
        {"type": "UPDATE", "update": {"status": {"agent_id": "S0", "state": "TASK_RUNNING"}}},
        {"type": "UPDATE", "update": {"status": status("r", "RUNNING") | {"task_id": 7}}},
        {"type": "FAILURE"},
        {"type": "INVERSE_OFFERS", "inverse_offers": 7},
    ],
)
def test_an_event_that_cannot_be_read_is_skipped_and_named(
    event: Json, caplog: pytest.LogCaptureFixture
) -> None:
    link = Link()
    with caplog.at_level(logging.WARNING):
        link.it._heard(link.driver, event)
    text = dict(link.troubles)[WORDS]
    assert "which is skipped: " in text and text in caplog.text
    link.hear("OFFERS", offers=[offer("O1")])
    link.it._talk.ordered(m.StartRuns(HOST, 1, (start(0),)), link.now)
    calls, _ = link.it._talk.take()
    assert [each["type"] for each in calls][-1] == "ACCEPT", "the rest goes on"
    link.now += FRESH_S
    link.looks()
    assert link.troubles[-1] == (WORDS, "")


def test_what_is_skipped_is_not_acknowledged_and_the_next_one_is_taken_in() -> None:
    talk = Talk.begun()
    talk.update({**status(name(0), "RUNNING", uuid="u"), "task_id": {}})
    assert talk.calls == [] and talk.reports == [] and talk.it.unreadable.count == 1
    talk.update(status(name(0), "RUNNING", uuid="u", timestamp=3.0))
    assert talk.acknowledged() == [(name(0), "u")] and talk.told(m.RunsStarted)


def test_an_end_that_cannot_be_read_ends_nothing_later() -> None:
    talk = Talk.begun().running(0)
    talk.update(reconciled(name(0), "FAILED", message=7))
    talk.until(2 * HEARSAY_WAIT_S)
    assert talk.ends() == [] and talk.it.unreadable.count == 1


def test_an_update_that_was_kept_and_cannot_be_read_holds_up_no_list() -> None:
    talk = Talk.begun()
    for each in ({"healthy": []}, {"timestamp": "x", "message": 7}):
        talk.update({**status("r", "FAILED", "S1", uuid="u"), **each})
    talk.update(status(name(1), "RUNNING", "S1", uuid="v"))
    talk.clear().agents(agent("S0", "h0"), agent("S1", "h1"))
    assert talk.told(m.HostAppeared, OTHER) and talk.told(m.RunsStarted, OTHER)


def test_an_offer_that_cannot_be_read_is_declined_and_others_are_used() -> None:
    talk = Talk.begun()
    talk.start(start(0))
    bad_one = offer("O1", "S0", {"name": "ports", "type": "RANGES"})
    talk.clear().offer(bad_one, {"agent_id": {"value": "S0"}}, offer("O2"))
    (declined,) = talk.called("DECLINE")
    assert declined["offer_ids"] == [{"value": "O1"}]
    assert declined["filters"] == {"refuse_seconds": REFUSE_S}
    assert talk.launched() == [[name(0)]] and talk.it.unreadable.count == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"message": 5},
        {"message": "\ud800"},
        {"message": None},
        {"state": 5},
        {"source": 5},
        {"reason": 5},
        {"uuid": 5},
        {"data": 5},
        {"timestamp": "x"},
        {"timestamp": True},
        {"timestamp": float("nan")},
        {"timestamp": 10**30},
        {"healthy": 1},
        {"check_status": 7},
        {"check_status": {"command": {}}},
        {"check_status": {"type": 1}},
        {"check_status": {"type": "COMMAND", "command": 7}},
        {"check_status": {"type": "COMMAND", "command": {"exit_code": "0"}}},
        {"check_status": {"type": "COMMAND", "command": {"exit_code": True}}},
        {"check_status": {"type": "HTTP", "http": {"status_code": 200.5}}},
        {"check_status": {"type": "HTTP", "http": {"status_code": 2**70}}},
        {"task_id": {"value": 5}},
        {"agent_id": {"value": 5}},
        {"executor_id": {"value": 5}},
    ],
)
@pytest.mark.parametrize("state", ["RUNNING", "FINISHED"])
def test_an_update_with_a_word_of_another_type_changes_nothing(wrong: Json, state: str) -> None:
    talk = Talk.begun().running(0)
    talk.update({**status(name(0), state, uuid="e"), **wrong})
    assert talk.calls == talk.reports == [] and talk.it.unreadable.count == 1
    talk.update(status(name(0), "FINISHED", uuid="e", timestamp=9, healthy=None))
    assert [end.run for end in talk.ends()] == [name(0)]


# ---- lists ----


@pytest.mark.parametrize(
    "listed",
    [
        7,
        {},
        without_id("S1"),
        bad("S1"),
        attributed({"text": 7}),
        attributed({"name": "rack", "text": {"value": 5}}),
        attributed({"name": 5, "text": {"value": "a"}}),
        attributed({"name": "rack", "text": {"value": "\ud800"}}),
        attributed({"name": "rack", "scalar": {"value": True}}),
        agent("S1", 5),  # type: ignore[arg-type]
        agent("S1", "h1", pid=5),
        agent("S1", "h1", info={"id": {"value": 5}}),
        agent("S1", "h1", total_resources=[ports((31000.5, 32000))]),  # type: ignore[arg-type]
    ],
)
def test_an_agent_that_cannot_be_read_keeps_no_other_away(listed: Any) -> None:
    talk = Talk()
    talk.subscribe(listed, agent("S0", "h0"))
    assert talk.told(m.HostAppeared) and not talk.told(m.HostAppeared, OTHER)
    assert talk.it.unreadable.problem(talk.now)
    talk.agents(agent("S1", "h1"), agent("S0", "h0"))
    assert talk.told(m.HostAppeared, OTHER) and not talk.it.unreadable.problem(talk.now)


def test_an_agent_that_we_know_stays_as_it_was_while_it_cannot_be_read() -> None:
    talk = Talk.begun(agent("S0", "h0"), agent("S1", "h1"))
    talk.agents(agent("S0", "h0"), bad("S1"), agent("S2", "h1"))
    assert talk.reports == [] and talk.it.agents.by_host[OTHER].agent_id == "S1"
    assert talk.it.agents.by_host[OTHER].capacity.cpu == 4 * UNIT
    talk.agents(agent("S0", "h0"), bad("S1", total_resources=[scalar("cpus", 9.0)]))
    assert talk.told(m.HostAppeared, OTHER)[0].capacity.cpu == 9 * UNIT
    talk.clear().agents(agent("S0", "h0"))
    assert talk.told(m.BackendDown, OTHER), "and leaves as any other"


def test_an_agent_beside_the_host_stays_so_while_it_cannot_be_read() -> None:
    talk = Talk.begun(agent("S0", "h0"), agent("S1", "h0"))
    talk.agents(agent("S0", "h0"), bad("S1", "h0"))
    assert talk.reports == [], "nothing has left"
    talk.update(status(name(0), "RUNNING", "S1", uuid="u", timestamp=3.0))
    assert talk.told(m.RunsStarted) and talk.acknowledged() == [(name(0), "u")]
    talk.clear().agents(agent("S0", "h0"))
    assert talk.told(m.HostAppeared), "now it has, and the host compares"
    assert talk.it.agents.at("S1") is None


def test_agents_that_cannot_be_read_are_named_in_health_as_long_as_they_are_listed() -> None:
    link = Link(agent("S0", "h0"), bad("S1"), bad("S2"))
    text = dict(link.troubles)[WORDS]
    assert "agent S1: " in text and "and 1 more in the list" in text
    assert link.hosts == {Key("host/east.h0")}
    link.driver.agents = (agent("S0", "h0"),)
    link.now += 100.0
    link.looks()
    assert link.troubles[-1] == (WORDS, "")


@pytest.mark.parametrize(
    "executor", [7, {}, {"executor_info": {}}, {"executor_info": {"executor_id": 7}}]
)
def test_an_executor_that_cannot_be_read_is_left_out(executor: Any) -> None:
    def ask(question: Any) -> Any:
        what = question["type"].lower()
        found = [executor] if what == "get_executors" else [agent()]
        return {what: {what.removeprefix("get_"): found}}

    listed = master_list(ask, "f", executors=True)
    talk = Talk()
    talk.agents(*listed.agents, executors=listed.executors)
    assert talk.told(m.HostAppeared)


def test_a_list_that_is_none_ends_the_stream() -> None:
    with pytest.raises(CallFailed, match="GET_AGENTS"):
        master_list(lambda question: [], "f", executors=False)


def test_an_answer_that_cannot_be_read_does_not_end_the_thread_that_sends() -> None:
    link = Link()
    link.it._tell_uses = lambda driver: {}["x"]  # type: ignore[method-assign, index]
    link.it._ask(link.driver, looks=True)
    assert "an answer to an operator: KeyError" in dict(link.troubles)[WORDS]


def test_what_is_due_and_cannot_be_done_does_not_end_the_thread_that_sends() -> None:
    link, done = Link(), list[float]()
    link.it._talk._times.at(link.now, lambda now: {}["x"])  # type: ignore[index]
    link.it._talk._times.at(link.now, done.append)
    link.it._due()
    assert "what is due: KeyError" in dict(link.troubles)[WORDS]
    link.it._due()
    assert done == [link.now] and link.it._talk.unreadable.count == 1
