"""Trials of gangs: whether all of one would have hosts if some runs ended, and which of them."""

from __future__ import annotations

import pytest

from peloton.actors.resources import Resources
from peloton.placement.messages import (
    AskGangRoom,
    GangPart,
    GangRoomFound,
    HostSummary,
    Label,
    Shape,
)
from peloton.placement.placer import Placer
from peloton.runtime.vocabulary import Bits, Key, Send

from .hosts import SLICE, host, label, place, placer_of, res

ASKER = Key("respool/root")
ONE, THREE = Shape(res(1)), Shape(res(3))


def trial(placer: Placer, shape: Shape, members: int, **rooms: float) -> dict[str, Resources] | str:
    """What is lacking of which hosts, by name, or "no"."""
    part = GangPart(Bits.span(0, members), shape)
    hosts = tuple(Key(f"host/{name}") for name in rooms)
    ask = AskGangRoom(ASKER, 7, (part,), hosts, tuple(map(res, rooms.values())))
    (sent,) = placer.receive([(SLICE, ask)], 0.0)
    found = sent.message
    assert isinstance(found, GangRoomFound)
    assert sent == Send(ASKER, found) and found.number == 7
    lack = {name[5:]: room for name, room in zip(found.hosts, found.lack, strict=True)}
    assert found.fits or not lack
    return lack if found.fits else "no"


def hosts(**free: float) -> list[HostSummary]:
    return [host(name, res(cpu), capacity=res(4)) for name, cpu in free.items()]


@pytest.mark.parametrize(
    ("free", "shape", "members", "rooms", "expected"),
    [
        pytest.param({"a": 1, "b": 1}, ONE, 2, {"a": 3}, {}, id="what is free is enough"),
        pytest.param({"a": 1, "b": 0}, ONE, 3, {"b": 4}, {"b": res(2)}, id="only the rest"),
        pytest.param({"a": 1, "b": 1}, THREE, 2, {"a": 3}, "no", id="on one host of two"),
        pytest.param(
            {"a": 1, "b": 1}, THREE, 2, {"a": 3, "b": 2}, {"a": res(2), "b": res(2)}, id="together"
        ),
        pytest.param({"a": 2, "b": 2}, THREE, 1, {}, "no", id="free room is scattered"),
        pytest.param({"a": 0}, ONE, 1, {"gone": 4}, "no", id="a host that is not known"),
    ],
)
def test_what_a_gang_lacks_of_the_hosts_in_question(
    free: dict[str, float],
    shape: Shape,
    members: int,
    rooms: dict[str, float],
    expected: dict[str, Resources] | str,
) -> None:
    assert trial(placer_of(hosts(**free)), shape, members, **rooms) == expected


def test_small_members_make_way_where_large_ones_need_it() -> None:
    """The small one would take free room on a host of which the large one needs all."""
    placer = placer_of(hosts(a=1, b=1))
    parts = (GangPart(Bits.of(0), Shape(res(4))), GangPart(Bits.of(1), ONE))
    ask = AskGangRoom(ASKER, 7, parts, (Key("host/a"),), (res(3),))
    (sent,) = placer.receive([(SLICE, ask)], 0.0)
    assert sent.message == GangRoomFound(7, True, (Key("host/a"),), (res(3),))


def test_conditions_count() -> None:
    red = Shape(res(1), constraint=label("host", "is", "red"))
    placer = placer_of([*hosts(a=0), host("b", res(0), labels=(Label("is", "red"),))])
    assert trial(placer, red, 1, a=4) == "no"
    assert trial(placer, red, 1, a=4, b=1) == {"b": res(1)}


def test_a_host_that_takes_no_tasks_is_none() -> None:
    placer = placer_of([host("a", res(0), up=False), *hosts(b=0)])
    assert trial(placer, ONE, 1, a=4) == "no"


@pytest.mark.parametrize("members", [3, 9])
def test_nothing_is_counted_as_taken_or_as_free_afterwards(members: int) -> None:
    placer = placer_of(hosts(a=2, b=1))
    trial(placer, ONE, members, a=2, b=2)
    assert place(placer, ONE, 4)[0] == ["b", "a", "a"]
