"""A history with gangs in which each of their messages is missed, and its sender dies.

The gangs have to run, and the checks of the cluster judge how.
"""

from __future__ import annotations

import pytest

from peloton.actors.job.messages import StopJob
from peloton.actors.job.slice.task_config import Command, TaskConfig
from peloton.actors.job.stages import JobStates
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.nemeses import (
    MessageCounter,
    Missed,
    Nemesis,
    Stopped,
    every_other,
    first,
    second,
)
from peloton.chaos.cluster.world.cluster import NEED
from peloton.chaos.cluster.world.machines import Fate
from peloton.runtime.vocabulary import Key
from tests.worlds.jobs.test_gangs import FAILS, cluster_of, gang

TRAVEL = [
    ("placer", "GangWish"),
    ("slice", "GangPlaced"),
    ("task", "Prepared"),
    ("lot", "RegroupLot"),
]
"""What is sent between shards of a gang."""


def fates(run: str) -> Fate:
    """Instance 1 of the third job fails at first."""
    return FAILS if run[35:].startswith("3-1-1") else Fate(2.0)


def ended(cluster: CheckedCluster, job: Key) -> bool:
    """As its owner has it: to ask it at each step takes long."""
    known = cluster.cells("job").get(job)
    return known is not None and known.state == JobStates.SUCCEEDED


def troubles(nemesis: Nemesis) -> None:
    """Three gangs, of which two have to wait; members are stopped, and one gang restarts."""
    cluster = cluster_of(hosts=2, daemons=2, fates=fates)
    nemesis.attach(cluster)
    config = TaskConfig(command=Command("x"), resources=NEED, max_failures=2)
    jobs = [
        cluster.create_job(gang(7), "1"),
        cluster.create_job(gang(5), "2"),
        cluster.create_job(gang(4, 6, default=config, gang_together=True), "3"),
    ]
    cluster.ask(jobs[1], StopJob(((2, 3),)))
    wide = TaskConfig(command=Command("x"), resources=NEED.times(3))
    never = cluster.create_job(gang(2, default=wide, priority=1), "4")
    cluster.run_until(lambda: ended(cluster, jobs[2]), within_s=600.0)
    cluster.ask(never, StopJob())
    cluster.run_until(cluster.over, within_s=600.0)
    assert {cluster.job(job).summary.state for job in jobs} <= {
        JobStates.SUCCEEDED,
        JobStates.KILLED,
    }
    Nemesis().attach(cluster)
    cluster.run_for(60.0)
    cluster.check_quiet()


def test_the_history_sends_what_is_struck() -> None:
    counter = MessageCounter()
    troubles(counter)
    assert {*TRAVEL} <= {*counter.counts}


@pytest.mark.parametrize("which", [every_other, second])
@pytest.mark.parametrize("name", TRAVEL, ids=".".join)
def test_a_message_is_missed(name: tuple[str, str], which: object) -> None:
    troubles(Missed(*name, which=which))  # type: ignore[arg-type]


@pytest.mark.parametrize("behind", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("name", TRAVEL, ids=".".join)
def test_the_sender_stops(name: tuple[str, str], behind: bool) -> None:
    troubles(Stopped(*name, which=first, behind=behind))
