"""A backend that exists once: orders go to the link of the owner, subscriptions are numbered."""

from __future__ import annotations

from typing import Any

import pytest

from peloton.actors.engine import messages as m
from peloton.actors.engine.decide import owed
from peloton.actors.engine.kind import KIND
from peloton.actors.engine.state import OutsideBackend
from peloton.actors.host.messages import PingBackend, StopRuns
from peloton.runtime.core.turning.turn import take_turn
from peloton.runtime.vocabulary import At, Key, Message, Send

WEST, LINK = Key("engine/west"), Key("link/west")
PING = PingBackend(Key("host/h"))


def turn(backend: OutsideBackend | None, message: Message, *, now: float = 1.0) -> Any:
    return take_turn(KIND, backend, message=message, at=At(now=now, key=WEST))


def opened() -> OutsideBackend:
    found: OutsideBackend = turn(None, m.OpenBackend()).state
    return found


def test_it_begins_to_exist_and_says_that_it_is_here() -> None:
    first = turn(None, m.OpenBackend())
    assert first.reply == m.BackendOpen() and first.state == OutsideBackend(LINK, at=1.0)
    again = turn(first.state, m.OpenBackend(), now=2.0)
    assert again.reply == m.BackendOpen() and again.state == first.state and not again.facts
    for one in (first, again):
        assert one.sends == (Send(LINK, m.BackendHere()),)


def test_each_subscription_has_a_number_that_is_journaled_before_it_begins() -> None:
    backend = opened()
    for number in (1, 2, 3):
        asked = turn(backend, m.AskSubscription(), now=float(number))
        assert asked.sends == (Send(LINK, m.Subscribe(number)),)
        assert asked.facts, "an owner that was overtaken cannot write this, so it sends nothing"
        backend = asked.state
        assert (backend.number, backend.at) == (number, float(number))


@pytest.mark.parametrize("order", [PING, StopRuns(Key("host/h"), 1, ("a-0-1",), 3.0)])
def test_orders_are_passed_on_and_journaled_nowhere(order: Message) -> None:
    passed = turn(opened(), order)
    assert passed.sends == (Send(LINK, order),) and not passed.facts


@pytest.mark.parametrize("message", [PING, m.AskSubscription()])
def test_one_that_was_never_opened_does_nothing(message: Message) -> None:
    nothing = turn(None, message)
    assert not nothing.facts and not nothing.sends and nothing.state is None


def test_that_its_owner_is_here_is_owed_for_ever() -> None:
    backend = turn(opened(), m.AskSubscription()).state
    assert owed(backend) == (Send(LINK, m.BackendHere()),)
