"""R31: a waiting lot has a reason in its pool, and "never" only if that is proven.

Turns the tree of pools of a shard at rest into a `Contradiction` or nothing: each lot with waiting
members names the rule that is in its way, so that none waits that fits; and a lot that is never to
be admitted is not admitted either if it is alone and hosts are unlimited. The tree must not be
changed: it is the owner's.
"""

from __future__ import annotations

from peloton.actors.resources import AMOUNT_MAX, UNIT, Resources
from peloton.actors.respool.admission import admissions
from peloton.actors.respool.blockers import ExplainedTree
from peloton.actors.respool.facts import CapacityChanged
from peloton.actors.respool.lot.state import Lot
from peloton.actors.respool.messages import ROOT
from peloton.actors.respool.state import EVOLVE, Pool
from peloton.actors.respool.tree import Tree
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.vocabulary import Key

ENDLESS = Resources(*(int(AMOUNT_MAX) * UNIT for _ in Resources.KINDS))
ALL_HOSTS = CapacityChanged(Key("inventory/endless"), 1, ENDLESS)


class ExplanationCheck:
    """Checks the reasons of one tree at a time."""

    def __init__(self) -> None:
        self.checked = 0
        self.never = 0
        self.changed = False  # since it was judged
        self._proven: dict[Key, tuple[Lot, dict[Key, Pool]]] = {}

    def at_rest(self, tree: ExplainedTree) -> None:
        """Check a tree in which only a message changes anything. Raises `Contradiction`."""
        waiting = tree.waiting
        if tree._sharing._touched or tree._sharing.has_news or waiting.changed or waiting.grown:
            return
        self.changed = False
        for key, lot in tree.lots.items():
            if not lot.waiting:
                continue
            said = tree.waits(key)
            self.checked += 1
            if not said.because:
                text = f"{lot.waiting} wait, {said.position} before them, and nothing says why"
                raise Contradiction(f"R31 {key}: {text}")
            if said.never:
                self._is_proven(tree, key, because=said.because)

    def _is_proven(self, tree: Tree, key: Key, *, because: str) -> None:
        known = self._proven.get(key)
        if known is not None and known[0] is tree.lots[key] and known[1] == tree.pools:
            return
        self.never += 1
        alone = Tree(tree.policy)
        for pool, state in tree.pools.items():
            there = EVOLVE[CapacityChanged](state, ALL_HOSTS) if pool == ROOT else state
            alone.put(pool, old=None, new=there)
        for at in tree.unit(key).lots or (key,):
            lot = tree.lots[at]
            first = lot.shape, lot.crowd, lot.arrived, lot.tickets, lot.waiting
            alone.put(at, old=None, new=Lot(*first, gang=lot.gang, joined=lot.joined))
        if admissions(alone):
            raise Contradiction(f"R31 {key} could be admitted, and is told: {because}")
        self._proven[key] = tree.lots[key], dict(tree.pools)
