"""Proposals in flight: those that their hosts have not decided yet, subtracted by the placer.

A host reports how many launches it has decided. Launches arrive roughly in the order of their
proposals, so the oldest members proposed to the host count as landed first. Launches of another
placer on the same host cannot be told apart; a proposal then counts as landed too early, which
costs a refusal.

Time alone decides nothing: `PROPOSAL_KEEP_S` only frees what lost proposals took.
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
        """Record proposals of `counts` members to `rows`; each row is named once."""
        by_row = self._by_row
        for row, count in zip(rows, counts, strict=True):
            flights = by_row.get(row)
            if flights is None:
                flights = by_row[row] = []
            flights.append(Flight(now, what, count))
        self._made.append((now, rows))

    def land(self, row: int, count: int) -> list[tuple[Kept, int]]:
        """Take `count` launches that a host has decided from the oldest proposals to its row.

        Returns what has landed, as (what, members).
        """
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
        """Remove up to `count` matching members, which will never arrive.

        Returns how many were in flight.
        """
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
        """Remove and yield the proposals old enough to count as lost, as (row, what, members)."""
        while self._made and self._made[0][0] + self.keep_s <= now:
            for row in self._made.popleft()[1]:
                flights = self._by_row.get(row, [])
                fresh = (at for at, each in enumerate(flights) if now < each.made_at + self.keep_s)
                old = flights[: next(fresh, len(flights))]
                self._remove(row, flights, count=len(old))
                for flight in old:
                    yield row, flight.what, flight.members

    def of(self, row: int) -> Iterable[Flight[Kept]]:
        """Return the proposals in flight to a row, oldest first."""
        return self._by_row.get(row, ())

    def drop(self, row: int) -> None:
        """Forget the proposals to a row, which may be reused for another host."""
        self._by_row.pop(row, None)

    def _remove(self, row: int, flights: list[Flight[Kept]], *, count: int) -> None:
        del flights[:count]
        if not flights:
            self._by_row.pop(row, None)
