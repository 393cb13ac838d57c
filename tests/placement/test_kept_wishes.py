"""Wishes without a host: kept by the placer, and proposed when a host reports room.

Their answers are made by hand.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from peloton.actors.resources import UNIT, Resources
from peloton.placement import placer as placer_module
from peloton.placement.messages import (
    Declined,
    HostDeltas,
    HostSummary,
    Label,
    Placed,
    Shape,
    Unplaced,
    Wish,
)
from peloton.placement.placer import Placer, PlacerSettings
from peloton.placement.shapes import SHAPES_MAX
from peloton.runtime.vocabulary import Bits, Key, Message, Send
from tests.placement.hosts import INVENTORY, SLICE, host, label, res

ONE, TWO = Shape(res(1)), Shape(res(2))
OTHER = Key("slice/k/0")


class Bench:
    """One placer and the hosts that it knows."""

    def __init__(self, *hosts: HostSummary, inventories: int = 1, kept_max: int = 100) -> None:
        names = [Key(f"inventory/{number}") for number in range(inventories)]
        self.placer = Placer(Key("placer/0"), PlacerSettings(kept_max=kept_max), inventories=names)
        self.sequence = 0
        self.numbers = 0
        self.now = 0.0
        self.report(*hosts, snapshot=True)

    def receive(self, *messages: Message) -> list[Send]:
        return self.placer.receive([(None, message) for message in messages], self.now)

    def report(self, *hosts: HostSummary, snapshot: bool = False) -> list[Send]:
        self.sequence += 1
        return self.receive(HostDeltas(INVENTORY, self.sequence, hosts, snapshot))

    def wish(
        self,
        *members: int,
        shape: Shape = ONE,
        slice_: Key = SLICE,
        priority: int = 0,
        refused: tuple[HostSummary, ...] = (),
    ) -> list[Send]:
        self.numbers += 1
        number, some = self.numbers, Bits.of(*members)
        return self.receive(Wish(slice_, number, some, shape, refused, priority))


def placed(sends: Sequence[Send]) -> list[tuple[str, list[int], list[str]]]:
    """(slice, members, hosts) of the proposals."""
    return [
        (send.to, [*answer.members], [name.removeprefix("host/") for name in answer.hosts])
        for send in sends
        if isinstance(answer := send.message, Placed)
    ]


def kept(sends: Sequence[Send]) -> list[list[int]]:
    answers = [send.message for send in sends if isinstance(send.message, Unplaced)]
    return [[*answer.members] for answer in answers if answer.kept]


def test_room_is_proposed_when_it_is_reported_and_to_nobody_twice() -> None:
    bench = Bench(host("a", res(0), capacity=res(4)))
    assert kept(bench.wish(1, 2, 3)) == [[1, 2, 3]]
    assert placed(bench.report(host("a", res(2), 2, capacity=res(4)))) == [
        (SLICE, [1, 2], ["a", "a"])
    ]
    assert placed(bench.report(host("a", res(2), 3, capacity=res(4)))) == [], "still in flight"
    landed = host("a", res(1), 4, capacity=res(4), launches=2)
    bench.report(host("a", res(0), 3, capacity=res(4), launches=0))
    assert placed(bench.report(landed)) == [(SLICE, [3], ["a"])]
    assert not len(bench.placer.kept)


def test_what_was_placed_at_once_is_not_kept() -> None:
    bench = Bench(host("a", res(1), capacity=res(1)))
    sends = bench.wish(1, 2)
    assert placed(sends) == [(SLICE, [1], ["a"])] and kept(sends) == [[2]]
    assert len(bench.placer.kept) == 1


def test_the_higher_priority_comes_first_and_then_who_came_first() -> None:
    bench = Bench(host("a", res(0), capacity=res(4)))
    bench.wish(1, slice_=Key("slice/low/0"))
    bench.wish(1, slice_=Key("slice/late/0"), priority=5)
    bench.wish(1, slice_=Key("slice/later/0"), priority=5)
    order = [
        placed(bench.report(host("a", res(1), position, capacity=res(4), launches=position)))[0][0]
        for position in (2, 3, 4)
    ]
    assert order == ["slice/late/0", "slice/later/0", "slice/low/0"]


def test_a_new_wish_does_not_overtake_one_that_is_kept() -> None:
    bench = Bench(host("a", res(0), capacity=res(4)))
    bench.wish(1)
    room = HostDeltas(INVENTORY, 2, (host("a", res(1), 2, capacity=res(4)),))
    sends = bench.receive(Wish(OTHER, 9, Bits.of(7), ONE), room)
    assert placed(sends) == [(SLICE, [1], ["a"])] and kept(sends) == [[7]]


def test_the_small_are_placed_where_the_large_do_not_fit() -> None:
    bench = Bench(host("a", res(0), capacity=res(4)))
    bench.wish(1, shape=TWO, priority=9)
    bench.wish(1, slice_=OTHER)
    assert placed(bench.report(host("a", res(1), 2, capacity=res(4)))) == [(OTHER, [1], ["a"])]


def order_of(bench: Bench, count: int) -> list[str]:
    """Whose members are proposed as one slot after the other becomes free."""
    found = []
    for position in range(100, 100 + 2 * count, 2):
        room = host("a", res(1), position, capacity=res(4), launches=position)
        found += [to for to, _, _ in placed(bench.report(room))]
        bench.report(host("a", res(0), position + 1, capacity=res(4), launches=position + 1))
    return found


def test_of_two_shapes_the_one_that_came_first_is_first_whichever_was_met_first() -> None:
    bench = Bench(host("a", res(4), capacity=res(4)))
    small = Shape(res(0.5))
    bench.wish(1, shape=small, slice_=Key("slice/gone/0"))  # met first, and placed
    bench.report(host("a", res(0), 2, capacity=res(4), launches=1))
    bench.wish(1, shape=ONE, slice_=Key("slice/first/0"))
    bench.wish(*range(8), shape=small, slice_=Key("slice/second/0"))
    assert order_of(bench, 2)[0] == "slice/first/0"


def test_a_repeated_wish_keeps_its_turn() -> None:
    bench = Bench(host("a", res(0), capacity=res(4)))
    bench.wish(1, slice_=Key("slice/first/0"))
    bench.wish(1, slice_=Key("slice/second/0"))
    assert kept(bench.wish(1, slice_=Key("slice/first/0"))) == [[1]], "and is told so again"
    assert order_of(bench, 2) == ["slice/first/0", "slice/second/0"]


def test_members_that_are_wished_for_one_by_one_are_one_wish() -> None:
    bench = Bench(host("a", res(0), capacity=res(4)), kept_max=3)
    for member in range(20):
        assert kept(bench.wish(member)) == [[member]]
    assert len(bench.placer.kept) == 1
    assert kept(bench.wish(50, slice_=OTHER)) == [[50]]


def test_a_wish_that_is_not_repeated_is_dropped() -> None:
    bench = Bench(host("a", res(0), capacity=res(4)))
    bench.wish(1)
    bench.wish(1, slice_=OTHER)
    for bench.now in (10.0, 20.0, 30.0, 40.0):
        bench.wish(1, slice_=OTHER)
    assert len(bench.placer.kept) == 1, "its slice was stopped, deleted, or has another placer"
    assert order_of(bench, 1) == [OTHER]
    bench.now = 100.0
    bench.receive()
    assert not len(bench.placer.kept)


def test_a_repeat_finds_room_whose_report_was_overlooked() -> None:
    bench = Bench(host("a", res(0), capacity=res(4)))
    bench.wish(1)
    bench.placer.index.free[0, :] = UNIT
    assert placed(bench.wish(1)) == [(SLICE, [1], ["a"])]


def test_a_decline_finds_its_shape_though_the_placer_had_forgotten_it() -> None:
    bench = Bench(host("a", res(4), capacity=res(4)))
    labelled = [Shape(res(0), labels=(Label("n", str(n)),)) for n in range(SHAPES_MAX + 1)]
    (old,) = bench.wish(1, shape=ONE)
    for number, shape in enumerate(labelled):
        bench.wish(number, shape=shape, slice_=OTHER)
    (again,) = bench.wish(2, shape=ONE)
    assert isinstance(again.message, Placed) and isinstance(old.message, Placed)
    assert again.message.shape != old.message.shape
    bench.receive(Declined(SLICE, Bits(), again.message.hosts, again.message.shape))
    assert bench.placer.index.free[0].max() == 3 * UNIT


def test_the_last_of_very_many_kinds_gets_its_turn_though_there_is_always_news() -> None:
    """Groups that fit nowhere for a label's sake stand before it, more than one call tries."""
    bench = Bench(host("a", res(0), capacity=res(8)), kept_max=10_000)
    count = placer_module.TRIES_MAX * (placer_module.FREED_MAX + 4)
    for number in range(count):
        needs = Shape(Resources(UNIT + number), constraint=label("host", "rack", "1"))
        bench.wish(1, shape=needs, slice_=Key(f"slice/{number}/0"))
    bench.wish(1, shape=Shape(Resources(2 * UNIT)))
    for call in range(10 * count // placer_module.TRIES_MAX):
        amount = 4 + (call % 2)
        if placed(bench.report(host("a", res(amount), call + 2, capacity=res(8)))):
            return
    raise AssertionError("it was never tried")


def test_a_wish_that_is_repeated_is_kept_once() -> None:
    bench = Bench(host("a", res(0), capacity=res(4)))
    bench.wish(1, 2)
    bench.wish(2, 3)
    found = placed(bench.report(host("a", res(4), 2, capacity=res(4))))
    assert sorted(member for _, members, _ in found for member in members) == [1, 2, 3]


def test_members_that_are_not_wanted_are_not_proposed_again_and_free_what_they_took() -> None:
    bench = Bench(host("a", res(0), capacity=res(4)))
    bench.wish(1, 2, 3)
    bench.wish(9, slice_=OTHER)
    (send, *_) = bench.report(host("a", res(1), 2, capacity=res(4)))
    assert isinstance(send.message, Placed) and send.to == SLICE
    unused = Declined(SLICE, Bits.of(3), send.message.hosts, send.message.shape)
    assert placed(bench.receive(unused)) == [(SLICE, [3], ["a"])], "at once, and 2 is gone"
    (again,) = placed(bench.report(host("a", res(1), 3, capacity=res(4), launches=1)))
    assert again == (OTHER, [9], ["a"])


def test_proposals_of_another_shape_are_not_freed_by_a_decline() -> None:
    bench = Bench(host("a", res(3), capacity=res(4)))
    (two,) = bench.wish(1, shape=TWO)
    (one,) = bench.wish(1, slice_=OTHER)
    assert isinstance(one.message, Placed) and isinstance(two.message, Placed)
    bench.receive(Declined(OTHER, Bits(), one.message.hosts * 2, one.message.shape))
    assert bench.placer.index.free[0].max() == UNIT, "of what TWO took nothing"
    bench.receive(Declined(OTHER, Bits(), (Key("host/gone"),), one.message.shape))
    bench.receive(Declined(OTHER, Bits(), one.message.hosts, 999))


def test_a_host_that_refused_is_tried_again_when_it_reports_more_and_not_before() -> None:
    full = host("a", res(1), 2, capacity=res(4))
    bench = Bench(host("a", res(1), capacity=res(4)), host("b", res(0), capacity=res(4)))
    assert kept(bench.wish(1, refused=(full,))) == [[1]], "for a reason that no summary shows"
    assert placed(bench.report(host("b", res(0.5), 2, capacity=res(4)))) == []
    less = host("a", res(1), 3, capacity=res(4), launches=1)
    assert placed(bench.report(less)) == [], "another refusal there is no news"
    more = host("a", res(2), 4, capacity=res(4), launches=1)
    assert placed(bench.report(more)) == [(SLICE, [1], ["a"])]


def test_a_new_host_that_is_large_enough_is_told_to_whom_none_was() -> None:
    bench = Bench(host("a", res(1), capacity=res(1)))
    (answer,) = [send.message for send in bench.wish(1, shape=TWO)]
    assert isinstance(answer, Unplaced) and answer.never and answer.kept
    (again,) = [
        send.message
        for send in bench.report(host("b", res(0), capacity=res(8)))
        if isinstance(send.message, Unplaced)
    ]
    assert not again.never and [*again.members] == [1], "it may run once b has room"
    assert placed(bench.report(host("b", res(2), 2, capacity=res(8)))) == [(SLICE, [1], ["b"])]


def test_all_are_explained_anew_however_often_hosts_change() -> None:
    bench, count = Bench(host("a", res(0), capacity=res(999))), 3 * placer_module.EXPLAINED_MAX
    for number in range(count):
        bench.wish(0, shape=Shape(res(50 + number)), slice_=Key(f"slice/{number}/0"))
    told: dict[Key, None] = {}
    for at in range(3):
        sends = bench.report(host("a", res(0), capacity=res(9 + at), position=2 + at))
        told |= dict.fromkeys(each.to for each in sends if isinstance(each.message, Unplaced))
    assert len(told) == count


def test_slack_that_comes_and_goes_is_no_other_host() -> None:
    bench = Bench(host("a", res(0), capacity=res(4)))
    bench.wish(0)
    before = bench.placer.index.layout
    more = res(4) + Resources(slack=UNIT)
    bench.report(host("a", Resources(slack=UNIT), capacity=more, position=2))
    assert bench.placer.index.layout == before
    assert bench.placer.index.capacity[:, 0].tolist() == [*more.amounts()]


def test_a_placer_that_has_not_met_all_hosts_says_never_of_none() -> None:
    bench = Bench(host("a", res(1), capacity=res(1)), inventories=2)
    (answer,) = [s.message for s in bench.wish(1, shape=TWO) if isinstance(s.message, Unplaced)]
    assert not answer.never
    rest = HostDeltas(Key("inventory/1"), 1, (), snapshot=True)
    (sure,) = [s.message for s in bench.receive(rest) if isinstance(s.message, Unplaced)]
    assert sure.never


def test_an_unknown_strategy_is_not_kept() -> None:
    bench = Bench(host("a", res(1), capacity=res(1)))
    sends = bench.wish(1, shape=Shape(res(1), strategy="best"))
    assert not kept(sends) and not len(bench.placer.kept)


def test_of_too_many_the_last_are_not_kept() -> None:
    bench = Bench(host("a", res(0), capacity=res(4)), kept_max=1)
    assert kept(bench.wish(1)) == [[1]]
    (answer,) = [send.message for send in bench.wish(2, slice_=OTHER)]
    assert isinstance(answer, Unplaced) and not answer.kept


def test_constraints_hold_for_kept_wishes_too() -> None:
    rack = Shape(res(1), constraint=label("host", "rack", "1"))
    bench = Bench(host("a", res(0), capacity=res(4)))
    bench.wish(1, shape=rack)
    assert placed(bench.report(host("a", res(4), 2, capacity=res(4)))) == []


def test_many_shapes_are_tried_in_several_calls_without_waiting() -> None:
    bench = Bench(host("a", res(0), capacity=res(4)), kept_max=1000)
    count = placer_module.TRIES_MAX + 10
    for number in range(count):
        needs = Shape(Resources(UNIT + number), constraint=label("host", "rack", "1"))
        bench.wish(number, shape=needs)
    last = Shape(Resources(2 * UNIT))
    bench.wish(count, shape=last)
    assert placed(bench.report(host("a", res(4), 2, capacity=res(4)))) == []
    assert bench.placer.wake_at == 0.0
    assert placed(bench.receive()) == [(SLICE, [count], ["a"])]
    assert bench.placer.wake_at != 0.0


def test_a_full_cluster_is_worked_off_as_tasks_end() -> None:
    """Random shapes, ends and refusals: every member is proposed, and no host beyond its size."""
    chance = random.Random(11)
    free = {f"h{number}": 4 * UNIT for number in range(5)}
    position = dict.fromkeys(free, 1)
    launches = dict.fromkeys(free, 0)
    capacity = res(4)

    def summary(name: str) -> HostSummary:
        position[name] += 1
        of = Resources(free[name])
        return host(name, of, position[name], capacity=capacity, launches=launches[name])

    bench = Bench(*(summary(name) for name in free), kept_max=1000)
    sizes = {member: chance.choice((1, 1, 2, 3)) for member in range(300)}
    waiting, running = set(sizes), []
    sends: list[Send] = []
    for size in (1, 2, 3):
        members = [member for member, of in sizes.items() if of == size]
        sends += bench.wish(*members, shape=Shape(res(size)), slice_=Key(f"slice/j/{size}"))
    for _ in range(5000):
        changed: dict[str, None] = {}
        for _, members, names in placed(sends):
            for member, name in zip(members, names, strict=True):
                assert member in waiting and free[name] >= sizes[member] * UNIT
                waiting.discard(member)
                free[name] -= sizes[member] * UNIT
                launches[name] += 1
                running.append((member, name))
                changed[name] = None
        if not waiting:
            return
        if not changed:
            member, name = running.pop(chance.randrange(len(running)))
            free[name] += sizes[member] * UNIT
            changed[name] = None
        sends = bench.report(*(summary(name) for name in changed))
    raise AssertionError(f"{len(waiting)} members were never proposed")
