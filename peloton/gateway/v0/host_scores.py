"""Which hosts are the cheapest to empty, for clients that move hosts to another pool.

The hosts in the pool `shared` are ordered by their runs: hosts that no task would miss come first.
A host with a task that may not be preempted is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from peloton.actors.host.ledger import RunSet
from peloton.actors.host.state import occupying_runs
from peloton.actors.job.messages import GetJob, JobView, job_key
from peloton.gateway.cluster.cluster_client import ClusterClient, Context
from peloton.gateway.cluster.inventories import takes_work, with_runs
from peloton.gateway.translate.texts import client_name
from peloton.gateway.v0.host_pools import hosts_by_pool
from peloton.private.resmgrsvc import resmgrsvc_pb2 as resmgrsvc
from peloton.runtime.vocabulary import Key

SHARED = "shared"
"""Hosts of no other pool are ever moved."""
Score = tuple[int, int, float, Key]
JobsRuns = list[tuple[Key, RunSet]]
"""Sets of runs, with their jobs."""


class HostScores:
    """The call of ResourceManagerService about the cost of emptying hosts."""

    _cluster_client: ClusterClient

    def GetHostsByScores(self, sent: resmgrsvc.GetHostsByScoresRequest, context: Context) -> Any:
        """Return the hosts with the lowest scores, the cheapest first; without a limit, all."""
        names = cheapest_hosts(self._cluster_client, context)
        return resmgrsvc.GetHostsByScoresResponse(hosts=names[: sent.limit or None])


def cheapest_hosts(cluster_client: ClusterClient, context: Context) -> list[str]:
    """Return the hosts that may be moved, the cheapest first."""
    pools = hosts_by_pool(cluster_client, context)
    hosts = [view.summary.host for view in pools.get(SHARED, ()) if takes_work(view)]
    runs: dict[Key, JobsRuns] = {
        host: [(job_of(crowd), some) for crowd, some in occupying_runs(answer)]
        for host, answer in with_runs(cluster_client, hosts, context=context)
    }
    named = {job for some in runs.values() for job, _ in some}
    jobs = _jobs(cluster_client, named, context=context)
    now_s = cluster_client.execution.now()
    scores = [
        score_of(host, some, jobs=jobs, now_s=now_s)
        for host, some in runs.items()
        if all(may_move(jobs.get(job)) for job, _ in some)
    ]
    return [client_name(score[-1]) for score in sorted(scores)]


def _jobs(
    cluster_client: ClusterClient, jobs: Iterable[Key], *, context: Context
) -> dict[Key, JobView]:
    keys = sorted(jobs)
    views = cluster_client.each(((job, GetJob()) for job in keys), context)
    found = zip(keys, views, strict=True)
    return {job: view for job, view in found if isinstance(view, JobView)}


def job_of(crowd: Key) -> Key:
    """Return the job of a crowd, which is `task/JOB/SLICE`."""
    return job_key(crowd.split("/")[1])


def may_move(job: JobView | None) -> bool:
    """Return whether each task of the job may be preempted; False for a job that is gone."""
    if job is None or job.spec.own_configs:
        return False  # some instance may have a policy of its own
    own = job.spec.default.preemptible
    return job.spec.preemptible if own is None else own


def score_of(host: Key, runs: JobsRuns, *, jobs: dict[Key, JobView], now_s: float) -> Score:
    """Return the number of tasks, the sum of their priorities, and their average running time."""
    count = sum(len(some.members) for _, some in runs)
    priority = sum(jobs[job].spec.priority * len(some.members) for job, some in runs)
    ran_s = sum((now_s - some.since) * len(some.members) for _, some in runs)
    return count, priority, ran_s / max(1, count), host
