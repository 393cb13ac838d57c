"""R22, R26 and R27: a history that breaks the rule is reported, and its right twin is not.

Histories are written by hand. That storms find the same where it is planted into the program is in
`test_planted.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from peloton.actors.host import facts as hf
from peloton.actors.host.holds.foreign_names import foreign_crowd, foreign_number
from peloton.actors.host.holds.hold_messages import HostHold, TaskHold
from peloton.actors.host.ledger import names_of
from peloton.actors.host.messages import RunEnd
from peloton.actors.host.run_spec import RunSpec
from peloton.actors.respool import facts as pf
from peloton.actors.respool.lot import facts as lf
from peloton.actors.respool.lot.messages import LotShape
from peloton.actors.respool.messages import ROOT, PoolConfig
from peloton.actors.task.messages import End, RunOutcome
from peloton.chaos.cluster.work.host_holds import HELD_S_MAX, HoldCheck
from peloton.chaos.cluster.work.host_pooling import (
    DEFAULT,
    FORMS,
    INSIDE,
    LEFT,
    OUTSIDE,
    HostPoolCheck,
)
from peloton.chaos.cluster.work.quarantining import TOLD_S_MAX, QuarantineCheck
from peloton.chaos.cluster.world.cluster import NEED, STORM_POOL
from peloton.chaos.cluster.world.machines import FAILURE, SUCCESS
from peloton.placement.messages import Constraint
from peloton.runtime.core.entities.codec import Entry
from peloton.runtime.vocabulary import Bits, Fact, Key
from tests.worlds.checkers.histories import Step, breaks, note, of, small_cluster

HOST = "host/h0"
ONE = Bits.of(0)
TASK, FOREIGN = Key("task/j/0"), foreign_crowd("guest")
LOST = RunOutcome(End.LOST)


def accepted(
    crowd: Key = TASK, *, run: int = 1, at: float = 1.0, constraint: Constraint | None = None
) -> hf.RunsAccepted:
    return hf.RunsAccepted(crowd, ONE, run, RunSpec(NEED, "x", constraint=constraint), at)


def kept(crowd: Key = TASK, *, constraint: Constraint | None = None) -> hf.RunsAccepted:
    return hf.RunsAccepted(
        crowd, ONE, 1, RunSpec(NEED, "x", constraint=constraint), 1.0, prepared=True
    )


# ---- R22 ----


def taken(name: str) -> Entry:
    return of(HOST, hf.HoldTaken(HostHold(name, "c1", NEED, 20.0, 20.0)))


def over(name: str, *more: Fact) -> Entry:
    return of(HOST, hf.HoldEnded(name, "used"), *more)


def launch(name: str, at: float = 1.0) -> hf.RunsAccepted:
    return accepted(FOREIGN, run=foreign_number(name), at=at)


RUN = names_of(FOREIGN, ONE.raw, run=foreign_number("a"))[0]
BEGUN: list[Step] = [taken("a"), over("a", launch("a"))]


def ended(outcome: RunOutcome) -> Entry:
    return of(HOST, hf.ProcessesEnded((RunEnd(RUN, outcome),)))


def set_ended(outcome: RunOutcome) -> Entry:
    return of(HOST, hf.SetEnded(FOREIGN, ONE, foreign_number("a"), outcome))


def waits(member: int = 0, crowd: Key = TASK, until: float = 20.0) -> Entry:
    hold = TaskHold(f"{crowd}-{member}", crowd, member, "slice/j/0", NEED, until)
    return of(HOST, hf.TaskHeld(hold))


OTHER = Key("task/k/0")
CAME = of(HOST, accepted(), hf.TaskHoldsEnded((f"{TASK}-0",), "launched"))
DRAINS = of(HOST, hf.MaintenanceStarted("x"))
HOLDS: dict[str, list[Step]] = {
    "R22 is held, and again": [taken("a"), taken("b")],
    "R22 b ends, and": [taken("a"), over("b")],
    "R22 a ends, and None is there": [taken("a"), over("a"), over("a")],
    "R22 task/j/0 gets host/h0, which is held": [taken("a"), of(HOST, accepted())],
    "R22 which is held": [taken("a"), of(HOST, kept())],
    "R22 without a hold": [of(HOST, launch("a"))],
    "R22 is launched on host/h0 without a hold": [*BEGUN, of(HOST, launch("a"))],
    "R22 is launched at 20.5 on a hold until": [taken("a"), over("a", launch("a", 20.5))],
    "R22 is launched at 1.0 on a hold until": [taken("a"), over("a", launch("b"))],
    "R22 task/j/0 [0] gets host/h0, which waits for": [waits(1), of(HOST, accepted())],
    "R22 task/k/0 [0] gets host/h0, which waits for": [waits(), of(HOST, accepted(OTHER))],
    "R22 [0] gets host/h0, which waits for": [waits(), waits(1, OTHER), of(HOST, kept(OTHER))],
    "R22 c1 holds host/h0, which waits for": [waits(), taken("a")],
    "R22 is still held": [taken("a"), HELD_S_MAX + 1.0],
    "R22 has not ended in the journal": BEGUN,
}
HELD_WELL: dict[str, list[Step]] = {
    "given back": [taken("a"), over("a"), of(HOST, accepted())],
    "another host": [taken("a"), of("host/h1", accepted()), over("a")],
    "launched, and lost": [*BEGUN, of(HOST, hf.HostLost("gone")), of(HOST, accepted())],
    "removed while it is held": [taken("a"), of(HOST, hf.HostRemoved("x")), HELD_S_MAX + 1.0],
    "for a task that comes": [waits(), CAME, of(HOST, accepted(OTHER))],
    "for two tasks": [waits(), waits(0, OTHER), of(HOST, accepted(OTHER)), CAME],
    "for a task that came too late": [waits(until=0.5), of(HOST, accepted(OTHER))],
    "for a task, while it drains": [waits(), DRAINS, of(HOST, accepted(OTHER))],
    "for a task, and lost": [waits(), of(HOST, hf.HostLost("gone")), taken("a"), over("a")],
    "held for a while": [taken("a"), HELD_S_MAX - 1.0],
}


def held(steps: list[Step]) -> HoldCheck:
    cluster = small_cluster()
    check = HoldCheck(cluster)
    note(check, steps, cluster=cluster)
    check.quiet()
    return check


@pytest.mark.parametrize("text", HOLDS)
def test_a_hold_that_is_not_kept_is_found(text: str) -> None:
    breaks(lambda: held(HOLDS[text]), text)


@pytest.mark.parametrize("name", HELD_WELL)
def test_a_hold_that_is_kept_is_right(name: str) -> None:
    held(HELD_WELL[name])


@pytest.mark.parametrize("end", [ended, set_ended])
@pytest.mark.parametrize(
    ("truth", "said", "text"),
    [
        (FAILURE, SUCCESS, "R22 is journaled as"),
        (None, SUCCESS, "R22 is journaled as"),
        (SUCCESS, LOST, "R22 counts as lost"),
        (SUCCESS, SUCCESS, ""),
        (None, LOST, ""),
    ],
)
def test_a_foreign_run_ends_as_it_did(
    end: Callable[[RunOutcome], Entry], truth: RunOutcome | None, said: RunOutcome, text: str
) -> None:
    cluster = small_cluster()
    check = HoldCheck(cluster)
    if truth is not None:
        cluster.machines.results[RUN] = truth
    history = [*BEGUN, end(said)]
    if text:
        breaks(lambda: note(check, history), text)
        return
    note(check, history)
    check.quiet()


# ---- R26 ----


def moved(pool: str) -> Entry:
    return of(HOST, hf.HostPoolSet(pool, 1))


PLACES: dict[str, list[Step]] = {
    "R26 names no pool": [moved(LEFT), of(HOST, accepted())],
    "R26 names no pool, and gets host/h0": [moved(LEFT), of(HOST, kept())],
    "R26 of left: ": [moved(LEFT), of(HOST, accepted(constraint=INSIDE))],
    "R26 task/j/0 gets host/h0 of left": [moved(LEFT), of(HOST, kept(constraint=OUTSIDE))],
    "R26 of third": [moved("third"), of(HOST, accepted(constraint=FORMS[2]))],
}
PLACED_WELL: list[Step] = [
    of(HOST, accepted(constraint=INSIDE)),
    moved(LEFT),
    of(HOST, accepted(constraint=FORMS[2])),
    of(HOST, accepted(FOREIGN)),
    moved(DEFAULT),
    of(HOST, accepted()),
]


@pytest.mark.parametrize("text", PLACES)
def test_a_run_on_a_host_of_another_pool_is_found(text: str) -> None:
    breaks(lambda: note(HostPoolCheck(), PLACES[text]), text)


def test_runs_on_hosts_of_their_pools_are_right() -> None:
    check = HostPoolCheck()
    note(check, PLACED_WELL)
    assert check.checked == 2


def opened(lot: str, *, controller: bool = True) -> Entry:
    shape = LotShape(STORM_POOL, NEED, controller=controller)
    return of(lot, lf.LotOpened(shape, TASK, 1.0))


def admitted(lot: str, *members: int) -> Entry:
    return of(lot, lf.LotAdmitted(Bits.of(*members)))


HALF = PoolConfig("p", ROOT, NEED.times(4), NEED.times(9), controller_percent=50.0)
LOTS: list[Step] = [of(STORM_POOL, pf.PoolConfigured(HALF)), opened("lot/a/0"), opened("lot/b/0"),
        opened("lot/c/0", controller=False), admitted("lot/c/0", 0, 1, 2)]  # fmt: skip


def test_controllers_with_more_than_their_share_are_found() -> None:
    one, other = admitted("lot/a/0", 0, 1), admitted("lot/b/0", 0)
    breaks(lambda: note(HostPoolCheck(), [*LOTS, one, other]), "R26 controllers of")
    smaller = PoolConfig("p", ROOT, NEED.times(2), NEED.times(9), controller_percent=50.0)
    updated = of(STORM_POOL, pf.PoolConfigured(smaller))
    breaks(lambda: note(HostPoolCheck(), [*LOTS, updated, one]), "R26 controllers of")


def test_controllers_after_each_other_are_right() -> None:
    gone = of("lot/a/0", lf.LotReleased(Bits.of(1), 1))
    check = HostPoolCheck()
    note(check, [*LOTS, admitted("lot/a/0", 0, 1), gone, admitted("lot/b/0", 0)])
    assert check.checked == 2


# ---- R27 ----

UP: list[Step] = [of(f"host/h{number}", hf.HostReconciled()) for number in range(12)]
SICK = of(HOST, hf.HostQuarantined(1.0, 600.0, "fails"))
LATE_S = TOLD_S_MAX + 1.0
USED = of(HOST, accepted())
LEFT_ALONE: dict[str, list[Step]] = {
    "placers need not know": [*UP, SICK, TOLD_S_MAX - 1.0, USED],
    "it is over": [*UP, SICK, LATE_S, of(HOST, hf.QuarantineEnded()), USED],
    "maintenance ends it": [*UP, SICK, LATE_S, of(HOST, hf.MaintenanceCompleted()), USED],
    "too many are": [*UP, SICK, of("host/h1", SICK.facts[0]), LATE_S, USED],
    "too few are up": [*UP[:9], SICK, LATE_S, USED],
    "another fell away": [*UP, SICK, LATE_S, of("host/h1", hf.HostLost("x")), USED],
    "who has a hold": [*UP, SICK, LATE_S, of(HOST, accepted(FOREIGN))],
    "another host": [*UP, SICK, LATE_S, of("host/h1", accepted())],
}


def quarantined(steps: list[Step], *, calm_at: float = 0.0) -> None:
    cluster = small_cluster()
    check = QuarantineCheck(cluster)
    check.calm_at = calm_at
    note(check, steps, cluster=cluster)


@pytest.mark.parametrize("used", [USED, of(HOST, kept())])
def test_a_run_on_a_quarantined_host_is_found(used: Entry) -> None:
    found = f"R27 {HOST} is in quarantine, and gets {TASK}"
    breaks(lambda: quarantined([*UP, SICK, LATE_S, used]), found)
    gone = of("host/h1", hf.HostUnreachable("x"))
    breaks(lambda: quarantined([*UP, SICK, gone, LATE_S, used]), found)


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_quarantines_allow_is_right(name: str) -> None:
    quarantined(LEFT_ALONE[name])


def test_a_quarantine_is_judged_in_a_calm_only() -> None:
    quarantined([*UP, SICK, LATE_S, USED], calm_at=math.inf)
