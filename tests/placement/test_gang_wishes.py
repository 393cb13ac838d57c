"""Wishes of gangs: hosts for all members or for none, in any order of members, and never said."""

from __future__ import annotations

import random
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from peloton.actors.resources import UNIT, Resources
from peloton.placement.gang_wishes import GANG_TRIES_MAX
from peloton.placement.messages import (
    Declined,
    GangPart,
    GangPlaced,
    GangWish,
    HostDeltas,
    Label,
    Placed,
    Shape,
    Unplaced,
    Wish,
)
from peloton.placement.placer import EXPLAINED_MAX, Placer
from peloton.placement.waiting_wishes import KEPT_LOST_S
from peloton.runtime.vocabulary import Bits, Key, Message, Send

from .hosts import INVENTORY, SLICE, host, label, placer_of, res

ONE, TWO = Shape(res(1)), Shape(res(2))


def wish(*counts: tuple[Shape, int], number: int = 1) -> GangWish:
    """A gang of so many members of these shapes."""
    parts, start = [], 0
    for shape, count in counts:
        parts.append(GangPart(Bits.span(start, start + count), shape))
        start += count
    return GangWish(SLICE, number, tuple(parts))


def receive(placer: Placer, *messages: Message, now: float = 0.0) -> list[Message]:
    sends: list[Send] = placer.receive([(SLICE, message) for message in messages], now)
    return [send.message for send in sends if send.to == SLICE]


def hosts_of(found: Message) -> list[str]:
    assert isinstance(found, GangPlaced)
    return sorted(str(name)[5:] for part in found.parts for name in part.hosts)


def more(placer: Placer, *hosts: object, now: float = 1.0) -> list[Message]:
    delta = HostDeltas(INVENTORY, 1, tuple(hosts))  # type: ignore[arg-type]
    return receive(placer, delta, now=now)


def test_all_members_or_none_get_hosts() -> None:
    placer = placer_of([host("a", res(2), capacity=res(4)), host("b", res(1))])
    (none,) = receive(placer, wish((ONE, 4)))
    assert isinstance(none, Unplaced) and none.kept and not none.members - Bits.span(0, 4)
    assert "no hosts with room for all 4 of the gang at once" in none.text
    (found,) = receive(placer, Wish(SLICE, 2, Bits.of(7, 8, 9), ONE))
    assert isinstance(found, Placed) and len(found.hosts) == 3, "nothing is kept free for it"


def test_what_the_first_part_took_is_given_back() -> None:
    labelled = Shape(res(1), constraint=label("host", "is", "b"))
    placer = placer_of([host("a", res(4)), host("b", res(1), labels=(Label("is", "b"),))])
    (none,) = receive(placer, wish((TWO, 2), (labelled, 2)))
    assert isinstance(none, Unplaced)
    (found,) = receive(placer, Wish(SLICE, 2, Bits.of(7, 8), TWO))
    assert isinstance(found, Placed) and len(found.hosts) == 2


def test_one_that_is_kept_is_placed_once_there_is_room_for_all() -> None:
    placer = placer_of([host("a", res(1), capacity=res(4)), host("b", res(1), capacity=res(4))])
    receive(placer, wish((ONE, 4)))
    assert more(placer, host("a", res(2), capacity=res(4), position=2)) == []
    delta = HostDeltas(INVENTORY, 2, (host("b", res(2), capacity=res(4), position=2),))
    (found,) = receive(placer, delta, now=2.0)
    assert hosts_of(found) == ["a", "a", "b", "b"]
    assert not len(placer.gangs)


def test_what_is_not_wanted_or_not_repeated_is_forgotten() -> None:
    placer = placer_of([host("a", res(1))])
    receive(placer, wish((ONE, 2)))
    receive(placer, Declined(SLICE, Bits.span(0, 2)))
    assert len(placer.gangs) == 1
    receive(placer, Declined(SLICE, Bits.of(0)))
    assert not len(placer.gangs)
    receive(placer, wish((ONE, 2)), now=1.0)
    receive(placer, now=2.0 + KEPT_LOST_S)
    assert not len(placer.gangs)


def test_a_gang_that_all_hosts_could_not_hold_is_told_so() -> None:
    placer = placer_of([host("a", res(0), capacity=res(3)), host("b", res(0), capacity=res(2))])
    (kept,) = receive(placer, wish((TWO, 2)))
    assert isinstance(kept, Unplaced) and not kept.never
    (never,) = receive(placer, wish((TWO, 3), number=2))
    assert isinstance(never, Unplaced) and never.never
    assert "could hold 2 if they were empty: it can never fit" in never.text
    (both,) = receive(placer, wish((ONE, 2), (TWO, 2), number=3))
    assert (
        isinstance(both, Unplaced) and both.never and "all hosts of the cluster have 5" in both.text
    )
    (fits,) = more(placer, host("c", res(9)))
    assert len(hosts_of(fits)) == 4


def test_a_gang_whose_strategy_nobody_has_is_told_so() -> None:
    nobodys = Shape(res(1), strategy="nobodys")
    placer = placer_of([host("a", res(4))])
    (alone,) = receive(placer, Wish(SLICE, 1, Bits.of(9), nobodys))
    (gang,) = receive(placer, wish((nobodys, 2), number=2))
    assert isinstance(alone, Unplaced) and isinstance(gang, Unplaced)
    assert (gang.text, gang.never) == (alone.text, True)


