"""A placer that is told so proposes no host, says why, and goes on at once when it may."""

from __future__ import annotations

from peloton.placement.messages import GangPart, GangPlaced, GangWish, LaunchesStopped, Unplaced
from peloton.runtime.vocabulary import Bits
from tests.placement.hosts import SLICE, host, res
from tests.placement.test_kept_wishes import ONE, OTHER, Bench, kept, placed

STOPPED, GOES_ON = LaunchesStopped("launches are locked"), LaunchesStopped("")


def test_wishes_are_kept_with_the_reason_and_placed_once_it_goes_on() -> None:
    bench = Bench(host("a", res(4)))
    assert bench.receive(STOPPED) == []
    sends = bench.wish(0, 1)
    assert placed(sends) == [] and kept(sends) == [[0, 1]]
    (answer,) = [send.message for send in sends if isinstance(send.message, Unplaced)]
    assert answer.text == "launches are locked" and not answer.never
    assert placed(bench.report(host("b", res(4)))) == [], "nor when a host reports room"
    assert placed(bench.wish(0, 1)) == [], "nor when it is repeated"
    ((_, members, _),) = placed(bench.receive(GOES_ON))
    assert members == [0, 1]


def test_wishes_that_were_kept_before_wait_too() -> None:
    bench = Bench(host("a", res(0), capacity=res(4)))
    assert kept(bench.wish(0)) == [[0]]
    bench.receive(STOPPED)
    assert placed(bench.report(host("a", res(1), 2, capacity=res(4)))) == []
    assert placed(bench.receive(GOES_ON)) == [(SLICE, [0], ["a"])]


def test_who_does_not_fit_then_is_told_why_anew() -> None:
    bench = Bench(host("a", res(0), capacity=res(4)))
    bench.receive(STOPPED)
    bench.wish(0)
    (send,) = bench.receive(GOES_ON)
    assert isinstance(send.message, Unplaced) and send.message.text != "launches are locked"


def test_a_gang_waits_and_is_placed_once_it_goes_on() -> None:
    bench = Bench(host("a", res(4)))
    bench.receive(STOPPED)
    wish = GangWish(OTHER, 1, (GangPart(Bits.of(0, 1), ONE),))
    (send,) = bench.receive(wish)
    assert isinstance(send.message, Unplaced)
    found = bench.receive(GOES_ON)
    assert [type(one.message) for one in found] == [GangPlaced]
