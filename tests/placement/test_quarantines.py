"""Hosts that are suspected: left out while they are few, and used last when they are many."""

from __future__ import annotations

import pytest

from peloton.placement.messages import HostSummary, Placed, Shape, Wish
from peloton.placement.placer import Placer, PlacerSettings
from peloton.runtime.vocabulary import Bits, Key
from tests.placement.hosts import SLICE, host, label, place, placer_of, report, res

ONE = Shape(res(1))


def hosts(count: int, *, bad: int, position: int = 1, cpu: float = 1) -> list[HostSummary]:
    """So many hosts, of which the first ones are suspected."""
    return [host(f"h{at:02}", res(cpu), position, quarantined=at < bad) for at in range(count)]


def test_few_are_left_out_and_counted() -> None:
    placer = placer_of(hosts(20, bad=2))
    names, reasons = place(placer, ONE, 20)
    assert len(names) == 18 and not {"h00", "h01"} & {*names}
    assert reasons["quarantined"] == 2


@pytest.mark.parametrize(("count", "bad"), [(20, 3), (9, 1), (1, 1), (5, 5)])
def test_more_than_a_tenth_are_used_last(count: int, bad: int) -> None:
    placer = placer_of(hosts(count, bad=bad))
    few, _ = place(placer, ONE, count - bad) if count > bad else ([], {})
    assert not {f"h{at:02}" for at in range(bad)} & {*few}
    rest, _ = place(placer, ONE, bad)
    assert rest == [f"h{at:02}" for at in range(bad)]


@pytest.mark.parametrize("strategy", ["pack", "spread"])
def test_they_come_last_for_every_strategy(strategy: str) -> None:
    placer = placer_of(hosts(4, bad=1, cpu=2))
    names, _ = place(placer, Shape(res(1), strategy=strategy), 3)
    assert "h00" not in names


def test_who_wants_that_very_host_waits_and_is_not_told_never() -> None:
    placer = placer_of(hosts(20, bad=1), PlacerSettings())
    shape = Shape(res(1), constraint=label("host", "hostname", "h00"))
    (sent,) = placer.receive([(SLICE, Wish(SLICE, 1, Bits.of(0), shape))], 0.0)
    found = sent.message
    assert dict(found.reasons)["quarantined"] == 1 and not found.never  # type: ignore[attr-defined]
    assert "1 of 20 hosts is quarantined after failures of several jobs" in found.text  # type: ignore[attr-defined]


def waiting(count: int, *, bad: int) -> Placer:
    """A placer that keeps a wish which only the suspected hosts could fulfil."""
    placer = placer_of(hosts(count, bad=bad), PlacerSettings())
    place(placer, ONE, count - bad)
    wish = Wish(Key("slice/w/0"), 1, Bits.of(0), ONE)
    (sent,) = placer.receive([(wish.slice, wish)], 0.0)
    assert not isinstance(sent.message, Placed)
    return placer


def proposed(placer: Placer, changed: list[HostSummary]) -> list[str]:
    sends = report(placer, changed, 2)
    found = [send.message for send in sends if isinstance(send.message, Placed)]
    return [name for each in found for name in each.hosts]


def test_a_kept_wish_gets_a_host_whose_quarantine_is_over() -> None:
    placer = waiting(20, bad=2)
    assert proposed(placer, [host("h01", res(1), 2)]) == ["host/h01"]


def test_a_kept_wish_gets_one_when_they_have_become_too_many() -> None:
    placer = waiting(20, bad=2)
    assert proposed(placer, [host("h19", res(0), 2, up=False, capacity=res(1))]) != []


def test_a_host_that_is_dropped_in_quarantine_leaves_nothing() -> None:
    placer = placer_of(hosts(20, bad=2))
    report(placer, hosts(20, bad=0, position=2)[2:], 2, snapshot=True)
    report(placer, [host("n1", res(1)), host("n2", res(1))], 3)
    names, _ = place(placer, ONE, 20)
    assert len(names) == 20
