"""The pool tree computed from its definition: every answer walks all pools and lots.

Turns states of pools and lots into sums, order and admissions without keeping anything but the
order in which pools began to wait. It is what the kept index is compared with, so it must share
no code with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from peloton.actors.resources import EPSILON, Resources
from peloton.actors.respool.lot.state import Lot
from peloton.actors.respool.messages import ROOT
from peloton.actors.respool.state import Pool
from peloton.runtime.vocabulary import Bits, Key
from tests.actors.divide import Claim, divide

SLACK = 4


class Reference:
    """All pools and lots, and which pools wait, the longest waiting first."""

    def __init__(self) -> None:
        self.pools: dict[Key, Pool] = {}
        self.lots: dict[Key, Lot] = {}
        self.pending: list[Key] = []
        self.skipped: set[Key] = set()  # lots that were found never to fit, as things are
        self.rounded_up: set[Key] = set()

    def put(self, key: Key, *, old: Pool | Lot | None, new: Pool | Lot | None) -> None:
        if key.startswith("respool/"):
            _set(self.pools, key, new)
            return
        _set(self.lots, key, new)
        known = new if new is not None else old
        assert isinstance(known, Lot) and not isinstance(old, Pool) and not isinstance(new, Pool)
        pool = known.shape.pool
        waits = any(lot.waiting for lot in self.lots_of(pool))
        if waits and pool not in self.pending:
            self.pending.append(pool)
        elif not waits and pool in self.pending:
            self.pending.remove(pool)
            self.rounded_up.discard(pool)
        if old is not None and new is not None and new.admitted - old.admitted:
            self._admitted(pool)

    def _admitted(self, pool: Key) -> None:
        """Behind a pool that was admitted more than it is entitled to, all others come first."""
        if pool in self.rounded_up and pool in self.pending:
            self.rounded_up.remove(pool)
            self.pending.remove(pool)
            self.pending.append(pool)

    def lots_of(self, pool: Key) -> list[Lot]:
        return [lot for lot in self.lots.values() if lot.shape.pool == pool]

    def up(self, pool: Key) -> list[Key]:
        found = []
        while pool in self.pools:
            found.append(pool)
            if pool == ROOT:
                break
            pool = self.pools[pool].config.parent
        return found

    def limit(self, pool: Key) -> Resources:
        state = self.pools[pool]
        no_limit = Resources(slack=1 << 62)  # a config says nothing of slack
        return state.capacity if pool == ROOT else state.config.limit + no_limit

    def below(self, pool: Key) -> Iterator[Lot]:
        """Every lot of the pool or of one below it."""
        return (lot for lot in self.lots.values() if pool in self.up(lot.shape.pool))

    def use(self, pool: Key) -> Resources:
        return _sum(lot.shape.resources.times(len(lot.admitted)) for lot in self.below(pool))

    def demand(self, pool: Key) -> Resources:
        return _sum(lot.shape.resources.times(len(lot.waiting)) for lot in self.below(pool))

    def children(self, pool: Key) -> list[Key]:
        return [
            key for key, state in self.pools.items() if key != ROOT and state.config.parent == pool
        ]

    def reserved(self, pool: Key) -> Resources:
        """What the children of a pool reserve in all."""
        return _sum(self.pools[child].config.reservation for child in self.children(pool))

    def all(self, pool: Key = ROOT) -> list[Key]:
        """Parents before children, siblings by name."""
        if pool not in self.pools:
            return []
        kids = sorted(self.children(pool), key=lambda key: (self.pools[key].config.name, key))
        return [pool, *(key for kid in kids for key in self.all(kid))]

    def held(self, pool: Key, kind: int) -> dict[str, int]:
        """How much of a kind each job holds there."""
        found: dict[str, int] = {}
        for key, lot in self.lots.items():
            if lot.admitted and pool in self.up(lot.shape.pool):
                amount = lot.shape.resources.amounts()[kind] * len(lot.admitted)
                job = key.split("/")[1]
                found[job] = found.get(job, 0) + amount
        return found

    def order(self, pool: Key) -> list[Key]:
        """All lots of a pool in which somebody waits: by priority, then by arrival."""
        waiting = [key for key, lot in self.lots.items() if lot.shape.pool == pool and lot.waiting]
        lots = self.lots
        return sorted(waiting, key=lambda k: (-lots[k].shape.priority, lots[k].arrived, k))

    def never(self, pool: Key, need: Resources) -> bool:
        """Whether one member is more than a limit on its way up, as things are."""
        return any(not need.within(self.limit(above)) for above in self.up(pool))

    def controller_room(self, pool: Key) -> Resources | None:
        """What controllers of the pool may still take; None where no limit of theirs is said."""
        config = self.pools[pool].config
        if config.controller_percent is None:
            return None
        percent, total = config.controller_percent, config.reservation.amounts()
        most = Resources(*(int(each * percent / 100) for each in total))
        some = [lot for lot in self.lots_of(pool) if lot.shape.controller]
        return most - _sum(lot.shape.resources.times(len(lot.admitted)) for lot in some)

    def admissions(self) -> list[tuple[Key, Bits]]:
        """A head that does not fit blocks those behind it; one that never can blocks nobody, nor
        does a controller that only the limit for controllers excludes."""
        use = {key: self.use(key) for key in self.pools}
        while True:
            found, again = self._whole(use)
            if found or not again:
                break
        return found or self._parts(use)

    def _spare(self, use: dict[Key, Resources]) -> dict[Key, Resources]:
        """What each pool is entitled to beyond what it uses."""
        entitled = entitlements(self, self.skipped)
        return {key: entitled[key] - use[key] for key in self.pools}

    def _whole(self, use: dict[Key, Resources]) -> tuple[list[tuple[Key, Bits]], bool]:
        """Those that fit, and whether a lot was found out never to fit."""
        found: list[tuple[Key, Bits]] = []
        taken: dict[Key, Resources] = {}
        known, entitled = set(self.skipped), self._spare(use)
        for pool in [key for key in self.pending if key in self.pools]:
            controllers, by_controllers = self.controller_room(pool), Resources()
            for key in self.order(pool):
                lot = self.lots[key]
                need = lot.shape.resources
                rooms = [
                    self.limit(above) - use[above] - taken.get(above, Resources())
                    for above in self.up(pool)
                ]
                rooms.append(entitled[pool] - taken.get(pool, Resources()))
                count = min(need.fits(room) for room in rooms)
                if lot.shape.controller and controllers is not None:
                    count = min(count, need.fits(controllers - by_controllers))
                    if not need.fits(controllers):
                        self.skipped.add(key)
                        entitled = self._spare(use)
                    if not need.fits(controllers - by_controllers):
                        continue
                if not count and self.never(pool, need):
                    self.skipped.add(key)
                    entitled = self._spare(use)
                    continue
                members = lot.waiting.lowest(count)
                if lot.shape.controller:
                    by_controllers = by_controllers + need.times(len(members))
                if members:
                    found.append((key, members))
                for above in self.up(pool):
                    taken[above] = taken.get(above, Resources()) + need.times(len(members))
                if members != lot.waiting:
                    break
        return found, self.skipped != known

    def _parts(self, use: dict[Key, Resources]) -> list[tuple[Key, Bits]]:
        """One task for each pool that is entitled to a part of it, unless there is one that is
        entitled to all, and waits for room that both would take."""
        heads, entitled = {}, self._spare(use)
        for pool in [key for key in self.pending if key in self.pools]:
            order = [key for key in self.order(pool) if key not in self.skipped]
            if order:
                heads[pool] = order[0]
        awaited = set()
        for pool, head in heads.items():
            need = self.lots[head].shape.resources
            short = [
                above for above in self.up(pool) if not need.within(self.limit(above) - use[above])
            ]
            if need.within(entitled[pool]) and short:
                awaited.add(short[0])
        found = []
        taken: dict[Key, Resources] = {}
        for pool, head in heads.items():
            need = self.lots[head].shape.resources
            have = entitled[pool]
            lacks = [getattr(have, kind) for kind in need.short_of(have)]
            fits = all(
                need.within(self.limit(above) - use[above] - taken.get(above, Resources()))
                for above in self.up(pool)
            )
            if lacks and min(lacks) >= EPSILON and fits and not awaited & {*self.up(pool)}:
                found.append((head, self.lots[head].waiting.lowest(1)))
                for above in self.up(pool):
                    taken[above] = taken.get(above, Resources()) + need
        self.rounded_up |= {self.lots[head].shape.pool for head, _ in found}
        return found


def entitlements(pools: Reference, skipped: set[Key]) -> dict[Key, Resources]:
    """Of every pool, by the definition, in fractions that are rounded down to millionths."""
    found = [_entitled(pools, kind, skipped) for kind in range(len(Resources.KINDS))]
    return {pool: Resources(*(int(each.get(pool, 0)) for each in found)) for pool in pools.pools}


def _entitled(pools: Reference, kind: int, skipped: set[Key]) -> dict[Key, Fraction]:
    needs: dict[Key, int] = {}
    for key, lot in pools.lots.items():
        count = len(lot.admitted) + (len(lot.waiting) if key not in skipped else 0)
        amount = lot.shape.resources.amounts()[kind] * count
        needs[lot.shape.pool] = needs.get(lot.shape.pool, 0) + amount
    order = pools.all()
    for pool in reversed(order):
        below = sum(needs[child] for child in pools.children(pool))
        needs[pool] = min(pools.limit(pool).amounts()[kind], needs.get(pool, 0) + below)
    found = {ROOT: Fraction(pools.limit(ROOT).amounts()[kind])}
    for parent in order:
        children = pools.children(parent)
        claims = [
            Claim(
                need=needs[child],
                reservation=pools.pools[child].config.reservation.amounts()[kind],
                limit=pools.limit(child).amounts()[kind],
                share=Fraction(pools.pools[child].config.share[0 if kind == SLACK else kind]),
                static=kind != SLACK and pools.pools[child].config.static[kind],
            )
            for child in children
        ]
        found |= zip(children, divide(found[parent], claims), strict=True)
    return found


def _set(into: dict, key: Key, new: Pool | Lot | None) -> None:
    if new is None:
        into.pop(key, None)
    else:
        into[key] = new


def _sum(amounts: Iterator[Resources]) -> Resources:
    total = Resources()
    for amount in amounts:
        total = total + amount
    return total
