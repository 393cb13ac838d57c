"""The tree of pools as its root sees it: an index over all pools and lots of one shard.

Turns old and new states of pools and lots into use, demand and queues, in the same turn, so that a
pool's use cannot drift: it is the sum of its lots. It is never journaled; recovery derives it by
the same `put`. Nothing here admits: `admission.py` reads it and decides.

A change of a lot or of a pool costs the way to the root. Which pools it may let through is known
by `waiting.Waiting`; a look at the others is spared.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from peloton.actors.resources import EPSILON, Resources
from peloton.actors.respool.entitlement import entitlement
from peloton.actors.respool.lot.messages import LotWaits
from peloton.actors.respool.lot.state import Lot
from peloton.actors.respool.messages import ROOT
from peloton.actors.respool.node import ZERO, Node
from peloton.actors.respool.queue import Queue
from peloton.actors.respool.shortage import shortage
from peloton.actors.respool.state import Pool
from peloton.actors.respool.waiting import Place, Thresholds, Waiting
from peloton.runtime.vocabulary import Key, kind_of

KINDS = range(len(Resources.KINDS))


class Tree:
    """Pools by key, with what their lots use and want."""

    def __init__(self) -> None:
        self.pools: dict[Key, Pool] = {}
        self.lots: dict[Key, Lot] = {}
        self.queues: dict[Key, Queue] = {}
        self.waiting = Waiting()
        self._nodes: dict[Key, Node] = {}
        self._shut = Thresholds()  # lots that were stepped over, by the limit that shuts them out
        self._stepped = 0

    @property
    def children(self) -> dict[Key, dict[Key, None]]:
        """The children of every pool that has any; O(pools), so for checks only."""
        nodes = self._nodes.items()
        return {key: dict.fromkeys(node.children) for key, node in nodes if node.children}

    @property
    def hungry(self) -> dict[Key, int]:
        """Pools where somebody waits, in the order in which they began to."""
        return self.waiting.hungry

    def put(self, key: Key, *, old: Pool | Lot | None, new: Pool | Lot | None) -> None:
        """A pool or a lot has a new state; None where it does not exist."""
        if kind_of(key) == "lot":
            assert not isinstance(old, Pool) and not isinstance(new, Pool)
            if old is not None and new is not None and old.shape != new.shape:
                self._put_lot(key, old=old, new=None)
                old = None
            self._put_lot(key, old=old, new=new)
        else:
            assert not isinstance(old, Lot) and not isinstance(new, Lot)
            self._put_pool(key, new)

    # ---- one pool ----

    def limit(self, pool: Key) -> Resources:
        """The most a pool may use: its limit; of the root, the cluster's capacity."""
        node = self._nodes.get(pool)
        return node.limit if node is not None else ZERO

    def use(self, pool: Key) -> Resources:
        """What the lots of a pool and of all pools below hold."""
        return self._nodes[pool].use if pool in self.pools else ZERO

    def demand(self, pool: Key) -> Resources:
        """What they want beside that."""
        return self._nodes[pool].demand if pool in self.pools else ZERO

    def room(self, pool: Key) -> Resources:
        """What it may still use; less than nothing where it uses too much."""
        return entitlement(self, pool) - self.use(pool)

    def up(self, pool: Key) -> list[Key]:
        """A pool and its ancestors, the root last."""
        node = self._nodes.get(pool)
        lineage = node.lineage() if node is not None else ()
        return [above.key for above in lineage if above.state is not None]

    def path(self, pool: Key) -> str:
        """The path of a pool, such as `/a/b`."""
        names = [self.pools[key].config.name for key in self.up(pool) if key != ROOT]
        return "/" + "/".join(reversed(names))

    def reserved(self, pool: Key) -> Resources:
        """What the children of a pool reserve in all."""
        node = self._nodes.get(pool)
        return node.reserved if node is not None else ZERO

    def named(self, parent: Key, name: str) -> list[Key]:
        """The children of that name; more than one only where a forced update said so."""
        node = self._nodes.get(parent)
        return [*node.names.get(name, ())] if node is not None else []

    def below(self, pool: Key, after: tuple[str, Key] | None = None) -> Iterator[Key]:
        """The children of a pool by name, lazily; those that come after a name and key."""
        siblings = self._by_name(pool)
        start = bisect_right(siblings, after) if after is not None else 0
        return (siblings[number][1] for number in range(start, len(siblings)))

    def count_below(self, pool: Key) -> int:
        """How many children a pool has."""
        node = self._nodes.get(pool)
        return len(node.by_name) if node is not None else 0

    def holder(self, pool: Key, kind: int) -> tuple[str, int]:
        """Who of a pool and all below holds most of a resource, and how much; "" for nobody."""
        return self._nodes[pool].holder(kind) if pool in self.pools else ("", 0)

    # ---- many pools ----

    def find(self, path: str) -> Key | None:
        """The pool at a path."""
        pool, names = ROOT, [part for part in path.split("/") if part]
        for at, name in enumerate(names):
            found = self.named(pool, name)
            if not found:
                # A forced update may have put slashes into a name.
                return next(iter(self.named(pool, "/".join(names[at:]))), None)
            pool = found[0]
        return pool

    def all(self) -> list[Key]:
        """Every pool, parents before children, siblings by name."""
        return [*self.walk(None)]

    def walk(self, after: Sequence[tuple[str, Key]] | None) -> Iterator[Key]:
        """The same lazily, from the pool on that comes after one: `after` is name and key of it
        and of those above but for the root, which come first. It need not exist any more.
        """
        if ROOT not in self.pools:
            return
        if after is None:
            yield ROOT
        open_pools, at = [], ROOT
        for place in after or ():
            open_pools.append((at, bisect_right(self._by_name(at), place)))
            at = place[1]
        open_pools.append((at, 0))
        while open_pools:
            pool, number = open_pools.pop()
            siblings = self._by_name(pool)
            if number < len(siblings):
                child = siblings[number][1]
                open_pools += [(pool, number + 1), (child, 0)]
                yield child

    # ---- who waits, and why ----

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
        pool = lot.shape.pool
        position = self.queues[pool].before(key) if lot.waiting else 0
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

    def step_over(self, key: Key, place: Place) -> None:
        """A lot can never be admitted while this limit is as it is: it blocks nobody."""
        lot = self.lots[key]
        self.queues[lot.shape.pool].step_over(key)
        self._stepped += 1
        amount = lot.shape.resources.amounts()[place.kind]
        self._shut.put(key, self._stepped, place=place, amount=amount)

    # ---- a pool has changed ----

    def _put_pool(self, key: Key, new: Pool | None) -> None:
        node = self._node(key)
        known, was = node.state, node.limit
        above, above_now = _parent(key, known), _parent(key, new)
        if known is not None and above is not None:
            self._node(above).unname(key, known)
        moved = known is None or new is None or above != above_now
        if moved:
            node.unlink()
        node.state = new
        node.limit = _limit(key, new)
        if new is None:
            self.pools.pop(key, None)
        else:
            self.pools[key] = new
        if new is not None and above_now is not None:
            self._node(above_now).name(key, new)
            if moved:
                node.link(self._node(above_now))
        if moved:
            self._reshaped(node)
        else:
            self._limited(node, was)
        for each in (key, above):
            self._forget(each)

    def _reshaped(self, node: Node) -> None:
        """A pool begins or ceases to exist, or has another parent."""
        if node.names:
            # Only while recovery derives the tree, whose pools come in any order: nobody waits.
            self.waiting.look_at_all_again()
            for lot in self._shut.items():
                self._recall(lot)
            return
        self.waiting.look_again(node.key)
        queue = self.queues.get(node.key)
        for lot in queue.aside() if queue is not None else ():
            self._recall(lot)

    def _limited(self, node: Node, was: Resources) -> None:
        """The limit of a pool may be another."""
        if node.limit == was:
            return
        self.waiting.look_again(node.key)
        lower = False
        for kind, before, now in zip(KINDS, was.amounts(), node.limit.amounts(), strict=True):
            if now > before:
                self.waiting.grow(Place(node.key, kind))
                self._reopen(Place(node.key, kind), now)
            lower = lower or now < before
        for pool in self._beyond(node) if lower else ():
            self.waiting.look_again(pool)

    def _beyond(self, node: Node) -> list[Key]:
        """Pools below, among them all whose head the limit as it is now will never admit."""
        if node.key == ROOT:
            return self.waiting.beyond(node.limit)
        found, open_nodes = [], [node]
        while open_nodes:
            at = open_nodes.pop()
            open_nodes += at.children.values()
            found.append(at.key)
        return found

    def _reopen(self, place: Place, limit: int) -> None:
        """Lots that were shut out by this limit stand in line again if it is high enough now."""
        most = limit + EPSILON - 1
        while (number := self._shut.first(place, start=0, most=most)) is not None:
            self._recall(self._shut.item(number))

    def _recall(self, lot: Key) -> None:
        self._shut.drop(lot)
        pool = self.lots[lot].shape.pool
        self.queues[pool].recall(lot)
        self.waiting.look_again(pool)

    # ---- a lot has changed ----

    def _put_lot(self, key: Key, *, old: Lot | None, new: Lot | None) -> None:
        if new is None:
            self.lots.pop(key, None)
        else:
            self.lots[key] = new
        lot = new if new is not None else old
        if lot is None:
            return
        pool, need = lot.shape.pool, lot.shape.resources
        node = self._node(pool)
        node.lots += (new is not None) - (old is not None)
        (held, wanted), (held_was, wanted_was) = _numbers(new), _numbers(old)
        held, wanted = held - held_was, wanted - wanted_was
        if wanted:
            node.want(need.times(wanted))
        if held:
            node.hold(key.split("/")[1], need.times(held))
        if held < 0:
            self._released(node, need)
        self._queue(key, new, pool=pool)
        self._forget(pool)

    def _queue(self, key: Key, new: Lot | None, *, pool: Key) -> None:
        queue = self.queues.get(pool)
        if queue is None:
            queue = self.queues[pool] = Queue()
        if new is not None and new.waiting:
            shape, waiting = new.shape, len(new.waiting)
            queue.put(key, priority=shape.priority, arrived=new.arrived, waiting=waiting)
        else:
            queue.drop(key)
        if not queue.is_aside(key):
            self._shut.drop(key)
        if queue:
            self.waiting.come(pool)
        else:
            self.waiting.go(pool)

    def _released(self, node: Node, need: Resources) -> None:
        kinds = [kind for kind in KINDS if need.amounts()[kind]]
        for above in node.lineage():
            for kind in kinds:
                self.waiting.grow(Place(above.key, kind))

    # ---- nodes ----

    def _node(self, key: Key) -> Node:
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = Node(key)
        return node

    def _forget(self, key: Key | None) -> None:
        """Nothing is kept of a pool that does not exist and that nobody names."""
        node = self._nodes.get(key) if key is not None else None
        if node is not None and node.idle:
            del self._nodes[node.key]
            self.queues.pop(node.key, None)

    def _by_name(self, pool: Key) -> list[tuple[str, Key]]:
        node = self._nodes.get(pool)
        return node.by_name if node is not None else []


def _parent(key: Key, state: Pool | None) -> Key | None:
    return state.config.parent if state is not None and key != ROOT else None


def _limit(key: Key, state: Pool | None) -> Resources:
    if state is None:
        return ZERO
    return state.capacity if key == ROOT else state.config.limit


def _numbers(lot: Lot | None) -> tuple[int, int]:
    if lot is None:
        return 0, 0
    return lot.admitted.raw.bit_count(), lot.waiting.raw.bit_count()
