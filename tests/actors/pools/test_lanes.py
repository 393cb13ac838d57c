"""The two lanes of a pool: neither blocks the other, and slack takes what is left.

Histories in general are in `test_pool_index.py`, which compares with a definition.
"""

from __future__ import annotations

import immutables

from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool.admission import admissions
from peloton.actors.respool.blockers import ExplainedTree
from peloton.actors.respool.lanes import is_slack, lanes_of, pool_of_lane
from peloton.actors.respool.lot.messages import GangTerms, LotShape
from peloton.actors.respool.lot.state import Lot
from peloton.actors.respool.messages import ROOT, PoolConfig
from peloton.actors.respool.state import InventorySum, Pool
from peloton.runtime.vocabulary import Bits, Key

A, B = Key("respool/a"), Key("respool/b")


def size(cpu: int = 0, memory: int = 0, slack: int = 0) -> Resources:
    return Resources(cpu * UNIT, memory * UNIT, slack=slack * UNIT)


class Town:
    """A tree of one pool, which has reserved ten of each."""

    def __init__(self, capacity: Resources) -> None:
        self.tree = ExplainedTree()
        self.root = Pool(PoolConfig("root", ROOT, Resources(), Resources()))
        self.tree.put(ROOT, old=None, new=self.root)
        self.grow(capacity)
        config = PoolConfig("a", ROOT, size(10, 10), size(10, 10), slack_percent=50.0)
        self.tree.put(A, old=None, new=Pool(config))

    def grow(self, capacity: Resources) -> None:
        sums = immutables.Map({Key("inventory/0"): InventorySum(1, capacity)})
        old, self.root = self.root, Pool(self.root.config, sums)
        self.tree.put(ROOT, old=old, new=self.root)

    def ask(
        self, name: str, need: Resources, tasks: int = 1, priority: int = 0, *, pool: Key = A
    ) -> None:
        shape = LotShape(pool, need, priority, revocable=need.slack > 0)
        self._put(name, Lot(shape, Key("task/j/0"), 1.0, immutables.Map(), Bits.span(0, tasks)))

    def admit(self) -> dict[str, int]:
        """How many of each lot are admitted, until no more are."""
        counts: dict[str, int] = {}
        while found := admissions(self.tree):
            for key, members in found:
                lot = self.tree.lots[key]
                waiting, admitted = lot.waiting - members, lot.admitted | members
                name = key.split("/")[1]
                self._put(name, Lot(lot.shape, lot.crowd, 1.0, lot.tickets, waiting, admitted))
                counts[name] = counts.get(name, 0) + len(members)
        return counts

    def leave(self, name: str) -> None:
        self._put(name, None)

    def why(self, name: str) -> str:
        return self.tree.waits(Key(f"lot/{name}/0/0")).because

    def _put(self, name: str, new: Lot | None) -> None:
        key = Key(f"lot/{name}/0/0")
        self.tree.put(key, old=self.tree.lots.get(key), new=new)


def test_a_lane_names_its_pool() -> None:
    own, slack = lanes_of(A)
    assert (own, pool_of_lane(own), pool_of_lane(slack)) == (A, A, A)
    assert is_slack(slack) and not is_slack(own)


def test_neither_lane_blocks_the_other() -> None:
    town = Town(size(2, 10, slack=1))
    town.ask("own", size(1), 5)
    town.ask("slack", size(slack=1), 5, priority=9)
    assert town.admit() == {"own": 2, "slack": 1}
    town.grow(size(2, 10, slack=3))
    assert town.admit() == {"slack": 2}
    town.grow(size(3, 10, slack=3))
    assert town.admit() == {"own": 1}


def test_less_slack_than_is_held_keeps_nobody_else_out() -> None:
    town = Town(size(2, 10, slack=3))
    town.ask("slack", size(slack=1), 3)
    assert town.admit() == {"slack": 3}
    town.grow(size(2, 10, slack=1))
    town.ask("own", size(1), 2)
    assert town.admit() == {"own": 2}


