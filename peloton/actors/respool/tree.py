"""The tree of pools as its root sees it: an index over all pools and lots of one shard.

Turns old and new states of pools and lots into use, demand and queues, in the same turn, so that a
pool's use cannot drift: it is the sum of its lots. It is never journaled; recovery derives it by
the same `put`. Nothing here admits: `admission.py` reads it and decides.
"""

from __future__ import annotations

from itertools import islice

from peloton.actors.resources import Resources
from peloton.actors.respool.lot.messages import LotWaits
from peloton.actors.respool.lot.state import Lot
from peloton.actors.respool.messages import ROOT
from peloton.actors.respool.queue import Queue
from peloton.actors.respool.shortage import shortage
from peloton.actors.respool.state import Pool
from peloton.runtime.vocabulary import Key, kind_of

HOLDERS_LOOKED_MAX = 2000
"""Jobs that are looked at to name the one that holds most: an answer must not hold up the pool."""


class Tree:
    """Pools by key, with what their lots use and want."""

    def __init__(self) -> None:
        self.pools: dict[Key, Pool] = {}
        self.lots: dict[Key, Lot] = {}
        self.children: dict[Key, dict[Key, None]] = {}
        self.queues: dict[Key, Queue] = {}
        self._held: dict[Key, dict[str, Resources]] = {}  # by pool, then by job
        self._own: dict[Key, tuple[Resources, Resources]] = {}  # (use, demand) without children's
        self._sums: dict[Key, tuple[Resources, Resources]] | None = None
        self.hungry: dict[Key, None] = {}  # pools where somebody waits
        self.stuck: dict[Key, None] = {}  # of these, where the head cannot fit: a memo of a look

    def put(self, key: Key, *, old: Pool | Lot | None, new: Pool | Lot | None) -> None:
        """A pool or a lot has a new state; None where it does not exist."""
        if kind_of(key) == "lot":
            assert not isinstance(old, Pool) and not isinstance(new, Pool)
            self._put_lot(key, old=old, new=new)
        else:
            assert not isinstance(old, Lot) and not isinstance(new, Lot)
            self._put_pool(key, old=old, new=new)

    def limit(self, pool: Key) -> Resources:
        """The most a pool may use: its limit; of the root, the cluster's capacity."""
        state = self.pools.get(pool)
        if state is None:
            return Resources()
        return state.capacity if pool == ROOT else state.config.limit

    def use(self, pool: Key) -> Resources:
        """What the lots of a pool and of all pools below hold."""
        return self._totals(pool)[0]

    def demand(self, pool: Key) -> Resources:
        """What they want beside that."""
        return self._totals(pool)[1]

    def up(self, pool: Key) -> list[Key]:
        """A pool and its ancestors, the root last."""
        path = []
        while pool in self.pools and pool not in path:
            path.append(pool)
            if pool == ROOT:
                break
            pool = self.pools[pool].config.parent
        return path

    def path(self, pool: Key) -> str:
        """The path of a pool, such as `/a/b`."""
        names = [self.pools[key].config.name for key in self.up(pool) if key != ROOT]
        return "/" + "/".join(reversed(names))

    def find(self, path: str) -> Key | None:
        """The pool at a path."""
        pool = ROOT
        for name in [part for part in path.split("/") if part]:
            found = [c for c in self.children.get(pool, {}) if self.pools[c].config.name == name]
            if not found:
                return None
            pool = found[0]
        return pool

    def all(self) -> list[Key]:
        """Every pool, parents before children, siblings by name."""
        found: list[Key] = []
        open_pools = [ROOT] if ROOT in self.pools else []
        while open_pools:
            pool = open_pools.pop()
            found.append(pool)
            kids = sorted(self.children.get(pool, {}), key=lambda c: self.pools[c].config.name)
            open_pools += reversed(kids)
        return found

    def holder(self, pool: Key, kind: int) -> tuple[str, int]:
        """Who of a pool and all below holds most of a resource, and how much; "" for nobody."""
        totals: dict[str, int] = {}
        below = [pool]
        while below:
            at = below.pop()
            below += self.children.get(at, {})
            for job, held in islice(self._held.get(at, {}).items(), HOLDERS_LOOKED_MAX):
                totals[job] = totals.get(job, 0) + held.amounts()[kind]
        return max(totals.items(), key=lambda pair: pair[1], default=("", 0))

    def head_waits(self, pool: Key) -> str:
        """Why the first ask of a pool waits; nothing when nobody does."""
        queue = self.queues.get(pool)
        head = queue.first() if queue is not None else None
        if head is None:
            return ""
        return shortage(self, pool, need=self.lots[head].shape.resources).text

    def waits(self, key: Key) -> LotWaits:
        """Why the waiting members of a lot wait, and how many asks stand before them."""
        lot = self.lots[key]
        pool, position = lot.shape.pool, 0
        queue = self.queues.get(pool)
        for other in queue.line() if queue is not None and lot.waiting else ():
            if other == key:
                break
            position += len(self.lots[other].waiting)
        short = shortage(self, pool, need=lot.shape.resources)
        because = short.text
        if not because and position:
            # A head that does not fit blocks those behind it, who would: say what it waits for.
            because = f"{position} asks of the same pool stand before it"
            first = self.head_waits(pool)
            because += f", and the first of them waits: {first}" if first else ""
        return LotWaits(
            pool=pool,
            path=self.path(pool),
            waiting=lot.waiting,
            position=position,
            because=because,
            since=lot.arrived,
            rule=short.rule,
            never=short.never,
        )

    def _put_pool(self, key: Key, *, old: Pool | None, new: Pool | None) -> None:
        if old is not None and key != ROOT:
            self.children.get(old.config.parent, {}).pop(key, None)
        if new is None:
            self.pools.pop(key, None)
        else:
            self.pools[key] = new
            if key != ROOT:
                self.children.setdefault(new.config.parent, {})[key] = None
        self._sums = None
        self.stuck = {}  # a limit may have made room somewhere below, or a missing pool has come
        for queue in self.queues.values():
            queue.recall()

    def _put_lot(self, key: Key, *, old: Lot | None, new: Lot | None) -> None:
        if new is None:
            self.lots.pop(key, None)
        else:
            self.lots[key] = new
        lot = new if new is not None else old
        if lot is None:
            return
        pool = lot.shape.pool
        held, wanted = _numbers(new)[0] - _numbers(old)[0], _numbers(new)[1] - _numbers(old)[1]
        need = lot.shape.resources
        self._charge(pool, use=need.times(held), demand=need.times(wanted))
        if held:
            self._hold(pool, key.split("/")[1], more=need.times(held))
        queue = self.queues.setdefault(pool, Queue())
        if new is not None and new.waiting:
            queue.put(key, priority=new.shape.priority, arrived=new.arrived)
            self.hungry[pool] = None
        else:
            queue.drop(key)
            if not queue:
                self.hungry.pop(pool, None)
        self.stuck.pop(pool, None)
        if held < 0:
            self.stuck = {}  # room above may have been what others missed

    def _hold(self, pool: Key, job: str, *, more: Resources) -> None:
        holders = self._held.setdefault(pool, {})
        left = holders.get(job, Resources()) + more
        if any(left.amounts()):
            holders[job] = left
        else:
            holders.pop(job, None)

    def _charge(self, pool: Key, *, use: Resources, demand: Resources) -> None:
        nothing = Resources(), Resources()
        own = self._own.get(pool, nothing)
        self._own[pool] = own[0] + use, own[1] + demand
        if self._sums is not None:
            for above in self.up(pool):
                total = self._sums.get(above, nothing)
                self._sums[above] = total[0] + use, total[1] + demand

    def _totals(self, pool: Key) -> tuple[Resources, Resources]:
        if self._sums is None:
            # The tree's shape changed: sum anew, O(pools), rare.
            own, self._own, self._sums = self._own, {}, {}
            for key, (use, demand) in own.items():
                self._charge(key, use=use, demand=demand)
        return self._sums.get(pool, (Resources(), Resources()))


def _numbers(lot: Lot | None) -> tuple[int, int]:
    return (len(lot.admitted), len(lot.waiting)) if lot is not None else (0, 0)
