"""Wishes of gangs: a placer answers them with hosts for all members, or keeps them whole.

Each shape of a wish is proposed separately, the largest first, so that whether a gang fits does not
depend on the order of its members; if one finds no host, all are taken back. A gang that all hosts
together could not hold even if they were empty is answered so, with the numbers. No room is kept
free for a gang meanwhile: its pool has set its resources aside. Like other kept wishes these are
soft state, and limited in number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from peloton.actors.resources import COUNT_MAX, amount
from peloton.placement.index import HostIndex
from peloton.placement.messages import GangPlaced, GangWish, Placed
from peloton.placement.needs import GPU, Need
from peloton.placement.proposals import Proposed, placed
from peloton.placement.reasons import NEVER_TOGETHER, HostChecks
from peloton.placement.shapes import KnownShape, KnownShapes
from peloton.placement.unschedulable import NEVER_FITS, RESOURCE_UNITS, Unschedulable
from peloton.placement.waiting_wishes import WaitingWish, WaitingWishes
from peloton.runtime.vocabulary import Bits, Key, Send

GANGS_KEPT_MAX = 2_000
"""Gangs that one placer keeps; the slices of others wish again after a while."""
GANG_TRIES_MAX = 32
"""Kept gangs that are tried in one call; the next call, which follows at once, goes on behind
them."""


class _Part(NamedTuple):
    members: Bits
    known: KnownShape


@dataclass(eq=False, kw_only=True)
class KeptGang(WaitingWish):
    """A gang that waits for hosts."""

    whole: ClassVar[bool] = True
    wish: GangWish


class Proposer(Protocol):
    """The part of the placer that gang wishes use."""

    def propose(
        self, known: KnownShape, excluded: list[int], *, count: int, now: float
    ) -> Proposed:
        """Return rows for up to `count` members, counted as taken."""

    def why(self, known: KnownShape, excluded: list[int], *, used: list[int]) -> Unschedulable:
        """Return why members of one shape have no host."""


class GangWishes:
    """The gangs that one placer keeps."""

    def __init__(
        self,
        waiting: WaitingWishes,
        index: HostIndex,
        *,
        checks: HostChecks,
        shapes: KnownShapes,
    ) -> None:
        self._waiting = waiting
        self._index = index
        self._checks = checks
        self._shapes = shapes
        self._kept: dict[Key, KeptGang] = {}  # the one that was not repeated for longest first
        self._order: list[KeptGang] | None = None  # by their turns
        self._next: tuple[int, int] | None = None  # behind whom the tries go on
        self.untried = 0  # how many are to be tried since hosts reported room

    def __len__(self) -> int:
        return len(self._kept)

    def answer(self, wish: GangWish, *, by: Proposer, complete: bool, now: float) -> Iterator[Send]:
        """Answer a wish with hosts for all members, or with the reason why there are none.

        `complete`: whether all hosts are known.
        """
        members = _members(wish)
        gang = self._kept.get(wish.slice) or KeptGang(
            left=self._left, slice=wish.slice, number=wish.number, members=members, wish=wish
        )
        gang.number, gang.members, gang.wish, gang.told_never = wish.number, members, wish, None
        gang.refuse(self._index.receive_refusals(wish.refused), self._index)
        found = self._place(gang, by=by, now=now)
        if found is not None:
            if gang.serial:
                self._waiting.remove(gang, members)
            yield Send(wish.slice, found)
            return
        why = self.why(gang, by=by, complete=complete)
        if gang.serial:
            self._waiting.seen(gang, now)
        elif len(self) < GANGS_KEPT_MAX:
            self._waiting.add(gang, now)
            self._kept[wish.slice] = gang
        self._order = None
        yield from gang.tell(why)

    def try_again(self, *, by: Proposer, news: bool, now: float) -> Iterator[Send]:
        """Answer the kept gangs that fit now, in their order.

        Each is tried once since hosts last reported more room.
        """
        self.untried = len(self._kept) if news else min(self.untried, len(self._kept))
        failed: dict[int, int] = {}
        tries, free = 0, self._free_in_all()
        for kept in self._in_turn()[: self.untried]:
            shape = self._shapes.of(kept.wish.parts[0].shape).number
            count = len(kept.wish.parts[0].members)
            if count >= failed.get(shape, COUNT_MAX) or self._is_too_large(kept.wish, free):
                self.untried -= 1
                continue  # as many did not fit just now; or mostly, where a cluster is full
            if tries >= GANG_TRIES_MAX:
                return
            tries, self._next = tries + 1, _turn(kept)
            self.untried -= 1
            found = self._place(kept, by=by, now=now)
            if found is None:
                if len(kept.wish.parts) == 1 and not kept.refused:
                    failed[shape] = count
                continue
            self._waiting.remove(kept, kept.members)
            free = self._free_in_all()
            yield Send(kept.slice, found)
        self._next = None

    def kept(self) -> list[KeptGang]:
        return [*self._kept.values()]

    # ---- inside ----

    def _in_turn(self) -> list[KeptGang]:
        """Return the kept gangs, beginning behind the one that was tried last."""
        if self._order is None:
            self._order = sorted(self._kept.values(), key=_turn)
        if self._next is None:
            return self._order
        later = [each for each in self._order if _turn(each) > self._next]
        return [*later, *self._order[: len(self._order) - len(later)]]

    def _parts(self, wish: GangWish) -> list[_Part]:
        """Return the parts of a gang, those that need most first."""
        parts = [_Part(part.members, self._shapes.of(part.shape)) for part in wish.parts]
        return sorted(parts, key=lambda part: (part.known.need.amounts, len(part.members)))[::-1]

    def _place(self, gang: KeptGang, *, by: Proposer, now: float) -> GangPlaced | None:
        index, done = self._index, list[tuple[_Part, Proposed]]()
        wish, excluded = gang.wish, gang.excluded(index)
        avoided = [index.rows[host] for host in wish.avoid if host in index.rows]
        stages = [excluded + avoided, excluded] if avoided else [excluded]
        for part in self._parts(wish):
            count = len(part.members)
            known = part.known
            enough = known.strategy is not None and self._may_fit(known, count=count)
            found = all_of(by, known, stages=stages, count=count, now=now) if enough else None
            if found is not None:
                done.append((part, found))
            if found is None or len(found.hosts) < count:
                for each, proposed in done:
                    index.decline(each.known.need, proposed.hosts)
                return None
        return GangPlaced(wish.number, tuple(self._proposals(wish, done)))

    def _free_in_all(self) -> list[int]:
        """Return what all hosts together have free of each resource, without slack."""
        free: list[int] = np.maximum(self._index.free[: GPU + 1], 0).sum(axis=1).tolist()
        return free

    def _is_too_large(self, wish: GangWish, free: list[int]) -> bool:
        """Return whether all hosts together have less free than the gang needs, without
        searching hosts."""
        needed = [0] * len(free)
        for part in wish.parts:
            for kind, least in enumerate(self._shapes.of(part.shape).need.least[: GPU + 1]):
                needed[kind] += max(least, 0) * len(part.members)
        return any(need > has for need, has in zip(needed, free, strict=True))

    def _may_fit(self, known: KnownShape, *, count: int) -> bool:
        """Return whether all hosts together have enough free: cheaper than to propose and take
        back."""
        pairs = zip(self._free_in_all(), known.need.least[: GPU + 1], strict=True)
        if not all(least <= 0 or has >= least * count for has, least in pairs):
            return False
        return self._checks.room(known.need, np.flatnonzero(self._index.up)) >= count

    def _proposals(self, wish: GangWish, done: list[tuple[_Part, Proposed]]) -> Iterator[Placed]:
        for part, found in done:
            one = Placed(wish.number, part.members, tuple(found.hosts), part.known.number)
            for send in placed(wish.slice, one, shares=found.shares):
                message = send.message
                assert isinstance(message, Placed)
                yield message

    def _left(self, kept: KeptGang) -> None:
        del self._kept[kept.slice]
        self._order = None

    def why(self, gang: KeptGang, *, by: Proposer, complete: bool) -> Unschedulable:
        """Return why a gang waits: the first part that alone is too much for all hosts, even empty,
        else what lacks room.

        `complete`: whether all hosts are known.
        """
        total, excluded = len(gang.members), gang.excluded(self._index)
        parts = self._parts(gang.wish)
        for part in parts:
            if part.known.strategy is None:
                return by.why(part.known, excluded, used=[])
            most = self._if_empty(part.known.need)
            if most < len(part.members) and complete:
                why = by.why(part.known, excluded, used=[])
                if why.never:  # not one of them could run
                    return why
                text = (
                    f"{NEVER_TOGETHER}{total} needs hosts for {len(part.members)} such instances "
                    f"at once, all hosts of the cluster could hold {most} if they were empty: "
                    f"{NEVER_FITS}"
                )
                return Unschedulable(why.reasons, text, True)
        short = self._short_if_empty(parts)
        first = by.why(parts[0].known, excluded, used=[])
        if short and complete:
            text = f"{NEVER_TOGETHER}{total} needs {short} if they were empty: {NEVER_FITS}"
            return Unschedulable(first.reasons, text, True)
        free = self._checks.room(parts[0].known.need, np.flatnonzero(self._index.up))
        text = f"no hosts with room for all {total} of the gang at once"
        if free < len(parts[0].members):
            text += f": there is room for {free} of {len(parts[0].members)}"
        return Unschedulable(first.reasons, f"{text}; {first.text}", False)

    def _if_empty(self, need: Need) -> int:
        """Return how many members of a shape all hosts could hold if they were empty."""
        index, most = self._index, np.where(self._checks.fit_if_empty(need), COUNT_MAX, 0)
        for column, (each, least) in enumerate(
            zip(need.amounts[: GPU + 1], need.least[: GPU + 1], strict=True)
        ):
            if least > 0:
                # As many as fit with the slack that every check allows.
                most = np.minimum(most, (index.capacity[column] + each - least) // each)
        return int(np.minimum(most, COUNT_MAX).astype(object).sum())

    def _short_if_empty(self, parts: list[_Part]) -> str:
        """Return text about the first resource of which the parts need more than all hosts have."""
        index = self._index
        for column, (name, unit) in enumerate(RESOURCE_UNITS):
            needed = sum(part.known.need.lasting[column] * len(part.members) for part in parts)
            has = int(index.capacity[column][index.has_host].sum())
            if needed > has:
                return (
                    f"{amount(needed):.10g}{unit} {name} at once, "
                    f"all hosts of the cluster have {amount(has):.10g}{unit}"
                )
        return ""


def all_of(
    by: Proposer, known: KnownShape, *, stages: list[list[int]], count: int, now: float
) -> Proposed:
    """Return hosts for `count` members, or for fewer where there is no more room.

    The rows of the first stage are avoided as long as there are others. Where a strategy gives a
    host a few members at a time, the next ones are found in further rounds; members of a wish that
    is not a gang would be kept meanwhile.
    """
    found = Proposed([], [], [])
    assert known.strategy is not None
    for excluded in stages:
        while len(found.hosts) < count:
            more = by.propose(known, excluded, count=count - len(found.hosts), now=now)
            rows, hosts, shares = found
            found = Proposed(rows + more.rows, hosts + more.hosts, shares + more.shares)
            if not more.hosts or known.strategy.shares:
                break
    return found


def _members(wish: GangWish) -> Bits:
    found = Bits()
    for part in wish.parts:
        found = found | part.members
    return found


def _turn(kept: KeptGang) -> tuple[int, int]:
    return -kept.wish.priority, kept.serial
