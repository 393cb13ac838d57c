"""Wishes that a placer keeps until a host has room, in one list, whatever their kind.

The kind of a wish decides how it finds its host, and is told when the wish has left: any host in
turns (`kept_wishes.py`), one host alone (`pinned.py`), hosts for all members at once
(`gang_wishes.py`). Wishes are soft state: one that is lost with its placer is repeated by its
slice; one that is not repeated is dropped, because its slice has gone elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from peloton.placement.index import HostIndex
from peloton.placement.proposals import unplaced
from peloton.placement.unschedulable import Unschedulable
from peloton.runtime.vocabulary import Bits, Key, Send

KEPT_LOST_S = 35.0
"""A wish that was not repeated for so long, three times as long as slices take, is dropped."""


@dataclass(eq=False, kw_only=True)
class WaitingWish:
    """A wish, less the members that were placed since."""

    whole: ClassVar[bool] = False  # whether it waits for all of its members, or for none
    left: Callable[[Any], None]  # called when it waits no longer
    slice: Key
    number: int
    members: Bits
    serial: int = 0  # a slice that restarts numbers its wishes anew; 0: it does not wait
    seen_at: float = 0.0
    told_never: bool | None = None  # None: it is to be told in any case
    refused: dict[int, int] = field(default_factory=dict)
    """Rows that refused it, by the number of their last report (`HostNews`): until they report
    more, they would refuse it again."""

    def refuse(self, rows: Iterable[int], index: HostIndex) -> None:
        """Record the rows that have just refused the wish, instead of those recorded before."""
        self.refused = {row: index.news.report_number(row) for row in rows}

    def excluded(self, index: HostIndex) -> list[int]:
        """Return the rows that refused the wish and have not reported more since."""
        if self.refused:
            news = index.news
            self.refused = {r: at for r, at in self.refused.items() if news.report_number(r) == at}
        return [*self.refused]

    def tell(self, why: Unschedulable) -> list[Send]:
        """Return the answer to the slice, or nothing if the slice was told the same."""
        if self.told_never == why.never:
            return []
        self.told_never = why.never
        return [
            unplaced(self.slice, self.number, members=self.members, why=why, kept=self.serial > 0)
        ]


class WaitingWishes:
    """All wishes that one placer keeps."""

    def __init__(self) -> None:
        self._by_slice: dict[Key, dict[int, WaitingWish]] = {}  # each by serial, oldest first
        self._by_age: dict[int, WaitingWish] = {}  # the one that was not repeated for longest first
        self._serial = 0

    def add(self, wish: WaitingWish, now: float) -> None:
        """Keep a wish."""
        self._serial += 1
        wish.serial = self._serial
        self._by_slice.setdefault(wish.slice, {})[wish.serial] = wish
        self.seen(wish, now)

    def seen(self, wish: WaitingWish, now: float) -> None:
        """Record that the slice has repeated a wish."""
        wish.seen_at = now
        self._by_age.pop(wish.serial, None)
        self._by_age[wish.serial] = wish

    def of_slice(self, slice_: Key) -> list[WaitingWish]:
        """Return the wishes of a slice, the oldest first."""
        return [*self._by_slice.get(slice_, {}).values()]

    def tell_all_again(self) -> None:
        """Forget what slices were told, because it is no longer true."""
        for wish in self._by_age.values():
            wish.told_never = None

    def retain(self, slice_: Key, wanted: Bits) -> None:
        """Keep of this slice only the members that are still wanted."""
        for wish in self.of_slice(slice_):
            self.remove(wish, wish.members - wanted)

    def expire(self, now: float) -> None:
        """Drop the wishes that their slices did not repeat in time."""
        while self._by_age:
            oldest = next(iter(self._by_age.values()))
            if now < oldest.seen_at + KEPT_LOST_S:
                return
            self.remove(oldest, oldest.members)

    def remove(self, wish: WaitingWish, members: Bits) -> None:
        """Remove members of a wish, and the wish with its last member."""
        rest = wish.members - members
        if rest and not (wish.whole and rest != wish.members):
            wish.members = rest
            return
        of_slice = self._by_slice[wish.slice]
        del of_slice[wish.serial], self._by_age[wish.serial]
        if not of_slice:
            del self._by_slice[wish.slice]
        wish.left(wish)
        wish.members, wish.serial = rest, 0
