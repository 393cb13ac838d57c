"""What a link does about events, without a master: what it asks, what it tells, what that costs."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.actors.engine.messages import BackendOpen, OpenBackend
from peloton.actors.host import messages as m
from peloton.backends.mesos import backend
from peloton.backends.mesos.backend import MesosBackend
from peloton.backends.mesos.framework import Framework
from peloton.backends.mesos.master_list import PAUSE_S
from peloton.backends.mesos.masters.calls import CallFailed
from peloton.backends.mesos.runs.keeper_tasks import FAILED_STARTS_MAX, START_AGAIN_S, KeeperProgram
from peloton.runtime.vocabulary import Key
from tests.actors.pools.test_pool_costs import counted
from tests.backends.mesos.bench import start
from tests.backends.mesos.words import Json, agent, offer, status

HOST = Key("host/east.h0")
PROGRAM = KeeperProgram("exec keeper")
LISTS = ["GET_AGENTS", "GET_EXECUTORS"]
EXECUTORS = "cluster east executors"


class Asked:
    """In place of a driver: a master that lists agents, and is asked no more than that."""

    connected = True
    enough = 100

    def __init__(self, *agents: Json) -> None:
        self.agents = agents
        self.questions: list[str] = []

    def ask(self, question: Json) -> Json:
        self.questions.append(question["type"])
        if len(self.questions) > self.enough:
            raise CallFailed("enough")
        return {"get_agents": {"agents": [*self.agents]}, "get_executors": {"executors": []}}

    def call(self, call: Json) -> None:
        pass


class Link:
    """A link whose threads never begin; events are given to it."""

    def __init__(self, *agents: Json) -> None:
        self.now = 100.0
        self.driver: Any = Asked(*(agents or (agent("S0", "h0"),)))
        framework = Framework("east", "127.0.0.1:1", "f", keeper=PROGRAM)
        self.it = MesosBackend(framework, clock=lambda: self.now)
        self.told: list[Any] = []
        self.troubles: list[tuple[str, str]] = []
        self.it._tell = self.told.extend
        self.it._trouble = lambda component, text: self.troubles.append((component, text))
        self.it._ask_times.again(self.now)
        self.hear("SUBSCRIBED", framework_id={"value": "f"})

    def hear(self, kind: str, **what: Any) -> None:
        self.it._heard(self.driver, {"type": kind, kind.lower(): what})

    @property
    def hosts(self) -> set[Key]:
        """Those that there are."""
        return {*self.it._talk.agents.by_host}

    def next_look(self) -> float:
        """When the thread that sends will ask for agents."""
        return self.it._ask_times.next_at

    def looks(self) -> None:
        """It does."""
        assert self.it._ask_times.is_due(self.now)
        self.it._look(self.driver)

    def failed_start(self, number: int) -> None:
        """A task brings the executor, which ends before it says anything."""
        self.it._talk.ordered(m.StartRuns(HOST, 1, (start(number),)), self.now)
        self.hear("OFFERS", offers=[offer(f"O{number}")])
        keeper = self.it._talk.agents.by_host[HOST].keeper
        assert keeper is not None and keeper.executor_id
        ids = {"agent_id": {"value": "S0"}, "executor_id": {"value": keeper.executor_id}}
        self.hear("FAILURE", **ids, status=256)


def test_an_order_to_the_actor_that_nobody_answers_is_given_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backend, "OPEN_WAIT_S", 0.01)
    link, given = Link(), []

    def tell(envelopes: Any) -> None:
        given.extend(envelopes)
        if len(given) == 2:  # the first one is lost, with the shard that had it
            given[1].reply_to.set_result(BackendOpen())

    link.it._tell = tell
    link.it._open()
    assert [type(each.message) for each in given] == [OpenBackend, OpenBackend]


def test_where_executors_do_not_start_is_told_once() -> None:
    link = Link()
    for number in range(FAILED_STARTS_MAX):
        assert EXECUTORS not in dict(link.troubles)
        link.failed_start(number)
    link.hear("FAILURE", agent_id={"value": "S0"}, executor_id={"value": "another"})
    (text,) = [text for component, text in link.troubles if component == EXECUTORS]
    assert "does not start on east.h0:" in text


def test_that_they_may_be_tried_again_is_told_with_the_next_list() -> None:
    link = Link()
    for number in range(FAILED_STARTS_MAX):
        link.failed_start(number)
    assert dict(link.troubles)[EXECUTORS]
    link.now += START_AGAIN_S
    link.looks()
    assert link.troubles[-1] == (EXECUTORS, "")


@pytest.mark.parametrize("why", [backend.OVERTAKEN, backend.REMOVED, "no connection"])
def test_without_a_subscription_nothing_is_said_of_executors(why: str) -> None:
    link = Link()
    for number in range(FAILED_STARTS_MAX):
        link.failed_start(number)
    text = dict(link.troubles)[EXECUTORS]
    link.it._say(why)
    assert text and dict(link.troubles)[EXECUTORS] == ""
    link.hear("SUBSCRIBED", framework_id={"value": "f"})
    assert link.troubles[-1] == (EXECUTORS, text), "it is true again"


def test_the_end_of_an_executor_is_no_reason_to_ask_for_agents() -> None:
    link = Link()
    link.now += 100.0
    before = link.next_look()
    link.hear("FAILURE", agent_id={"value": "S0"}, executor_id={"value": "another"}, status=0)
    assert link.driver.questions == LISTS and link.next_look() == before


def test_agents_that_leave_together_are_one_list_after_a_pause() -> None:
    link = Link(agent("S0", "h0"), agent("S1", "h1"))
    for name in ("S0", "S1"):
        link.now += 0.1
        link.hear("FAILURE", agent_id={"value": name})
    assert link.driver.questions == LISTS, "that of the subscription was just now"
    assert link.next_look() == 100.0 + PAUSE_S
    link.now += 10 * PAUSE_S
    link.looks()
    assert link.driver.questions == LISTS * 2
    link.hear("FAILURE", agent_id={"value": "S0"})
    assert link.next_look() == link.now + PAUSE_S, "the list may be older than that"


def test_an_agent_that_comes_right_after_a_list_is_in_one_after_the_pause() -> None:
    link = Link()
    link.now += 0.1
    link.driver.agents = (agent("S0", "h0"), agent("S1", "h1"))
    link.hear("OFFERS", offers=[offer("O1", "S0")])
    assert link.next_look() > link.now + PAUSE_S
    link.hear("OFFERS", offers=[offer("O2", "S1")])
    assert link.driver.questions == LISTS and link.next_look() == 100.0 + PAUSE_S
    link.now += 2 * PAUSE_S
    link.hear("OFFERS", offers=[offer("O3", "S1")])
    assert link.driver.questions == LISTS * 2 and Key("host/east.h1") in link.hosts


def test_an_agent_beside_the_host_is_no_reason_to_ask_for_agents() -> None:
    link = Link(agent("S0", "h0"), agent("S1", "h0"))
    link.now += 2 * PAUSE_S
    link.hear("OFFERS", offers=[offer("O1", "S1")])
    link.hear("UPDATE", status=status("r", "RUNNING", "S1", uuid="u"))
    assert link.driver.questions == LISTS


def test_a_list_that_took_longer_than_the_next_one_changes_nothing() -> None:
    link = Link()
    older = link.it._agents(link.driver)
    link.driver.agents = (agent("S0", "h0"), agent("S1", "h1"))
    link.it._look(link.driver)
    link.it._talk.told_agents(older, link.now)
    assert Key("host/east.h1") in link.hosts


def test_whoever_sends_is_woken_for_agents_that_left() -> None:
    link = Link()
    link.now += PAUSE_S
    link.it._sleeps_until = link.now + 5.0
    link.hear("FAILURE", agent_id={"value": "S0"})
    link.it._todo.put(backend._Ended(link.driver, "nobody was woken"))
    link.driver.enough = len(LISTS)
    assert link.it._serve(link.driver) == "enough"
    assert link.driver.questions == [*LISTS, "GET_AGENTS"]


@pytest.mark.parametrize("kind", ["UPDATE", "FAILURE", "HEARTBEAT"])
def test_an_event_costs_the_same_however_many_agents_there_are(kind: str) -> None:
    whats: dict[str, Json] = {
        "UPDATE": {"status": status("r", "RUNNING", uuid="u")},
        "FAILURE": {"agent_id": {"value": "S0"}, "executor_id": {"value": "another"}},
    }

    def cost(count: int) -> int:
        link = Link(*(agent(f"S{number}", f"h{number}") for number in range(count)))
        with counted() as steps:
            link.hear(kind, **whats.get(kind, {}))
        return steps.count

    small, large = cost(10), cost(300)
    assert large <= 1.1 * small + 5, (small, large)
