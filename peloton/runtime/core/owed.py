"""What has been said and not been answered: when to say it again.

Turns "these members said something owed" into "these members are due for another try": first at
every tick, after `OWED_RESEND_FAST_MAX` tries at the slow rate, and soon when somebody who was out
of reach can be reached again. What is owed is derived from the state (`Kind.owed`); here stand only
the members, as bits, by age. It must hold no message: a message kept here could disagree with the
state it was said from. Nor may a tick look at those whose time has not come: of a hundred thousand
jobs that wait in a queue each owes its word all the while.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from peloton.runtime.vocabulary import Key

RESEND_TICK_S = 1.0
OWED_RESEND_FAST_MAX = 3
RESEND_SLOW_TICKS = 30
HURRIED_PER_TICK_MAX = 1000
"""Of those that are hurried; more would hold up a shard in which very many wait."""


class OwedMembers:
    """Members of one crowd (or the one of a cell) that wait for an answer, by age in ticks."""

    __slots__ = ("_ages", "slot", "slow")

    def __init__(self) -> None:
        self._ages = [0] * (OWED_RESEND_FAST_MAX + 1)
        self.slow = 0
        self.slot = -1  # of the ticks at which the slow ones are due; -1: none are

    def said(self, raw: int) -> None:
        """Members in `raw` have just said something owed: their tries begin anew."""
        self.settled(raw)
        self._ages[0] |= raw

    def settled(self, raw: int) -> None:
        """Members in `raw` owe nothing any more."""
        self._ages = [age & ~raw for age in self._ages]
        self.slow &= ~raw

    def tick(self) -> int:
        """One tick has passed; the members that are not slow and due for another try now."""
        due = 0
        for age in self._ages[1:]:
            due |= age
        self.slow |= self._ages[-1]
        self._ages = [0, *self._ages[:-1]]
        return due

    @property
    def fast(self) -> int:
        """Those that are not slow yet."""
        fast = 0
        for age in self._ages:
            fast |= age
        return fast

    @property
    def all(self) -> int:
        """Every member that waits."""
        return self.fast | self.slow


class OwedSends:
    """All of one shard that wait for an answer.

    The slow are spread evenly over the ticks between two tries, in the order they became slow:
    what was said by very many at once is not said again by all of them at once.
    """

    def __init__(self) -> None:
        self._of: dict[Key, OwedMembers] = {}
        self._fast: dict[Key, None] = {}
        self._slots: list[dict[Key, None]] = [{} for _ in range(RESEND_SLOW_TICKS)]
        self._next_slot = itertools.cycle(range(RESEND_SLOW_TICKS))
        self._hurry = False
        self._hurried: dict[Key, None] = {}

    def said(self, key: Key, raw: int) -> None:
        """Members in `raw` have just said something owed: their tries begin anew."""
        self._owing(key).said(raw)
        self._fast[key] = None

    def sent_more(self, key: Key, raw: int) -> None:
        """Members in `raw` said one more owed thing. Those that wait already keep their age: an
        actor that always has something new to say would never come to say the old again."""
        owing = self._owing(key)
        owing.said(raw & ~owing.fast)
        self._fast[key] = None

    def settled(self, key: Key, raw: int) -> None:
        """Members in `raw` owe nothing any more."""
        owing = self._of.get(key)
        if owing is not None:
            owing.settled(raw)
            if not owing.all:
                del self._of[key]

    def forget(self, key: Key) -> None:
        """Nobody of this key owes anything."""
        self._of.pop(key, None)

    def hurry(self) -> None:
        """What was lost may be heard now: the slow ones too have a try soon. Said many times
        between two ticks, as while a whole fleet moves, it is looked after once."""
        self._hurry = True

    def tick(self, number: int) -> dict[Key, int]:
        """One tick has passed: who is due for another try now, and which members."""
        due = self._due_slow(number % RESEND_SLOW_TICKS)
        for key in self._some_hurried():
            owing = self._of.get(key)
            if owing is not None and owing.slow:
                due[key] = owing.slow
        for key in [*self._fast]:
            owing = self._of.get(key)
            raw = owing.tick() if owing is not None else 0
            if raw:
                due[key] = due.get(key, 0) | raw
            if owing is None or not owing.fast:
                del self._fast[key]
            if owing is not None and owing.slow and owing.slot < 0:
                owing.slot = next(self._next_slot)
                self._slots[owing.slot][key] = None
        return due

    def of(self, key: Key) -> int:
        """The members of this key that wait."""
        owing = self._of.get(key)
        return owing.all if owing is not None else 0

    def __iter__(self) -> Iterator[Key]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)

    def _owing(self, key: Key) -> OwedMembers:
        owing = self._of.get(key)
        if owing is None:
            owing = self._of[key] = OwedMembers()
        return owing

    def _due_slow(self, slot: int) -> dict[Key, int]:
        due: dict[Key, int] = {}
        waiting, self._slots[slot] = self._slots[slot], {}
        for key in waiting:
            owing = self._of.get(key)
            if owing is None or owing.slot != slot:
                continue  # it owed nothing in between, and has another slot by now
            if owing.slow:
                due[key] = owing.slow
                self._slots[slot][key] = None
            else:
                owing.slot = -1
        return due

    def _some_hurried(self) -> list[Key]:
        if self._hurry:
            self._hurry = False
            # Who is still in line keeps his place, or the last would never have their turn.
            self._hurried |= dict.fromkeys(key for key, owing in self._of.items() if owing.slow)
        some = [*itertools.islice(self._hurried, HURRIED_PER_TICK_MAX)]
        for key in some:
            del self._hurried[key]
        return some
