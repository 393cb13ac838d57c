"""The work of one order does not grow with the number of agents: instructions, not time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from peloton.actors.host import messages as m
from peloton.backends.mesos.offering import OFFER_WAIT_S
from peloton.runtime.vocabulary import Key
from tests.actors.pools.test_pool_costs import counted
from tests.backends.known_sets import known_sets
from tests.backends.mesos.bench import HOST, Talk, name, start
from tests.backends.mesos.words import agent, offer, reconciled, status

SMALL, LARGE = 10, 300


def crowded(count: int) -> Talk:
    """So many agents, each with a run that runs, one that waits for an offer, and a late list."""
    talk = Talk.begun(*(agent(f"S{number}", f"h{number}") for number in range(count)))
    for number in range(count):
        host = Key(f"host/east.h{number}")
        talk.start(start(number), host=host)
        talk.offer(offer(f"O{number}", f"S{number}", cpus=1.0))
        talk.update(status(name(number), "RUNNING", f"S{number}", uuid="u"))
        talk.start(start(number + count), host=host)
        talk.order(m.ListRuns(host, 1, sets=known_sets(name(number))))
    for number in range(1, count):
        talk.offer(offer(f"held{number}", f"S{number}", cpus=0.5))
    return talk.clear()


def _launch(talk: Talk) -> None:
    talk.start(start(90_000))
    talk.offer(offer("new"))
    talk.update(status(name(90_000), "RUNNING", uuid="v"))


def _end(talk: Talk) -> None:
    talk.update(status(name(0), "FINISHED", uuid="e"))
    talk.order(m.ForgetRuns(HOST, (name(0),)))


def _wait(talk: Talk) -> None:
    talk.start(start(90_001, cpus=3.0))
    assert talk.it.wake_at is not None
    talk.it.due(talk.now)


def _list(talk: Talk) -> None:
    talk.order(m.ListRuns(HOST, 1, sets=known_sets(name(0))))
    talk.update(reconciled(name(0), "RUNNING"))


def _nothing(_: object) -> None:
    pass


ACTS: dict[str, Callable[[Talk], None]] = {
    "a launch": _launch,
    "an end": _end,
    "one that waits": _wait,
    "a list": _list,
    "a stop": lambda talk: talk.order(m.StopRuns(HOST, 1, (name(0),), 1.0)),
    "a ping": lambda talk: talk.order(m.PingBackend(HOST)),
    "when to wake": lambda talk: _nothing(talk.it.wake_at),
}


def cost_of(act: Callable[[Talk], None], count: int) -> int:
    talk = crowded(count)
    with counted() as steps:
        act(talk)
    return steps.count


@pytest.mark.parametrize("name_", ACTS)
def test_an_order_costs_the_same_however_many_agents_there_are(name_: str) -> None:
    small, large = (cost_of(ACTS[name_], count) for count in (SMALL, LARGE))
    assert large <= 1.1 * small + 5, (small, large)


def test_what_is_due_of_one_costs_nothing_for_the_others() -> None:
    def cost(count: int) -> int:
        talk = crowded(count)
        talk.until(OFFER_WAIT_S + 100.0)
        talk.start(start(90_002))
        talk.clear().now += OFFER_WAIT_S
        with counted() as steps:
            talk.it.due(talk.now)
        talk._take()
        assert len(talk.ends()) == 1
        return steps.count

    assert cost(LARGE) <= 1.1 * cost(SMALL) + 5


def test_a_walk_of_all_agents_is_found() -> None:
    def walk(talk: Talk) -> None:
        for each in talk.it.agents.by_host.values():
            each.listing = None

    small, large = cost_of(walk, SMALL), cost_of(walk, LARGE)
    assert large > 10 * small
