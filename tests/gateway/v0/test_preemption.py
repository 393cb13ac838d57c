"""What clients see of tasks that are ended for another pool.

Whose they are, and how many, is decided elsewhere (`tests/actors/pools/test_reclaiming.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from peloton.actors.respool.reclaims import PreemptionPolicy
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.respool import respool_pb2 as respool
from peloton.api.v0.task import task_pb2 as task
from peloton.assembly.kinds import kinds
from tests.gateway import fleet_fixture as t

OVERRIDES = task.PreemptionPolicy
STATUS = task.TerminationStatus
CPUS = 12
"""Of all hosts."""


@pytest.fixture(scope="module")
def deployment(folder: Path) -> Iterator[t.Deployment]:
    """Pools take back at once what they lent."""
    policy = PreemptionPolicy(sustained_s=0.2)
    with t.running(folder, of_kinds=kinds(t.SIZES, preemption=policy)) as found:
        yield found


def large(deployment: t.Deployment, **policy: object) -> task.TaskConfig:
    config = t.default_config(seconds=600)
    config.resource.cpuLimit = 1.0
    if policy:
        config.preemptionPolicy.CopyFrom(OVERRIDES(**policy))
    return config


def new_pool(deployment: t.Deployment, name: str) -> peloton_pb2.ResourcePoolID:
    config = t.pool_config(name)
    answer = deployment.pools.CreateResourcePool(respool.CreateRequest(config=config))
    return peloton_pb2.ResourcePoolID(value=answer.result.value)


def count(deployment: t.Deployment, job_id: str, state: str) -> int:
    return int(deployment.job(job_id).runtime.taskStats[state])


def runtimes(deployment: t.Deployment, job_id: str) -> list[task.RuntimeInfo]:
    return [deployment.task(job_id, at).result.runtime for at in range(CPUS)]


@pytest.mark.parametrize("for_good", [False, True])
def test_half_is_given_back(deployment: t.Deployment, for_good: bool) -> None:
    """The job may not be preempted, its tasks say otherwise."""
    policy = {"type": OVERRIDES.TYPE_PREEMPTIBLE, "killOnPreempt": for_good}
    lent = deployment.create(deployment.request(CPUS, defaultConfig=large(deployment, **policy)))
    deployment.until(lambda: count(deployment, lent, "RUNNING") == CPUS)
    pool = new_pool(deployment, f"asks{for_good}")
    asked = deployment.create(
        deployment.request(CPUS, defaultConfig=large(deployment), respoolID=pool)
    )
    deployment.until(lambda: count(deployment, asked, "RUNNING") == CPUS // 2)
    left = "KILLED" if for_good else "PENDING"
    deployment.until(lambda: count(deployment, lent, left) == CPUS // 2)
    assert count(deployment, lent, "RUNNING") == CPUS // 2
    if for_good:
        ended = [each for each in runtimes(deployment, lent) if each.state == task.KILLED]
        assert {each.goalState for each in ended} == {task.PREEMPTING}
        (reason,) = {each.reason for each in ended}
        (why,) = {each.terminationStatus.reason for each in ended}
        assert reason == "preempted"
        assert why == STATUS.TERMINATION_STATUS_REASON_PREEMPTED_RESOURCES
        assert "waits for what it is entitled to" in ended[0].message
    else:
        again = [each for each in runtimes(deployment, lent) if each.prevMesosTaskId.value]
        assert len(again) == CPUS // 2 and {each.failureCount for each in again} == {0}
        assert {each.goalState for each in again} == {task.SUCCEEDED}
    for job_id in (lent, asked):
        deployment.tasks.Stop(task.StopRequest(jobId=t.named(job_id)))
        deployment.ended(job_id)
