"""Wishes that any host may serve, and which groups of them are tried first.

Turns "these rows may fit more than before" into the groups of wishes that are worth another try:
those of higher priority first, of equal priority those whose oldest wish came first. A cluster that
is full is worked off in this way at the pace of its tasks; no wish waits for a timer.

It must not decide where anything runs, and it is bounded: a wish that is not kept is repeated by
its slice.
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
    """One of them."""

    known: KnownShape
    group: GroupKey
    since: float


class _Order(NamedTuple):
    """All groups in the order of their turns, and the least that a member of each needs."""

    turns: list[Turn]
    groups: list[GroupKey]
    needs: Ints  # by resource and group


class KeptWishes:
    """Those of one placer."""

    def __init__(self, waiting: WaitingWishes, most: int = KEPT_WISHES_MAX) -> None:
        self._waiting = waiting
        self._most = most
        self._count = 0
        self._groups: dict[GroupKey, dict[int, KeptWish]] = {}  # each by serial, oldest first
        self._order: _Order | None = None

    def __len__(self) -> int:
        return self._count

    def add(self, wish: Wish, known: KnownShape, *, never: bool, now: float) -> KeptWish | None:
        """Keep a wish behind those of its group; None where there are too many.

        Joined to the last of its group, if that is of the same slice and no host has refused it.
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
        """The wish came (again): the members that are kept already, and keep their turn.

        Members that were kept as another shape or under another priority are kept no longer.
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
        """The members of a slice that are kept."""
        found = Bits()
        for kept in self.of_slice(slice_):
            found = found | kept.members
        return found

    def of_slice(self, slice_: Key) -> list[KeptWish]:
        """The wishes of a slice that are kept, the oldest first."""
        wishes = self._waiting.of_slice(slice_)
        return [wish for wish in wishes if isinstance(wish, KeptWish)]

    def remove(self, kept: KeptWish, members: Bits) -> None:
        """Remove members of a wish, and the wish with its last member."""
        self._waiting.remove(kept, members)

    def _left(self, wish: KeptWish) -> None:
        """A wish waits no longer."""
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