def test_a_part_of_the_reservation_is_their_limit_but_not_of_slack() -> None:
    town = Town(size(10, 10, slack=50))
    town.ask("slack", size(memory=1, slack=9), 9)
    assert town.admit() == {"slack": 5}
    text = "limit of <pool /a> for tasks on slack reached: memory requested 1 MB, 0 MB of 5 MB free"
    assert town.why("slack") == text
    town.ask("large", size(memory=6, slack=1), priority=1)
    assert town.admit() == {} and "it can never be admitted" in town.why("large")


def test_they_leave_the_first_of_the_others_what_it_needs() -> None:
    town = Town(size(10, 10, slack=50))
    town.ask("full", size(memory=7))
    town.ask("own", size(memory=4))
    assert town.admit() == {"full": 1}
    town.ask("slack", size(memory=1, slack=1), 3)
    assert town.admit() == {} and "keeps 4 MB memory" in town.why("slack")
    town.leave("full")
    assert town.admit() == {"own": 1, "slack": 3}


def test_what_a_task_on_slack_frees_reaches_the_other_lane() -> None:
    """Whose head lacks what the pool is entitled to: both use it."""
    town = Town(size(10, 20, slack=10))
    town.ask("held", size(1, 5))
    town.ask("slack", size(0, 5, slack=1))
    assert town.admit() == {"held": 1, "slack": 1}
    town.ask("next", size(1, 1))
    assert town.admit() == {}
    town.leave("slack")
    assert town.admit() == {"next": 1}


def test_a_lane_is_due_for_more_of_the_cluster_and_after_the_other_has_had_its_turn() -> None:
    """Both at once, where another pool frees what the heads of both lanes wait for."""
    town = Town(size(10, 10, slack=10))
    town.tree.put(B, old=None, new=Pool(PoolConfig("b", ROOT, Resources(), size(10, 10))))
    town.ask("lent", size(5, 5), pool=B)
    town.ask("held", size(5, 5))
    assert town.admit() == {"lent": 1, "held": 1}
    town.ask("next", size(1))
    town.ask("more", size(0, 1, slack=1))
    assert town.admit() == {}
    town.leave("lent")
    assert town.admit() == {"next": 1, "more": 1}


def test_slack_that_is_taken_back_is_no_release_for_who_waits() -> None:
    """A run that is ended for want of slack queues again; one that is over frees its slack."""
    for queues_again in (True, False):
        town = Town(size(2, 10, slack=2))
        town.ask("slack", size(slack=1), 2)
        assert town.admit() == {"slack": 2}
        lot = town.tree.lots[Key("lot/slack/0/0")]
        waiting = Bits.of(1) if queues_again else Bits()
        new = Lot(lot.shape, lot.crowd, 1.0, lot.tickets, waiting, Bits.of(0))
        town.tree.put(Key("lot/slack/0/0"), old=lot, new=new)
        town.tree.releases.note(1.0, up=town.tree.up)
        assert town.tree.releases.noted.sums[A].tasks == (0 if queues_again else 1)


def test_a_gang_on_slack_needs_slack_of_its_pool_until_it_is_gone() -> None:
    town, key, members = Town(size(10, 10, 4)), Key("lot/gang/0/0"), Bits.span(0, 3)
    shape = LotShape(A, size(slack=1), revocable=True, gang=True)
    lot = Lot(
        shape, Key("task/j/0"), 1.0, immutables.Map(), members,
        gang=GangTerms(1, 1, 1, members), joined=members,
    )  # fmt: skip
    town.tree.put(key, old=None, new=lot)
    node = town.tree._nodes[A]
    assert (node.own, node.own_slack) == (size(), size(slack=3))
    town.tree.put(key, old=lot, new=None)
    assert (node.own, node.own_slack) == (size(), size())
    assert town.tree._nodes.keys() == {ROOT, A}
