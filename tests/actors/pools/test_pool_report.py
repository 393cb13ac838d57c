"""The report of a pool: the steps of its entitlement, its relatives, who waits and who gives back.

The division itself is tested in `test_entitlement.py` and `test_pool_index.py`.
"""

from __future__ import annotations

import pytest

from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool.copies import CopyPools, copy_pools
from peloton.actors.respool.messages import ROOT, FillStage, PoolConfig
from peloton.actors.respool.pool_report import LOTS_SHOWN_MAX, PoolReport, report
from peloton.actors.respool.state import Pool
from peloton.runtime.vocabulary import At
from tests.actors.pools.test_reclaiming import AFTER_S, A, B, C, World, size_of

CPU = 0


def accounted(world: World, path: str) -> PoolReport:
    at = At(now=world.now, key=ROOT, index=world.tree)
    found = report(copy_pools(world.tree.pools[ROOT], CopyPools(100), at), path, now=world.now)
    assert found is not None
    return found


def cpus(found: PoolReport) -> tuple[float, ...]:
    """Divided; by reservation, by need, offered; reserved and needed by all."""
    steps = found.steps[CPU]
    each = (
        steps.divided, steps.by_reservation, steps.by_need, steps.offered, steps.reserved,
        steps.beyond,
    )  # fmt: skip
    return tuple(amount / UNIT for amount in each)


@pytest.mark.parametrize(
    ("tasks_a", "tasks_b", "expected", "stage"),
    [
        # Nobody needs anything: all is offered, by equal shares.
        (0, 0, (12, 0, 0, 6, 0, 0), FillStage.OFFERED),
        # It needs what it reserves.
        (6, 0, (12, 6, 0, 3, 6, 0), FillStage.OFFERED),
        # It needs two more, which are there; the rest is offered.
        (8, 0, (12, 6, 2, 2, 6, 2), FillStage.OFFERED),
        # Both need more than there is: beyond the reservations by share.
        (20, 20, (12, 6, 1, 0, 10, 14), FillStage.SHARED),
    ],
)
def test_the_steps_of_an_entitlement(
    tasks_a: int, tasks_b: int, expected: tuple[float, ...], stage: FillStage
) -> None:
    world = World(size_of(12))
    world.pool(A, size_of(6))
    world.pool(B, size_of(4))
    for name, pool, tasks in (("a", A, tasks_a), ("b", B, tasks_b)):
        if tasks:
            world.lot(name, pool, size_of(1), tasks=tasks)
    found = accounted(world, "/a")
    assert cpus(found) == expected and found.steps[CPU].stage is stage
    assert found.pool.entitlement == world.tree.entitlement(A)
    assert [each.path for each in found.siblings] == ["/b"] and found.above is not None


def test_reservations_beyond_the_cluster_are_scaled_down() -> None:
    world = World(size_of(5))
    for pool, own in ((A, 6), (B, 4)):
        name = pool.partition("/")[2]
        config = PoolConfig(name, ROOT, size_of(own), size_of(10))
        world.tree.put(pool, old=None, new=Pool(config))
        world.lot(name, pool, size_of(1), tasks=10)
    found = accounted(world, "/a")
    assert found.steps[CPU].stage is FillStage.RESERVED
    assert cpus(found) == (5, 3, 0, 0, 10, 10)


def test_the_root_has_children_and_no_steps() -> None:
    world = World(size_of(5))
    world.pool(A, size_of(1))
    world.pool(C, size_of(1), parent=A)
    found = accounted(world, "/")
    assert (found.steps, found.above, found.siblings) == ((), None, [])
    assert [each.path for each in found.children] == ["/a"]
    assert [each.path for each in accounted(world, "/a").children] == ["/a/c"]


def test_who_waits_in_the_order_of_the_queue_and_who_gives_back() -> None:
    world = World(size_of(10))
    world.pool(A, size_of(6))
    world.pool(B, size_of(4))
    world.lot("lent", A, size_of(1), tasks=10)
    world.settle()
    world.lot("asks", B, size_of(1), tasks=4, priority=1)
    for number in range(LOTS_SHOWN_MAX):
        world.lot(f"later{number:02}", B, size_of(1), tasks=2)
    world.serve()
    before = world.tree.use(B)
    world.serve(AFTER_S, going=False)
    found = accounted(world, "/b")
    assert world.tree.use(B) == before, "it is a copy"
    assert [lot.job for lot in found.waiting[:3]] == ["asks", "later00", "later01"]
    assert (found.waiting[0].tasks, found.waiting[0].priority) == (4, 1)
    assert found.waiting[0].because
    assert len(found.waiting) == LOTS_SHOWN_MAX
    assert found.waiting_in_all == 4 + 2 * LOTS_SHOWN_MAX
    assert found.giving == []
    (giving,) = accounted(world, "/").giving
    assert (giving.pool, giving.job, giving.tasks) == ("/a", "lent", 4)
    assert giving.amount == size_of(4) and "<pool /b> waits" in giving.reason


def test_there_is_no_account_of_a_pool_that_is_not_there() -> None:
    world = World(Resources())
    at = At(now=0.0, key=ROOT, index=world.tree)
    copied = copy_pools(world.tree.pools[ROOT], CopyPools(100), at)
    assert report(copied, "/none", now=0.0) is None


def test_who_can_never_run_needs_nothing_in_an_account_either() -> None:
    world = World(size_of(12))
    world.pool(A, size_of(6))
    world.pool(B, size_of(4))
    world.lot("never", A, size_of(13), tasks=3)
    world.settle()
    found = accounted(world, "/b")
    assert cpus(found) == (12, 0, 0, 6, 0, 0)
    assert found.pool.entitlement == world.tree.entitlement(B)
