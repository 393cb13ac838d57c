"""A placer that has just begun does not know all hosts: members to keep apart wait for them."""

from __future__ import annotations

from peloton.placement.inventory_feeds import REPEAT_S_MIN, SETTLE_S, SNAPSHOT_RETRY_S
from peloton.placement.messages import (
    AskGangRoom,
    GangPart,
    GangPlaced,
    GangRoomFound,
    GangWish,
    HostDeltas,
    HostSummary,
    Label,
    Placed,
    Shape,
    SnapshotWanted,
    Wish,
)
from peloton.placement.placer import Placer
from peloton.runtime.vocabulary import Bits, Key, Send

from .hosts import SLICE, host, res

ASKER = Key("lot/1")
FIRST, SECOND = (Key(f"inventory/{number}") for number in range(2))
MINE = Label("peloton.job_id", "j")
PLAIN = Shape(res(1), labels=(MINE,))
APART = Shape(res(1), strategy="spread", labels=(MINE,), apart=MINE)


class Begun:
    """A placer that has asked two inventories, of which the first has answered."""

    def __init__(self) -> None:
        self.placer = Placer(Key("placer/0"), inventories=(FIRST, SECOND))
        assert self.wanted(self.placer.receive([], 0.0)) == [FIRST, SECOND]
        assert self.hears(FIRST, host("a", res(9), running=())) == {}

    def hears(self, inventory: Key, *hosts: HostSummary, now: float = 0.0) -> dict[str, int]:
        """How many members are placed on each host after its report."""
        sends = self.placer.receive([(inventory, HostDeltas(inventory, 1, hosts, True))], now)
        return self.placed(sends)

    def wishes(self, shape: Shape, now: float = 0.0) -> list[Send]:
        wish = Wish(SLICE, 1, Bits.span(0, 4), shape)
        return self.placer.receive([(SLICE, wish)], now)

    @staticmethod
    def placed(sends: list[Send]) -> dict[str, int]:
        found = [send.message for send in sends]
        hosts = [name for one in found if isinstance(one, Placed) for name in one.hosts]
        return {name.removeprefix("host/"): hosts.count(name) for name in hosts}

    @staticmethod
    def wanted(sends: list[Send]) -> list[Key]:
        return [send.to for send in sends if isinstance(send.message, SnapshotWanted)]


def test_members_to_be_kept_apart_wait_until_all_hosts_are_known() -> None:
    begun = Begun()
    assert begun.wishes(APART) == []
    assert begun.wishes(APART) == [], "a repeat is the same wish"
    assert begun.hears(SECOND, host("b", res(9), running=())) == {"a": 2, "b": 2}


def test_a_gang_and_what_a_gang_would_need_wait_as_well() -> None:
    begun = Begun()
    parts = (GangPart(Bits.span(0, 12), APART),)
    asked = AskGangRoom(ASKER, 7, parts, (), ())
    assert begun.placer.receive([(SLICE, GangWish(SLICE, 1, parts)), (None, asked)], 0.0) == []
    second = HostDeltas(SECOND, 1, (host("b", res(9), running=()),), True)
    sends = begun.placer.receive([(SECOND, second)], 0.0)
    found = {type(send.message): send.message for send in sends}
    assert found.keys() == {GangPlaced, GangRoomFound}
    assert found[GangRoomFound].fits


def test_who_names_its_host_does_not_wait() -> None:
    begun = Begun()
    wish = Wish(SLICE, 1, Bits.of(0), APART, hosts=(Key("host/a"),))
    assert begun.placed(begun.placer.receive([(SLICE, wish)], 0.0)) == {"a": 1}


def test_others_are_placed_on_what_is_known() -> None:
    begun = Begun()
    assert begun.placed(begun.wishes(PLAIN)) == {"a": 4}


def test_an_inventory_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    begun = Begun()
    begun.wishes(APART)
    now = 0.0
    while now < SETTLE_S:
        assert begun.placer.wake_at is not None and begun.placer.wake_at > now
        now = begun.placer.wake_at
        sends = begun.placer.receive([], now)
        assert begun.wanted(sends) == [SECOND]
        assert begun.placed(sends) == ({} if now < SETTLE_S else {"a": 4})
    assert now < SETTLE_S + SNAPSHOT_RETRY_S
    assert begun.placed(begun.wishes(APART, now)) == {"a": 4}, "nor from then on"


def test_while_inventories_answer_the_others_are_waited_for() -> None:
    third = Key("inventory/2")
    placer = Placer(Key("placer/0"), inventories=(FIRST, SECOND, third))
    placer.receive([], 0.0)
    placer.receive([(FIRST, HostDeltas(FIRST, 1, (), True))], SETTLE_S - 1)
    wish = Wish(SLICE, 1, Bits.of(0), APART)
    assert Begun.wanted(placer.receive([(SLICE, wish)], SETTLE_S + 1)) == [SECOND, third]


def test_what_was_not_answered_is_requested_again_where_it_may_arrive_now() -> None:
    begun = Begun()
    assert begun.placer.wake_at == SNAPSHOT_RETRY_S
    now, pause = 0.0, 2 * REPEAT_S_MIN  # it was requested once
    while pause < SNAPSHOT_RETRY_S:
        begun.placer.hurry()
        assert begun.placer.wake_at == now + pause, "who hears of many peers asks ever less often"
        now += pause
        assert begun.wanted(begun.placer.receive([], now)) == [SECOND], "the first has answered"
        pause *= 2
    begun.placer.hurry()
    assert begun.placer.wake_at == now + SNAPSHOT_RETRY_S
