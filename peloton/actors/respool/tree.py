"""The tree of pools: the root's index over all pools and lots of one shard.

New states of pools and lots update use, demand and queues in the same turn, so that a pool's use
cannot drift: it is the sum of its lots. The tree is never journaled; recovery derives it by the
same `put`. `admission.py` reads it and decides.

A change of a lot or of a pool costs the path to the root. `waiting.Waiting` knows which pools it
may unblock; no other pool is checked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from math import inf

from peloton.actors.resources import EPSILON, Resources
from peloton.actors.respool.division import DivisionSteps
from peloton.actors.respool.gangs import Gang, Gangs, QueuedUnit
from peloton.actors.respool.lanes import is_slack, lane_of, lanes_of, pool_of_lane, slack_lane
from peloton.actors.respool.lending import LendingMeters
from peloton.actors.respool.lot.messages import LotShape
from peloton.actors.respool.lot.state import Lot, admitted_and_wanted
from peloton.actors.respool.messages import MILLIONTHS_MAX, ROOT
from peloton.actors.respool.node import (
    KINDS,
    NO_TERMS,
    ZERO,
    Lacking,
    Node,
    limit_of,
    parent_of,
    slack_limit_of,
    terms_of,
)
from peloton.actors.respool.proofs import GangProofs
from peloton.actors.respool.queue import Queue, QueueEntry
from peloton.actors.respool.rations import RATIONS, Ration, ration, rations_of
from peloton.actors.respool.reclaims import PreemptionPolicy, Reclaims
from peloton.actors.respool.releases import Releases
from peloton.actors.respool.sharing import Sharing
from peloton.actors.respool.state import Pool
from peloton.actors.respool.waiting import PoolResource, Thresholds, Waiting
from peloton.runtime.vocabulary import Bits, Key, kind_of

NO_LANE = Key("")


class Tree:
    """Pools by key, with the use and demand of their lots."""

    def __init__(self, policy: PreemptionPolicy = PreemptionPolicy()) -> None:  # noqa: B008
        self.policy = policy
        self.pools: dict[Key, Pool] = {}
        self.lots: dict[Key, Lot] = {}
        self.queues: dict[Key, Queue] = {}
        self.waiting = Waiting(heads_noted=policy.enabled)
        self.reclaims = Reclaims(policy)
        self.proofs = GangProofs()
        self.releases = Releases()
        self.lending = LendingMeters()
        self._nodes: dict[Key, Node] = {}
        self._sharing = Sharing()
        self._uneven: dict[Key, None] = {}  # pools that keep what they do not need, or never borrow
        self._skipped = Thresholds[QueueEntry]()  # lots, by the limit that is too low for them
        self._gangs = Gangs()
        self._claimed: dict[Key, Resources] = {}  # what each lot adds to the need of its pool

    @property
    def children(self) -> dict[Key, dict[Key, None]]:
        """Return the children of every pool that has any; O(pools), so for checks only."""
        nodes = self._nodes.items()
        return {key: dict.fromkeys(node.children) for key, node in nodes if node.children}

    @property
    def pending(self) -> dict[Key, int]:
        """Return pools that have waiting members, in the order in which they began to wait."""
        return self.waiting.numbers

    def put(self, key: Key, *, old: Pool | Lot | None, new: Pool | Lot | None) -> None:
        """Apply the new state of a pool or a lot; None if it does not exist."""
        if kind_of(key) == "lot":
            assert not isinstance(old, Pool) and not isinstance(new, Pool)
            if old is not None and new is not None and old.shape != new.shape:
                self._put_lot(key, old=old, new=None)
                old = None
            self._put_lot(key, old=old, new=new)
        else:
            assert not isinstance(old, Lot) and not isinstance(new, Lot)
            self._put_pool(key, new)

    def rebuilt(self) -> None:
        """Let all claims reach the root after a recovery; else the first turn would have to
        wait."""
        self._sharing.settle()

    def note(self, now: float) -> None:
        """Date what has changed since the last call."""
        self.releases.note(now, up=self.up)
        self.lending.note(now, look=self._lending, up=self.up)

    def _lending(self, pool: Key) -> tuple[Resources, Resources]:
        known = self.pools.get(pool)
        return self.use(pool), known.config.reservation if known is not None else ZERO

    # ---- one pool ----

    def limit(self, pool: Key) -> Resources:
        """Return the most a pool may use: its limit; of the root, the cluster's capacity."""
        node = self._nodes.get(pool)
        return node.limit if node is not None else ZERO

    def use(self, pool: Key) -> Resources:
        """Return what the admitted members of a pool and of all pools below hold."""
        return self._nodes[pool].use if pool in self.pools else ZERO

    def demand(self, pool: Key) -> Resources:
        """Return what the waiting members of a pool and of all pools below need in addition."""
        return self._nodes[pool].demand if pool in self.pools else ZERO

    def members(self, pool: Key) -> int:
        """Return how many members of its own lots wait or are admitted; some may request
        nothing."""
        return self._nodes[pool].members if pool in self.pools else 0

    def available(self, pool: Key) -> Resources:
        """Return what the limit of a pool leaves; negative if it uses more than that."""
        return self.limit(pool) - self.use(pool)

    def entitlement(self, pool: Key) -> Resources:
        """Return what a pool may use, by reservation and share, while others need what they
        need."""
        return self._sharing.entitlement(self._nodes[pool]) if pool in self.pools else ZERO

    def steps(self, pool: Key) -> tuple[DivisionSteps, ...]:
        """Return how a pool came to its entitlement, by kind; nothing for the root or a missing
        pool."""
        known = pool in self.pools and pool != ROOT
        return self._sharing.steps(self._nodes[pool]) if known else ()

    def excess(self, pool: Key) -> dict[Key, list[int]]:
        """Return the children that use more than they are entitled to, by name: how much, by
        kind."""
        found = self._sharing.excess(self._nodes[pool]) if pool in self.pools else {}
        names = sorted((self.pools[key].config.name, key) for key in found)
        return {key: found[key] for _, key in names}

    def is_ample(self, pool: Key) -> bool:
        """Return whether all needs fit into every pool above, so that nothing has to be divided."""
        if self._uneven:
            return False
        node = self._nodes[pool].parent
        while node is not None:
            if not (node.use + node.demand).within(node.limit):
                return False
            node = node.parent
        return True

    def ration(self, pool: Key, of: Ration) -> Resources | None:
        """Return the most that tasks of a ration may hold in a pool; None: as much as others."""
        known = self.pools.get(pool)
        return None if known is None else ration(known.config, of, within=self.policy.within)

    def ration_left(self, pool: Key, of: Ration) -> Resources | None:
        """Return what tasks of a ration may still take, negative if they hold more; None: no
        limit."""
        most = self.ration(pool, of)
        return None if most is None else most - self._nodes[pool].rationed[of]

    def slack_limit(self, pool: Key) -> Resources:
        """Return the most that the tasks of a pool that run on slack may hold."""
        return self._nodes[pool].slack_limit if pool in self.pools else ZERO

    def slack_room(self, pool: Key) -> Resources:
        """Return what tasks on slack may still take in a pool; negative if they hold more."""
        return self.slack_limit(pool) - self._nodes[pool].on_slack

    def slack_use(self, pool: Key) -> Resources:
        """Return the part of `use` that tasks on slack hold."""
        return self._nodes[pool].slack_use if pool in self.pools else ZERO

    def set_aside(self, lane: Key) -> Resources:
        """Return what tasks on slack leave to the first of the others of their pool: what it
        needs."""
        head = self.waiting.head(pool_of_lane(lane)) if is_slack(lane) else None
        return ZERO if head is None else Resources(0, head.memory, head.disk, head.gpu)

    def up(self, pool: Key) -> list[Key]:
        """Return a pool and its ancestors, the root last."""
        node = self._nodes.get(pool)
        lineage = node.lineage() if node is not None else ()
        return [above.key for above in lineage if above.state is not None]

    def path(self, pool: Key) -> str:
        """Return the path of a pool, such as `/a/b`."""
        names = [self.pools[key].config.name for key in self.up(pool) if key != ROOT]
        return "/" + "/".join(reversed(names))

    def reserved(self, pool: Key) -> Resources:
        """Return what the children of a pool reserve in all."""
        node = self._nodes.get(pool)
        return node.reserved if node is not None else ZERO

    def named(self, parent: Key, name: str) -> list[Key]:
        """Return the children of that name; more than one only after a forced update."""
        node = self._nodes.get(parent)
        return [*node.names.get(name, ())] if node is not None else []

    def siblings(self, pool: Key) -> list[tuple[str, Key]]:
        """Return the children of a pool, by name; not to be changed."""
        node = self._nodes.get(pool)
        return node.by_name if node is not None else []

    def below(self, pool: Key, after: tuple[str, Key] | None = None) -> Iterator[Key]:
        """Yield the children of a pool by name; with `after`, those behind that name and key."""
        siblings = self.siblings(pool)
        start = bisect_right(siblings, after) if after is not None else 0
        return (siblings[number][1] for number in range(start, len(siblings)))

    def count_below(self, pool: Key) -> int:
        """Return how many children a pool has."""
        node = self._nodes.get(pool)
        return len(node.by_name) if node is not None else 0

    def largest_user(self, pool: Key, kind: int) -> tuple[str, int]:
        """Return the job that holds most of a resource in a pool and below, and how much; or ""."""
        return self._nodes[pool].largest_user(kind) if pool in self.pools else ("", 0)

    # ---- who waits, and why ----

    def verdict(self, lane: Key) -> str:
        """Return what others do for a waiting lane, or why they do nothing; "" if that is
        unknown."""
        books, waiting = self.reclaims, self.waiting
        owed = "" if waiting.awaits(lane) is None else books.owed.verdicts.get(lane)
        inside = "" if waiting.head(lane) is None else books.inside.verdicts.get(lane)
        after = f"{self.policy.sustained_s:g} s"
        return "; ".join(filter(None, (owed, inside))).replace("{after}", after)

    def gang(self, key: Key) -> Gang | None:
        """Return the gang of a lot that is to be admitted with others, or all at once."""
        return self._gangs.of(key)

    def unit(self, key: Key) -> QueuedUnit:
        """Return what is admitted at once of a lot in a queue: one member, or a whole gang."""
        gang = self._gangs.of(key) if self._gangs else None
        if gang is not None and gang.head is not None:
            return gang.head.unit
        shape = self.lots[key].shape
        rationed = tuple((each, shape.resources) for each in rations_of(shape))
        return QueuedUnit(shape.resources, rationed)

    def skip(self, key: Key, resource: PoolResource) -> None:
        """Skip a lot that cannot be admitted under a limit, or before others of its ration end.

        It blocks no other, and entitles its pool to nothing.
        """
        lot, unit = self.lots[key], self.unit(key)
        position = self.queues[lane_of(lot.shape)].skip(key)
        need = dict(unit.rationed)[resource.ration] if resource.ration else unit.need
        self._skipped.put(key, position, resource=resource, amount=need.amounts()[resource.kind])
        self._claim_all(key)

    def lack(self, lane: Key, more: Mapping[int, int]) -> None:
        """Record that a lane lacks entitlement, until its pool may use so much more of a kind."""
        node = self._nodes[pool_of_lane(lane)]
        used = (node.use + self.set_aside(lane)).amounts()
        enough = tuple(Lacking(kind, used[kind] + some) for kind, some in more.items())
        self._sharing.block(node, lane, enough=enough)

    def ends_own(self, pool: Key) -> bool:
        """Return whether a pool ends tasks of its own for the first that waits there."""
        return self.policy.enabled and self.path(pool) in self.reclaims.min_run_s

    def ends_slack(self, pool: Key) -> bool:
        """Return whether a pool has tasks on slack, which it ends for others of its own."""
        return self.policy.enabled and self._nodes[pool].on_slack != ZERO

    def settle(self) -> bool:
        """Let all changes reach the entitlements; return whether heads are to be checked again."""
        root = self._nodes.get(ROOT) if self._sharing.has_news else None
        if root is None:
            return False
        woken = self._sharing.woken(root)
        for pool in woken:
            self._recheck(pool)
        return bool(woken)

    # ---- a pool has changed ----

    def _put_pool(self, key: Key, new: Pool | None) -> None:
        node = self._node(key)
        known, was = node.state, node.limit
        if new is None or new.hours:
            self.lending.kept(key, new.hours[-1].ended if new is not None else inf)
        if known is not None and new is not None and known.terms == new.terms:
            node.state = self.pools[key] = new  # only its history is another
            return
        above, above_now = parent_of(key, known), parent_of(key, new)
        if known is not None and above is not None:
            self._node(above).unname(key, known)
        moved = known is None or new is None or above != above_now
        if moved and node.parent is not None:
            self._sharing.unlink(node, node.parent)
            node.unlink()
        node.state = new
        node.limit = limit_of(key, new)
        node.terms = terms_of(new.config, node.limit) if new is not None else NO_TERMS
        node.slack_limit = slack_limit_of(new.config) if new is not None else ZERO
        self._uneven.pop(key, None)
        if new is not None and any(terms.static or not terms.share for terms in node.terms):
            self._uneven[key] = None
        if new is None:
            self.pools.pop(key, None)
        else:
            self.pools[key] = new
        if new is not None and above_now is not None:
            self._node(above_now).name(key, new)
            if moved:
                node.link(self._node(above_now))
        self._sharing.touch(node)
        self.lending.touch_known(key)
        if moved:
            self._reshaped(node)
        else:
            self._limited(node, was)
            self.restore_rationed(key, RATIONS)
            self._restore_on_slack(key)
        for each in (key, above):
            self._forget(each)

    def _reshaped(self, node: Node) -> None:
        """Apply that a pool begins or ceases to exist, or has another parent."""
        if node.names:
            # Only while a recovery derives the tree, whose pools come in any order.
            self.waiting.recheck_all()
            for lot in self._skipped.items():
                self._restore(lot)
            return
        self._recheck(node.key)
        for lane in lanes_of(node.key):
            queue = self.queues.get(lane)
            for lot in queue.skipped() if queue is not None else ():
                self._restore(lot)

    def _limited(self, node: Node, was: Resources) -> None:
        """Apply that the limit of a pool may have changed."""
        if node.limit == was:
            return
        self._recheck(node.key)
        lower = False
        for kind, before, now in zip(KINDS, was.amounts(), node.limit.amounts(), strict=True):
            if now > before:
                self.waiting.grow(PoolResource(node.key, kind))
                self._restore_fitting(PoolResource(node.key, kind), now)
            lower = lower or now < before
        for lane in self._beyond(node) if lower else ():
            self._recheck(pool_of_lane(lane))

    def _beyond(self, node: Node) -> list[Key]:
        """Return the lanes at or below a pool whose head needs more than its limit.

        By a walk of the pools below it, or of all heads that need more: whichever ends first.
        """
        by_pool: list[Key] = []
        by_head: list[Key] = []
        heads = self.waiting.beyond(node.limit)
        for below in node.subtree():
            for its_lane in lanes_of(below.key):
                need = self.waiting.head(its_lane)
                if need is not None and not need.within(node.limit):
                    by_pool.append(its_lane)
            lane = next(heads, NO_LANE)
            if lane == NO_LANE:
                return by_head
            if lane is not None and node in self._nodes[pool_of_lane(lane)].lineage():
                by_head.append(lane)
        return by_pool

    def restore_rationed(self, pool: Key, rations: tuple[Ration, ...] = RATIONS) -> None:
        """Make lots eligible again that waited for others of their ration.

        Only the first of the queue that fit now, no more than there is room for.
        """
        for each in rations if self._skipped else ():
            left = self.ration_left(pool, each)
            for kind in KINDS:
                resource = PoolResource(pool, kind, each)
                # Without a limit of their own, all are: what they need is far below this.
                room = MILLIONTHS_MAX if left is None else left.amounts()[kind] + EPSILON - 1
                while (found := self._skipped.first(resource, most=room)) is not None:
                    lot = found.lot
                    count = 1 if self.unit(lot).lots else len(self.lots[lot].waiting)
                    room -= 0 if left is None else self._skipped.amount(lot, resource) * count
                    self._restore(lot)

    def _restore_on_slack(self, pool: Key) -> None:
        """Restore lots, as the limit of a pool for tasks on slack may have changed."""
        self.waiting.recheck(slack_lane(pool))
        for kind in KINDS:
            most = self.slack_limit(pool).amounts()[kind]
            self._restore_fitting(PoolResource(pool, kind, slack=True), most)

    def _recheck(self, pool: Key) -> None:
        for lane in lanes_of(pool):
            self.waiting.recheck(lane)

    def _restore_fitting(self, resource: PoolResource, limit: int) -> None:
        """Restore lots that were skipped because of this limit, if it is high enough."""
        most = limit + EPSILON - 1
        while (found := self._skipped.first(resource, most=most)) is not None:
            self._restore(found.lot)

    def _restore(self, lot: Key) -> None:
        self._skipped.drop(lot)
        shape = self.lots[lot].shape
        lane = lane_of(shape)
        self.queues[lane].restore(lot)
        self._claim_all(lot)
        self.waiting.recheck(lane)

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
        if old is not None and new is not None and new.admitted.raw & ~old.admitted.raw:
            self.waiting.admitted(lane_of(lot.shape))
        node.lots += (new is not None) - (old is not None)
        (admitted, wanted), (admitted_was, wanted_was) = (
            admitted_and_wanted(new),
            admitted_and_wanted(old),
        )
        admitted, wanted = admitted - admitted_was, wanted - wanted_was
        node.members += admitted + wanted
        if wanted:
            node.add_demand(need.times(wanted))
        if admitted:
            self.lending.touch(pool)
            node.add_use(key.split("/")[1], need.times(admitted))
        rations, on_slack = rations_of(lot.shape) if admitted else (), lot.shape.on_slack
        for each in rations:
            node.rationed[each] = node.rationed[each] + need.times(admitted)
        if admitted and on_slack:
            node.on_slack = node.on_slack + need.times(admitted)
            node.add_slack_use(need.times(admitted))
        if old is not None and new is not None and new.leaving.raw & ~old.leaving.raw:
            tasks = len(new.leaving - old.leaving)
            self.lending.gave(pool, need.times(tasks), tasks=tasks)
        if admitted < 0:
            self._released(node, need)
            # What was ended for others is theirs: nobody who waits here gets it.
            left = len(_given_up(old, new)) if old is not None and new is not None else 0
            freed = max(0, -admitted - left)
            self.releases.add(pool, need.times(freed), tasks=freed)
        self._queue(key, new, lane=lane_of(lot.shape))
        if admitted < 0 and on_slack:
            self.waiting.recheck(pool)  # what its pool is entitled to is for its other lane, too
        self.reclaims.put(key, old=old, new=new)
        self._claim(key, lot.shape)
        if admitted < 0:
            self.restore_rationed(pool, rations)
        self._forget(pool)

    def _queue(self, key: Key, new: Lot | None, *, lane: Key) -> None:
        queue = self.queues.get(lane)
        if queue is None:
            queue = self.queues[lane] = Queue()
        gang = None
        if self._gangs or (new is not None and new.gang is not None):
            gang = self._gangs.put(key, new)
            if gang is not None:
                self._queue_gang(gang, queue)
        if new is not None and new.waiting and not (gang is not None and new.forming):
            shape, waiting = new.shape, len(new.waiting)
            priority, need = shape.priority, shape.resources
            queue.put(key, priority=priority, arrived=new.arrived, waiting=waiting, need=need)
        elif gang is None or gang.head is None or gang.head.key != key:
            queue.drop(key)
        if not queue.is_skipped(key):
            self._skipped.drop(key)
        if queue:
            self.waiting.add(lane)
        else:
            self.waiting.remove(lane)
            self.waiting.recheck(slack_lane(lane))  # nothing is set aside any more

    def _queue_gang(self, gang: Gang, queue: Queue) -> None:
        """Queue a gang as one entry, only while it is complete."""
        was, head = gang.head, gang.found_head() if gang.lots else None
        if head == was:
            return
        if was is not None and (head is None or head.key != was.key or head.unit != was.unit):
            queue.drop(was.key)
            self._skipped.drop(was.key)
        gang.head = head
        if head is not None:
            priority = self.lots[head.key].shape.priority
            queue.put(
                head.key, priority=priority, arrived=head.arrived, waiting=head.waiting,
                need=head.unit.need,
            )  # fmt: skip
        for key, lot in gang.lots.items():
            self._claim(key, lot.shape)

    def _claim_all(self, key: Key) -> None:
        """Claim for all lots that are admitted with this one."""
        for lot in self.unit(key).lots or (key,):
            self._claim(lot, self.lots[lot].shape)

    def _claim(self, key: Key, shape: LotShape) -> None:
        """Update what a lot adds to the need of its pool; of a skipped lot, what it holds.

        Else a task that is too large for ever would take from other pools what it cannot use.
        """
        lot = self.lots.get(key)
        claimed = ZERO
        if lot is not None:
            admitted, wanted = admitted_and_wanted(lot)
            gang = self._gangs.of(key) if self._gangs else None
            queue = self.queues[lane_of(lot.shape)]
            at = key if gang is None else gang.head.key if gang.head is not None else None
            count = admitted if at is None or queue.is_skipped(at) else admitted + wanted
            claimed = shape.resources.times(count)
        was = self._claimed.get(key, ZERO)
        if claimed == was:
            return
        if claimed == ZERO:
            del self._claimed[key]
        else:
            self._claimed[key] = claimed
        node = self._node(shape.pool)
        if shape.on_slack:
            node.own_slack = node.own_slack + claimed - was
        else:
            node.own = node.own + claimed - was
        self._sharing.touch(node)

    def _released(self, node: Node, need: Resources) -> None:
        if not self.waiting.blocked:
            return
        kinds = [kind for kind in KINDS if need.amounts()[kind]]
        for above in node.lineage():
            for kind in kinds:
                self.waiting.grow(PoolResource(above.key, kind))
        for kind in kinds:
            self.waiting.grow(PoolResource(node.key, kind, slack=True))

    # ---- nodes ----

    def _node(self, key: Key) -> Node:
        node = self._nodes.get(key)
        if node is None:
            node = self._nodes[key] = Node(key)
        return node

    def _forget(self, key: Key | None) -> None:
        """Drop the node of a pool that does not exist and that nothing refers to."""
        node = self._nodes.get(key) if key is not None else None
        if node is not None and node.idle:
            del self._nodes[node.key]
            for lane in lanes_of(node.key):
                self.queues.pop(lane, None)
            self.releases.drop(node.key)
            self.lending.drop(node.key)
            self.reclaims.forget(node.key)


def _given_up(old: Lot, new: Lot) -> Bits:
    """Return members whose end frees nothing for waiting tasks.

    What was ended for others is theirs, and slack of a task that queues again was mostly taken
    back.
    """
    taken_back = old.admitted & new.waiting if new.shape.on_slack else Bits()
    return (old.leaving - new.leaving) | taken_back
