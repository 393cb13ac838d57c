"""R10: the sums over pools are those of their lots, and no more is lent than there is.

Turns the tree of pools that an owner has in memory into a `Contradiction` or nothing, after every
step of its shard: use, demand, members and holdings of each job, in whole millionths, of each pool
and all below it; what is on its way back; and the entitlements of children. A lot that changed is
counted anew, the others are not. That an admission stays within every limit is checked by the
shadow ledger, from the journal. At a quiet point the root's capacity is compared with the hosts'.
The sums that are judged are not used.
"""

from __future__ import annotations

from collections.abc import Mapping

from peloton.actors.host.stages import OCCUPYING, HostStates, Maintenance
from peloton.actors.resources import Resources
from peloton.actors.respool.lot.state import Lot
from peloton.actors.respool.messages import ROOT
from peloton.actors.respool.rations import Ration
from peloton.actors.respool.tree import Tree
from peloton.chaos.cluster.world.view import ClusterView
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.vocabulary import Key

NONE = Resources()


class LotSums:
    """The holdings and demand of a pool's lots, and what comes back from them."""

    def __init__(self) -> None:
        self.use = NONE
        self.demand = NONE
        self.controllers = NONE
        self.non_preemptible = NONE
        self.on_slack = NONE
        self.members = 0
        self.use_by_job: dict[str, Resources] = {}  # by job
        self.coming = NONE
        self.going = 0  # how many members

    def count(self, key: Key, lot: Lot, *, sign: int) -> None:
        """Add a lot, or subtract it."""
        need, admitted = lot.shape.resources, lot.admitted.raw.bit_count()
        waiting, leaving = lot.waiting.raw.bit_count(), lot.leaving.raw.bit_count()
        ordered = min(lot.order.count, admitted - leaving) if lot.order is not None else 0
        job = key.split("/")[1]
        self.use = self.use + need.times(sign * admitted)
        self.demand = self.demand + need.times(sign * waiting)
        self.members += sign * (admitted + waiting)
        self.going += sign * (leaving + ordered)
        self.coming = self.coming + need.times(sign * (leaving + ordered))
        self._add(job, need.times(sign * admitted))
        if lot.shape.on_slack:
            self.on_slack = self.on_slack + need.times(sign * admitted)
            return
        if lot.shape.controller:
            self.controllers = self.controllers + need.times(sign * admitted)
        if not (lot.shape.preemptible or lot.shape.revocable):
            self.non_preemptible = self.non_preemptible + need.times(sign * admitted)

    def _add(self, job: str, more: Resources) -> None:
        self.use_by_job[job] = self.use_by_job.get(job, NONE) + more
        if self.use_by_job[job] == NONE:
            del self.use_by_job[job]


