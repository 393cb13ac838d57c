"""Ended jobs leave memory, are found in the archive, and are deleted once their time has come.

Whole clusters in virtual time, with all their checks. Which answers clients get is tested beside
the gateway.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from peloton.actors.archive import decide
from peloton.actors.archive.decide import CHECK_S, LAP_S
from peloton.actors.archive.messages import PERIOD_S
from peloton.actors.job.messages import DeleteJob, JobView, StartInstances
from peloton.actors.job.stages import TERMINAL_JOB_STATES
from peloton.assembly.kinds import ArchivePolicy
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import ClusterSetup
from peloton.chaos.cluster.world.machines import Fate
from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.core.ended.retention import RetainedEnded
from peloton.runtime.ports import EndedRow, ShardId
from peloton.runtime.shells.daemon_context import DaemonLimits
from peloton.runtime.simulation.daemon import Moment
from peloton.runtime.vocabulary import Key
from tests.worlds.deaths import dies_at

FORGET_AFTER_S = 300.0
SLACK_S = PERIOD_S + 30 * CHECK_S
"""How long after its time a job is gone: it goes with the minute in which it ended."""
SIZES = {"jobmgr": 2, "resmgr": 1, "hostmgr": 2}


KEEP_BYTES = 1500
"""Of a few ended jobs."""


def cluster_of(seed: int, *, by_bytes: bool = False) -> CheckedCluster:
    """Ended jobs leave memory at once, or those beyond a few bytes."""
    policy = ArchivePolicy(FORGET_AFTER_S, FORGET_AFTER_S)
    setup = ClusterSetup(
        DaemonLimits(checkpoint_bytes_min=300),
        lambda run: Fate(1.0),
        finished_jobs_max=1000 if by_bytes else 0,
        policy=policy._replace(keep_bytes=KEEP_BYTES) if by_bytes else policy,
    )
    return CheckedCluster(seed=seed, daemons=2, sizes=SIZES, setup=setup)


def run_jobs(cluster: CheckedCluster, count: int) -> list[Key]:
    made = [cluster.create(1) for _ in range(count)]
    cluster.run_until(lambda: all(each.known for each in made), within_s=100)
    cluster.run_until(lambda: not cluster.cells("job"), within_s=200)
    return [each.job for each in made]


def archived(cluster: CheckedCluster) -> tuple[int, int]:
    """How many jobs the archives have, and how many were deleted by the policy."""
    roots = [state for key, state in cluster.cells("archive").items() if key.count("/") == 1]
    return sum(root.archived for root in roots), sum(root.forgotten for root in roots)


def rows(cluster: CheckedCluster, kind: str, keys: list[Key]) -> list[Key]:
    """Of which of these the store has a final state."""
    journal = FencedRows(cluster.world.store.rows("operator"), process=bytes(15) + b"o")
    shards = [ShardId("jobmgr", number) for number in range(SIZES["jobmgr"])]
    return [
        each
        for each in keys
        if any(journal.read_ended(shard, kind=kind, key=each) is not None for shard in shards)
    ]


def test_a_job_is_kept_for_its_time_and_then_deleted_with_all_it_had() -> None:
    cluster = cluster_of(1)
    jobs = run_jobs(cluster, 5)
    slices = [Key(f"slice/{job.partition('/')[2]}/0") for job in jobs]
    assert archived(cluster) == (5, 0)
    cluster.run_for(FORGET_AFTER_S - 60)
    assert archived(cluster) == (5, 0)
    assert rows(cluster, "job", jobs) == jobs
    assert rows(cluster, "slice", slices) == slices
    cluster.run_for(60 + SLACK_S)
    assert archived(cluster) == (0, 5)
    assert not cluster.cells("job")
    assert not rows(cluster, "job", jobs)
    assert not rows(cluster, "slice", slices)


@pytest.mark.parametrize(
    "name",
    ["InsertRow FrameRow", "InsertRow EndedRow", "InsertRow PartRow", "WriteTogether", "ReadEnded"],
)
@pytest.mark.parametrize("count", [1, 4])
def test_a_death_at_any_step_leaves_no_job_behind(name: str, count: int) -> None:
    """While they leave, and while they are deleted; the shard's owner changes each time."""
    cluster = cluster_of(count)
    deaths = []
    for phase in range(2):
        moment = (Moment.BEFORE, Moment.AFTER)[phase]
        deaths.append(dies_at(cluster.world, name, moment=moment, count=count))
        if phase == 0:
            run_jobs(cluster, 6)
        else:
            cluster.run_for(FORGET_AFTER_S + SLACK_S)
        cluster.run_until(lambda: bool(cluster.world.living()), within_s=100)
        cluster.kill(phase)
    assert deaths[0]
    cluster.calm()
    cluster.run_for(2 * SLACK_S)
    kept, deleted = archived(cluster)
    assert (kept, deleted) == (0, 6)
    assert not cluster.cells("job")
    assert not rows(cluster, "job", cluster.jobs)


