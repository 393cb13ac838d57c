"""A lot: tickets and releases of members, each repeat answered from what became of it.

`Admit` is made by hand.
"""

from __future__ import annotations

import pytest

from peloton.actors.resources import Resources
from peloton.actors.respool.lot.decide import ABSENT
from peloton.actors.respool.lot.kind import KIND
from peloton.actors.respool.lot.messages import Admit, Enqueue, LotShape, ReleaseTicket
from peloton.actors.respool.lot.state import Lot, last_tickets
from peloton.actors.task.messages import Admitted, Queued, TicketReleased
from peloton.runtime.core.turning.turn import TurnOutcome, take_turn
from peloton.runtime.vocabulary import At, Bits, Key, Message

SHAPE = LotShape(Key("respool/p"), Resources(1))
CROWD = Key("task/j/0")


def receive(lot: Lot | None, message: Message, *members: int, now: float = 1.0) -> TurnOutcome:
    """One turn of a lot, on a message of these members."""
    at = At(now=now, key=Key("lot/j/0/0"), sender=CROWD, members=Bits.of(*members))
    return take_turn(KIND, lot, message=message, at=at)


def replies(turn: TurnOutcome) -> list[tuple[Message, list[int]]]:
    return [(send.message, [*send.members]) for send in turn.sends]


def opened(*members: int, ticket: int = 1) -> Lot:
    lot: Lot = receive(None, Enqueue(ticket, SHAPE), *members).state
    return lot


def test_the_first_ask_opens_the_lot() -> None:
    turn = receive(None, Enqueue(1, SHAPE), 0, 1, 2)
    assert replies(turn) == [(Queued(1), [0, 1, 2])]
    assert (turn.state.waiting, turn.state.arrived) == (Bits.of(0, 1, 2), 1.0)


def test_a_repeat_is_answered_and_changes_nothing() -> None:
    lot = receive(opened(0, 1, 2), Admit(Bits.of(1))).state
    turn = receive(lot, Enqueue(1, SHAPE), 0, 1, 2)
    assert not turn.facts
    assert replies(turn) == [(Queued(1), [0, 2]), (Admitted(1), [1])]


def test_a_new_ask_implies_leaving_the_lower_one() -> None:
    lot = receive(opened(0, 1), Admit(Bits.of(0, 1))).state
    turn = receive(lot, Enqueue(2, SHAPE), 0, now=7.0)
    assert (turn.state.waiting, turn.state.admitted) == (Bits.of(0), Bits.of(1))
    assert turn.state.arrived == 7.0, "nobody waited: its place dates from now"
    assert last_tickets(turn.state, Bits.of(0, 1)) == [(1, Bits.of(1)), (2, Bits.of(0))]


def test_a_late_ticket_is_ignored() -> None:
    lot = receive(opened(0, 1), Enqueue(3, SHAPE), 0).state
    turn = receive(lot, Enqueue(2, SHAPE), 0)
    assert not turn.facts and not turn.sends


def test_an_ask_after_its_own_leave_is_answered_left() -> None:
    lot = receive(opened(0, 1), ReleaseTicket(1), 0).state
    turn = receive(lot, Enqueue(1, SHAPE), 0)
    assert not turn.facts and replies(turn) == [(TicketReleased(1), [0])]


def test_leaving_is_always_answered() -> None:
    lot = opened(0, 1)
    turn = receive(lot, ReleaseTicket(1), 0)
    assert replies(turn) == [(TicketReleased(1), [0])] and turn.state.waiting == Bits.of(1)
    again = receive(turn.state, ReleaseTicket(1), 0)
    assert not again.facts and replies(again) == [(TicketReleased(1), [0])]


def test_a_late_leave_does_not_touch_a_newer_ask() -> None:
    lot = receive(opened(0), Enqueue(2, SHAPE), 0).state
    turn = receive(lot, ReleaseTicket(1), 0)
    assert not turn.facts and turn.state.waiting == Bits.of(0)


def test_a_leave_that_overtakes_its_ask_is_remembered() -> None:
    lot = receive(opened(0, 1), ReleaseTicket(2), 0).state
    assert replies(receive(lot, Enqueue(2, SHAPE), 0)) == [(TicketReleased(2), [0])]


def test_the_last_to_leave_ends_the_lot() -> None:
    lot = receive(opened(0, 1), Admit(Bits.of(0))).state
    lot = receive(lot, ReleaseTicket(1), 0).state
    assert receive(lot, ReleaseTicket(1), 1).state is None


def test_only_those_that_wait_are_admitted_each_by_its_ask() -> None:
    lot = receive(opened(0, 1, 2), Enqueue(2, SHAPE), 2).state
    lot = receive(lot, ReleaseTicket(1), 0).state
    turn = receive(lot, Admit(Bits.of(0, 1, 2)))
    assert replies(turn) == [(Admitted(1), [1]), (Admitted(2), [2])]
    assert turn.state.admitted == Bits.of(1, 2)
    assert not receive(turn.state, Admit(Bits.of(1))).facts


@pytest.mark.parametrize(
    ("message", "answer"),
    [(ReleaseTicket(1), [TicketReleased(1)]), (Admit(Bits.of(0)), []), (Enqueue(1), [])],
)
def test_a_lot_that_is_not_there_holds_nobody(message: Message, answer: list[Message]) -> None:
    at = At(now=0.0, key=Key("lot/j/0/0"), sender=CROWD, members=Bits.of(0))
    decision = ABSENT[type(message)](message, at)
    assert not decision.facts and [send.message for send in decision.sends] == answer
