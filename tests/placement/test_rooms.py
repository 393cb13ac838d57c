"""What hosts have free, as a slice is told that has to choose whose runs make room."""

from __future__ import annotations

from peloton.actors.resources import Resources
from peloton.placement.messages import AskRoom, HostSummary, RoomFound, Shape
from peloton.runtime.vocabulary import Key, Send
from tests.placement.hosts import SLICE, host, place, placer_of, res

LOT = Key("lot/j/0/0")


def found(hosts: list[HostSummary], *asked: str, taken: int = 0) -> tuple[Resources | None, ...]:
    placer = placer_of(hosts)
    if taken:
        place(placer, Shape(res(1)), taken)
    ask = AskRoom(SLICE, LOT, 7, tuple(Key(f"host/{name}") for name in asked))
    (sent,) = placer.receive([(SLICE, ask)], 0.0)
    answer = sent.message
    assert isinstance(answer, RoomFound)
    assert sent == Send(SLICE, RoomFound(LOT, 7, ask.hosts, answer.free))
    return answer.free


def test_every_kind_is_told_less_what_is_proposed() -> None:
    hosts = [host("a", Resources(*range(4_000_000, 9_000_000, 1_000_000)))]
    assert found(hosts, "a", taken=2) == (
        Resources(2_000_000, *range(5_000_000, 9_000_000, 1_000_000)),
    )


def test_hosts_that_take_no_tasks_have_none() -> None:
    """Not known, down, or left out as suspected: what ends there makes room for nobody."""
    good = [host(f"g{at:02}", res(1)) for at in range(19)]
    down, bad = host("down", res(1), up=False), host("bad", res(1), quarantined=True)
    assert found([*good, down, bad], "g00", "down", "bad", "other") == (res(1), None, None, None)
