"""Proposals that their hosts have not decided yet: what a placer has to subtract by itself.

Turns "so many members were proposed to this row" and "so many launches were decided there since"
into the proposals that have landed. Launches arrive in the order in which they were proposed, near
enough: of members proposed to one host the oldest land first. Another placer's launches on the same
host look like ours; then a proposal counts as landed too early, and the price is a refusal.

It must not take time for an answer. `PROPOSAL_KEEP_S` only heals what was lost on its way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

PROPOSAL_KEEP_S = 5.0
"""How long a proposal is subtracted while its host does not show it; then the launch was lost."""

Kept = TypeVar("Kept")


class Flight(NamedTuple, Generic[Kept]):
    """Members proposed to one host at one moment."""

    made_at: float
    what: Kept
    members: int


class Flights(Generic[Kept]):
    """By row, oldest first."""

    def __init__(self) -> None:
        self.keep_s = PROPOSAL_KEEP_S
        self._by_row: dict[int, deque[Flight[Kept]]] = {}
        self._made: deque[tuple[float, Sequence[int]]] = deque()  # rows to look at when too old

    def add(self, what: Kept, rows: Sequence[int], *, counts: Iterable[int], now: float) -> None:
        """Members were proposed; each row is named once."""
        for row, count in zip(rows, counts, strict=True):
            flight = Flight(now, what, count)
            flights = self._by_row.get(row)
            if flights is None:
                self._by_row[row] = deque((flight,))
            else:
                flights.append(flight)
        self._made.append((now, rows))

    def land(self, row: int, count: int) -> list[tuple[Kept, int]]:
        """The host has decided so many launches: what has landed, as (what, members)."""
        landed: list[tuple[Kept, int]] = []
        flights = self._by_row.get(row)
        while flights and count:
            first = flights.popleft()
            some = min(first.members, count)
            landed.append((first.what, some))
            count -= some
            if some < first.members:
                flights.appendleft(first._replace(members=first.members - some))
        if flights is not None and not flights:
            del self._by_row[row]
        return landed

    def lost(self, now: float) -> Iterator[tuple[int, Kept, int]]:
        """What was proposed too long ago, as (row, what, members): it will not land any more."""
        while self._made and self._made[0][0] + self.keep_s <= now:
            for row in self._made.popleft()[1]:
                flights = self._by_row.get(row)
                while flights and flights[0].made_at + self.keep_s <= now:
                    first = flights.popleft()
                    yield row, first.what, first.members
                if flights is not None and not flights:
                    del self._by_row[row]

    def of(self, row: int) -> Iterable[Flight[Kept]]:
        """What is on its way to this row."""
        return self._by_row.get(row, ())

    def drop(self, row: int) -> None:
        """The row serves another host from now on."""
        self._by_row.pop(row, None)
