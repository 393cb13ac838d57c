"""Owed sends: each is resent in its time, none forgotten, and never all at once."""

from __future__ import annotations

import random

from peloton.runtime.core.turning.resends import (
    HURRIED_PER_TICK_MAX,
    OWED_RESEND_FAST_MAX,
    RESEND_SLOW_TICKS,
    OwedSends,
)
from peloton.runtime.vocabulary import Key, key

A, B = key("note", "a"), key("note", "b")


def ticks(owed: OwedSends, first: int, count: int) -> dict[int, dict[Key, int]]:
    """What is due at each tick at which something is."""
    due_at = {number: owed.tick(number) for number in range(first, first + count)}
    return {number: due for number, due in due_at.items() if due}


def test_first_at_every_tick_and_then_seldom():
    owed = OwedSends()
    owed.sent(A, 0b11)
    due_at = ticks(owed, 1, 10 * RESEND_SLOW_TICKS)
    fast = list(range(2, 2 + OWED_RESEND_FAST_MAX))
    assert [*due_at][:OWED_RESEND_FAST_MAX] == fast, "who has just sent waits for a tick"
    slow = [*due_at][OWED_RESEND_FAST_MAX:]
    pauses = [after - before for before, after in zip(slow, slow[1:], strict=False)]
    assert slow[0] - fast[-1] <= RESEND_SLOW_TICKS
    assert set(pauses) == {RESEND_SLOW_TICKS}
    assert all(due == {A: 0b11} for due in due_at.values())


def test_a_member_that_sends_anew_begins_anew_and_the_others_of_the_crowd_do_not():
    owed = OwedSends()
    owed.sent(A, 0b11)
    ticks(owed, 1, 6)
    owed.sent(A, 0b10)
    assert [owed.tick(7).get(A, 0) & 0b10, owed.tick(8)[A] & 0b10] == [0, 0b10]
    owed.settled(A, 0b10)
    later = ticks(owed, 9, RESEND_SLOW_TICKS)
    assert [*later.values()] == [{A: 0b01}]


def test_who_owes_nothing_is_forgotten_and_may_owe_again():
    owed = OwedSends()
    for _ in range(100):
        owed.sent(A, 1)
        ticks(owed, 1, 6)
        owed.forget(A)
    assert not owed and not ticks(owed, 1, 2 * RESEND_SLOW_TICKS)
    owed.sent(A, 1)
    ticks(owed, 1, 6)
    assert len(ticks(owed, 7, 10 * RESEND_SLOW_TICKS)) == 10, "once a round, however often it left"


def test_an_actor_with_ever_more_to_send_resends_the_old_too():
    owed = OwedSends()
    sent = 0
    for number in range(1, 20):
        owed.sent_more(A, 1)
        sent += bool(owed.tick(number))
    assert sent


def test_who_hurries_has_one_try_soon():
    owed = OwedSends()
    owed.sent(A, 0b01)
    ticks(owed, 1, 6)
    owed.sent(B, 0b10)
    owed.hurry()
    assert owed.tick(7) == {A: 0b01}, "B has just sent"
    assert owed.tick(8) == {B: 0b10}, "and A has had its try"


def test_who_owes_nothing_any_more_takes_nobodys_turn():
    owed, names = OwedSends(), [key("note", number) for number in range(2 * HURRIED_PER_TICK_MAX)]
    for name in (*names, A):
        owed.sent(name, 1)
    ticks(owed, 1, 6)
    owed.hurry()
    owed.tick(7)
    for name in names:
        owed.forget(name)
    assert owed.tick(8) == {A: 1}, "not for the sake of those that come before it"


def test_very_many_are_spread_over_the_ticks():
    owed, count = OwedSends(), 30 * HURRIED_PER_TICK_MAX
    for number in range(count):
        owed.sent(key("note", number), 1)
    ticks(owed, 1, 6)
    sizes = [len(owed.tick(number)) for number in range(7, 7 + RESEND_SLOW_TICKS)]
    assert sum(sizes) == count and max(sizes) <= count // RESEND_SLOW_TICKS + 1
    owed.hurry()
    share = count // RESEND_SLOW_TICKS
    hurried = [len(owed.tick(number)) for number in range(7, 17)]
    assert max(hurried) <= HURRIED_PER_TICK_MAX + share


def test_every_waiting_member_is_resent_in_every_round():
    for seed in range(20):
        chance, owed, waiting = random.Random(seed), OwedSends(), {}
        for number in range(300):
            name = key("note", chance.randrange(40))
            if chance.random() < 0.5:
                owed.sent(name, 1)
                waiting[name] = number
            elif name in waiting:
                owed.settled(name, 1)
                del waiting[name]
            if chance.random() < 0.02:
                owed.hurry()
            owed.tick(number)
        resent: dict[Key, int] = {}
        for number in range(300, 300 + RESEND_SLOW_TICKS + OWED_RESEND_FAST_MAX + 1):
            resent |= owed.tick(number)
        assert {*resent} == {*waiting} == {*owed}
