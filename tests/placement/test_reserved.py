"""Hosts that are held for tasks are proposed to these alone."""

from __future__ import annotations

from msgspec.structs import replace

from peloton.placement.messages import (
    HostDeltas,
    HostSummary,
    Placed,
    ReservedRoom,
    Shape,
    Unplaced,
    Wish,
)
from peloton.placement.placer import Placer, PlacerSettings
from peloton.placement.reserved import RESERVED_AFTER_S
from peloton.runtime.vocabulary import Bits, Key, Send

from .hosts import INVENTORY, SLICE, host, placer_of, report, res

ONE = Shape(res(1))
CROWD = Key("task" + SLICE[len("slice") :])


def held(name: str, room: float, *members: int, crowd: Key = CROWD) -> HostSummary:
    """A host that has so much for these members, and nothing for others."""
    tasks = tuple((crowd, member) for member in members)
    empty = host(name, res(0), capacity=res(8))
    return replace(empty, reserved=ReservedRoom(res(room), 0, tasks), ports=0)


def wish(*members: int, shape: Shape = ONE, refused: tuple[HostSummary, ...] = ()) -> Wish:
    return Wish(SLICE, 1, Bits.of(*members), shape, refused)


def proposed(sends: list[Send]) -> dict[int, str]:
    """The host of each member."""
    return {
        member: name.partition("/")[2]
        for send in sends
        if isinstance(send.message, Placed)
        for member, name in zip(send.message.members, send.message.hosts, strict=True)
    }


def wished(placer: Placer, one: Wish, now: float = 1.0) -> dict[int, str]:
    return proposed(placer.receive([(SLICE, one)], now))


def test_a_task_gets_the_host_that_waits_for_it_and_others_do_not() -> None:
    placer = placer_of([host("free", res(1)), held("mine", 2, 3)])
    sends = placer.receive([(SLICE, wish(0, 3, 4))], 1.0)
    assert proposed(sends) == {0: "free", 3: "mine"}
    (left,) = (send.message for send in sends if isinstance(send.message, Unplaced))
    assert left.members == Bits.of(4)
    other = Wish(Key("slice/other/0"), 1, Bits.of(3), ONE)
    assert not proposed(placer.receive([(None, other)], 2.0))


def test_without_room_there_or_after_a_refusal_the_task_goes_elsewhere() -> None:
    mine = held("mine", 2, 3)
    placer = placer_of([host("free", res(9), ports=1), mine])
    assert wished(placer, wish(3, shape=Shape(res(3)))) == {3: "free"}
    assert wished(placer, wish(3, shape=Shape(res(1), ports=1))) == {3: "free"}
    assert wished(placer, wish(3, refused=(mine,))) == {3: "free"}
    assert wished(placer, wish(3)) == {3: "mine"}


def test_a_kept_wish_is_served_as_soon_as_the_host_reports() -> None:
    placer = placer_of([host("full", res(0))], PlacerSettings())
    assert not wished(placer, wish(3, 4))
    assert proposed(report(placer, [held("mine", 0.5, 3)], 2, now=2.0)) == {}
    more = replace(held("mine", 1, 3), position=9)
    assert proposed(report(placer, [more], 3, now=3.0)) == {3: "mine"}
    assert placer.kept.members(SLICE) == Bits.of(4)


def test_a_wish_that_is_repeated_is_served_once() -> None:
    placer = placer_of([host("full", res(0))], PlacerSettings())
    assert not wished(placer, wish(3, 4))
    sends = placer.receive(
        [(INVENTORY, HostDeltas(INVENTORY, 2, (held("mine", 1, 3),))), (SLICE, wish(3, 4))], 2.0
    )
    hosts = [name for send in sends if isinstance(send.message, Placed)
             for name in send.message.hosts]  # fmt: skip
    assert 1 <= len(hosts) <= 2 and {*hosts} == {"host/mine"}
    assert placer.kept.members(SLICE) == Bits.of(4)


def test_a_host_that_is_gone_waits_for_nobody() -> None:
    for deltas in (
        HostDeltas(INVENTORY, 2, (), gone=(Key("host/mine"),)),
        HostDeltas(INVENTORY, 2, (), snapshot=True),
        HostDeltas(INVENTORY, 2, (replace(host("mine", res(0)), position=9),)),
    ):
        placer = placer_of([held("mine", 2, 3)])
        placer.receive([(INVENTORY, deltas)], 1.0)
        assert not wished(placer, wish(3), 2.0)


def reserved(sends: list[Send]) -> list[tuple[tuple[int, str], ...]]:
    """The hosts that slices are to have held."""
    answers = [send.message for send in sends if isinstance(send.message, Unplaced)]
    return [tuple((one, name.partition("/")[2]) for one, name in each.reserve) for each in answers]


def asks(placer: Placer, one: Wish, now: float) -> list[tuple[tuple[int, str], ...]]:
    return reserved(placer.receive([(SLICE, one)], now))


WIDE = Shape(res(4))


def test_the_host_that_lacks_least_is_held_for_one_that_waited_long() -> None:
    hosts = [
        host(name, res(free), capacity=res(size))
        for name, free, size in (("a", 1, 8), ("b", 3, 8), ("c", 3.5, 3.5), ("d", 2, 8))
    ]
    placer = placer_of(hosts, PlacerSettings())
    assert asks(placer, wish(3, 4, shape=WIDE), 1.0) == [()]
    later = 1.0 + RESERVED_AFTER_S
    for now in (20.0, 40.0, later - 0.5):
        assert asks(placer, wish(3, 4, shape=WIDE), now) == [()]
    assert asks(placer, wish(3, 4, shape=WIDE), later) == [((3, "b"),)]
    report(placer, [replace(held("b", 3, 3), position=7)], 2, now=later)
    assert asks(placer, wish(3, 4, shape=WIDE), later + 10) == [((3, "b"),)], "it is repeated"
    sends = report(placer, [replace(held("b", 4, 3), position=8)], 3, now=later + 11)
    assert proposed(sends) == {3: "b"}


def test_few_hosts_are_held_at_a_time() -> None:
    placer = placer_of(
        [host("a", res(1), capacity=res(8)), host("b", res(1), capacity=res(8))], PlacerSettings()
    )
    other = Wish(Key("slice/k/0"), 1, Bits.of(5), WIDE)
    for now in (1.0, 30.0):
        placer.receive([(SLICE, wish(3, shape=WIDE)), (other.slice, other)], now)
    later, both = 1.0 + RESERVED_AFTER_S, [(SLICE, wish(3, shape=WIDE)), (other.slice, other)]
    assert reserved(placer.receive(both, later)) == [((3, "a"),), ()], "before the host reports"
    report(placer, [replace(held("a", 1, 3), position=7)], 2, now=later)
    assert reserved(placer.receive(both, later + 10)) == [((3, "a"),), ()]


def test_a_host_that_was_held_in_vain_gives_way_to_another() -> None:
    hosts = [host("a", res(2), capacity=res(8)), host("b", res(1), capacity=res(8))]
    placer = placer_of(hosts, PlacerSettings())
    found = [asks(placer, wish(3, shape=WIDE), 1.0 + 10 * step)[0] for step in range(75)]
    assert found[:6] == [()] * 6 and found[6:66] == [((3, "a"),)] * 60
    assert found[66:] == [()] + [((3, "b"),)] * 8


def test_no_host_is_held_for_what_none_could_run() -> None:
    placer = placer_of([host("a", res(1), capacity=res(3))], PlacerSettings())
    for now in (1.0, 30.0, 1.0 + RESERVED_AFTER_S):
        assert asks(placer, wish(3, shape=WIDE), now) == [()]
