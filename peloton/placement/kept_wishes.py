"""Wishes without a host, which a placer keeps until a host has room for them.

Turns "these rows may fit more than before" into the groups of wishes that are worth another try:
those of higher priority first, of equal priority those whose oldest wish came first. A cluster that
is full is worked off in this way at the pace of its tasks; no wish waits for a timer.

It must not decide where anything runs, and it is soft and bounded: a wish that is not kept, or that
is lost with its placer, is repeated by its slice; one that is not repeated is dropped, because its
slice has gone elsewhere.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from peloton.placement.index import HostIndex
from peloton.placement.labels import Ints
from peloton.placement.messages import Wish
from peloton.placement.shapes import KnownShape
from peloton.runtime.vocabulary import Bits, Key

KEPT_WISHES_MAX = 20_000
"""Wishes that one placer keeps; members that a slice wishes for one after the other are one wish,
unless others came between."""

KEPT_LOST_S = 35.0
"""A wish that was not repeated for so long, three times as long as slices take, is dropped."""

CELLS_MAX = 4_000_000
"""Pairs of a group and a row compared at once: bounds the memory that it takes."""

GroupKey = tuple[int, int]
"""Priority and number of the shape."""

Turn = tuple[int, int]
"""When a group is tried: its priority, negative so that the highest is the least, and the serial of
its oldest wish."""


class KeptWish:
    """A wish, less the members that were placed since."""

    def __init__(
        self, wish: Wish, known: KnownShape, *, never: bool, serial: int, since: float
    ) -> None:
        self.serial = serial  # a slice that restarts numbers its wishes anew
        self.since = since
        self.slice = wish.slice
        self.number = wish.number
        self.members = wish.members
        self.known = known
        self.told_never: bool | None = never  # None: it is to be told in any case
        self.group = (wish.priority, known.number)
        self.seen_at = 0.0
        self.refused: dict[int, int] = {}
        """Rows that refused it, by the number of their last report (`HostNews`): until they report
        more, they would refuse it again."""

    def excluded(self, index: HostIndex) -> list[int]:
        """The rows that refused it and have not reported more since."""
        if self.refused:
            news = index.news
            self.refused = {r: at for r, at in self.refused.items() if news.report_number(r) == at}
        return [*self.refused]


class _Order(NamedTuple):
    """All groups in the order of their turns, and the least that a member of each needs."""

    turns: list[Turn]
    groups: list[GroupKey]
    needs: Ints  # by resource and group


class KeptWishes:
    """The wishes that one placer keeps."""

    def __init__(self, most: int = KEPT_WISHES_MAX) -> None:
        self._most = most
        self._by_slice: dict[Key, dict[int, KeptWish]] = {}
        self._groups: dict[GroupKey, dict[int, KeptWish]] = {}  # each by serial, oldest first
        self._by_age: dict[int, KeptWish] = {}  # the one that was not repeated for longest first
        self._order: _Order | None = None
        self._serial = 0

    def __len__(self) -> int:
        return len(self._by_age)

    def add(self, wish: Wish, known: KnownShape, *, never: bool, now: float) -> KeptWish | None:
        """Keep a wish behind those of its group; None where there are too many.

        Joined to the last of its group, if that is of the same slice and no host has refused it.
        """
        group = self._groups.setdefault((wish.priority, known.number), {})
        last = group[next(reversed(group))] if group else None
        if last is not None and last.slice == wish.slice and not last.refused:
            last.members, last.number = last.members | wish.members, wish.number
            self._seen(last, now)
            return last
        if len(self) >= self._most:
            if not group:
                del self._groups[wish.priority, known.number]
            return None
        self._serial += 1
        kept = KeptWish(wish, known, never=never, serial=self._serial, since=now)
        self._by_slice.setdefault(wish.slice, {})[kept.serial] = kept
        if not group:
            self._order = None
        group[kept.serial] = kept
        self._seen(kept, now)
        return kept

    def tell_all_again(self) -> None:
        """What they were told is true no more."""
        for kept in self._by_age.values():
            kept.told_never = None

    def renew(self, wish: Wish, known: KnownShape, *, now: float) -> Bits:
        """The wish came (again): the members that are kept already, and keep their turn.

        Members that were kept as another shape or under another priority are kept no longer.
        """
        renewed = Bits()
        for kept in self.of_slice(wish.slice):
            if kept.group != (wish.priority, known.number):
                self.remove(kept, wish.members)
            elif kept.members & wish.members:
                renewed = renewed | (kept.members & wish.members)
                self._seen(kept, now)
        return renewed

    def members(self, slice_: Key) -> Bits:
        """The members of a slice that are kept."""
        found = Bits()
        for kept in self._by_slice.get(slice_, {}).values():
            found = found | kept.members
        return found

    def of_slice(self, slice_: Key) -> list[KeptWish]:
        """The wishes of a slice that are kept, the oldest first."""
        return [*self._by_slice.get(slice_, {}).values()]

    def retain(self, slice_: Key, wanted: Bits) -> None:
        """Of this slice only these members are still wanted."""
        for kept in self.of_slice(slice_):
            self.remove(kept, kept.members - wanted)

    def expire(self, now: float) -> None:
        """Drop the wishes that their slices did not repeat in time."""
        while self._by_age:
            oldest = next(iter(self._by_age.values()))
            if now < oldest.seen_at + KEPT_LOST_S:
                return
            self.remove(oldest, oldest.members)

    def remove(self, kept: KeptWish, members: Bits) -> None:
        """Remove members of a wish, and the wish with its last member."""
        kept.members = kept.members - members
        if kept.members:
            return
        of_slice, group = self._by_slice[kept.slice], self._groups[kept.group]
        del of_slice[kept.serial], self._by_age[kept.serial]
        if not of_slice:
            del self._by_slice[kept.slice]
        if next(iter(group)) == kept.serial:
            self._order = None  # the group's turn changes
        del group[kept.serial]
        if not group:
            del self._groups[kept.group]

    def candidates(
        self, index: HostIndex, rows: Ints, *, after: Turn | None = None
    ) -> list[tuple[Turn, GroupKey]]:
        """The groups of which a member may fit one of these rows, in the order of their turns.

        `after`: only those whose turn comes later than this one.
        """
        if not self._groups or not len(rows):
            return []
        order = self._in_order()
        first = bisect_right(order.turns, after) if after is not None else 0
        found = np.zeros(len(order.turns) - first, np.bool_)
        step = max(1, CELLS_MAX // max(len(found), 1))
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            fits = np.broadcast_to(index.up[some], (len(found), len(some)))
            for column, least in zip(index.free[:, some], order.needs[:, first:], strict=True):
                fits = fits & (column >= least[:, None])
            found |= fits.any(axis=1)
        numbers = (np.flatnonzero(found) + first).tolist()
        return [(order.turns[at], order.groups[at]) for at in numbers]

    def of_group(self, group: GroupKey, most: int) -> list[KeptWish]:
        """The wishes of a group for `most` members, in the order in which they came."""
        found: list[KeptWish] = []
        for kept in self._groups.get(group, {}).values():
            if most <= 0:
                break
            found.append(kept)
            most -= len(kept.members)
        return found

    def groups(self) -> list[GroupKey]:
        """Every group."""
        return [*self._groups]

    def shape(self, group: GroupKey) -> KnownShape | None:
        """The shape of a group; None once nothing of it is kept."""
        wishes = self._groups.get(group)
        return next(iter(wishes.values())).known if wishes else None

    def _seen(self, kept: KeptWish, now: float) -> None:
        kept.seen_at = now
        self._by_age.pop(kept.serial, None)
        self._by_age[kept.serial] = kept

    def _in_order(self) -> _Order:
        if self._order is None:
            firsts = {group: next(iter(wishes.values())) for group, wishes in self._groups.items()}
            turns = sorted((-group[0], kept.serial, group) for group, kept in firsts.items())
            groups = [group for *_, group in turns]
            needs = [firsts[group].known.need.least for group in groups]
            columns = np.array(needs, np.int64).reshape(len(groups), -1).T
            self._order = _Order([(first, second) for first, second, _ in turns], groups, columns)
        return self._order


def split(
    wishes: Iterable[KeptWish], index: HostIndex
) -> Iterator[tuple[list[KeptWish], list[int]]]:
    """Wishes decided as one, with the rows they exclude: those without any together."""
    together: list[KeptWish] = []
    for kept in wishes:
        excluded = kept.excluded(index)
        if excluded:
            if together:
                yield together, []
                together = []
            yield [kept], excluded
        else:
            together.append(kept)
    if together:
        yield together, []
