"""Resends: what to send again, and when, until it is answered.

`OwedSends` are owed sends without an answer. "These members sent something owed" becomes "these
members are due for another try": at every tick first, after `OWED_RESEND_FAST_MAX` tries at the
slow rate, and soon when a receiver may be reachable again. What is owed is derived from the state
(`Kind.owed`); here are only the members, as bits, by age. Messages are not kept, because they could
disagree with the state they were sent from. A tick must not visit members that are not due: a
hundred thousand jobs that wait in a queue each owe a send all that time.

`UnseenReports` are versioned reports (`Latest`) whose newest version was not seen yet: at most one
envelope per (receiver, sender, class), so memory is bounded. They are resent at the same times: a
receiver that is quarantined or deleted never sees them.

No resend is journaled: after recovery what is owed is derived, and parents report anew.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.vocabulary import Key, Latest, Seen

RESEND_TICK_S = 1.0
OWED_RESEND_FAST_MAX = 3
RESEND_SLOW_TICKS = 30
HURRIED_PER_TICK_MAX = 1000
"""Entities resent per tick out of turn; more would delay a shard in which very many wait."""

_Name = tuple[Key, Key, str]
"""Receiver, sender, class of a report."""
_ALONE = 1
"""The members of what has none."""
K = TypeVar("K", bound=Hashable)


class OwedMembers:
    """The members of one crowd (a cell counts as one) that wait for an answer, by age in ticks."""

    __slots__ = ("_ages", "slot", "slow")

    def __init__(self, sent: int = 0) -> None:
        self._ages = [sent] + [0] * OWED_RESEND_FAST_MAX
        self.slow = 0
        self.slot = -1  # tick modulo RESEND_SLOW_TICKS at which the slow are due; -1: none are

    def sent(self, raw: int) -> None:
        """Restart the tries of the members in `raw`, which have just sent something owed."""
        self.settled(raw)
        self._ages[0] |= raw

    def settled(self, raw: int) -> None:
        """Forget the members in `raw`, which owe nothing any more."""
        self._ages = [age & ~raw for age in self._ages]
        self.slow &= ~raw

    def tick(self) -> int:
        """Count one tick; return the fast members that are due for another try now."""
        due = 0
        for age in self._ages[1:]:
            due |= age
        self.slow |= self._ages[-1]
        self._ages = [0, *self._ages[:-1]]
        return due

    @property
    def fast(self) -> int:
        """The members that are still resent at every tick."""
        fast = 0
        for age in self._ages:
            fast |= age
        return fast

    @property
    def all(self) -> int:
        """Every member that waits."""
        return self.fast | self.slow


class OwedSends(Generic[K]):
    """Everything that waits for an answer, by key: cells and crowds of one shard, or reports.

    Slow members are spread evenly over the ticks between two tries, in the order they became slow:
    what very many sent at once is not resent by all of them at once.
    """

    def __init__(self) -> None:
        self._of: dict[K, OwedMembers] = {}
        self._fast: dict[K, None] = {}
        self._slots: list[dict[K, None]] = [{} for _ in range(RESEND_SLOW_TICKS)]
        self._next_slot = itertools.cycle(range(RESEND_SLOW_TICKS))
        self._hurry = False
        self._hurried: dict[K, None] = {}

    def sent(self, key: K, raw: int) -> None:
        """Restart the tries of the members in `raw`, which have just sent something owed."""
        owing = self._of.get(key)
        if owing is None:
            self._of[key] = OwedMembers(raw)
        else:
            owing.sent(raw)
        self._fast[key] = None

    def sent_more(self, key: K, raw: int) -> None:
        """Add the members in `raw`, which have sent more; those that wait keep their age.

        An actor that always has something new to send would otherwise never resend the old.
        """
        owing = self._of.get(key)
        if owing is None:
            self._of[key] = OwedMembers(raw)
        else:
            owing.sent(raw & ~owing.fast)
        self._fast[key] = None

    def settled(self, key: K, raw: int) -> None:
        """Forget the members in `raw`, which owe nothing any more."""
        owing = self._of.get(key)
        if owing is not None:
            owing.settled(raw)
            if not owing.all:
                del self._of[key]

    def forget(self, key: K) -> None:
        """Forget all members of this key."""
        owing = self._of.pop(key, None)
        self._fast.pop(key, None)
        self._hurried.pop(key, None)
        if owing is not None and owing.slot >= 0:
            self._slots[owing.slot].pop(key, None)

    def hurry(self) -> None:
        """Resend soon for the slow members too: a receiver may be reachable again.

        Many calls between two ticks, as while a whole fleet moves, count as one.
        """
        self._hurry = True

    def tick(self, number: int) -> dict[K, int]:
        """Count one tick; return the keys that are due for another try now, and their members."""
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

    def of(self, key: K) -> int:
        """Return the members of this key that wait."""
        owing = self._of.get(key)
        return owing.all if owing is not None else 0

    def __iter__(self) -> Iterator[K]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)

    def _due_slow(self, slot: int) -> dict[K, int]:
        due: dict[K, int] = {}
        waiting, self._slots[slot] = self._slots[slot], {}
        for key in waiting:
            owing = self._of.get(key)
            if owing is None or owing.slot != slot:
                continue  # it owed nothing in between, and has a new slot by now
            if owing.slow:
                due[key] = owing.slow
                self._slots[slot][key] = None
            else:
                owing.slot = -1
        return due

    def _some_hurried(self) -> list[K]:
        if self._hurry:
            self._hurry = False
            # Those that still wait from the last call keep their position, or the last ones in
            # the order would never be resent.
            self._hurried |= dict.fromkeys(key for key, owing in self._of.items() if owing.slow)
        some = [*itertools.islice(self._hurried, HURRIED_PER_TICK_MAX)]
        for key in some:
            del self._hurried[key]
        return some


class UnseenReports:
    """The newest reports of one shard that were not seen yet."""

    def __init__(self) -> None:
        self._newest: dict[_Name, Envelope] = {}
        self._times = OwedSends[_Name]()
        self._senders: dict[Key, int] = {}  # number of waiting reports

    def sent(self, envelope: Envelope) -> None:
        """Keep a report that is sent, in place of an older one to the same receiver."""
        assert envelope.sender is not None
        name = (envelope.to, envelope.sender, type(envelope.message).__name__)
        if name not in self._newest:
            self._senders[envelope.sender] = self._senders.get(envelope.sender, 0) + 1
        self._newest[name] = envelope
        self._times.sent(name, _ALONE)

    def seen(self, by: Key, to: Key, *, message: Seen) -> None:
        """Forget a report of `to` if `by` has received this version."""
        name = (by, to, message.subject)
        found = self._newest.get(name)
        if found is None:
            return
        latest = found.message
        if isinstance(latest, Latest) and latest.version <= message.version:
            del self._newest[name]
            self._times.forget(name)
            self._senders[to] -= 1
            if not self._senders[to]:
                del self._senders[to]

    def hurry(self) -> None:
        """Resend all waiting reports soon: a receiver may be reachable again."""
        if self._newest:
            self._times.hurry()

    def due(self, tick: int) -> list[Envelope]:
        """Return the reports to resend at this tick."""
        return [self._newest[name] for name in self._times.tick(tick)] if self._newest else []

    def from_key(self, sender: Key) -> bool:
        """Return whether a report of this entity is still unseen."""
        return sender in self._senders

    def __bool__(self) -> bool:
        return bool(self._newest)
