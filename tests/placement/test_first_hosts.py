"""A placer that has just begun does not know all hosts: who is to be kept apart waits for them."""

from __future__ import annotations

from peloton.placement.inventory_feeds import REPEAT_S_MIN, SETTLE_S_MAX, SNAPSHOT_RETRY_S
from peloton.placement.messages import (
    HostDeltas,
    HostSummary,
    Label,
    Placed,
    Shape,
    SnapshotWanted,
    Unplaced,
    Wish,
)
from peloton.placement.placer import Placer
from peloton.runtime.vocabulary import Bits, Key, Send

from .hosts import SLICE, host, res

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
        wish = Wish(SLICE, 1, Bits.span(0, 4), shape, keeps=True)
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
    (answer,) = [send.message for send in begun.wishes(APART)]
    assert isinstance(answer, Unplaced) and answer.kept and not answer.never
    assert answer.text == "no host yet: the placer has just begun to learn them"
    assert begun.hears(SECOND, host("b", res(9), running=())) == {"a": 2, "b": 2}


def test_others_are_placed_on_what_is_known() -> None:
    begun = Begun()
    assert begun.placed(begun.wishes(PLAIN)) == {"a": 4}


def test_an_inventory_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    begun = Begun()
    begun.wishes(APART)
    now = 0.0
    while now < SETTLE_S_MAX:
        assert begun.placer.wake_at is not None and begun.placer.wake_at > now
        now = begun.placer.wake_at
        sends = begun.placer.receive([], now)
        assert begun.wanted(sends) == [SECOND]
        assert begun.placed(sends) == ({} if now < SETTLE_S_MAX else {"a": 4})
    assert now < SETTLE_S_MAX + SNAPSHOT_RETRY_S


def test_what_was_not_answered_is_requested_again_where_it_may_arrive_now() -> None:
    begun = Begun()
    assert begun.placer.wake_at == SNAPSHOT_RETRY_S
    begun.placer.hurry()
    assert begun.placer.wake_at == REPEAT_S_MIN, "who hears of many peers does not ask each time"
    assert begun.wanted(begun.placer.receive([], 0.5)) == [SECOND], "the first has answered"
    assert begun.placer.wake_at == 0.5 + SNAPSHOT_RETRY_S