def test_a_job_that_never_answers_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its row cannot be read, so that no order reaches it: the others go, and it once it can."""
    monkeypatch.setattr(decide, "JOBS_PER_PERIOD", 1)
    monkeypatch.setattr(decide, "PERIODS_PER_CHECK", 1)
    cluster = cluster_of(3)
    jobs = run_jobs(cluster, 8)
    reads, cells = cluster.world.store.reads, cluster.world.store.cells
    shard_of = cluster.world.sharding.shard_of
    stuck = {shard_of(job): job for job in sorted(jobs, reverse=True)}  # the first of each shard
    for where, some in cells.rows.items():
        for name, cell in some.items():
            if isinstance(cell.row, EndedRow) and cell.row.key in stuck.values():
                reads.rotten[where, name] = replace(cell.row, body=b"rotten")
    cluster.run_for(FORGET_AFTER_S + SLACK_S)
    assert archived(cluster) == (len(stuck), len(jobs) - len(stuck))
    assert reads.met, "an order has come to a row that nobody can read"
    reads.repair()
    cluster.run_for(LAP_S + SLACK_S)
    assert archived(cluster) == (0, len(jobs))
    assert not rows(cluster, "job", jobs)


def held(cluster: CheckedCluster) -> list[RetainedEnded]:
    """What the shards of jobs publish of those that ended and are in memory."""
    return [
        each for daemon in cluster.world.living() for each in daemon.region.ended_retained("job")
    ]


def test_beyond_its_bytes_the_oldest_leave_memory_and_the_newest_stay() -> None:
    cluster = cluster_of(5, by_bytes=True)
    made = []
    for _ in range(16):
        made.append(cluster.create(1))
        cluster.run_for(5.0)
    cluster.run_until(lambda: all(each.known for each in made), within_s=100)
    cluster.run_for(20.0)
    here = cluster.cells("job")
    assert 0 < len(here) < len(made)
    assert sum(each.entities for each in held(cluster)) == len(here)
    for each in held(cluster):
        assert 0 < each.size <= KEEP_BYTES / SIZES["jobmgr"]
        assert dict(each.left)["age"] == dict(each.left)["count"] == 0
    assert archived(cluster) == (len(made) - len(here), 0)
    for some in by_shard(cluster, [each.job for each in made]):
        kept = [job in here for job in some]
        assert kept == sorted(kept), "in the order of their ends"
    cluster.kill(0)
    cluster.kill(1)
    cluster.run_for(30.0)
    again = cluster.cells("job")
    assert sorted(again) == sorted(here), "a recovery changes nothing"
    cluster.run_for(FORGET_AFTER_S + SLACK_S)
    assert archived(cluster) == (0, len(made)) and not cluster.cells("job")


def by_shard(cluster: CheckedCluster, jobs: list[Key]) -> list[list[Key]]:
    shard_of = cluster.world.sharding.shard_of
    found: dict[ShardId, list[Key]] = {}
    for job in jobs:
        found.setdefault(shard_of(job), []).append(job)
    return [*found.values()]


@pytest.mark.parametrize("by_bytes", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_storms_of_deaths_keep_each_job_for_its_time_and_no_longer(
    seed: int, by_bytes: bool
) -> None:
    """Jobs end, leave, are read, run again, are deleted by clients or by the policy."""
    chance = random.Random(seed)
    cluster = cluster_of(seed, by_bytes=by_bytes)
    ended: dict[Key, float] = {}
    deleted: dict[Key, None] = {}
    for _ in range(30):
        act = chance.choice(("create", "create", "kill", "delete", "restart", "wait", "wait"))
        if act == "create":
            cluster.create(chance.randrange(1, 3))
        elif act == "kill" and cluster.world.living():
            cluster.kill(chance.randrange(2))
        elif act in ("delete", "restart") and ended:
            job = chance.choice(sorted(ended))
            message = DeleteJob() if act == "delete" else StartInstances(again=True)
            cluster.tell(job, message)
            deleted |= {job: None} if act == "delete" else {}
            del ended[job]
        cluster.run_for(chance.uniform(1.0, 40.0))
        look(cluster, ended, deleted=deleted)
    cluster.calm()
    cluster.run_for(2 * FORGET_AFTER_S + 2 * SLACK_S)
    assert not cluster.cells("job")
    assert archived(cluster)[0] == 0
    assert not rows(cluster, "job", cluster.jobs)
    assert archived(cluster)[1] >= len(cluster.jobs) - len(deleted)
    cluster.check_quiet()


def look(cluster: CheckedCluster, ended: dict[Key, float], *, deleted: dict[Key, None]) -> None:
    """Every job that has ended is found until its time is over, and not for long after it."""
    for job in cluster.jobs:
        found, now = cluster.job(job), cluster.world.now
        view = found if isinstance(found, JobView) else None
        if view is not None and view.summary.state in TERMINAL_JOB_STATES and job not in deleted:
            ended[job] = view.summary.completed_at
            assert now < ended[job] + FORGET_AFTER_S + SLACK_S, f"{job} is still there"
        elif job in ended and view is None:
            assert now >= ended[job] + FORGET_AFTER_S, f"{job} vanished before its time"
            del ended[job]
        elif view is not None:
            ended.pop(job, None)


MANY = 60
BOUNDED = ("story", "changes", "archive/", "idleness")
"""Rings that fill up to a limit, the list of archived jobs, whose periods leave memory with time,
and who was touched in the last minutes."""
CONTAINERS = (dict, list, set, frozenset, tuple, deque)


def sizes(core: Any) -> dict[str, int]:
    """Of every container that is reachable from the core of a shard, by the way to it."""
    found: dict[str, int] = {}
    seen: set[int] = set()
    ways = [("core", core)]
    while ways:
        way, at = ways.pop()
        if id(at) in seen or any(name in way for name in BOUNDED):
            continue
        seen.add(id(at))
        if isinstance(at, CONTAINERS):
            found[way] = len(at)
        ways += [(f"{way}{name}", each) for name, each in _parts(at)]
    return found


def _parts(at: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(at, dict):
        yield from ((f"[{name}]", each) for name, each in at.items())
    elif isinstance(at, CONTAINERS):
        yield from ((f"[{number}]", each) for number, each in enumerate(at))
    elif type(at).__module__.startswith("peloton.") and not isinstance(at, type):
        names = {*getattr(at, "__dict__", ())}
        for cls in type(at).__mro__:
            slots = getattr(cls, "__slots__", ())
            names |= {slots} if isinstance(slots, str) else {*slots}
        yield from ((f".{name}", getattr(at, name)) for name in sorted(names) if hasattr(at, name))


def test_archived_jobs_leave_nothing_in_memory() -> None:
    cluster = cluster_of(1)
    run_jobs(cluster, MANY)
    cluster.run_for(30.0)
    before = {shard: sizes(core) for shard, core in cluster.world.shards().items()}
    assert sum(map(len, before.values())) > 100, "it walks over all that a shard has"
    run_jobs(cluster, MANY)
    cluster.run_for(30.0)
    grown = [
        f"{shard} {way}: {before[shard].get(way, 0)} -> {count}"
        for shard, core in cluster.world.shards().items()
        for way, count in sizes(core).items()
        if count - before[shard].get(way, 0) >= MANY // 6
    ]
    assert not grown, grown
