"""The kept index of pools equals its definition after every step, however trees and lots change.

Two comparisons: with `pool_reference`, which walks everything, for all that is answered and for who
is admitted in which order; and with a rebuild from the states, as recovery derives it.
"""

from __future__ import annotations

import itertools
from typing import Any

import immutables
import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from peloton.actors.resources import Resources
from peloton.actors.respool.admission import admissions
from peloton.actors.respool.blockers import ExplainedTree
from peloton.actors.respool.lanes import lanes_of
from peloton.actors.respool.lot.messages import LotShape
from peloton.actors.respool.lot.state import Lot
from peloton.actors.respool.messages import ROOT, PoolConfig, Queueing, Within, pool_key
from peloton.actors.respool.reclaims import PreemptionPolicy
from peloton.actors.respool.rules import check, check_delete
from peloton.actors.respool.shortage import why_head_waits
from peloton.actors.respool.state import InventorySum, Pool
from peloton.actors.respool.walks import walk_pools
from peloton.chaos.cluster.checks import contents
from peloton.chaos.cluster.rules.conserving import ConservationCheck
from peloton.chaos.cluster.rules.explaining import ExplanationCheck
from peloton.runtime.vocabulary import Bits, Key
from tests.actors.pools.pool_reference import Reference, entitlements

NAMES = [f"p{number}" for number in range(7)]
BEGIN = [("a", None), ("b", None), ("a1", "a"), ("a2", "a"), ("b1", "b"), ("b2", "b")]
MISSING = pool_key("missing")
UNIT = 1_000_000
# What waits, fits and is too much should all be frequent: a few units everywhere. Some amounts are
# within the epsilon of others: a head may fit by a hair.
whole = st.sampled_from([0, UNIT, UNIT, 2 * UNIT])
amounts = whole | st.sampled_from([500, UNIT - 899, UNIT + 900, 5 * UNIT])
needs = st.builds(Resources, amounts, whole, st.just(0), st.sampled_from([0, 0, 0, UNIT]))
needs = needs | needs.map(Resources.revocable)
roomy = st.sampled_from([2 * UNIT, 3 * UNIT, 4 * UNIT, 6 * UNIT, 9 * UNIT])
limits = st.builds(Resources, roomy, roomy, st.just(0), st.sampled_from([0, UNIT, 3 * UNIT]))
slack = st.builds(Resources, slack=roomy | st.just(0))
capacities = st.tuples(limits, slack).map(lambda both: both[0] + both[1])
small = st.integers(min_value=0, max_value=4)
slack_percents = st.sampled_from([20.0, 50.0, 100.0, 0.0, 400.0])
percents = st.sampled_from([None, None, 0.0, 50.0, 100.0])
shares = st.sampled_from(
    [(1.0,) * 4, (1.0,) * 4, (2.0,) * 4, (0.0, 1.0, 1.0, 1.0), (0.5, 3.0, 1.0, 1.0)]
)
rules = st.sampled_from([Within.NEVER, Within.RESERVED, Within.ALWAYS])
own_rules = st.sampled_from([Within.CLUSTER, Within.CLUSTER, *Within])
queueings = st.sampled_from([*Queueing])
statics = st.sampled_from([(False,) * 4, (False,) * 4, (True, False, False, False)])


def lot_of(shape: LotShape, arrived: float, *, waiting: Bits, admitted: Bits) -> Lot | None:
    if not waiting and not admitted:
        return None
    return Lot(shape, Key("task/j/0"), arrived, immutables.Map(), waiting, admitted)


