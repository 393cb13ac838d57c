"""Members that may run on one host only: proposed there, or kept until that host has room.

Their answers are made by hand.
"""

from __future__ import annotations

from peloton.placement.messages import (
    Declined,
    HostDeltas,
    HostSummary,
    Placed,
    ReservedRoom,
    Shape,
    Unplaced,
    Wish,
)
from peloton.placement.placer import Placer, PlacerSettings
from peloton.runtime.vocabulary import Bits, Key, Message, Send
from tests.placement.hosts import INVENTORY, SLICE, host, label, res

ONE = Shape(res(1))
A, B = Key("host/a"), Key("host/b")


class Bench:
    """One placer and the hosts that it knows."""

    def __init__(self, *hosts: HostSummary) -> None:
        self.placer = Placer(Key("placer/0"), PlacerSettings(), inventories=[INVENTORY])
        self.sequence = self.position = 0
        self.now = 0.0
        self.report(*hosts, snapshot=True)

    def receive(self, *messages: Message) -> list[Send]:
        return self.placer.receive([(None, message) for message in messages], self.now)

    def report(self, *hosts: HostSummary, snapshot: bool = False) -> list[Send]:
        self.sequence += 1
        return self.receive(HostDeltas(INVENTORY, self.sequence, hosts, snapshot))

    def wish(
        self, *hosts: Key, shape: Shape = ONE, refused: tuple[HostSummary, ...] = ()
    ) -> object:
        members = Bits.span(0, len(hosts))
        wish = Wish(SLICE, 7, members, shape, refused, hosts=hosts)
        return [send.message for send in self.receive(wish)]


def placed(member: int, where: Key) -> Placed:
    return Placed(7, Bits.of(member), (where,), 1)


def why(answer: object) -> tuple[Bits, str, bool]:
    assert isinstance(answer, Unplaced) and answer.kept
    return answer.members, answer.text, answer.never


def test_each_member_gets_its_own_host_however_much_others_have() -> None:
    bench = Bench(host("a", res(1)), host("b", res(64)))
    first, second = bench.wish(A, B)
    assert [first.members, second.members] == [Bits.of(0), Bits.of(1)]
    assert (first.hosts, second.hosts) == ((A,), (B,))
    assert not len(bench.placer.pinned)


def test_what_is_proposed_counts_as_taken() -> None:
    bench = Bench(host("a", res(1)))
    bench.wish(A)
    (answer,) = bench.wish(A)
    members, text, never = why(answer)
    assert (members, never) == (Bits.of(0), False)
    assert text == "its host a lacks cpu (requested 1, 0 free)"


def test_it_is_proposed_when_its_host_reports_room_and_not_when_another_does() -> None:
    small = host("a", res(0), capacity=res(4))
    bench = Bench(small, host("b", res(0), capacity=res(4)))
    assert [why(each)[1] for each in bench.wish(A)] == [
        "its host a lacks cpu (requested 1, 0 free)"
    ]
    assert not bench.report(host("b", res(4), position=2))
    (send,) = bench.report(host("a", res(4), position=2))
    assert isinstance(send.message, Placed) and send.message.hosts == (A,)


def test_a_host_that_is_down_or_too_small_never_fits_until_that_changes() -> None:
    bench = Bench(host("a", res(4), up=False), host("b", res(0.5)))
    answers = [why(each) for each in bench.wish(A, B)]
    assert [never for *_, never in answers] == [True, True]
    assert answers[0][1] == "its host a is not up"
    full = host("a", res(0), position=2, capacity=res(4))
    (told,) = bench.report(full)
    assert why(told.message) == (Bits.of(0), "its host a lacks cpu (requested 1, 0 free)", False)
    assert not bench.report(host("a", res(0.5), position=3, capacity=res(4)))  # told already


def test_a_host_that_is_not_known_or_not_open_is_named() -> None:
    bench = Bench(host("a", res(4)))
    shape = Shape(res(1), constraint=label("host", "disk", "ssd"))
    texts = [why(each)[1:] for each in bench.wish(A, B, shape=shape)]
    assert texts == [
        ("its host a is not open to it", True),
        ("the placer does not know its host b yet", False),
    ]


def test_a_host_that_has_just_refused_is_tried_again_once_it_reports_more() -> None:
    bench = Bench(host("a", res(4)))
    refusal = host("a", res(4), position=2)
    (answer,) = bench.wish(A, refused=(refusal,))
    assert why(answer)[1] == "its host a has just refused it"
    (send,) = bench.report(host("a", res(5), position=3))
    assert isinstance(send.message, Placed)


def test_room_that_is_held_for_the_member_is_proposed_to_it_alone() -> None:
    mine = ReservedRoom(res(1), 0, ((Key("task/j/0"), 0),))
    bench = Bench(host("a", res(0), capacity=res(4), reserved=mine))
    first, second = bench.wish(A, A)
    assert isinstance(first, Placed) and first.members == Bits.of(0)
    assert why(second)[0] == Bits.of(1)


def test_what_is_not_wanted_any_more_or_not_repeated_is_forgotten() -> None:
    bench = Bench(host("a", res(0), capacity=res(4)), host("b", res(0), capacity=res(4)))
    bench.wish(A, B)
    bench.receive(Declined(SLICE, Bits.of(1)))
    assert not bench.report(host("a", res(4), position=2))
    bench.now = 100.0
    assert not bench.report(host("b", res(4), position=2))
    assert not len(bench.placer.pinned)


def test_what_is_not_repeated_is_forgotten_though_its_host_never_reports_again() -> None:
    """Its job may be deleted, and the host be gone."""
    bench = Bench(host("a", res(0), capacity=res(4)), host("b", res(0), capacity=res(4)))
    bench.wish(A, B)
    bench.now = 30.0
    bench.wish(A)
    bench.now = 40.0
    bench.report(host("c", res(0)))
    assert len(bench.placer.pinned) == 1
    bench.now = 70.0
    bench.receive()
    assert not len(bench.placer.pinned)
