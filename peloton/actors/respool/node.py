"""One pool of the tree, with the sums over it and all pools below.

A change of a lot or of a child updates the sums along the path to the root and nowhere else.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from peloton.actors.resources import CPU, UNIT, Resources
from peloton.actors.respool.division import Division, KindClaim, KindTerms
from peloton.actors.respool.messages import MILLIONTHS_MAX, NO_SLACK_LIMIT, ROOT, PoolConfig
from peloton.actors.respool.state import Pool
from peloton.runtime.vocabulary import Key

JOBS_SCANNED_MAX = 20_000
"""Jobs that are scanned for the one that holds most: a query must not delay the pool."""

ZERO = Resources()
KINDS = range(len(Resources.KINDS))
NO_TERMS = (KindTerms(),) * len(KINDS)


class Lacking(NamedTuple):
    """The entitlement to one kind at which a head of a lane is no longer blocked by it."""

    kind: int
    wanted: int

    def enough(self, kind: int, entitled: int) -> bool:
        """Return whether an entitlement to a kind is enough."""
        return kind == self.kind and entitled >= self.wanted


class Node:
    """A pool; or a missing one that lots or children refer to (`state` is None).

    `use` and `demand` are of its own lots and of all nodes below. A missing pool has no parent, so
    its sums are not counted above it until it exists.
    """

    __slots__ = (
        "key", "state", "parent", "children", "names", "by_name", "reserved",
        "limit", "use", "demand", "use_by_job", "lots", "members", "rationed", "_most",
        "on_slack", "slack_use", "own", "own_slack", "slack_limit", "terms",
        "claims", "lacking", "divisions",
    )  # fmt: skip

    def __init__(self, key: Key) -> None:
        self.key = key
        self.state: Pool | None = None
        self.parent: Node | None = None
        self.children: dict[Key, Node] = {}
        self.names: dict[str, dict[Key, None]] = {}  # children by name; force allows duplicates
        self.by_name: list[tuple[str, Key]] = []  # children in the order of names
        self.reserved = ZERO  # by all children
        self.limit = ZERO
        self.use = ZERO
        self.demand = ZERO
        self.use_by_job: dict[str, Resources] = {}  # `use` by job
        self.lots = 0  # its own
        self.members = 0  # of its own lots, waiting or admitted, whatever they request
        self.rationed = [ZERO, ZERO, ZERO]  # by `Ration`: `use` by such tasks of its own lots
        self._most: dict[int, tuple[str, int]] = {}  # kind → who holds most; a cache
        self.on_slack = ZERO  # `use` by tasks of its own lots that run on slack
        self.slack_use = ZERO  # the same with all nodes below
        self.own = ZERO  # `use` and `demand` of its own lots, without lots that cannot be admitted
        self.own_slack = ZERO  # the same of lots that run on slack
        self.slack_limit = ZERO  # the most that these may use
        self.terms = NO_TERMS  # what its config says, by kind
        self.claims: list[KindClaim | None] = [None for _ in KINDS]  # what its parent was told
        self.lacking: dict[Key, tuple[Lacking, ...]] = {}  # by lane: the entitlement it waits for
        self.divisions: tuple[Division, ...] = ()  # by kind, once it has had a child

    def lineage(self) -> Iterator[Node]:
        """Yield the node and those above it, up to the root or to a missing pool, which is
        included."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    @property
    def depth(self) -> int:
        """Return how many nodes are above this one."""
        depth, node = 0, self.parent
        while node is not None:
            depth, node = depth + 1, node.parent
        return depth

    def subtree(self) -> Iterator[Node]:
        """Yield the node and all below it."""
        open_nodes = [self]
        while open_nodes:
            node = open_nodes.pop()
            open_nodes += node.children.values()
            yield node

    def wanted(self, kind: int) -> int | None:
        """Return the least entitlement that is enough for a head that lacks it, here or below."""
        lacking = [each for lane in self.lacking.values() for each in lane if each.kind == kind]
        found = min((each.wanted for each in lacking), default=None)
        if self.divisions and self.divisions[kind].waiters.order:
            division = self.divisions[kind]
            below = division.wanted(division.waiters.order[0][0])
            found = below if found is None else min(found, below)
        return found

    def needs(self) -> tuple[int, ...]:
        """Return what the node's own lots need; those that run on slack no more than they may
        use."""
        own = self.own.amounts()
        if self.own_slack is ZERO:
            return own
        rows = zip(own, self.own_slack.amounts(), self.slack_limit.amounts(), strict=True)
        return tuple(need + min(on_slack, most) for need, on_slack, most in rows)

    def add_demand(self, more: Resources) -> None:
        """Add to the demand of this node's own lots, and so to all above."""
        node: Node | None = self
        while node is not None:
            node.demand = node.demand + more
            node = node.parent

    def add_use(self, job: str, more: Resources) -> None:
        """Add to the use of a job in this node, and so to all above."""
        node: Node | None = self
        while node is not None:
            node.use = node.use + more
            node._add_use(job, more)
            node = node.parent

    def add_slack_use(self, more: Resources) -> None:
        """Add to what tasks on slack use in this node, and so to all above."""
        node: Node | None = self
        while node is not None:
            node.slack_use = node.slack_use + more
            node = node.parent

    def link(self, parent: Node) -> None:
        """Become a child: the sums of this node count for those above from now on."""
        if any(node is self for node in parent.lineage()):
            return  # the rules forbid a cycle, and a walk along one would never end
        self.parent = parent
        parent.children[self.key] = self
        if not parent.divisions:
            parent.divisions = tuple(Division() for _ in KINDS)
        parent.add_demand(self.demand)
        parent.add_slack_use(self.slack_use)
        for job, used in self.use_by_job.items():
            parent.add_use(job, used)

    def unlink(self) -> None:
        """Stop being a child: the sums of this node no longer count for those above."""
        parent = self.parent
        if parent is None:
            return
        self.parent = None
        del parent.children[self.key]
        parent.add_demand(ZERO - self.demand)
        parent.add_slack_use(ZERO - self.slack_use)
        for job, used in self.use_by_job.items():
            parent.add_use(job, ZERO - used)

    def name(self, child: Key, state: Pool) -> None:
        """Add a child's name and reservation."""
        name = state.config.name
        self.names.setdefault(name, {})[child] = None
        insort(self.by_name, (name, child))
        self.reserved = self.reserved + state.config.reservation

    def unname(self, child: Key, state: Pool) -> None:
        """Remove a child's name and reservation."""
        name = state.config.name
        alike = self.names[name]
        del alike[child]
        if not alike:
            del self.names[name]
        del self.by_name[bisect_left(self.by_name, (name, child))]
        self.reserved = self.reserved - state.config.reservation

    def largest_user(self, kind: int) -> tuple[str, int]:
        """Return which job holds most of a kind, and how much; "" if no job holds any."""
        most = self._most.get(kind)
        if most is None:
            most = "", 0
            for job, used in islice(self.use_by_job.items(), JOBS_SCANNED_MAX):
                most = _more(most, (job, used.amounts()[kind]))
            self._most[kind] = most
        return most

    @property
    def idle(self) -> bool:
        """Return whether nothing refers to the node, so that it may be forgotten."""
        return self.state is None and not self.lots and not self.names

    def _add_use(self, job: str, more: Resources) -> None:
        left = self.use_by_job.get(job, ZERO) + more
        if left != ZERO:
            self.use_by_job[job] = left
        else:
            self.use_by_job.pop(job, None)
        if not self._most:
            return
        for kind, most in [*self._most.items()]:
            amount = left.amounts()[kind]
            if job == most[0] and amount < most[1]:
                del self._most[kind]  # another may hold more now
            elif job == most[0]:
                self._most[kind] = job, amount
            else:
                self._most[kind] = _more(most, (job, amount))


