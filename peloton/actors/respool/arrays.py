"""What all pools are entitled to, in one pass over arrays: a level of the tree at a time.

Turns the needs and terms of all pools into the entitlement of each, to the millionth as `Sharing`
gives it for one: from the deepest level up what is needed, from the root down what each is entitled
to. Rows are kept from pass to pass; only pools that have changed are read again. It is for those
who look at all pools; one pool is looked at by its path. Must not decide who may have what: that is
`division.py`, which this repeats for many groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from peloton.actors.resources import Resources
from peloton.actors.respool.messages import ROOT
from peloton.actors.respool.node import KINDS, Node
from peloton.actors.respool.pouring import Groups, Longs, levels, poured
from peloton.runtime.vocabulary import Key

AMOUNT_MAX = 1 << 62
"""Sums beyond it do not fit into the words of an array: then nothing is told."""


class LevelTerms(NamedTuple):
    """What the configs of one level say, kind by kind and then row by row."""

    reservation: Longs
    limit: Longs
    share: Longs
    static: NDArray[np.bool_]

    def each(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> LevelTerms:
        """The same change of all of them."""
        return LevelTerms(
            change(self.reservation), change(self.limit), change(self.share), change(self.static)
        )


class TreeLevel(NamedTuple):
    """The pools of one depth: siblings are neighbours."""

    slots: Longs
    parents: Longs  # the places, in the level above, of those that have children
    siblings: Groups  # by kind and parent
    families: Longs  # where those of one parent begin


class AllEntitlements(NamedTuple):
    """What every pool is entitled to, at one moment."""

    slots: dict[Key, int]
    amounts: Longs  # by kind and slot
    use: Longs

    def beyond(self, least: int) -> list[Key]:
        """The pools that use at least so much more of any kind, in the order of their slots."""
        over = (self.use - self.amounts >= least).any(axis=0)
        keys = [*self.slots]
        return [keys[slot] for slot in np.flatnonzero(over).tolist()]

    def of(self, pool: Key) -> Resources:
        """Of one pool; of one that does not exist, or below such a one, nothing."""
        slot = self.slots.get(pool)
        return Resources() if slot is None else Resources(*self.amounts[:, slot].tolist())


class PoolArrays:
    """The rows of one tree."""

    def __init__(self) -> None:
        self.stale: dict[Key, Node] = {}  # to be read again before the next pass
        self.used: dict[Key, Node] = {}  # likewise what these and those above use
        self._nodes: dict[Key, Node] = {}  # by key, in the order of the slots
        self._slots: dict[Key, int] = {}
        self._parents: dict[Key, Node | None] = {}  # as the levels know them
        self._levels: list[TreeLevel] = []
        self._own: Longs = np.zeros((len(KINDS), 0), np.int64)
        self._use = self._own
        self._terms = LevelTerms(self._own, self._own, self._own, self._own.astype(np.bool_))
        self._by_level: list[LevelTerms] = []

    def entitlements(self) -> AllEntitlements | None:
        """Of all pools, by one pass; None if their sums do not fit into the words of an array."""
        self.read()
        root = self._nodes.get(ROOT)
        if root is None or not self._fits(root):
            return None
        amounts = np.zeros_like(self._own)
        entitled = np.array([root.limit.amounts()], np.int64).T
        needs = self._needs()
        amounts[:, self._levels[0].slots] = entitled
        for level, terms, need in zip(self._levels[1:], self._by_level[1:], needs[1:], strict=True):
            above = entitled[:, level.parents].ravel()
            found = divided(level.siblings, entitled=above, needs=need.ravel(), terms=terms)
            entitled = found.reshape(len(KINDS), -1)
            amounts[:, level.slots] = entitled
        return AllEntitlements(self._slots, amounts, self._use)

    def _needs(self) -> list[Longs]:
        """What the pools of each level claim of those above."""
        found: list[Longs] = []
        below: Longs | None = None
        for number in range(len(self._levels) - 1, -1, -1):
            level = self._levels[number]
            need = self._own[:, level.slots]
            if below is not None:
                child = self._levels[number + 1]
                need[:, child.parents] += np.add.reduceat(below, child.families, axis=1)
            limit = self._by_level[number].limit.reshape(need.shape)
            below = np.minimum(need, limit)
            found.append(below)
        return found[::-1]

    def _fits(self, root: Node) -> bool:
        terms = self._terms
        sums = [each.sum(axis=1, dtype=np.float64).max() for each in (self._own, *terms[:3:2])]
        return bool(max(*root.limit.amounts(), *sums) < AMOUNT_MAX / 2)

    # ---- rows ----

    def read(self) -> None:
        """Read the pools that changed."""
        if self.used:
            used, self.used = self.used, {}
            self._read_use(used)
        if not self.stale:
            return
        changed, self.stale = self.stale, {}
        moved = {
            key: node
            for key, node in changed.items()
            if key not in self._parents or self._parents[key] is not node.parent or not node.state
        }
        if moved:
            self._reshape(moved)
        rows = [node for key, node in changed.items() if key in self._slots]
        slots = [self._slots[node.key] for node in rows]
        self._own[:, slots] = (
            np.array([clipped(node.needs()) for node in rows], np.int64)
            .reshape(len(rows), len(KINDS))
            .T
        )
        flat = [value for node in rows for terms in node.terms for value in clipped(terms)]
        read = np.array(flat, np.int64).reshape(len(rows), len(KINDS), 4).transpose(2, 1, 0)
        for into, values in zip(self._terms, read, strict=True):
            into[:, slots] = values
        self._by_level = [self._terms_of(level.slots) for level in self._levels]
        self._read_use(changed)

    def _read_use(self, changed: dict[Key, Node]) -> None:
        found: dict[Key, Node] = {}
        for node in changed.values():
            at: Node | None = node
            while at is not None and at.key not in found:
                found[at.key] = at
                at = at.parent
        rows = [node for key, node in found.items() if key in self._slots]
        slots = [self._slots[node.key] for node in rows]
        use = np.array([clipped(node.use.amounts()) for node in rows], np.int64)
        self._use[:, slots] = use.reshape(len(rows), len(KINDS)).T

    def _terms_of(self, slots: Longs) -> LevelTerms:
        return self._terms.each(lambda rows: rows[:, slots].ravel())

    def _reshape(self, moved: dict[Key, Node]) -> None:
        """Pools came, went, or have another parent."""
        for key, node in moved.items():
            if node.state is None:
                self._nodes.pop(key, None)
            else:
                self._nodes[key] = node
        known = self._slots
        self._slots = {key: slot for slot, key in enumerate(self._nodes)}
        self._parents = {key: node.parent for key, node in self._nodes.items()}
        # Rows that are kept go where their pool is now; those of new pools are read next.
        kept = [known.get(key, -1) for key in self._nodes]
        self._own, self._use = _moved(self._own, kept), _moved(self._use, kept)
        self._terms = self._terms.each(lambda rows: _moved(rows, kept))
        self._levels = _levels(self._slots, self._parents.values())


def divided(groups: Groups, *, entitled: Longs, needs: Longs, terms: LevelTerms) -> Longs:
    """What the members of each group get of what it is entitled to, as `Division` divides it."""
    reserved = np.where(terms.static, terms.reservation, np.minimum(needs, terms.reservation))
    beyond = np.where(terms.share > 0, np.maximum(needs - terms.reservation, 0), 0)
    sums = groups.sums(reserved), groups.sums(beyond), groups.sums(terms.share)
    short = entitled < sums[0]
    left = entitled - sums[0]
    shared = ~short & (left < sums[1])
    offered = ~short & (left > sums[1]) & (sums[2] > 0)
    got = reserved + beyond
    if offered.any():
        some, at = _chosen(groups, offered)
        rises = levels((left - sums[1])[offered], sums[2][offered])
        more = got[at] + rises.spread(some).times(terms.share[at])
        got[at] = np.maximum(got[at], np.minimum(terms.limit[at], more))
    if shared.any():
        some, at = _chosen(groups, shared)
        got[at] = reserved[at] + poured(
            some, available=left[shared], amounts=beyond[at], weights=terms.share[at]
        )
    if short.any():
        some, at = _chosen(groups, short)
        got[at] = poured(
            some, available=entitled[short], amounts=reserved[at], weights=terms.reservation[at]
        )
    return got


def _chosen(groups: Groups, which: NDArray[np.bool_]) -> tuple[Groups, Longs | slice]:
    """Some of the groups, and where their members are."""
    if which.all():
        return groups, slice(None)
    return Groups.of(groups.sizes[which]), np.flatnonzero(groups.spread(which))


def clipped(amounts: Iterable[int]) -> list[int]:
    """Amounts that fit into a word: no sum of them is told if they matter."""
    return [each if each < AMOUNT_MAX else AMOUNT_MAX for each in amounts]


def _moved(rows: NDArray[Any], kept: list[int]) -> NDArray[Any]:
    if not rows.shape[1]:
        return np.zeros((len(rows), len(kept)), rows.dtype)
    return rows[:, kept]


def _levels(slots: dict[Key, int], parents: Iterable[Node | None]) -> list[TreeLevel]:
    """The pools that hang on the root, by depth, and siblings together."""
    if ROOT not in slots:
        return []
    above = np.array(
        [slots.get(parent.key, -1) if parent is not None else -1 for parent in parents], np.int64
    )
    root, place = slots[ROOT], np.full(len(above), -1, np.int64)
    one = np.zeros(1, np.int64)
    found = [TreeLevel(one + root, one[:0], Groups(one[:0], one[:0]), one[:0])]
    place[root] = 0
    # By the slot of the parent, so that the children of a pool are one stretch.
    order = np.argsort(above, kind="stable")
    order = order[above[order] >= 0]
    firsts = np.searchsorted(above[order], np.arange(len(above)))
    counts = np.bincount(above[order], minlength=len(above))
    while True:
        last = found[-1].slots
        has = np.flatnonzero(counts[last])
        if not len(has):
            return found
        sizes = counts[last[has]]
        families = np.cumsum(sizes) - sizes
        at = np.arange(sizes.sum()) + np.repeat(firsts[last[has]] - families, sizes)
        siblings = Groups.of(np.tile(sizes, len(KINDS)))
        found.append(TreeLevel(order[at], has, siblings, families))
