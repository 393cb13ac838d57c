"""The checks of pools find what is planted into a tree, or into the facts of its lots, by hand.

`tests/actors` judges the tree itself, against a definition in fractions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from peloton.actors.host.stages import HostStates, Maintenance
from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool.blockers import ExplainedTree
from peloton.actors.respool.lot import facts as lf
from peloton.actors.respool.lot.messages import GangTerms, LotShape, LotWaits
from peloton.actors.respool.lot.state import LotOrder
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.rules.conserving import ConservationCheck, root_has_what_hosts_have
from peloton.chaos.cluster.rules.explaining import ExplanationCheck
from peloton.chaos.cluster.rules.queueing import QueueCheck
from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.vocabulary import Bits, Fact, Key
from tests.actors.pools.test_pool import A1, A, B, admit, config, cpus, lot, put, too_big, tree


def standing() -> ExplainedTree:
    """Two pools, one with another below it; some of the tasks wait."""
    found = tree(
        a=config("a", reserved=30, limit=50),
        b=config("b", limit=100),
        a1=config("a1", A, reserved=10, limit=40),
    )
    put(found, "j/0", lot(A1, 50))
    put(found, "k/0", lot(B, 60, controller=True))
    while admit(found):
        found.settle()
    found.entitlement(A1)
    return found


def give(found: ExplainedTree, members: int) -> None:
    """Some members of a lot are ordered to give back what they hold."""
    order = LotOrder(1, members, Resources(), "planted")
    put(found, "j/0", msgspec.structs.replace(found.lots[Key("lot/j/0")], order=order))


def test_a_tree_that_changes_adds_up_at_each_step() -> None:
    found, check = standing(), ConservationCheck()
    assert check.follow(found) and not check.follow(found)
    give(found, 3)
    assert check.follow(found)
    put(found, "k/0", None)
    assert check.follow(found)
    put(found, "m/0", lot(A1, 0, 2))
    admit(found)
    found.entitlement(A1)
    assert check.follow(found) and check.divided


def _node(**change: Any) -> Callable[[ExplainedTree], None]:
    def plant(found: ExplainedTree) -> None:
        for name, do in change.items():
            setattr(found._nodes[A], name, do(getattr(found._nodes[A], name)))

    return plant


def _forgets_what_comes(found: ExplainedTree) -> None:
    give(found, 2)
    found.reclaims.coming.clear()


def _entitled_to_all(found: ExplainedTree) -> None:
    found.entitlement = lambda pool: cpus(100 if pool in (A, B) else 1)  # type: ignore[method-assign]


DRIFTS: dict[str, Callable[[ExplainedTree], None]] = {
    "its use is": _node(use=lambda was: was + Resources(1)),
    "its demand is": _node(demand=lambda was: was - Resources(1)),
    "its number of members is": _node(members=lambda was: was + 1),
    "its use by controllers is": _node(
        rationed=lambda was: [was[0], was[1] + Resources(1), was[2]]
    ),
    "its firm use is": _node(rationed=lambda was: [was[0], was[1], was[2] + Resources(1)]),
    "its use by job is": _node(use_by_job=lambda was: {**was, "gone": Resources()}),
    "2 members give back": _forgets_what_comes,
    "its children are entitled to": _entitled_to_all,
}


@pytest.mark.parametrize("text", DRIFTS)
def test_a_sum_that_drifts_by_a_millionth_is_found(text: str) -> None:
    found, check = standing(), ConservationCheck()
    DRIFTS[text](found)
    with pytest.raises(Contradiction, match=f"^R10 .*{text}"):
        check.follow(found)


@pytest.mark.parametrize(
    ("amount", "state", "maintenance"),
    [
        (3, HostStates.UP, Maintenance.NONE),
        (4, HostStates.LOST, Maintenance.NONE),
        (4, HostStates.UP, Maintenance.DOWN),
    ],
)
def test_a_root_that_has_other_capacity_than_its_hosts_is_found(
    amount: int, state: HostStates, maintenance: Maintenance
) -> None:
    cluster = CheckedCluster(hosts=2)
    cluster.run_for(60)
    root_has_what_hosts_have(cluster)
    hosts = cluster.cells("host")
    first = min(hosts)
    other = msgspec.structs.replace(
        hosts[first], capacity=cpus(amount), state=state, maintenance=maintenance
    )
    cells = {"host": {**hosts, first: other}, "respool": cluster.cells("respool")}
    cluster.cells = cells.__getitem__  # type: ignore[method-assign, assignment]
    with pytest.raises(Contradiction, match="^R10 respool/root has"):
        root_has_what_hosts_have(cluster)


# ---- who is first ----

EARLY, LATE = Key("lot/e/0"), Key("lot/l/0")


def shape(size: float = 1, **more: Any) -> LotShape:
    return LotShape(A, Resources(round(size * UNIT)), **more)


def admitted_late(early: LotShape, late: LotShape, *, gang: bool = False) -> QueueCheck:
    """One lot comes, then another, and the later one is admitted."""
    check, some = QueueCheck(), Bits.of(0)
    history: list[tuple[Key, Fact]] = []
    for at, (key, its) in enumerate(((EARLY, early), (LATE, late)), 1):
        opened = lf.LotOpened(its, Key("task/j/0"), float(at))
        history += [(key, opened), (key, lf.LotEnqueued(some, 1, float(at)))]
    if gang:
        history.append((EARLY, lf.LotGangSet(GangTerms(1, 1, 1, some))))
    for key, fact in (*history, (LATE, lf.LotAdmitted(some))):
        check.noted[type(fact)](Entry(key, (fact,)), fact)
    return check


@pytest.mark.parametrize(
    ("early", "late"),
    [
        (shape(), shape()),
        (shape(), shape(2)),
        (shape(priority=2), shape(priority=1)),
        (shape(controller=True), shape(controller=True)),
    ],
)
def test_who_is_overtaken_is_named(early: LotShape, late: LotShape) -> None:
    with pytest.raises(Contradiction, match=f"^R30 {LATE}: .*{EARLY}"):
        admitted_late(early, late)


@pytest.mark.parametrize(
    ("early", "late"),
    [
        (shape(2), shape()),  # it may be too large for ever
        (shape(), shape(priority=1)),
        (shape(controller=True), shape()),
        (shape(preemptible=False), shape()),
    ],
)
def test_who_is_behind_or_under_another_rule_is_not_overtaken(
    early: LotShape, late: LotShape
) -> None:
    assert admitted_late(early, late).checked == 1


def test_gangs_are_not_compared() -> None:
    assert admitted_late(shape(), shape(), gang=True).checked == 1


# ---- why ----


def explained(found: ExplainedTree, said: LotWaits | None = None) -> ExplanationCheck:
    """The reasons of a tree at rest, or one that is said in their place."""
    check = ExplanationCheck()
    if said is not None:
        found.waits = lambda key: said  # type: ignore[method-assign]
    check.at_rest(found)
    return check


def test_who_waits_is_told_why_and_never_is_proven() -> None:
    found = standing()
    put(found, "z/0", too_big(A1, 41))
    assert admit(found) == []
    check = explained(found)
    assert (check.checked, check.never) == (2, 1)
    check.at_rest(found)
    assert check.never == 1, "the same is proven once"


def test_a_gang_that_is_too_large_is_proven_as_one() -> None:
    found, members = standing(), Bits.span(0, 41)
    gang = msgspec.structs.replace(
        lot(A1, 41, arrived=9.0), gang=GangTerms(1, 1, 1, members), joined=members
    )
    put(found, "g/0", gang)
    assert admit(found) == []
    assert found.waits(Key("lot/g/0")).never
    assert explained(found).never == 1


def test_a_reason_that_is_missing_or_untrue_is_found() -> None:
    said = standing().waits(Key("lot/j/0"))
    with pytest.raises(Contradiction, match="^R31 .*nothing says why"):
        explained(standing(), msgspec.structs.replace(said, because=""))
    with pytest.raises(Contradiction, match="^R31 .*could be admitted, and is told"):
        explained(standing(), msgspec.structs.replace(said, never=True))


def test_a_tree_with_work_to_do_is_not_judged() -> None:
    found = standing()
    put(found, "n/0", lot(B, 1))
    assert explained(found).checked == 0