def _more(most: tuple[str, int], other: tuple[str, int]) -> tuple[str, int]:
    """Return the one that holds more; of equals, the first by name."""
    if other[1] > most[1] or (other[1] == most[1] > 0 and other[0] < most[0]):
        return other
    return most


def terms_of(config: PoolConfig, limit: Resources) -> tuple[KindTerms, ...]:
    """Return the terms of a pool, by kind.

    Slack is shared as cpu is; no pool reserves any.
    """
    shares, static = (*config.share, config.share[CPU]), (*config.static, False)
    rows = zip(config.reservation.amounts(), limit.amounts(), shares, static, strict=True)
    return tuple(
        KindTerms(reservation, most, int(share * UNIT), static)
        for reservation, most, share, static in rows
    )


def parent_of(key: Key, state: Pool | None) -> Key | None:
    """Return the parent that a pool names; the root and a missing pool have none."""
    return state.config.parent if state is not None and key != ROOT else None


def limit_of(key: Key, state: Pool | None) -> Resources:
    """Return the most a pool may use; for the root, what the cluster has."""
    if state is None:
        return ZERO
    return state.capacity if key == ROOT else state.config.limit + NO_SLACK_LIMIT


def slack_limit_of(config: PoolConfig) -> Resources:
    """Return the most that the tasks of a pool that run on slack may use.

    A part of its reservation, and of slack all that there is.
    """
    part = config.reservation.percent(config.slack_percent)
    return Resources(0, part.memory, part.disk, part.gpu, MILLIONTHS_MAX)
