"""Wishes without a host, which a placer keeps until a host has room for them.

Turns "these rows may fit more than before" into the groups of wishes that are worth another try:
those of higher priority first, of equal priority those that came first. A cluster that is full is
worked off in this way at the pace of its tasks; no wish waits for a timer.

It must not decide where anything runs, and it is soft and bounded: a wish that is not kept, or that
is lost with its placer, is repeated by its slice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

import numpy as np

from peloton.placement.index import HostIndex
from peloton.placement.labels import Ints
from peloton.placement.messages import Wish
from peloton.placement.shapes import KnownShape
from peloton.runtime.vocabulary import Bits, Key

KEPT_WISHES_MAX = 10_000
"""Wishes that one placer keeps. Those of alike members are one wish for each slice."""


class KeptWish:
    """A wish, less the members that were placed since."""

    def __init__(self, wish: Wish, known: KnownShape, *, never: bool, serial: int) -> None:
        self.serial = serial  # a slice that restarts numbers its wishes anew
        self.slice = wish.slice
        self.number = wish.number
        self.members = wish.members
        self.known = known
        self.never = never  # as its slice was told
        self.priority = wish.priority
        self.refused: dict[int, int] = {}
        """Rows that refused it, by what was known of them then (`HostNews`): until they
        report more, they would refuse it again."""

    def excluded(self, index: HostIndex) -> list[int]:
        """The rows that refused it and have not reported more since."""
        if self.refused:
            news = index.news
            self.refused = {r: at for r, at in self.refused.items() if news.number(r) == at}
        return [*self.refused]


CELLS_MAX = 4_000_000
"""Pairs of a group and a row compared at once: bounds the memory that it takes."""

GroupKey = tuple[int, int]
"""Priority, negative so that the highest is the least, and number of the shape."""


class KeptWishes:
    """The wishes that one placer keeps."""

    def __init__(self, most: int = KEPT_WISHES_MAX) -> None:
        self._most = most
        self._by_slice: dict[Key, dict[int, KeptWish]] = {}
        self._groups: dict[GroupKey, dict[int, KeptWish]] = {}
        self._least: tuple[list[GroupKey], Ints] | None = None
        self._count = 0
        self._serial = 0

    def __len__(self) -> int:
        return self._count

    def add(self, wish: Wish, known: KnownShape, *, never: bool) -> KeptWish | None:
        """Keep a wish behind those of its group; None where there are too many."""
        if self._count >= self._most:
            return None
        self._serial += 1
        kept = KeptWish(wish, known, never=never, serial=self._serial)
        self._by_slice.setdefault(wish.slice, {})[kept.serial] = kept
        group = self._groups.get(_group_key(kept))
        if group is None:
            group = self._groups[_group_key(kept)] = {}
            self._least = None
        group[kept.serial] = kept
        self._count += 1
        return kept

    def subtract(self, slice_: Key, members: Bits) -> None:
        """These members are wished for anew, or not any more."""
        for kept in [*self._by_slice.get(slice_, {}).values()]:
            self.placed(kept, members)

    def retain(self, slice_: Key, wanted: Bits) -> None:
        """Of this slice only these members are still wanted."""
        for kept in [*self._by_slice.get(slice_, {}).values()]:
            self.placed(kept, kept.members - wanted)

    def placed(self, kept: KeptWish, members: Bits) -> None:
        """Remove members of a wish, and the wish with its last member."""
        kept.members = kept.members - members
        if kept.members:
            return
        of_slice = self._by_slice[kept.slice]
        del of_slice[kept.serial]
        if not of_slice:
            del self._by_slice[kept.slice]
        name = _group_key(kept)
        group = self._groups[name]
        del group[kept.serial]
        if not group:
            del self._groups[name]
            self._least = None
        self._count -= 1

    def candidates(
        self, index: HostIndex, rows: Ints, *, after: GroupKey | None = None
    ) -> list[GroupKey]:
        """The groups of which a member may fit one of these rows, in the order of their turn.

        `after`: only those whose turn comes later than that of this group.
        """
        if not self._groups or not len(rows):
            return []
        names, least = self._matrix()
        first = bisect_right(names, after) if after is not None else 0
        found = np.zeros(len(names) - first, np.bool_)
        step = max(1, CELLS_MAX // max(len(found), 1))
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            fits = np.broadcast_to(index.up[some], (len(found), len(some)))
            for column, lowest in zip(index.free[:, some], least[:, first:], strict=True):
                fits = fits & (column >= lowest[:, None])
            found |= fits.any(axis=1)
        return [names[first + at] for at in np.flatnonzero(found).tolist()]

    def group(self, name: GroupKey, most: int) -> list[KeptWish]:
        """The wishes of a group for `most` members, in the order in which they came."""
        found: list[KeptWish] = []
        for kept in self._groups.get(name, {}).values():
            if most <= 0:
                break
            found.append(kept)
            most -= len(kept.members)
        return found

    def shape(self, name: GroupKey) -> KnownShape:
        """The shape of a group."""
        return next(iter(self._groups[name].values())).known

    def shapes(self) -> Iterator[tuple[KnownShape, list[KeptWish]]]:
        """Every group with the shape of its members."""
        for group in [*self._groups.values()]:
            wishes = [*group.values()]
            yield wishes[0].known, wishes

    def _matrix(self) -> tuple[list[GroupKey], Ints]:
        if self._least is None:
            names = sorted(self._groups)
            rows = [next(iter(self._groups[name].values())).known.need.least for name in names]
            self._least = names, np.array(rows, np.int64).reshape(len(names), -1).T
        return self._least


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


def _group_key(kept: KeptWish) -> GroupKey:
    return -kept.priority, kept.known.number
