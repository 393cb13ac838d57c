"""The checkers of R1, R6, R7 and R8c for themselves: what they must find, and what they must not.

Histories are written by hand, or one thing is wrong in a small cluster. That storms find the same
with faults planted into the program is in `test_planted.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from peloton.actors.host.facts import RunsForgotten
from peloton.actors.host.ledger import names_of
from peloton.actors.host.messages import BackendUp, RunSeen
from peloton.actors.job.facts import JobTallied
from peloton.actors.job.messages import CreateJob, JobStopped, StopJob
from peloton.actors.job.slice.messages import SliceTally
from peloton.actors.resources import Resources
from peloton.actors.respool.messages import (
    ROOT,
    CreatePool,
    DeletePool,
    GetPool,
    PoolConfig,
    PoolDone,
    PoolView,
    UpdatePool,
    pool_key,
)
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.rules.liveness import reach
from peloton.chaos.cluster.rules.pool_history import NEVER_S, PoolRequest, is_linearizable
from peloton.chaos.cluster.rules.processes import OVERLAP_S_MAX
from peloton.chaos.cluster.world.cluster import NEED, STORM_POOL, ClusterSetup, job_id, job_spec
from peloton.chaos.cluster.world.machines import Fate
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.vocabulary import Absent, Decision, Refused
from tests.worlds.checkers.test_checkers import in_table

POOL = pool_key("watched0")
FOREVER = ClusterSetup(fates=lambda run: Fate(None), unreachable_timeout_s=10.0)


def config(number: int) -> PoolConfig:
    return PoolConfig("watched0", ROOT, Resources(), Resources(number, 0, 0, 0))


def create(number: int, begun_s: float, ended_s: float, *, refused: bool = False) -> PoolRequest:
    return PoolRequest(begun_s, ended_s, CreatePool(config(number)), done(refused))


def update(number: int, begun_s: float, ended_s: float, *, refused: bool = False) -> PoolRequest:
    return PoolRequest(begun_s, ended_s, UpdatePool(config(number), force=True), done(refused))


def delete(begun_s: float, ended_s: float, *, refused: bool = False) -> PoolRequest:
    return PoolRequest(begun_s, ended_s, DeletePool(), done(refused))


def read(number: int, begun_s: float, ended_s: float) -> PoolRequest:
    """A look that shows this config; 0: no pool."""
    nothing = Resources()
    view = PoolView(POOL, "/watched0", config(number), (), nothing, nothing)
    return PoolRequest(begun_s, ended_s, GetPool(POOL), (view,) if number else ())


def done(refused: bool) -> Any:
    return Refused("BUSY", "no", "id") if refused else PoolDone(POOL)


RIGHT: dict[str, list[PoolRequest]] = {
    "a read of what was written": [create(1, 0, 1), read(1, 2, 3)],
    "two at once, either wins": [create(1, 0, 1), update(2, 2, 9), update(3, 2, 9), read(2, 9, 9)],
    "a read beside a write sees the old": [create(1, 0, 1), update(2, 2, 9), read(1, 3, 4)],
    "a read beside a write sees the new": [create(1, 0, 1), update(2, 2, 9), read(2, 3, 4)],
    "an unknown write shows late": [create(1, 0, 1), update(2, 2, NEVER_S), read(1, 3, 4),
                                    read(2, 5, 6)],
    "an unknown write never shows": [create(1, 0, 1), update(2, 2, NEVER_S), read(1, 8, 9)],
    "a second creation is refused": [create(1, 0, 1), create(2, 2, 3, refused=True)],
    "nothing to delete": [read(0, 0, 1), delete(0, 1, refused=True)],
    "deleted, and a late copy makes another": [create(1, 0, 1), delete(2, 3), read(0, 4, 5),
                                               create(1, 0, NEVER_S), read(1, 6, 7)],
}  # fmt: skip
WRONG: dict[str, list[PoolRequest]] = {
    "an acknowledged write is not seen": [create(1, 0, 1), update(2, 2, 3), read(1, 4, 5)],
    "a read goes back": [create(1, 0, 1), update(2, 2, 9), read(2, 3, 4), read(1, 5, 6)],
    "an unknown write comes and goes": [create(1, 0, 1), update(2, 2, NEVER_S), read(2, 3, 4),
                                        read(1, 5, 6)],
    "what was refused is seen": [create(1, 0, 1), update(2, 2, 3, refused=True), read(2, 4, 5)],
    "a refusal without a reason": [create(1, 0, 1), update(2, 2, 3, refused=True)],
    "two creations": [create(1, 0, 1), create(2, 2, 3)],
    "what nobody wrote": [create(1, 0, 1), read(7, 2, 3)],
    "deleted, and there": [create(1, 0, 1), delete(2, 3), read(1, 4, 5)],
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_a_history_that_an_order_explains_is_right(name: str) -> None:
    assert is_linearizable(RIGHT[name])


@pytest.mark.parametrize("name", WRONG)
def test_a_history_that_no_order_explains_is_wrong(name: str) -> None:
    assert not is_linearizable(WRONG[name])


def found(do: Callable[[], object]) -> str:
    with pytest.raises(Contradiction) as caught:
        do()
    return str(caught.value)


def test_every_acknowledged_request_with_a_key_is_looked_for_in_the_journal() -> None:
    cluster = CheckedCluster(setup=FOREVER)
    job = cluster.create_job(job_spec(3))
    cluster.make_pool("other", NEED)
    cluster.ask(STORM_POOL, UpdatePool(cluster.pool_config(NEED), force=True))
    cluster.ask(job, StopJob(((0, 1),)))
    cluster.ask(job, StopJob(((0, 1),)))  # finds nothing to do
    cluster.ask(job, StopJob())
    assert cluster.checks is not None and cluster.checks.acknowledged.checked == 6


@pytest.mark.parametrize("to", [STORM_POOL, "job"])
def test_an_answer_that_is_in_no_journal_is_found(to: str) -> None:
    cluster = CheckedCluster(setup=FOREVER)
    job = cluster.create_job(job_spec(3))
    update = UpdatePool(cluster.pool_config(NEED), force=True)
    asked = cluster.order(job, StopJob()) if to == "job" else cluster.order(STORM_POOL, update)
    asked.end(JobStopped(()) if to == "job" else PoolDone(STORM_POOL), cluster.world.now)
    assert found(cluster.world.step).startswith("R1 acknowledged, and in no journal")


@pytest.mark.parametrize("answer", [Refused("BUSY", "no", "id"), Absent(STORM_POOL)])
def test_a_refusal_that_is_in_the_journal_is_found(answer: Any) -> None:
    cluster = CheckedCluster(setup=FOREVER)
    asked = cluster.clients.command(
        "c1", STORM_POOL, message=UpdatePool(cluster.pool_config(NEED), force=True)
    )
    end = asked.end
    asked.end = lambda _, now: end(answer, now)  # type: ignore[method-assign]
    assert found(lambda: cluster.run_for(5)).startswith("R2 refused, and in the journal")


def _counts_again(job: Any, message: Any, at: Any) -> Decision:
    """A tally that is taken for new each time it comes."""
    known = job.reports.get(message.number)
    version = known.version + 1 if known is not None else message.version
    return Decision(facts=(JobTallied(message.number, version, message.tally, at.now),))


def _expects_its_run(host: Any, message: Any, at: Any) -> Decision:
    """A run that is forgotten already is taken for an error."""
    (some,) = host.runs.of(at.sender, message.run)
    names = names_of(at.sender, some.members.raw, run=message.run)
    return Decision(facts=(RunsForgotten(tuple(names)),))


@pytest.mark.parametrize(
    ("kind", "cls", "do"),
    [
        ("job", SliceTally, _counts_again),
        ("host", RunSeen, _expects_its_run),
    ],
)
def test_a_message_that_changes_more_when_it_comes_twice_is_found(
    kind: str, cls: type, do: Callable[..., Any]
) -> None:
    """Nothing is repeated here: the second delivery is only computed."""
    setup = ClusterSetup(fates=lambda run: Fate(0.5), twice=True)
    cluster = CheckedCluster(setup=setup)
    twice, kinds = cluster.twice, cluster.world.kinds
    cluster.create_job(job_spec(2), "a")
    cluster.run_until(cluster.over, within_s=60.0)
    assert len(twice.checked) > 10 and not twice.found
    wrong = replace(kinds[kind], decide={**kinds[kind].decide, cls: do})
    kinds[kind] = twice.watched({kind: wrong})[kind]  # type: ignore[index]
    cluster.order(job_id("b"), CreateJob(job_spec(1)))
    assert found(lambda: cluster.run_for(60.0)).startswith("R14")


def test_what_is_not_reached_is_told_by_name() -> None:
    cluster = CheckedCluster(setup=FOREVER)
    job = cluster.create_job(job_spec(2))
    text = found(lambda: reach(cluster, cluster.over, within_s=30.0))
    assert text.startswith("R7 ") and f"{job} is RUNNING" in text


def test_processes_of_one_instance_overlap_for_a_bounded_time_only() -> None:
    """A host that is back and never finds out: the run there goes on, beside the next one."""
    cluster = CheckedCluster(setup=FOREVER)
    cluster.create_job(job_spec(1))
    cluster.run_until(lambda: bool(cluster.machines.running), within_s=30.0)
    host = next(iter(cluster.machines.running.values())).host
    cluster.cut(host)
    cluster.run_until(lambda: len(cluster.machines.running) == 2, within_s=60.0)
    in_table("host", "decide", cls=BackendUp, do=lambda *_: Decision())(cluster)
    cluster.calm()
    cluster.run_for(OVERLAP_S_MAX - 1.0)
    assert found(lambda: cluster.run_for(2.0)).startswith("R8c")
