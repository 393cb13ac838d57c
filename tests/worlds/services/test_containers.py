"""The containers of running pods on simulated clusters: what clients see, whatever is lost."""

from __future__ import annotations

import random

import pytest

from peloton.actors.host.live.live_messages import RunsChanged
from peloton.actors.job.messages import StopJob
from peloton.actors.task.facts import ContainersTold
from peloton.actors.task.run_messages import ContainerEnd
from peloton.backends.run_news import REPEAT_S, RunNews
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import ClusterSetup, job_spec
from peloton.chaos.cluster.world.machines import Fate, machine_report
from peloton.runtime.vocabulary import Key

COUNT = 3
PREPARES = (ContainerEnd("first", True, 1.0), ContainerEnd("web"), ContainerEnd("side"))
DONE = ContainerEnd("first", True, 1.0, 2.0, 0)
SERVES = (DONE, ContainerEnd("web", False, 2.0), ContainerEnd("side", False, 2.0))
ALONE = (DONE, SERVES[1], ContainerEnd("side", False, 2.0, 5.0, 0))


def cluster_of(seed: int = 0) -> CheckedCluster:
    setup = ClusterSetup(fates=lambda run: Fate(None))
    cluster = CheckedCluster(hosts=3, daemons=1, seed=seed, setup=setup)
    cluster.machines.start_s = 1.0
    return cluster


def begun(cluster: CheckedCluster) -> Key:
    job = cluster.create_job(job_spec(COUNT), "j")
    cluster.run_until(lambda: cluster.counts(job).get("RUNNING", 0) == COUNT, within_s=60)
    return job


def told(cluster: CheckedCluster, job: Key) -> list[tuple[ContainerEnd, ...]]:
    return [each.containers for each in cluster.instances(job, COUNT)]


def move(cluster: CheckedCluster, news: RunNews, containers: tuple[ContainerEnd, ...]) -> None:
    for run, process in cluster.machines.running.items():
        news.moved(process.host, run, containers=containers, now=cluster.world.now)


def tell(cluster: CheckedCluster, host: Key, changed: RunsChanged) -> None:
    cluster.world.living()[0].region.tell((machine_report(host, changed),))


@pytest.mark.parametrize("seed", range(4))
def test_what_is_shown_comes_true_whatever_is_lost_or_late(seed: int) -> None:
    cluster, chance = cluster_of(seed), random.Random(seed)
    job = begun(cluster)
    late: list[tuple[Key, RunsChanged]] = []
    news = RunNews()

    def tell_by_a_bad_way() -> None:
        for told_now in news.due(cluster.world.now):
            late.append(told_now)
            if chance.random() < 0.5:
                tell(cluster, *told_now)
        cluster.run_for(REPEAT_S)

    assert told(cluster, job) == [()] * COUNT
    for step in (PREPARES, SERVES, ALONE):
        move(cluster, news, step)
        tell_by_a_bad_way()
    for _ in range(20):
        tell_by_a_bad_way()
    for host, changed in reversed(late):  # all of it once more, the first at last
        tell(cluster, host, changed)
    cluster.run_for(REPEAT_S)
    assert told(cluster, job) == [ALONE] * COUNT


def test_what_was_told_outlives_the_daemon_and_ends_with_the_run() -> None:
    cluster = cluster_of()
    job = begun(cluster)
    news = RunNews()
    move(cluster, news, SERVES)
    for host, changed in news.due(cluster.world.now):
        tell(cluster, host, changed)
    cluster.run_until(lambda: told(cluster, job) == [SERVES] * COUNT, within_s=60)
    cluster.kill()
    cluster.run_until(lambda: told(cluster, job) == [SERVES] * COUNT, within_s=60)
    cluster.ask(job, StopJob())
    cluster.run_until(lambda: told(cluster, job) == [()] * COUNT, within_s=600)


def test_runs_of_a_single_container_are_told_nothing() -> None:
    cluster = cluster_of()
    begun(cluster)
    cluster.run_for(60.0)
    assert cluster.written(ContainersTold) == 0