class ConservationCheck:
    """The sums of one tree at a time: that of the newest owner of the pools."""

    def __init__(self) -> None:
        self.checked = 0
        self.divided = 0  # how often entitlements were compared, too
        self._tree: Tree | None = None
        self._lots: dict[Key, Lot] = {}
        self._pools: dict[Key, object] = {}
        self._sums: dict[Key, LotSums] = {}

    def follow(self, tree: Tree) -> bool:
        """Check a tree that may have changed; return whether it did. Raises `Contradiction`."""
        if tree is not self._tree:
            self._tree, self._lots, self._pools, self._sums = tree, {}, {}, {}
        changed = self._count(tree.lots)
        if not changed and self._pools == tree.pools:
            return False
        self._pools = dict(tree.pools)
        self.checked += 1
        below: dict[Key, list[Key]] = {}
        for key, pool in tree.pools.items():
            if key != ROOT and pool.config.parent in tree.pools:
                below.setdefault(pool.config.parent, []).append(key)
        tops = [key for key, pool in tree.pools.items() if _is_top(key, tree)]
        for key in tops:
            self._adds_up(tree, key, below=below)
        self._loans_add_up(tree)
        self._divides(tree, below)
        return True

    def _count(self, lots: Mapping[Key, Lot]) -> bool:
        known = self._lots
        changed = [key for key, lot in lots.items() if known.get(key) is not lot]
        if len(lots) - sum(key not in known for key in changed) < len(known):
            changed += [key for key in known if key not in lots]
        for key in changed:
            for lot, sign in ((known.get(key), -1), (lots.get(key), 1)):
                if lot is not None:
                    sums = self._sums.setdefault(lot.shape.pool, LotSums())
                    sums.count(key, lot, sign=sign)
        if changed:
            self._lots = dict(lots)
        return bool(changed)

    def _adds_up(
        self, tree: Tree, pool: Key, *, below: Mapping[Key, list[Key]]
    ) -> tuple[Resources, Resources, dict[str, Resources]]:
        """Check a pool and all below it; return use, demand, and use by job."""
        own, node = self._sums.get(pool) or LotSums(), tree._nodes[pool]
        use, demand, used = own.use, own.demand, dict(own.use_by_job)
        for child in below.get(pool, ()):
            more, wanted, jobs = self._adds_up(tree, child, below=below)
            use, demand = use + more, demand + wanted
            for job, amount in jobs.items():
                used[job] = used.get(job, NONE) + amount
        for name, known, found in (
            ("use", node.use, use),
            ("demand", node.demand, demand),
            ("use by controllers", node.rationed[Ration.CONTROLLERS], own.controllers),
            ("use on slack", node.on_slack, own.on_slack),
            ("firm use", node.rationed[Ration.NON_PREEMPTIBLE], own.non_preemptible),
            ("number of members", node.members, own.members),
            ("use by job", node.use_by_job, used),
        ):
            if known != found:
                raise Contradiction(f"R10 {pool}: its {name} is {found}, its sum is {known}")
        return use, demand, used

    def _loans_add_up(self, tree: Tree) -> None:
        """Check that what is coming back is what lots were ordered, or have chosen, to give."""
        reclaims = tree.reclaims
        for pool in sorted({*reclaims.coming, *self._sums}):
            own = self._sums.get(pool) or LotSums()
            known = reclaims.coming.get(pool, NONE), reclaims.in_flight.get(pool, 0)
            if known != (own.coming, own.going):
                text = f"{own.going} members give back {own.coming}, its sum is {known}"
                raise Contradiction(f"R10 {pool}: {text}")

    def _divides(self, tree: Tree, below: Mapping[Key, list[Key]]) -> None:
        """Check that children are entitled to no more than their parent.

        It is checked only when all changes have reached the entitlements: to ask earlier would
        change them.
        """
        if tree._sharing._touched or ROOT not in tree.pools:
            return
        self.divided += 1
        for parent, children in below.items():
            given = NONE
            for child in children:
                given = given + tree.entitlement(child)
            most = tree.entitlement(parent) if parent != ROOT else tree.limit(ROOT)
            pairs = zip(given.amounts(), most.amounts(), strict=True)
            if any(amount > there for amount, there in pairs):
                text = f"its children are entitled to {given}, and it to {most}"
                raise Contradiction(f"R10 {parent}: {text}")


def root_has_what_hosts_have(view: ClusterView) -> None:
    """Check R10, at rest: the root's capacity is that of usable hosts, and of runs elsewhere."""
    root = view.cells("respool").get(ROOT)
    if root is None:
        return
    known = there = NONE
    for inventory in root.inventories.values():
        known = known + inventory.capacity
    for host in view.cells("host").values():
        if host.state == HostStates.LOST:
            continue
        if host.maintenance == Maintenance.NONE:
            there = there + host.capacity
        else:
            used = (some for _, some in host.runs.sets() if some.phase in OCCUPYING)
            there = sum((some.resources.times(len(some.members)) for some in used), start=there)
    if known != there:
        raise Contradiction(f"R10 {ROOT} has {known}, its hosts have {there}")


def _is_top(key: Key, tree: Tree) -> bool:
    """Return whether no pool is above: the root, and while a recovery derives the tree, others."""
    return key == ROOT or tree.pools[key].config.parent not in tree.pools
