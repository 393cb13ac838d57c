"""Which hosts are the cheapest to empty, for clients that move hosts to another pool.

The hosts in the pool `shared` are ordered by their runs: hosts that no task would miss come first.
A host with a task that may not be preempted is left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from peloton.actors.host.ledger import OCCUPYING, LedgerRun
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
    runs: dict[Key, list[LedgerRun]] = {
        host: [run for run in answer.runs.values() if run.phase in OCCUPYING]
        for host, answer in with_runs(cluster_client, hosts, context=context)
    }
    named = {job_of(run) for some in runs.values() for run in some}
    jobs = _jobs(cluster_client, named, context=context)
    now_s = time.time()
    scores = [
        score_of(host, some, jobs=jobs, now_s=now_s)
        for host, some in runs.items()
        if all(may_move(jobs.get(job_of(run))) for run in some)
    ]
    return [client_name(score[-1]) for score in sorted(scores)]


def _jobs(
    cluster_client: ClusterClient, jobs: Iterable[Key], *, context: Context
) -> dict[Key, JobView]:
    keys = sorted(jobs)
    views = cluster_client.each(((job, GetJob()) for job in keys), context)
    found = zip(keys, views, strict=True)
    return {job: view for job, view in found if isinstance(view, JobView)}


def job_of(run: LedgerRun) -> Key:
    """Return the job of a run, whose crowd is `task/JOB/SLICE`."""
    return job_key(run.crowd.split("/")[1])


def may_move(job: JobView | None) -> bool:
    """Return whether each task of the job may be preempted; False for a job that is gone."""
    if job is None or job.spec.own_configs:
        return False  # some instance may have a policy of its own
    own = job.spec.default.preemptible
    return job.spec.preemptible if own is None else own


def score_of(host: Key, runs: list[LedgerRun], *, jobs: dict[Key, JobView], now_s: float) -> Score:
    """Return the number of tasks, the sum of their priorities, and their average running time."""
    priority = sum(jobs[job_of(run)].spec.priority for run in runs)
    ran_s = sum(now_s - run.since for run in runs) / len(runs) if runs else 0.0
    return len(runs), priority, ran_s, host
