"""The offers that are held, and for how long."""

from __future__ import annotations

from peloton.backends.mesos.offer_book import HOLD_S, OfferBook
from tests.backends.mesos.words import offer


def names(book: OfferBook, agent: str) -> list[str]:
    return [each["id"]["value"] for each in book.of(agent)]


def book(*offers: tuple[str, str, float]) -> OfferBook:
    made = OfferBook()
    for name, agent, now in offers:
        made.add(offer(name, agent), now)
    return made


def test_offers_are_held_by_agent() -> None:
    made = book(("O1", "S0", 0.0), ("O2", "S1", 0.0), ("O3", "S0", 0.5))
    assert (names(made, "S0"), names(made, "S1"), names(made, "S2")) == (["O1", "O3"], ["O2"], [])


def test_all_of_an_agent_are_used_at_once() -> None:
    made = book(("O1", "S0", 0.0), ("O2", "S1", 0.0), ("O3", "S0", 0.5))
    assert made.use("S0") == ["O1", "O3"]
    assert made.of("S0") == [] and names(made, "S1") == ["O2"]
    assert made.use("S0") == []


def test_what_is_rescinded_is_gone_and_a_second_time_nothing_happens() -> None:
    made = book(("O1", "S0", 0.0), ("O2", "S0", 0.0))
    made.rescinded("O1")
    made.rescinded("O1")
    made.rescinded("never heard of")
    assert names(made, "S0") == ["O2"]


def test_the_oldest_are_due_first_and_once() -> None:
    made = book(("O1", "S0", 0.0), ("O2", "S1", 0.0), ("O3", "S0", 0.5))
    assert made.wake_at == HOLD_S
    assert [*made.due(HOLD_S - 0.01)] == []
    assert [*made.due(HOLD_S)] == ["O1", "O2"] and names(made, "S0") == ["O3"]
    assert made.wake_at == 0.5 + HOLD_S
    assert [*made.due(100.0)] == ["O3"] and made.wake_at is None


def test_what_was_used_is_not_due() -> None:
    made = book(("O1", "S0", 0.0), ("O2", "S1", 0.0))
    made.use("S0")
    assert [*made.due(HOLD_S)] == ["O2"]


def test_an_offer_that_is_repeated_is_held_once() -> None:
    made = book(("O1", "S0", 0.0), ("O1", "S0", 0.5))
    assert names(made, "S0") == ["O1"] and made.wake_at == 0.5 + HOLD_S


def test_nothing_is_held_of_a_subscription_before() -> None:
    made = book(("O1", "S0", 0.0))
    made.clear()
    assert made.of("S0") == [] and made.wake_at is None and [*made.due(9.0)] == []