class Pools(RuleBasedStateMachine):
    """Histories of a tree: applied to the kept index and to the reference alike."""

    @initialize(capacity=capacities, within=rules)
    def begin(self, capacity: Resources, within: Within) -> None:
        self.policy = PreemptionPolicy(within_reservation=within)
        self.tree, self.reference = ExplainedTree(self.policy), Reference(within)
        self.sums, self.reasons = ConservationCheck(), ExplanationCheck()
        self.clock = itertools.count(1)
        self.names = itertools.count()
        self.now = 0.0
        self.capacity(capacity)
        wide = Resources(6 * UNIT, 6 * UNIT, 0, 2 * UNIT)
        for number, (name, parent) in enumerate(BEGIN):
            parent_key = ROOT if parent is None else pool_key(parent)
            limit = wide.times(1 + number % 2)
            self.put(pool_key(name), Pool(PoolConfig(name, parent_key, Resources(), limit)))

    def put(self, key: Key, new: Any) -> None:
        old = (self.tree.lots if key.startswith("lot/") else self.tree.pools).get(key)
        self.tree.put(key, old=old, new=new)
        self.reference.put(key, old=old, new=new)

    def pick(self, keys: list[Key], at: int) -> Key:
        return keys[at % len(keys)]

    @rule(amount=capacities)
    def capacity(self, amount: Resources) -> None:
        sums = immutables.Map({Key("inventory/0"): InventorySum(1, amount)})
        self.put(ROOT, Pool(PoolConfig("root", ROOT, Resources(), Resources()), sums))

    @rule(
        at=st.integers(0, 99), name=st.sampled_from(NAMES), limit=limits, reservation=limits,
        percent=percents, share=shares, static=statics, slack_percent=slack_percents,
        within=own_rules, queueing=queueings,
    )  # fmt: skip
    def create(
        self,
        at: int,
        name: str,
        limit: Resources,
        reservation: Resources,
        percent: float | None,
        share: tuple[float, float, float, float],
        static: tuple[bool, bool, bool, bool],
        slack_percent: float,
        within: Within,
        queueing: Queueing,
    ) -> None:
        """Some pools may not be; a forced one breaks rules of names and sums."""
        if len(self.tree.pools) > 10:
            return
        parent = self.pick(sorted(self.tree.pools), at)
        config = PoolConfig(
            name,
            parent,
            reservation,
            limit,
            share,
            static,
            controller_percent=percent,
            slack_percent=slack_percent,
            within=within,
            queueing=queueing,
        )
        key = pool_key(f"{name}-{next(self.names)}")
        refused = check(self.tree, key, config=config)
        if refused is None or "holds tasks" not in refused.text:
            self.put(key, Pool(config))

    @rule()
    def create_the_missing(self) -> None:
        """A pool that lots have waited for."""
        if MISSING not in self.tree.pools:
            limit = Resources(3 * UNIT, 3 * UNIT, UNIT, 0)
            self.put(MISSING, Pool(PoolConfig("missing", ROOT, Resources(), limit)))

    @precondition(lambda self: len(self.tree.pools) > 1)
    @rule(
        at=st.integers(0, 99), limit=limits, name=st.none() | st.sampled_from(NAMES),
        reservation=limits, percent=percents, share=shares, slack_percent=slack_percents,
        within=own_rules,
    )  # fmt: skip
    def update(
        self, at: int, limit: Resources, name: str | None, reservation: Resources,
        percent: float | None, share: tuple[float, float, float, float],
        slack_percent: float, within: Within,
    ) -> None:  # fmt: skip
        key = self.pick(sorted(set(self.tree.pools) - {ROOT}), at)
        config = self.tree.pools[key].config
        config = msgspec.structs.replace(
            config, limit=limit, name=name or config.name, reservation=reservation,
            controller_percent=percent, share=share, slack_percent=slack_percent, within=within,
        )  # fmt: skip
        self.put(key, Pool(config))

    @precondition(lambda self: len(self.tree.pools) > 1)
    @rule(at=st.integers(0, 99))
    def delete(self, at: int) -> None:
        key = self.pick(sorted(set(self.tree.pools) - {ROOT}), at)
        if check_delete(self.tree, key) is None:
            self.put(key, None)

    @rule(
        at=st.integers(0, 99), job=small, number=small, need=needs, priority=small,
        members=st.integers(1, 3), again=st.booleans(), controller=st.booleans(),
        preemptible=st.booleans(), revocable=st.booleans(),
    )  # fmt: skip
    def ticket(
        self, at: int, job: int, number: int, need: Resources, priority: int, members: int,
        again: bool, controller: bool, preemptible: bool, revocable: bool,
    ) -> None:  # fmt: skip
        """Members of a lot wait; they may have been admitted before."""
        leaves = [key for key in sorted(self.tree.pools) if not self.reference.children(key)]
        pool = self.pick([*leaves, MISSING], at)
        key = Key(f"lot/job{job}/{number}/0")
        known = self.tree.lots.get(key)
        shape = (
            known.shape
            if known is not None
            else LotShape(pool, need, priority % 2, preemptible, revocable, controller=controller)
        )
        bits = Bits.span(number, number + members)
        waiting, admitted = Bits(), Bits()
        arrived = float(next(self.clock))
        if known is not None:
            waiting, admitted = known.waiting, known.admitted
            arrived = known.arrived if known.waiting else arrived
        if not again:
            bits = bits - admitted
        self.put(
            key, lot_of(shape, arrived, waiting=waiting | bits, admitted=admitted - bits)
        )  # fmt: skip

    @precondition(lambda self: bool(self.tree.lots))
    @rule(at=st.integers(0, 99), members=st.integers(1, 31))
    def leave(self, at: int, members: int) -> None:
        key = self.pick(sorted(self.tree.lots), at)
        lot = self.tree.lots[key]
        gone = Bits(members)
        self.put(key, lot_of(
            lot.shape, lot.arrived, waiting=lot.waiting - gone, admitted=lot.admitted - gone
        ))  # fmt: skip

    @rule(
        lost=st.sampled_from([False, False, True]), later=st.sampled_from([0.0, 1.0, 299.0, 301.0])
    )
    def admit(self, lost: bool, later: float) -> None:
        """The root admits; those of the last lot that it admits may have left in the same frame."""
        self.now += later
        self.reference.skipped = self.skipped()
        found = admissions(self.tree, now=self.now)
        assert [tuple(each) for each in found] == self.reference.admissions(self.now)
        for number, (key, members) in enumerate(found, start=1):
            lot = self.tree.lots[key]
            came = Bits() if lost and number == len(found) else members
            self.put(key, lot_of(
                lot.shape, lot.arrived,
                waiting=lot.waiting - members, admitted=lot.admitted | came,
            ))  # fmt: skip

    @invariant()
    def sums_add_up_and_who_waits_knows_why(self) -> None:
        self.sums.follow(self.tree)
        self.reasons.at_rest(self.tree)

    @invariant()
    def answers_are_those_of_the_definition(self) -> None:
        tree, reference = self.tree, self.reference
        # Where a forced update gave siblings one name, either may come first.
        listed = [*walk_pools(tree)]
        assert sorted(listed) == sorted(reference.all())
        if len(listed) == len({*map(tree.path, listed)}):
            assert listed == reference.all()
        assert list(tree.pending) == reference.pending
        for pool in tree.pools:
            assert tree.up(pool) == reference.up(pool)
            assert tree.limit(pool) == reference.limit(pool)
            assert (tree.use(pool), tree.demand(pool)) == (
                reference.use(pool), reference.demand(pool),
            )  # fmt: skip
            own = [lot for lot in tree.lots.values() if lot.shape.pool == pool]
            assert tree.members(pool) == sum(len(lot.waiting) + len(lot.admitted) for lot in own)
            for kind in range(5):
                used = reference.use_by_job(pool, kind)
                job, most = tree.largest_user(pool, kind)
                assert most == max(used.values(), default=0)
                assert used.get(job, 0) == most
            for lane in lanes_of(pool):
                order = reference.order(lane)
                queue = tree.queues.get(lane)
                assert (list(queue.in_order()) if queue else []) == order
                assert bool(why_head_waits(tree, lane)) <= bool(order)
                self.positions_count_those_before(lane)

    def skipped(self) -> set[Key]:
        """Which lots are skipped is known once they were looked at; what follows is defined."""
        queues = self.tree.queues.values()
        return {key for queue in queues for key in queue.skipped()}

    @invariant()
    def entitlements_are_those_of_the_definition(self) -> None:
        defined = entitlements(self.reference, self.skipped())
        for pool in self.tree.pools:
            found = self.tree.entitlement(pool)
            steps = self.tree.steps(pool)
            assert not steps or found.amounts() == tuple(each.entitled for each in steps)
            assert all(min(each.by_reservation, each.by_need, each.offered) >= 0 for each in steps)
            pairs = zip(found.amounts(), defined[pool].amounts(), strict=True)
            assert all(abs(amount - exact) < 10 for amount, exact in pairs), (
                f"{pool}: {found}, not {defined[pool]}"
            )

    def positions_count_those_before(self, pool: Key) -> None:
        """Of the lots that stand in line, by a walk along it."""
        before = 0
        queue = self.tree.queues.get(pool)
        for key in queue.eligible() if queue is not None else ():
            assert self.tree.waits(key).position == before
            before += len(self.tree.lots[key].waiting)

    @invariant()
    def the_index_is_its_rebuild(self) -> None:
        again = ExplainedTree(self.policy)
        cells = [*self.tree.lots.items(), *self.tree.pools.items()]
        for key, state in sorted(cells, key=lambda cell: cell[0][::-1]):
            again.put(key, old=None, new=state)
        assert contents(again) == contents(self.tree)

    def teardown(self) -> None:
        if not hasattr(self, "tree"):
            return
        self.reference.skipped = self.skipped()
        while self.reference.admissions(self.now):
            self.admit(lost=False, later=0.0)
            self.reference.skipped = self.skipped()
        assert admissions(self.tree, now=self.now) == []
        for key in list(self.tree.lots):
            self.put(key, None)
        assert not self.tree.pending
        for pool in self.tree.pools:
            assert self.tree.use(pool) == self.tree.demand(pool) == Resources()
            assert self.tree.members(pool) == 0


TestPools = Pools.TestCase
TestPools.settings = settings(
    max_examples=40,
    stateful_step_count=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
