"""Wishes that any host may serve, and the order in which groups of them are tried.

When rows may fit more than before, the groups of wishes that may use them are tried: those of
higher priority first, of equal priority those whose oldest wish came first. The wishes of a full
cluster are thus served as fast as tasks end; no wish waits for a timer. The number of kept wishes
is limited: a wish that is not kept is repeated by its slice.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from peloton.placement.index import HostIndex
from peloton.placement.labels import Ints
from peloton.placement.messages import Wish
from peloton.placement.shapes import KnownShape
from peloton.placement.waiting_wishes import WaitingWish, WaitingWishes
from peloton.runtime.vocabulary import Bits, Key

KEPT_WISHES_MAX = 20_000
"""Wishes that one placer keeps; members that a slice wishes for one after the other are one wish,
unless others came between."""

CELLS_MAX = 4_000_000
"""Pairs of a group and a row compared at once: bounds the memory that it takes."""

GroupKey = tuple[int, int]
"""Priority and number of the shape."""

Turn = tuple[int, int]
"""When a group is tried: its priority, negative so that the highest is the least, and the serial of
its oldest wish."""


@dataclass(eq=False, kw_only=True)
class KeptWish(WaitingWish):
    """A kept wish that any host may serve."""

    known: KnownShape
    group: GroupKey
    since: float


class _Order(NamedTuple):
    """All groups in the order of their turns, and the least that a member of each needs."""

    turns: list[Turn]
    groups: list[GroupKey]
    needs: Ints  # by resource and group


class KeptWishes:
    """The wishes of one placer that any host may serve."""

    def __init__(self, waiting: WaitingWishes, most: int = KEPT_WISHES_MAX) -> None:
        self._waiting = waiting
        self._most = most
        self._count = 0
        self._groups: dict[GroupKey, dict[int, KeptWish]] = {}  # each by serial, oldest first
        self._order: _Order | None = None

    def __len__(self) -> int:
        return self._count

    def add(self, wish: Wish, known: KnownShape, *, never: bool, now: float) -> KeptWish | None:
        """Keep a wish behind those of its group; return None if there are too many.

        It is joined to the last wish of its group if that is of the same slice and no host has
        refused it.
        """
        name = wish.priority, known.number
        group = self._groups.setdefault(name, {})
        last = group[next(reversed(group))] if group else None
        if last is not None and last.slice == wish.slice and not last.refused:
            last.members, last.number = last.members | wish.members, wish.number
            self._waiting.seen(last, now)
            return last
        if len(self) >= self._most:
            if not group:
                del self._groups[name]
            return None
        kept = KeptWish(
            left=self._left, slice=wish.slice, number=wish.number, members=wish.members,
            told_never=never, known=known, group=name, since=now,
        )  # fmt: skip
        self._waiting.add(kept, now)
        self._count += 1
        if not group:
            self._order = None
        group[kept.serial] = kept
        return kept

    def renew(self, wish: Wish, known: KnownShape, *, now: float) -> Bits:
        """Receive a wish that may be a repetition.

        Returns the members that are kept already, and keep their turn. Members that were kept as
        another shape or under another priority are kept no longer.
        """
        renewed = Bits()
        for kept in self.of_slice(wish.slice):
            if kept.group != (wish.priority, known.number):
                self.remove(kept, wish.members)
            elif kept.members & wish.members:
                renewed = renewed | (kept.members & wish.members)
                self._waiting.seen(kept, now)
        return renewed

    def members(self, slice_: Key) -> Bits:
        """Return the members of a slice that are kept."""
        found = Bits()
        for kept in self.of_slice(slice_):
            found = found | kept.members
        return found

    def of_slice(self, slice_: Key) -> list[KeptWish]:
        """Return the kept wishes of a slice, the oldest first."""
        wishes = self._waiting.of_slice(slice_)
        return [wish for wish in wishes if isinstance(wish, KeptWish)]

    def remove(self, kept: KeptWish, members: Bits) -> None:
        """Remove members of a wish, and the wish with its last member."""
        self._waiting.remove(kept, members)

    def _left(self, wish: KeptWish) -> None:
        self._count -= 1
        group = self._groups[wish.group]
        if next(iter(group)) == wish.serial:
            self._order = None  # the group's turn changes
        del group[wish.serial]
        if not group:
            del self._groups[wish.group]

    def candidates(
        self, index: HostIndex, rows: Ints, *, after: Turn | None = None
    ) -> list[tuple[Turn, GroupKey]]:
        """Return the groups of which a member may fit one of these rows, in the order of their
        turns.

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
        """Return the wishes of a group for `most` members, in the order in which they came."""
        found: list[KeptWish] = []
        for kept in self._groups.get(group, {}).values():
            if most <= 0:
                break
            found.append(kept)
            most -= len(kept.members)
        return found

    def groups(self) -> list[GroupKey]:
        return [*self._groups]

    def shape(self, group: GroupKey) -> KnownShape | None:
        """Return the shape of a group, or None once nothing of it is kept."""
        wishes = self._groups.get(group)
        return next(iter(wishes.values())).known if wishes else None

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
    """Yield wishes to be decided together, with the rows that they exclude.

    Wishes that exclude no rows are decided as one.
    """
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
