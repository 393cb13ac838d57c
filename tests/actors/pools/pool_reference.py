"""The pool tree computed from its definition: every answer walks all pools and lots.

Turns states of pools and lots into sums, order and admissions without keeping anything but the
order in which pools began to wait. It is what the kept index is compared with, so it must share
no code with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

from peloton.actors.resources import EPSILON, Resources
from peloton.actors.respool.lanes import is_slack, lane_of, pool_of_lane
from peloton.actors.respool.lot.messages import LotShape
from peloton.actors.respool.lot.state import Lot
from peloton.actors.respool.messages import ROOT, Queueing, Within
from peloton.actors.respool.state import Pool
from peloton.runtime.vocabulary import Bits, Key
from tests.actors.pools.divide import Claim, divide

SLACK = 4
HEAD_KEPT_AFTER_S = 300.0


class Reference:
    """All pools and lots, and which pools wait, the longest waiting first."""

    def __init__(self, within: Within) -> None:
        self.within = within
        self.pools: dict[Key, Pool] = {}
        self.lots: dict[Key, Lot] = {}
        self.pending: list[Key] = []
        self.skipped: set[Key] = set()  # lots that were found never to fit, as things are
        self.rounded_up: set[Key] = set()
        self.headed: dict[Key, tuple[Key, float]] = {}  # the first of a lane, and since when

    def put(self, key: Key, *, old: Pool | Lot | None, new: Pool | Lot | None) -> None:
        if key.startswith("respool/"):
            _set(self.pools, key, new)
            return
        _set(self.lots, key, new)
        known = new if new is not None else old
        assert isinstance(known, Lot) and not isinstance(old, Pool) and not isinstance(new, Pool)
        pool = lane_of(known.shape)
        waits = any(lot.waiting for lot in self.in_lane(pool))
        if waits and pool not in self.pending:
            self.pending.append(pool)
        elif not waits and pool in self.pending:
            self.pending.remove(pool)
            self.rounded_up.discard(pool)
            self.headed.pop(pool, None)
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

    def in_lane(self, lane: Key) -> list[Lot]:
        return [lot for lot in self.lots.values() if lane_of(lot.shape) == lane]

    def lanes(self) -> list[Key]:
        """Those that wait; all that are not for slack come first."""
        return sorted(
            (key for key in self.pending if pool_of_lane(key) in self.pools), key=is_slack
        )

    def slack_limit(self, pool: Key) -> Resources:
        config = self.pools[pool].config
        most = [int(each * config.slack_percent / 100) for each in config.reservation.amounts()]
        return Resources(0, *most[1:4], 1 << 62)

    def slack_room(self, pool: Key) -> Resources:
        some = [lot for lot in self.lots_of(pool) if lot.shape.on_slack]
        used = _sum(lot.shape.resources.times(len(lot.admitted)) for lot in some)
        return self.slack_limit(pool) - used

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

    def use_by_job(self, pool: Key, kind: int) -> dict[str, int]:
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
        of_lane = {key: lot for key, lot in self.lots.items() if lane_of(lot.shape) == pool}
        waiting = [key for key, lot in of_lane.items() if lot.waiting]
        lots = self.lots
        return sorted(waiting, key=lambda k: (-lots[k].shape.priority, lots[k].arrived, k))

    def never(self, lane: Key, need: Resources) -> bool:
        """Whether one member is more than a limit on its way up, as things are."""
        pool = pool_of_lane(lane)
        if is_slack(lane) and not need.within(self.slack_limit(pool)):
            return True
        return any(not need.within(self.limit(above)) for above in self.up(pool))

    def rooms_apart(self, pool: Key) -> list[tuple[Callable[[LotShape], bool], Resources]]:
        """Which tasks of the pool have a room of their own, and what they may still take."""
        config = self.pools[pool].config
        found: list[tuple[Callable[[LotShape], bool], Resources]] = []
        if config.controller_percent is not None:
            percent, total = config.controller_percent, config.reservation.amounts()
            most = Resources(*(int(each * percent / 100) for each in total))
            found.append((lambda shape: shape.controller and not shape.on_slack, most))
        rule = config.within or self.within
        if rule == Within.ALWAYS or (rule == Within.RESERVED and config.reservation != Resources()):
            kept = config.reservation.amounts()
            if rule == Within.RESERVED:
                kept = tuple(each or 10**18 for each in kept)
            found.append(
                (lambda shape: not (shape.preemptible or shape.revocable), Resources(*kept))
            )
        return [
            (
                test,
                most
                - _sum(
                    lot.shape.resources.times(len(lot.admitted))
                    for lot in self.lots_of(pool)
                    if test(lot.shape)
                ),
            )
            for test, most in found
        ]

    def admissions(self, now: float) -> list[tuple[Key, Bits]]:
        """Those behind a head that does not fit pass it where they may; one that never can blocks
        nobody, nor does one that only a room of its own excludes."""
        use = {key: self.use(key) for key in self.pools}
        while True:
            found, again = self._whole(use, now)
            if found or not again:
                break
        return found or self._parts(use)

    def _spare(self, use: dict[Key, Resources]) -> dict[Key, Resources]:
        """What each pool is entitled to beyond what it uses."""
        entitled = entitlements(self, self.skipped)
        return {key: entitled[key] - use[key] for key in self.pools}

    def _barred(self, lane: Key, head: Key, lacked: set[str], now: float) -> set[str] | None:
        """The kinds of which those behind a head may need nothing; None: nobody passes it."""
        config = self.pools[pool_of_lane(lane)].config
        if not lacked or config.queueing == Queueing.STRICT:
            return None
        on_slack = [
            lot.shape.resources.times(len(lot.admitted))
            for lot in self.lots_of(pool_of_lane(lane))
            if lot.shape.on_slack
        ]
        first, since = self.headed.get(lane, (head, now))
        self.headed[lane] = head, since if first == head else now
        ends = not is_slack(lane) and _sum(iter(on_slack)) != Resources()
        return lacked if ends or now - self.headed[lane][1] >= HEAD_KEPT_AFTER_S else set()

    def _whole(self, use: dict[Key, Resources], now: float) -> tuple[list[tuple[Key, Bits]], bool]:
        """Those that fit, and whether a lot was found out never to fit."""
        found: list[tuple[Key, Bits]] = []
        taken: dict[Key, Resources] = {}
        known, entitled = set(self.skipped), self._spare(use)
        asides: dict[Key, Resources | None] = {}  # of pools; None: their slack has no turn yet
        for lane in self.lanes():
            pool, on_slack = pool_of_lane(lane), is_slack(lane)
            rooms_apart = [] if on_slack else self.rooms_apart(pool)
            taken_apart = [Resources() for _ in rooms_apart]
            aside = asides.get(pool, Resources()) if on_slack else Resources()
            slack = self.slack_room(pool)
            head: Key | None = None
            unfit: set[Resources] = set()
            barred: set[str] | None = set()
            for key in self.order(lane) if aside is not None else ():
                lot = self.lots[key]
                need = lot.shape.resources
                if head is not None and (key in self.skipped or need in unfit):
                    continue
                if barred is None or any(getattr(need, kind) for kind in barred):
                    continue
                rooms = [
                    self.limit(above) - use[above] - taken.get(above, Resources()) - aside
                    for above in self.up(pool)
                ]
                rooms.append(entitled[pool] - taken.get(pool, Resources()) - aside)
                if on_slack:
                    rooms.append(slack)
                count = min(need.fits(room) for room in rooms)
                mine = [at for at, (test, _) in enumerate(rooms_apart) if test(lot.shape)]
                if any(not need.fits(rooms_apart[at][1]) for at in mine):
                    self.skipped.add(key)
                    entitled = self._spare(use)
                left = [need.fits(rooms_apart[at][1] - taken_apart[at]) for at in mine]
                if 0 in left:
                    continue
                count = min([count, *left])
                if not count and self.never(lane, need):
                    self.skipped.add(key)
                    entitled = self._spare(use)
                    continue
                if not count:
                    unfit.add(need)
                    if head is None:
                        head = key
                        free = [self.limit(at) - use[at] - aside for at in self.up(pool)]
                        free += [entitled[pool] - aside, *([self.slack_room(pool)] * on_slack)]
                        lacked = {kind for room in free for kind in need.short_of(room)}
                        barred = self._barred(lane, key, lacked, now)
                        asides.setdefault(pool, _kept(need) if lacked else None)
                    continue
                if head is None:
                    self.headed.pop(lane, None)
                members = lot.waiting.lowest(count)
                slack = slack - need.times(len(members))
                for at in mine:
                    taken_apart[at] = taken_apart[at] + need.times(len(members))
                found.append((key, members))
                for above in self.up(pool):
                    taken[above] = taken.get(above, Resources()) + need.times(len(members))
                if not on_slack:
                    asides[pool] = None
                if members != lot.waiting:
                    break
        return found, self.skipped != known

    def _parts(self, use: dict[Key, Resources]) -> list[tuple[Key, Bits]]:
        """One task for each pool that is entitled to a part of it, unless there is one that is
        entitled to all, and waits for room that both would take."""
        heads, entitled = {}, self._spare(use)
        for lane in self.lanes():
            order = [key for key in self.order(lane) if key not in self.skipped]
            if order:
                heads[lane] = order[0]
        asides = {
            lane: _kept(self.lots[heads[pool_of_lane(lane)]].shape.resources)
            if is_slack(lane) and pool_of_lane(lane) in heads
            else Resources()
            for lane in heads
        }
        awaited, by_slack = set(), set()
        for lane, head in heads.items():
            need, pool = self.lots[head].shape.resources, pool_of_lane(lane)
            short = [
                above for above in self.up(pool) if not need.within(self.limit(above) - use[above])
            ]
            if not need.within(entitled[pool]) or not short or asides[lane] != Resources():
                continue
            if not is_slack(lane):
                awaited.add(short[0])
            elif need.within(self.slack_room(pool)):
                by_slack.add(short[0])
        found = []
        taken: dict[Key, Resources] = {}
        for lane in self.waited(heads):
            head, pool, aside = heads[lane], pool_of_lane(lane), asides[lane]
            need = self.lots[head].shape.resources
            have = entitled[pool] - aside
            lacks = [getattr(have, kind) for kind in need.short_of(have)]
            fits = all(
                need.within(self.limit(above) - use[above] - taken.get(above, Resources()) - aside)
                for above in self.up(pool)
            )
            before = awaited | by_slack if is_slack(lane) else awaited
            if is_slack(lane) and not need.within(self.slack_room(pool)):
                continue
            if lacks and min(lacks) >= EPSILON and fits and not before & {*self.up(pool)}:
                found.append((head, self.lots[head].waiting.lowest(1)))
                for above in self.up(pool):
                    taken[above] = taken.get(above, Resources()) + need
        self.rounded_up |= {lane_of(self.lots[head].shape) for head, _ in found}
        return found

    def waited(self, heads: dict[Key, Key]) -> list[Key]:
        return [lane for lane in self.lanes() if lane in heads]


def entitlements(pools: Reference, skipped: set[Key]) -> dict[Key, Resources]:
    """Of every pool, by the definition, in fractions that are rounded down to millionths."""
    found = [_entitled(pools, kind, skipped) for kind in range(len(Resources.KINDS))]
    return {pool: Resources(*(int(each.get(pool, 0)) for each in found)) for pool in pools.pools}


def _entitled(pools: Reference, kind: int, skipped: set[Key]) -> dict[Key, Fraction]:
    needs: dict[Key, int] = {}
    on_slack: dict[Key, int] = {}
    for key, lot in pools.lots.items():
        count = len(lot.admitted) + (len(lot.waiting) if key not in skipped else 0)
        amount = lot.shape.resources.amounts()[kind] * count
        some = on_slack if lot.shape.on_slack else needs
        some[lot.shape.pool] = some.get(lot.shape.pool, 0) + amount
    for pool, amount in on_slack.items():
        most = pools.slack_limit(pool).amounts()[kind] if pool in pools.pools else 0
        needs[pool] = needs.get(pool, 0) + min(amount, most)
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


def _kept(need: Resources) -> Resources:
    """What is set aside for the first task that is not on slack."""
    return Resources(0, need.memory, need.disk, need.gpu)


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
