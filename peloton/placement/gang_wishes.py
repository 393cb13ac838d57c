"""Wishes of gangs: a placer answers them with hosts for all members, or keeps them whole.

Turns a wish into proposals of each of its shapes, the largest first, so that whether a gang fits
does not depend on the order of its members; if one finds no host, all are taken back. What no
hosts could hold at once, even if they were empty, is told so, with the numbers. Nothing is kept
free for a gang meanwhile: its pool has set its resources aside. Soft and bounded, as other kept
wishes are; must not hold a part of a gang.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
from msgspec.structs import replace

from peloton.actors.resources import COUNT_MAX, amount
from peloton.placement.index import HostIndex
from peloton.placement.kept_wishes import KEPT_LOST_S
from peloton.placement.messages import Declined, GangPlaced, GangWish, Placed, Unplaced
from peloton.placement.needs import GPU, Need
from peloton.placement.proposals import Proposed, placed
from peloton.placement.reasons import HostChecks
from peloton.placement.shapes import KnownShape, KnownShapes
from peloton.placement.unschedulable import NEVER_FITS, RESOURCE_UNITS, Unschedulable
from peloton.runtime.vocabulary import Bits, Key, Send

GANGS_KEPT_MAX = 2_000
"""Gangs that one placer keeps; the slices of others wish again after a while."""
GANG_TRIES_MAX = 32
"""Kept gangs that are tried in one call; the next call, which follows at once, goes on behind
them."""
GANGS_EXPLAINED_MAX = 16
"""Kept gangs that are explained anew in one call; the next call follows at once."""


NEVER_TOGETHER = "a gang of "
"""So the text begins where single members would fit, and all of them together never."""


class _Part(NamedTuple):
    members: Bits
    known: KnownShape


class KeptGang:
    """A gang without hosts."""

    def __init__(self, wish: GangWish, *, serial: int) -> None:
        self.wish = wish
        self.serial = serial
        self.seen_at = 0.0
        self.refused: dict[int, int] = {}
        self.told_never: bool | None = False  # None: it is to be told in any case

    def excluded(self, index: HostIndex) -> list[int]:
        """The rows that refused it and have not reported more since."""
        news = index.news
        self.refused = {
            row: at for row, at in self.refused.items() if news.report_number(row) == at
        }
        return [*self.refused]


class Proposer(Protocol):
    """What this module needs of the placer."""

    def propose(
        self, known: KnownShape, excluded: list[int], *, count: int, now: float
    ) -> Proposed:
        """Rows for up to `count` members, counted as taken."""

    def why(self, known: KnownShape, excluded: list[int], *, used: list[int]) -> Unschedulable:
        """Why members of one shape have no host."""


class GangWishes:
    """The gangs that one placer knows."""

    def __init__(self, index: HostIndex, *, checks: HostChecks, shapes: KnownShapes) -> None:
        self._index = index
        self._checks = checks
        self._shapes = shapes
        self._kept: dict[Key, KeptGang] = {}  # the one that was not repeated for longest first
        self._order: list[KeptGang] | None = None  # by their turns
        self._serial = 0
        self._next: tuple[int, int] | None = None  # behind whom the tries go on
        self._left = 0  # how many are to be tried since hosts reported room
        self._to_explain: list[Key] = []  # slices

    @property
    def busy(self) -> bool:
        """Whether some are left to try or to explain."""
        return bool(self._left or self._to_explain)

    def __len__(self) -> int:
        return len(self._kept)

    def retain(self, declined: Declined) -> None:
        """A slice says which of its members are still wanted."""
        kept = self._kept.get(declined.slice)
        if kept is not None and _members(kept.wish) - declined.wanted:
            self._drop(kept)

    def expire(self, now: float) -> None:
        """Forget the gangs whose slices have not repeated their wishes."""
        while self._kept:
            oldest = next(iter(self._kept.values()))
            if now < oldest.seen_at + KEPT_LOST_S:
                return
            self._drop(oldest)

    def answer(self, wish: GangWish, *, by: Proposer, complete: bool, now: float) -> Iterator[Send]:
        """Hosts for all, or why not. `complete`: all hosts are known."""
        excluded = [self._index.receive_refusal(host) for host in wish.refused]
        rows = [row for row in excluded if row is not None]
        found = self._place(wish, rows, by=by, now=now)
        if found is not None:
            known = self._kept.get(wish.slice)
            if known is not None:
                self._drop(known)
            yield Send(wish.slice, found)
            return
        why = self._why(wish, rows, by=by, complete=complete)
        kept = self._keep(wish, rows, now=now)
        if kept is not None:
            kept.told_never = why.never
        members = _members(wish)
        answer = Unplaced(wish.number, members, why.reasons, why.text, why.never, kept is not None)
        yield Send(wish.slice, answer)

    def try_again(self, *, by: Proposer, news: bool, now: float) -> Iterator[Send]:
        """The kept gangs that fit now, in their order, each once since hosts reported room."""
        self._left = len(self._kept) if news else min(self._left, len(self._kept))
        failed: dict[int, int] = {}
        tries, free = 0, self._free_in_all()
        for kept in self._in_turn()[: self._left]:
            shape = self._shapes.of(kept.wish.parts[0].shape).number
            count = len(kept.wish.parts[0].members)
            if count >= failed.get(shape, COUNT_MAX) or self._is_too_large(kept.wish, free):
                self._left -= 1
                continue  # as many did not fit just now; or mostly, where a cluster is full
            if tries >= GANG_TRIES_MAX:
                return
            tries, self._next = tries + 1, _turn(kept)
            self._left -= 1
            found = self._place(kept.wish, kept.excluded(self._index), by=by, now=now)
            if found is None:
                if len(kept.wish.parts) == 1 and not kept.refused:
                    failed[shape] = count
                continue
            self._drop(kept)
            free = self._free_in_all()
            yield Send(kept.wish.slice, found)
        self._next = None

    def tell_all_again(self) -> None:
        """What they were told is true no more, and they may fit on any host."""
        self._left = len(self._kept)
        for kept in self._kept.values():
            kept.told_never = None
        self.explain_all_again()

    def explain_all_again(self) -> None:
        """Other hosts are known than before: some could now run what none could, or the reverse."""
        left = dict.fromkeys(self._to_explain)  # these first: hosts may change in every call
        self._to_explain = [*(each for each in self._kept if each not in left), *left]

    def explain_again(self, *, by: Proposer, complete: bool) -> Iterator[Send]:
        """Tell those of the next gangs of which something else is true now."""
        for _ in range(min(GANGS_EXPLAINED_MAX, len(self._to_explain))):
            kept = self._kept.get(self._to_explain.pop())
            if kept is None:
                continue
            why = self._why(kept.wish, kept.excluded(self._index), by=by, complete=complete)
            if why.never != kept.told_never:
                kept.told_never = why.never
                wish = kept.wish
                yield Send(
                    wish.slice,
                    Unplaced(wish.number, _members(wish), why.reasons, why.text, why.never, True),
                )

    # ---- inside ----

    def _in_turn(self) -> list[KeptGang]:
        """All of them, from the one on that is behind the last try."""
        if self._order is None:
            self._order = sorted(self._kept.values(), key=_turn)
        if self._next is None:
            return self._order
        later = [each for each in self._order if _turn(each) > self._next]
        return [*later, *self._order[: len(self._order) - len(later)]]

    def _parts(self, wish: GangWish) -> list[_Part]:
        """The parts, those that need most first."""
        parts = [_Part(part.members, self._shapes.of(part.shape)) for part in wish.parts]
        return sorted(parts, key=lambda part: (part.known.need.amounts, len(part.members)))[::-1]

    def _place(
        self, wish: GangWish, excluded: list[int], *, by: Proposer, now: float
    ) -> GangPlaced | None:
        index, done = self._index, list[tuple[_Part, Proposed]]()
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
        """What all hosts together have free of each kind, without slack."""
        free: list[int] = np.maximum(self._index.free[: GPU + 1], 0).sum(axis=1).tolist()
        return free

    def _is_too_large(self, wish: GangWish, free: list[int]) -> bool:
        """Whether all hosts together have less free than it needs: that is known without hosts."""
        needed = [0] * len(free)
        for part in wish.parts:
            for kind, least in enumerate(self._shapes.of(part.shape).need.least[: GPU + 1]):
                needed[kind] += max(least, 0) * len(part.members)
        return any(need > has for need, has in zip(needed, free, strict=True))

    def _may_fit(self, known: KnownShape, *, count: int) -> bool:
        """Whether all hosts together have so much free: cheaper than to propose and take back."""
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

    def _keep(self, wish: GangWish, rows: list[int], *, now: float) -> KeptGang | None:
        known = self._kept.get(wish.slice)
        if known is None and len(self._kept) >= GANGS_KEPT_MAX:
            return None
        self._serial += 1
        kept = KeptGang(
            replace(wish, refused=()), serial=self._serial if known is None else known.serial
        )
        kept.seen_at = now
        kept.refused = {row: self._index.news.report_number(row) for row in rows}
        self._kept.pop(wish.slice, None)
        self._kept[wish.slice] = kept
        self._order = None
        return kept

    def _drop(self, kept: KeptGang) -> None:
        del self._kept[kept.wish.slice]
        self._order = None

    def _why(
        self, wish: GangWish, excluded: list[int], *, by: Proposer, complete: bool
    ) -> Unschedulable:
        """The first part that alone is too much for all hosts, even empty; else what lacks room."""
        total = len(_members(wish))
        parts = self._parts(wish)
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
        """How many members of a shape all hosts could hold if they were empty."""
        index, most = self._index, np.where(self._checks.fit_if_empty(need), COUNT_MAX, 0)
        for column, (each, least) in enumerate(
            zip(need.amounts[: GPU + 1], need.least[: GPU + 1], strict=True)
        ):
            if least > 0:
                # As many as fit with the slack that every check allows.
                most = np.minimum(most, (index.capacity[column] + each - least) // each)
        return int(np.minimum(most, COUNT_MAX).astype(object).sum())

    def _short_if_empty(self, parts: list[_Part]) -> str:
        """The first resource of which all parts together need more than all hosts have."""
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
    """Hosts for so many members, or for fewer where there is no more room; without the rows of the
    first stage as long as there are others.

    Where a strategy gives a host a few at a time, the next ones come in further rounds: of one wish
    that is not a gang they would be kept meanwhile.
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