def test_a_strategy_that_gives_a_host_one_at_a_time_does_not_part_a_gang() -> None:
    spread = Shape(res(1), strategy="spread")
    placer = placer_of([host("a", res(3)), host("b", res(3))])
    (found,) = receive(placer, wish((spread, 5)))
    assert hosts_of(found) in (["a", "a", "a", "b", "b"], ["a", "a", "b", "b", "b"])
    (none,) = receive(placer, wish((spread, 2), number=2))
    assert isinstance(none, Unplaced) and not none.never
    (last,) = receive(placer, Wish(SLICE, 3, Bits.of(9), ONE))
    assert isinstance(last, Placed), "what was found for a part is given back"


def test_where_a_run_did_not_start_is_used_last() -> None:
    avoid = (Key("host/a"), Key("host/gone"))
    placer = placer_of([host("a", res(9)), host("b", res(2)), host("c", res(2))])
    (others,) = receive(placer, replace(wish((ONE, 3)), avoid=avoid))
    assert hosts_of(others) == ["b", "b", "c"]
    (some,) = receive(placer, replace(wish((ONE, 3), number=2), avoid=avoid))
    assert hosts_of(some) == ["a", "a", "c"]


def test_slack_may_come_later() -> None:
    on_slack = Shape(Resources(slack=UNIT))
    (none,) = receive(placer_of([host("a", res(4))]), wish((on_slack, 2)))
    assert isinstance(none, Unplaced) and not none.never


def crowded(count: int) -> Placer:
    """So many gangs wait with a member for which all hosts have room, and no single one."""
    small = [host(f"s{number}", res(1)) for number in range(120)]
    placer = placer_of([host("a", res(0), capacity=res(100)), *small])
    for number in range(count):
        large = GangPart(Bits.of(0), Shape(res(50 + number / 100)))
        parts = (large, GangPart(Bits.of(1), ONE))
        placer.receive([(None, GangWish(Key(f"slice/{number}/0"), 1, parts))], 0.0)
    return placer


def rest_of(placer: Placer) -> list[Message]:
    """What it says in the calls that follow at once."""
    found: list[Message] = []
    calls = 0
    while placer.wake_at is not None and placer.wake_at <= 1.0:
        found += [send.message for send in placer.receive([], 1.0)]
        calls += 1
        assert calls < 100, "it ends"
    return found


def told_never(messages: Iterable[Message]) -> list[Unplaced]:
    return [each for each in messages if isinstance(each, Unplaced) and each.never]


def test_one_behind_many_is_tried_without_further_news() -> None:
    placer, marked = crowded(2 * GANG_TRIES_MAX), (Label("is", "b"),)
    more(placer, host("z", res(0), capacity=res(2), labels=marked))
    receive(placer, wish((Shape(res(1), constraint=label("host", "is", "b")), 2)))
    rest_of(placer)
    assert more(placer, host("z", res(2), labels=marked, position=2)) == []
    found = [each for each in rest_of(placer) if isinstance(each, GangPlaced)]
    assert [hosts_of(each) for each in found] == [["z", "z"]]


def test_a_full_cluster_costs_its_gangs_no_tries() -> None:
    placer = placer_of([host("a", res(0), capacity=res(100))])
    for number in range(2 * GANG_TRIES_MAX):
        parts = (GangPart(Bits.span(0, 9 + number), ONE), GangPart(Bits.of(999), TWO))
        placer.receive([(None, GangWish(Key(f"slice/{number}/0"), 1, parts))], 0.0)
    receive(placer, wish((ONE, 2)))
    rest_of(placer)
    (found,) = more(placer, host("a", res(2), capacity=res(100), position=2))
    assert hosts_of(found) == ["a", "a"]


def test_many_are_explained_anew_in_several_calls() -> None:
    count = 3 * EXPLAINED_MAX
    placer = crowded(count)
    rest_of(placer)
    smaller = HostDeltas(INVENTORY, 1, (host("a", res(0), capacity=res(9), position=2),))
    first = told_never(send.message for send in placer.receive([(INVENTORY, smaller)], 1.0))
    assert len(first) == EXPLAINED_MAX
    assert len(first + told_never(rest_of(placer))) == count


def test_all_are_explained_however_often_hosts_change() -> None:
    placer = crowded(3 * EXPLAINED_MAX)
    rest_of(placer)
    told: dict[Key, None] = {}
    for at in range(3):
        hosts = (host("a", res(0), capacity=res(9 + at), position=2 + at),)
        delta = HostDeltas(INVENTORY, 2 + at, hosts)
        sends = placer.receive([(INVENTORY, delta)], 1.0)
        told |= dict.fromkeys(each.to for each in sends if isinstance(each.message, Unplaced))
    assert len(told) == 3 * EXPLAINED_MAX


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=5),
    st.lists(st.sampled_from([1, 2, 3]), min_size=2, max_size=8),
    st.randoms(use_true_random=False),
)
def test_whether_it_fits_depends_on_no_order(
    free: list[int], needs: list[int], chance: random.Random
) -> None:
    def fits(order: list[int]) -> bool:
        placer = placer_of([host(str(n), res(room)) for n, room in enumerate(free)])
        by_shape: dict[int, Bits] = {}
        for member, need in enumerate(order):
            by_shape[need] = by_shape.get(need, Bits()) | Bits.of(member)
        parts = tuple(GangPart(members, Shape(res(need))) for need, members in by_shape.items())
        (answer,) = receive(placer, GangWish(SLICE, 1, parts))
        if isinstance(answer, GangPlaced):
            count = sum(len(part.members) for part in answer.parts)
            assert count == len(order) == sum(len(part.hosts) for part in answer.parts)
        return isinstance(answer, GangPlaced)

    other = [*needs]
    chance.shuffle(other)
    assert fits(needs) == fits(other)
