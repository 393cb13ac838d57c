"""Proposals in flight: those their hosts have not decided yet, which a placer subtracts itself.

Turns "so many members were proposed to this row" and "so many launches were decided there since"
into the proposals that have landed. Launches arrive roughly in the order of their proposals, so of
members proposed to one host the oldest count as landed first. Launches of another placer on the
same host cannot be told apart; a proposal then counts as landed too early, which costs a refusal.

Elapsed time must not count as a decision: `PROPOSAL_KEEP_S` only frees what lost proposals took.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

PROPOSAL_KEEP_S = 5.0
"""Seconds after which a proposal that its host has not decided is considered lost."""

Kept = TypeVar("Kept")


class Flight(NamedTuple, Generic[Kept]):
    """Members proposed to one host at one moment."""

    made_at: float
    what: Kept
    members: int


class Flights(Generic[Kept]):
    """Proposals in flight by row, oldest first."""

    def __init__(self) -> None:
        self.keep_s = PROPOSAL_KEEP_S
        self._by_row: dict[int, list[Flight[Kept]]] = {}  # mostly short, and many
        self._made: deque[tuple[float, Sequence[int]]] = deque()  # rows to check when too old

    def add(self, what: Kept, rows: Sequence[int], *, counts: Iterable[int], now: float) -> None:
        """Members were proposed; each row is named once."""
        by_row = self._by_row
        for row, count in zip(rows, counts, strict=True):
            flights = by_row.get(row)
            if flights is None:
                flights = by_row[row] = []
            flights.append(Flight(now, what, count))
        self._made.append((now, rows))

    def land(self, row: int, count: int) -> list[tuple[Kept, int]]:
        """The host decided `count` more launches: what has landed, as (what, members)."""
        landed: list[tuple[Kept, int]] = []
        flights = self._by_row.get(row, [])
        gone = 0
        for flight in flights:
            if not count:
                break
            some = min(flight.members, count)
            landed.append((flight.what, some))
            count -= some
            if some < flight.members:
                flights[gone] = flight._replace(members=flight.members - some)
            else:
                gone += 1
        self._remove(row, flights, count=gone)
        return landed

    def cancel(self, row: int, matches: Callable[[Kept], bool], *, count: int) -> int:
        """Up to `count` such members will never arrive; returns how many were in flight."""
        flights = self._by_row.get(row, [])
        kept: list[Flight[Kept]] = []
        left = count
        for flight in flights:
            some = min(flight.members, left) if matches(flight.what) else 0
            left -= some
            if some < flight.members:
                kept.append(flight._replace(members=flight.members - some))
        if kept:
            self._by_row[row] = kept
        else:
            self._by_row.pop(row, None)
        return count - left

    def lost(self, now: float) -> Iterator[tuple[int, Kept, int]]:
        """What was proposed too long ago and is considered lost, as (row, what, members)."""
        while self._made and self._made[0][0] + self.keep_s <= now:
            for row in self._made.popleft()[1]:
                flights = self._by_row.get(row, [])
                fresh = (at for at, each in enumerate(flights) if now < each.made_at + self.keep_s)
                old = flights[: next(fresh, len(flights))]
                self._remove(row, flights, count=len(old))
                for flight in old:
                    yield row, flight.what, flight.members

    def of(self, row: int) -> Iterable[Flight[Kept]]:
        """What is in flight to this row."""
        return self._by_row.get(row, ())

    def drop(self, row: int) -> None:
        """Forget the proposals of a row, which may be reused for another host."""
        self._by_row.pop(row, None)

    def _remove(self, row: int, flights: list[Flight[Kept]], *, count: int) -> None:
        """Remove the oldest of a row."""
        del flights[:count]
        if not flights:
            self._by_row.pop(row, None)
