"""Which tickets pass the head of a queue that cannot begin, for how long, and what it costs."""

from __future__ import annotations

import immutables
import msgspec
import pytest

from peloton.actors.resources import Resources
from peloton.actors.respool.admission import HEAD_KEPT_AFTER_S, PASSING_MAX, admissions
from peloton.actors.respool.blockers import ExplainedTree
from peloton.actors.respool.lot.messages import LotShape
from peloton.actors.respool.lot.state import Lot
from peloton.actors.respool.messages import ROOT, Queueing
from peloton.actors.respool.reclaims import PreemptionPolicy
from peloton.actors.respool.state import InventorySum, Pool
from peloton.runtime.vocabulary import Key
from tests.actors.pools.test_pool import A, B, admit, config, lot, put, root, tree
from tests.actors.pools.test_pool_costs import counted

UNIT = 1_000_000


def needing(need: Resources, arrived: float, *, admitted: bool = False) -> Lot:
    one = lot(A, 0 if admitted else 1, int(admitted), arrived=arrived)
    return msgspec.structs.replace(one, shape=LotShape(A, need, preemptible=True))


def admitted_at(found: ExplainedTree, now: float) -> list[str]:
    batches = admissions(found, now=now)
    for key, members in batches:
        old = found.lots[key]
        waiting, in_now = old.waiting - members, old.admitted | members
        new = msgspec.structs.replace(old, waiting=waiting, admitted=in_now)
        found.put(key, old=old, new=new)
    return [key.partition("/")[2] for key, _ in batches]


@pytest.mark.parametrize(
    ("queueing", "begins"), [(Queueing.BEST_EFFORT, [("fits", 1)]), (Queueing.STRICT, [])]
)
def test_what_a_pool_reserves_is_used_by_who_fits(
    queueing: Queueing, begins: list[tuple[str, int]]
) -> None:
    found = tree(
        a=config("a", reserved=3, limit=4, queueing=queueing),
        b=config("b", reserved=1, limit=4),
    )
    found.put(ROOT, old=found.pools[ROOT], new=root(4))
    put(found, "held", lot(B, admitted=1))
    put(found, "head", lot(A, 1, size=4, arrived=1.0))
    put(found, "fits", lot(A, 1, size=3, arrived=2.0))
    assert admit(found) == begins
    assert admit(found) == []
    put(found, "held", None)
    put(found, "fits", None)
    assert admit(found) == [("head", 1)]


def test_those_that_pass_go_by_priority_and_arrival_and_leave_nothing_that_fits() -> None:
    found = tree(a=config("a", limit=7))
    put(found, "held", lot(A, admitted=1))
    put(found, "head", lot(A, 1, size=7, priority=9, arrived=1.0))
    put(found, "late", lot(A, 3, size=1, arrived=4.0))
    put(found, "wide", lot(A, 1, size=5, arrived=3.0))
    put(found, "first", lot(A, 1, size=3, priority=1, arrived=5.0))
    assert admit(found) == [("first", 1), ("late", 3)]
    put(found, "first", None)
    assert admit(found) == [], "3 cpus are free: neither fits"
    put(found, "late", None)
    assert admit(found) == [("wide", 1)]


def test_what_is_freed_is_kept_for_a_head_that_waited_long_but_not_what_it_does_not_lack() -> None:
    found = tree(a=config("a", limit=4))
    gpus = Resources(4 * UNIT, gpu=2 * UNIT)
    limited = msgspec.structs.replace(found.pools[A].config, limit=gpus)
    found.put(A, old=found.pools[A], new=Pool(limited))
    sums = immutables.Map({Key("inventory/0"): InventorySum(1, gpus)})
    found.put(ROOT, old=found.pools[ROOT], new=Pool(found.pools[ROOT].config, sums))
    put(found, "held", needing(Resources(UNIT, gpu=UNIT), 0.0, admitted=True))
    put(found, "head", needing(gpus - Resources(3 * UNIT), 1.0))
    put(found, "small", needing(Resources(UNIT, gpu=UNIT), 2.0))
    assert admitted_at(found, 10.0) == ["small"]
    put(found, "small", None)
    later = 10.0 + HEAD_KEPT_AFTER_S
    put(found, "small", needing(Resources(UNIT, gpu=UNIT), 3.0))
    put(found, "other", needing(Resources(UNIT), 4.0))
    assert admitted_at(found, later) == ["other"], "the gpu is kept, a cpu is not lacked"
    assert "before it in the queue of its pool" in found.waits(Key("lot/small")).because
    assert admitted_at(found, later) == []
    put(found, "held", None)
    assert admitted_at(found, later) == ["head"]


def test_a_head_that_began_in_part_has_not_waited() -> None:
    found = tree(a=config("a", limit=4))
    put(found, "held", lot(A, admitted=1))
    put(found, "head", lot(A, 2, size=4, arrived=1.0))
    put(found, "small", lot(A, 1, arrived=2.0))
    assert admitted_at(found, 1.0) == ["small"]
    put(found, "held", None)
    put(found, "small", None)
    assert admitted_at(found, 1.0 + HEAD_KEPT_AFTER_S) == ["head"]
    put(found, "head", lot(A, 1, size=4, arrived=1.0))
    put(found, "held", lot(A, admitted=1))
    put(found, "small", lot(A, 1, arrived=2.0))
    assert admitted_at(found, 2.0 + HEAD_KEPT_AFTER_S) == ["small"]


def test_nobody_passes_in_a_pool_that_ends_its_own_tasks_for_the_head() -> None:
    found = tree(PreemptionPolicy(inside=(("/a", 60.0),)), a=config("a", limit=4))
    put(found, "held", lot(A, admitted=1))
    put(found, "head", lot(A, 1, size=4, priority=1, arrived=1.0))
    put(found, "small", lot(A, 1, arrived=2.0))
    assert admit(found) == []


def cost_of_an_end(behind: int, *, more: float) -> int:
    """One ends in a pool whose head does not fit, nor does anybody behind it."""
    found = tree(a=config("a", limit=4))
    found.put(ROOT, old=found.pools[ROOT], new=root(4))
    put(found, "held", lot(A, admitted=1, size=3.5))
    put(found, "ends", lot(A, admitted=1, size=0.25))
    put(found, "head", lot(A, 1, size=4))
    for number in range(behind):
        put(found, f"l{number:05}", lot(A, 1, size=2 + number * more, arrived=1.0 + number))
    assert admit(found) == []
    with counted() as steps:
        put(found, "ends", None)
        assert admit(found) == []
    return steps.count


@pytest.mark.parametrize(
    ("counts", "more"),
    [((10, 2000), 0.0), ((PASSING_MAX, 3 * PASSING_MAX), 0.0001)],
    ids=["all alike", "all different"],
)
def test_an_end_costs_as_much_however_many_are_behind(counts: tuple[int, int], more: float) -> None:
    small, large = (cost_of_an_end(count, more=more) for count in counts)
    assert large <= 1.5 * small, (small, large)
