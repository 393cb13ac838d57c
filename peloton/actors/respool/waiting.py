"""Which pools have waiting members, and which resource blocks the head of each.

A blocked head needs an amount of one kind in one pool. Once more of it is available, the pools to
serve are found: the first whose head fits, in the order in which the pools began to wait. A release
or a higher limit so reaches the pools it can help, and no other. The caller, which knows the tree,
decides what fits.

A pool that waits is in one of four states:

- changed: something of its own has changed, so it has to be checked;
- blocked: its head lacks one kind in one pool on its path to the root, or entitlement, and so
  does each of those that may pass it. As long as no more of that is available, no change
  elsewhere can admit any of them;
- with a part: there is room for its head, to a part of which the pool is entitled;
- neither: it does not exist, or all its lots are skipped. Only a change of its own helps.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Generic, NamedTuple

from peloton.actors.resources import Resources
from peloton.actors.respool.first_rank import FirstRank
from peloton.actors.respool.lanes import is_slack, pool_of_lane, slack_lane
from peloton.actors.respool.ranking import Rank
from peloton.actors.respool.rations import Ration
from peloton.runtime.vocabulary import Key

SLACK_NUMBERS = 1 << 40
"""Added to the numbers of lanes for slack: they come after all others, and take what is left."""


class PoolResource(NamedTuple):
    """A kind of resource in a pool, by its index in `Resources.KINDS`.

    Or a ration of it; or what the pool is entitled to of it, which `sharing.Sharing` knows; or what
    its tasks that run on `slack` may hold of it.
    """

    pool: Key
    kind: int
    ration: Ration = Ration.NONE
    entitled: bool = False
    slack: bool = False


class Thresholds(Generic[Rank]):
    """Items by rank, each with resources and the amount of each that is enough for the item."""

    def __init__(self) -> None:
        self._searches: dict[PoolResource, FirstRank[Rank]] = {}
        self._resources: dict[Key, dict[PoolResource, int]] = {}
        self._ranks: dict[Key, Rank] = {}
        self._items: dict[Rank, Key] = {}

    def put(self, item: Key, rank: Rank, *, resource: PoolResource, amount: int) -> None:
        """Add an item, or another resource of one.

        Of two amounts of a resource the lesser counts; no two items may have the same rank.
        """
        known = self._resources.setdefault(item, {})
        search = self._searches.get(resource)
        if search is None:
            search = self._searches[resource] = FirstRank()
        if resource in known:
            if known[resource] <= amount:
                return
            search.drop(rank)
        search.put(rank, amount)
        known[resource] = amount
        self._ranks[item] = rank
        self._items[rank] = item

    def drop(self, item: Key) -> None:
        """Remove an item, if it is held."""
        rank = self._ranks.pop(item, None)
        if rank is None:
            return
        del self._items[rank]
        for resource in self._resources.pop(item):
            search = self._searches[resource]
            search.drop(rank)
            if not len(search):
                del self._searches[resource]

    def first(self, resource: PoolResource, *, most: int, start: Rank | None = None) -> Rank | None:
        """Return the lowest rank, from `start` on, of an item that needs at most so much of the
        resource."""
        search = self._searches.get(resource)
        return search.first(most, start=start) if search is not None else None

    def item(self, rank: Rank) -> Key:
        return self._items[rank]

    def amount(self, item: Key, resource: PoolResource) -> int:
        """Return how much of a resource is enough for an item."""
        return self._resources[item][resource]

    def __len__(self) -> int:
        return len(self._items)

    def items(self) -> list[Key]:
        return [*self._resources]

    def needs(self, resource: PoolResource) -> bool:
        """Return whether any item needs this resource."""
        return resource in self._searches


class Waiting:
    """The lanes of pools that have waiting members.

    Lanes (`lanes`) rather than pools, as the head of one lane does not block those of the other.
    """

    def __init__(self, *, heads_noted: bool = False) -> None:
        self.news: dict[Key, None] = {}  # lanes whose head may be another, or wait for another
        self.ended: dict[Key, None] = {}  # those of them that had nobody waiting in between
        self.numbers: dict[Key, int] = {}  # all such pools, numbered as they began to wait
        self.changed: dict[Key, None] = {}
        self.unfinished = False  # the last look at them ended early
        self.passers_seen = 0  # lots behind heads that it looked at
        self.blocked = Thresholds[int]()
        self.grown: dict[PoolResource, None] = {}  # more of it since no blocked head fitted
        self.rounded_up: dict[
            Key, None
        ] = {}  # pools to be admitted a task beyond their entitlement
        self._parts: dict[Key, None] = {}
        self._entitled: dict[Key, Key] = {}  # blocked, and entitled to the room they lack → where
        self._awaited: dict[Key, dict[Key, None]] = {}  # the same by where
        self._needs: dict[Resources, dict[Key, None]] = {}  # blocked pools by need of their head
        self._heads: dict[Key, Resources] = {}
        self._number = 0
        self._noted = heads_noted
        self._headed: dict[Key, tuple[Key, float]] = {}

    def headed(self, lane: Key, lot: Key, now: float) -> float:
        """Record that the head of a lane cannot begin; return since when nothing of it could."""
        first, since = self._headed.get(lane, (lot, now))
        if first != lot:
            since = now
        self._headed[lane] = lot, since
        return since

    def began(self, lane: Key) -> None:
        """Record that members of the head of a lane were admitted."""
        self._headed.pop(lane, None)

    def add(self, pool: Key) -> None:
        """Record that a pool has waiting members, and something of it has changed."""
        if pool not in self.numbers:
            self._number += 1
            self.numbers[pool] = self._number + (SLACK_NUMBERS if is_slack(pool) else 0)
        self.recheck(pool)

    def remove(self, pool: Key) -> None:
        """Record that a pool has no waiting members any more."""
        self.numbers.pop(pool, None)
        self.changed.pop(pool, None)
        self.rounded_up.pop(pool, None)
        self._headed.pop(pool, None)
        self._unblock(pool)
        self._end(pool)

    def recheck(self, pool: Key) -> None:
        """Check a pool again, as the resource that blocks it may be another now."""
        if pool in self.numbers:
            self._unblock(pool)
            self.changed[pool] = None

    def first_changed(self, count: int) -> list[Key]:
        """Return the lanes that changed first; a lane for slack only once the other one of its
        pool is done."""
        ready = (
            lane
            for lane in self.changed
            if not is_slack(lane) or pool_of_lane(lane) not in self.changed
        )
        return [*islice(ready, count)]

    def recheck_all(self) -> None:
        """Check all pools again, because the tree changed above them."""
        for pool in [*self._heads]:
            self.recheck(pool)

    def admitted(self, pool: Key) -> None:
        """Record that members of a pool were admitted.

        If that exceeds its entitlement, others are before it now.
        """
        if pool in self.rounded_up:
            del self.rounded_up[pool]
            del self.numbers[pool]
            self.add(pool)
            self._end(pool)

    def wait_with_part(self, pool: Key, *, need: Resources) -> None:
        """Record that there is room for the head of a pool, which is entitled to a part of it."""
        self._unblock(pool)
        self.changed.pop(pool, None)
        self._parts[pool] = None
        self._head(pool, need)

    def parts(self) -> list[Key]:
        """Return the pools with a part, in order."""
        return sorted(self._parts, key=self.numbers.__getitem__)

    def awaits(self, pool: Key) -> tuple[Key, Resources] | None:
        """Return where the head of a pool waits for room to which the pool is entitled, and for how
        much.

        None if it does not.
        """
        where = self._entitled.get(pool)
        return None if where is None else (where, self._heads[pool])

    def awaiting_in(self, where: Key, *, by_slack: bool) -> Iterator[Key]:
        """Yield the lanes whose head waits for room in this pool to which they were entitled.

        Lanes for slack only if `by_slack`. Lazily: none of them may change meanwhile.
        """
        yield from self._awaited.get(where, ())
        if by_slack:
            yield from self._awaited.get(slack_lane(where), ())

    def head(self, pool: Key) -> Resources | None:
        """Return what the head of a pool needs, if it waits for something."""
        return self._heads.get(pool)

    def block(
        self, pool: Key, *, resource: PoolResource, need: Resources, entitled: bool = False,
        aside: int = 0,
    ) -> None:  # fmt: skip
        """Record that the head of a pool, which needs that much, lacks a resource.

        `entitled`: its pool is entitled to it. So much of it is set `aside` for others.
        """
        self._unblock(pool)
        self.changed.pop(pool, None)
        amount = need.amounts()[resource.kind] + aside
        self.blocked.put(pool, self.numbers[pool], resource=resource, amount=amount)
        if entitled:
            self._entitled[pool] = resource.pool
            where = slack_lane(resource.pool) if is_slack(pool) else resource.pool
            self._awaited.setdefault(where, {})[pool] = None
        self._head(pool, need)

    def block_too(self, pool: Key, *, resource: PoolResource, amount: int) -> None:
        """Record that so much of another resource lets the blocked head of a pool, or one behind
        it, begin."""
        self.blocked.put(pool, self.numbers[pool], resource=resource, amount=amount)

    def settle(self, pool: Key) -> None:
        """Record that nothing in a pool can be admitted until something of its own changes."""
        self.changed.pop(pool, None)
        self._unblock(pool)

    def grow(self, resource: PoolResource) -> None:
        """Record that more of a resource is available."""
        if self.blocked.needs(resource):
            self.grown[resource] = None

    def beyond(self, limit: Resources) -> Iterator[Key | None]:
        """Yield the lanes whose head is known and needs more than `limit`; None for each other
        need."""
        for need, lanes in self._needs.items():
            if need.within(limit):
                yield None
            else:
                yield from lanes

    def _head(self, pool: Key, need: Resources) -> None:
        self._note(pool)
        self._heads[pool] = need
        self._needs.setdefault(need, {})[pool] = None

    def _end(self, pool: Key) -> None:
        if pool in self.news:
            self.ended[pool] = None

    def _note(self, pool: Key) -> None:
        if self._noted:
            self.news[pool] = None

    def _unblock(self, pool: Key) -> None:
        self._parts.pop(pool, None)
        where = self._entitled.pop(pool, None)
        if where is not None:
            where = slack_lane(where) if is_slack(pool) else where
            lanes = self._awaited[where]
            del lanes[pool]
            if not lanes:
                del self._awaited[where]
        need = self._heads.pop(pool, None)
        if need is None:
            return
        self._note(pool)
        self.blocked.drop(pool)
        alike = self._needs[need]
        del alike[pool]
        if not alike:
            del self._needs[need]
