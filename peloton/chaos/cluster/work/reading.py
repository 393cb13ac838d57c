"""Readers during a storm: followers of change feeds, and clients that read at all daemons at once.

Turns a scenario's action into readers whose pages and answers are judged elsewhere: of a feed by
`feed_check.py`, of jobs by the history of clients. Drawn separately from all other faults, so that
older seeds keep their storms.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from peloton.actors.respool.messages import ROOT
from peloton.chaos.cluster.work import pool_work
from peloton.chaos.cluster.work.workload import CLIENTS, cluster_of
from peloton.chaos.cluster.world.feed_readers import FeedReader
from peloton.runtime.core.reading.inspection import FollowChanges
from peloton.runtime.simulation.daemon import SimulatedDaemon
from peloton.runtime.simulation.scenario import StormAction
from peloton.runtime.simulation.storms import Fault, MomentaryFault, Storm
from peloton.runtime.vocabulary import Key

SHARE = 0.35
READERS_MAX = 3
PAGES = (1, 1, 3, 1_000)
"""How many changes a page may have."""
KINDS: tuple[tuple[str, ...], ...] = ((), (), ("job",), ("task", "host"))
"""Which kinds of entities a reader wants; none: all."""
SLOW_S = (3.0, 20.0)
FOLLOWER, SLOW_FOLLOWER = "follower", "slow follower"
EVERYWHERE = "stopped and read everywhere"
OF_A_JOB, OF_POOLS = "overtaken owner of a job", "overtaken owner of pools"
STALE_SHARE = 0.2
FROZEN_S = (14.0, 30.0)
"""Longer than a session, and than the takeover that follows its end."""
CHANGED_SHARE = 0.9
"""Of the time for which an owner is frozen: then its job is changed elsewhere."""


def follow(storm: Storm, action: StormAction) -> None:
    """Let a client follow a shard from now on, to the end."""
    _begin(storm, action, pause_s=0.0)


def follow_slowly(storm: Storm, action: StormAction) -> None:
    """Let a client read a page, and the next one long afterwards; the calm ends its slowness."""
    _begin(storm, action, pause_s=action.for_s)


def _begin(storm: Storm, action: StormAction, *, pause_s: float) -> None:
    cluster = cluster_of(storm)
    shards = storm.world.all_shards()
    shard = shards[action.which % len(shards)]
    kinds = KINDS[action.other % len(KINDS)]
    query = FollowChanges(kinds=kinds, limit=PAGES[action.other // 4 % len(PAGES)])
    storm.strike(action.name, f"{shard} {kinds} every {pause_s:.1f} s")
    reader = FeedReader(storm.world, shard, query=query, pause_s=pause_s)
    cluster.readers.append(reader)
    reader.ask()


# ---- stale reads ----


def look_everywhere(storm: Storm, action: StormAction) -> None:
    """Stop an instance of a job; once that is acknowledged, get the job at every daemon."""
    cluster = cluster_of(storm)
    if not cluster.jobs:
        return
    job = cluster.jobs[action.which % len(cluster.jobs)]
    storm.strike(action.name, job)
    at = action.other % 5

    def answered(_: object) -> None:
        for number, daemon in enumerate(storm.world.living()):
            cluster.clients.get(CLIENTS[number % 3], job, at=daemon)

    cluster.clients.stop_some("c1", job, ranges=((at, at + 1),), answered=answered)


def overtake_job(storm: Storm, action: StormAction) -> None:
    """Overtake the owner of a job, which is stopped meanwhile."""
    cluster = cluster_of(storm)
    if cluster.jobs:
        job = cluster.jobs[action.which % len(cluster.jobs)]
        _overtake(
            storm,
            action,
            of=job,
            change=lambda: cluster.clients.stop("c1", job),
            read=lambda owner: cluster.clients.get("c2", job, at=owner),
        )


def overtake_pools(storm: Storm, action: StormAction) -> None:
    """Overtake the owner of the pools, one of which gets another config meanwhile."""
    pool_work.create_pool(storm, action)
    _overtake(
        storm,
        action,
        of=ROOT,
        change=lambda: pool_work.change_pool(storm, action),
        read=lambda owner: pool_work.look_at_pool(storm, action, at=owner),
    )


def _overtake(
    storm: Storm,
    action: StormAction,
    *,
    of: Key,
    change: Callable[[], object],
    read: Callable[[SimulatedDaemon], object],
) -> None:
    """Freeze an owner until another one has changed something.

    As it continues it is asked for the changed object, before it can have learned anything.
    """
    owner = storm.world.owner_of(of)
    if owner is None:
        return
    storm.strike(action.name, f"{owner.name} for {action.for_s:.1f} s, {of}")
    life = owner.lives
    owner.freeze()
    storm.later(action.for_s * CHANGED_SHARE, change)

    def thaw() -> None:
        owner.thaw()
        if owner.alive and owner.lives == life:
            read(owner)

    storm.later(action.for_s, thaw)


FAULTS: tuple[Fault, ...] = (
    MomentaryFault("F40", FOLLOWER, "a client follows a feed from any daemon", follow),
    MomentaryFault(
        "F45", SLOW_FOLLOWER, "a feed is cut while a client reads it", follow_slowly, 2, SLOW_S
    ),
    MomentaryFault("F3", EVERYWHERE, "all daemons are asked after a change", look_everywhere),
    MomentaryFault("F3", OF_A_JOB, "a frozen owner is asked as it continues", overtake_job),
    MomentaryFault("F3", OF_POOLS, "likewise, for a pool's config", overtake_pools),
)  # fmt: skip


def drawn(seed: int, *, storm_s: float) -> list[StormAction]:
    """Return actions of some seeds, from generators of their own."""
    actions = _drawn_readers(random.Random(f"{seed} readers"), storm_s=storm_s)
    chance = random.Random(f"{seed} stale reads")
    for name in (EVERYWHERE, OF_A_JOB, OF_POOLS):
        if chance.random() < STALE_SHARE:
            actions += [
                StormAction(
                    at_s=round(chance.uniform(0.0, storm_s), 3),
                    name=name,
                    which=chance.randrange(1000),
                    other=chance.randrange(1000),
                    for_s=round(chance.uniform(*FROZEN_S), 3),
                )
                for _ in range(chance.randint(1, 4))
            ]
    return actions


def _drawn_readers(chance: random.Random, *, storm_s: float) -> list[StormAction]:
    if chance.random() >= SHARE:
        return []
    return [
        StormAction(
            at_s=round(chance.uniform(0.0, storm_s / 2), 3),
            name=chance.choice((FOLLOWER, SLOW_FOLLOWER)),
            which=chance.randrange(1000),
            other=chance.randrange(1000),
            for_s=round(chance.uniform(*SLOW_S), 3),
        )
        for _ in range(chance.randint(1, READERS_MAX))
    ]
