"""What every pool is entitled to, and which pools a change of that may unblock.

Entitlements follow from the needs, reservations, limits and shares of pools, from the root down: a
pool's entitlement is divided among its children, kind by kind (`division.Division`). Nothing is
calculated before it is asked for. A change of one pool costs its path to the root; the entitlement
of one pool costs the same, and finding the children that use more than theirs costs a look at each.

A pool whose head lacks entitlement waits at the level of its parent's division at which it would
have enough. A parent waits in turn at the level above at which one of its children would. So a walk
from the root meets just those pools that have enough now.
"""

from __future__ import annotations

from peloton.actors.resources import EPSILON, Resources
from peloton.actors.respool.division import DivisionSteps, KindClaim
from peloton.actors.respool.messages import ROOT
from peloton.actors.respool.node import KINDS, ZERO, Lacking, Node
from peloton.runtime.vocabulary import Key


class Sharing:
    """The entitlements of one tree."""

    def __init__(self) -> None:
        self._touched: dict[Key, Node] = {}  # what they claim has not reached the root yet
        self._blocked: dict[Key, Node] = {}  # what they wait for has not, either
        self._lacking: dict[Key, Node] = {}  # pools that wait for entitlement
        self._changed = False  # since the last `woken`

    @property
    def has_news(self) -> bool:
        """Return whether `woken` may return anything."""
        return self._changed and bool(self._lacking)

    def touch(self, node: Node) -> None:
        """Record that a node's need, config, children or waits have changed."""
        self._touched[node.key] = node
        self._changed = True

    def unlink(self, node: Node, parent: Node) -> None:
        """Record that a node will be no child of `parent` any more."""
        for division in parent.divisions:
            division.put(node.key, None)
            division.waiters.put(node.key, None)
        node.claims = [None for _ in KINDS]
        node.lacking = {}
        self._lacking.pop(node.key, None)
        self.touch(parent)

    def block(self, node: Node, lane: Key, *, enough: tuple[Lacking, ...]) -> None:
        """Record that a lane of a pool lacks entitlement, until one of these is `enough`."""
        node.lacking[lane] = enough
        self._lacking[node.key] = self._blocked[node.key] = node
        self._changed = True

    def entitlement(self, node: Node) -> Resources:
        """Return what a pool and all below it may use, if no limit is lower."""
        self.settle()
        path = [*node.lineage()]
        if path[-1].key != ROOT:
            return ZERO  # a pool that does not exist, or below one
        return Resources(*(_of_kind(path, kind) for kind in KINDS))

    def steps(self, node: Node) -> tuple[DivisionSteps, ...]:
        """Return how a pool, which must not be the root, came to its entitlement, by kind."""
        self.settle()
        parent = node.parent
        assert parent is not None
        above = self.entitlement(parent).amounts()
        pairs = zip(parent.divisions, above, strict=True)
        return tuple(division.steps(node.key, entitled) for division, entitled in pairs)

    def excess(self, node: Node) -> dict[Key, list[int]]:
        """Return the children of a pool that use more than they are entitled to: how much, by
        kind."""
        found: dict[Key, list[int]] = {}
        if not node.children:
            return found
        above = zip(node.divisions, self.entitlement(node).amounts(), strict=True)
        divided = [(division.received, division.level(entitled)) for division, entitled in above]
        some = [kind for kind in KINDS if node.use.amounts()[kind] >= EPSILON]
        for key, child in node.children.items():
            used = child.use.amounts()
            for kind in some:
                received, level = divided[kind]
                more = used[kind] - received(key, level)
                if more >= EPSILON:
                    row = found.get(key)
                    if row is None:
                        row = found[key] = [0 for _ in KINDS]
                    row[kind] = more
        return found

    def woken(self, root: Node) -> list[Key]:
        """Return the pools whose head may have enough entitlement now, and did not when it was
        blocked."""
        self._touched |= self._blocked
        self._blocked = {}
        self.settle()
        self._changed = False
        found: dict[Key, Node] = {}
        for kind in KINDS:
            _wake(root, kind, found=found)
        for node in found.values():
            node.lacking = {}
            del self._lacking[node.key]
            self._touched[node.key] = node
        return [*found]

    def settle(self) -> None:
        """Let the claims reach the root: children before their parents, each node once."""
        if not self._touched:
            return
        depths: dict[int, dict[Key, Node]] = {}
        for node in self._touched.values():
            depths.setdefault(node.depth, {})[node.key] = node
        self._touched = {}
        while depths:
            depth = max(depths)
            for node in depths.pop(depth).values():
                parent = node.parent
                if parent is not None and _claim(node, parent):
                    depths.setdefault(depth - 1, {})[parent.key] = parent


def _claim(node: Node, parent: Node) -> bool:
    """Claim at the parent, and wait there; return whether that changes anything for the parent.

    Most kinds of most nodes are as they were, so this compares before it calls.
    """
    changed = False
    own, divisions = node.needs(), node.divisions
    for kind in KINDS:
        division, terms, known = parent.divisions[kind], node.terms[kind], node.claims[kind]
        need = own[kind] + divisions[kind].need if divisions else own[kind]
        if need > terms.limit:
            need = terms.limit
        if known is None or known.need != need or known.terms is not terms:
            node.claims[kind] = claim = KindClaim(need, terms)
            division.put(node.key, claim)
            changed = True
        if node.lacking or division.waiters.order or (divisions and divisions[kind].waiters.order):
            wanted = node.wanted(kind)
            level = division.level_for(node.key, wanted) if wanted is not None else None
            changed = division.waiters.put(node.key, level) or changed
    return changed


def _of_kind(path: list[Node], kind: int) -> int:
    """Return the entitlement of the first node of the path, which ends at the root."""
    entitled = path[-1].limit.amounts()[kind]
    for at in range(len(path) - 1, 0, -1):
        if not entitled:
            return 0  # of nothing nobody gets anything
        division = path[at].divisions[kind]
        entitled = division.received(path[at - 1].key, division.level(entitled))
    return entitled


def _wake(root: Node, kind: int, *, found: dict[Key, Node]) -> None:
    open_nodes = [(root, root.limit.amounts()[kind])]
    while open_nodes:
        node, entitled = open_nodes.pop()
        if any(each.enough(kind, entitled) for lane in node.lacking.values() for each in lane):
            found[node.key] = node
        if node.divisions:
            division = node.divisions[kind]
            level = division.level(entitled)
            for key in division.waiters.up_to(level):
                open_nodes.append((node.children[key], division.received(key, level)))
