"""What has been said and not been answered: when to say it again.

Turns "these members said something owed" into "these members are due for another try": first at
every tick, after `RESEND_FAST_MAX` tries at the slow rate, and at once when somebody who was out
of reach can be reached again. What is owed is derived from the state
(`Kind.owed`); here stand only the members, as bits, by age. It must hold no message: a message
kept here could disagree with the state it was said from.
"""

from __future__ import annotations

RESEND_TICK_S = 1.0
RESEND_FAST_MAX = 3
RESEND_SLOW_TICKS = 30


class Owing:
    """Members of one crowd (or the one of a cell) that wait for an answer, by age in ticks."""

    __slots__ = ("_ages", "_slow")

    def __init__(self) -> None:
        self._ages = [0] * (RESEND_FAST_MAX + 1)
        self._slow = 0

    def said(self, raw: int) -> None:
        """Members in `raw` have just said something owed: their tries begin anew."""
        self.settled(raw)
        self._ages[0] |= raw

    def said_more(self, raw: int) -> None:
        """Members in `raw` said one more owed thing. Those that wait already keep their age: an
        actor that always has something new to say would never come to say the old again."""
        fast = 0
        for age in self._ages:
            fast |= age
        self.said(raw & ~fast)

    def settled(self, raw: int) -> None:
        """Members in `raw` owe nothing any more."""
        self._ages = [age & ~raw for age in self._ages]
        self._slow &= ~raw

    def tick(self, number: int, *, hurry: bool = False) -> int:
        """One tick has passed; the members due for another try now (`hurry`: the slow ones too)."""
        due = 0
        for age in self._ages[1:]:
            due |= age
        self._slow |= self._ages[-1]
        self._ages = [0, *self._ages[:-1]]
        if hurry or number % RESEND_SLOW_TICKS == 0:
            due |= self._slow
        return due

    @property
    def all(self) -> int:
        """Every member that waits."""
        everyone = self._slow
        for age in self._ages:
            everyone |= age
        return everyone
