"""Plans: what would become of a job or a pool, found out without a change.

The same thing is then done in earnest, and has to come out as planned.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from peloton.actors.respool.copies import CopyPools
from peloton.actors.respool.messages import ROOT
from peloton.actors.respool.reclaims import PreemptionPolicy
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.task import task_pb2 as task
from peloton.assembly.kinds import kinds
from peloton.ops.v1 import ops_pb2 as ops
from peloton.ops.v1 import plans_pb2 as wire
from tests.gateway import fleet_fixture as t

CPUS = 12
"""Of all hosts."""
REGISTERS = "SELECT shard_group, shard_number, last_position, last_chain FROM register"
NEVER, STARTS, WAITS = wire.VERDICT_NEVER, wire.VERDICT_STARTS, wire.VERDICT_WAITS


@pytest.fixture(scope="module")
def deployment(folder: Path) -> Iterator[t.Deployment]:
    """Pools take back what they lent, but not while the tests run."""
    policy = PreemptionPolicy(sustained_s=6000.0)
    with t.running(folder, of_kinds=kinds(t.SIZES, preemption=policy)) as found:
        yield found


def config(cpu: float = 1.0, **more: Any) -> task.TaskConfig:
    found = t.default_config(seconds=600, **more)
    found.resource.cpuLimit = cpu
    return found


def job_of(deployment: t.Deployment, pool: str, count: int, **more: Any) -> Any:
    request = deployment.request(count, **({"defaultConfig": config()} | more))
    request.config.respoolID.value = pool
    return request


def planned(deployment: t.Deployment, request: Any) -> wire.PlanJobResponse:
    return deployment.plans.PlanJob(wire.PlanJobRequest(config=request.config))


def states(deployment: t.Deployment, folder: Path) -> Any:
    """All that the pools use, and where the journal of each shard stands, by its hash chain."""
    copied = deployment.region.ask(ROOT, CopyPools(1000)).result(60)
    file = f"file:{folder / 'journal.db'}?mode=ro"
    with contextlib.closing(sqlite3.connect(file, uri=True)) as journal:
        written = journal.execute(REGISTERS).fetchall()
    return copied.pools, copied.lots, written


def unchanged(deployment: t.Deployment, folder: Path, ask: Callable[[], Any]) -> Any:
    """What is answered while nothing was written: a shard may still finish what was before."""

    def once() -> Any:
        before = states(deployment, folder)
        found = ask()
        return found if states(deployment, folder) == before else None

    return deployment.until(once)


def stop(deployment: t.Deployment, job_id: str) -> None:
    deployment.tasks.Stop(task.StopRequest(jobId=t.named(job_id)))
    deployment.ended(job_id)


def count(deployment: t.Deployment, job_id: str, state: str) -> int:
    return int(deployment.job(job_id).runtime.taskStats[state])


def test_what_would_start_starts(deployment: t.Deployment) -> None:
    pool = deployment.make_pool("room")
    request = job_of(deployment, pool, 5)
    found = planned(deployment, request)
    assert (found.verdict, found.admitted, found.placed) == (STARTS, 5, 5)
    assert sum(host.instances for host in found.hosts) == 5 and not found.waits
    assert {host.name for host in found.hosts} <= set(t.HOSTS)
    job_id = deployment.create(request)
    deployment.until(lambda: count(deployment, job_id, "RUNNING") == 5)
    stop(deployment, job_id)


def test_what_would_wait_waits_for_what_was_planned(deployment: t.Deployment) -> None:
    pool = deployment.make_pool("three", cpu=3.0)
    request = job_of(deployment, pool, 5)
    found = planned(deployment, request)
    assert (found.verdict, found.admitted, found.placed) == (WAITS, 3, 3)
    (wait,) = found.waits
    assert (wait.instances, wait.code, wait.never) == (2, "pool-limit", False)
    first = wait.blockers[0]
    assert (first.code, first.pool, first.limit, first.used) == ("pool-limit", "/three", 3, 3)
    job_id = deployment.create(request)
    deployment.until(lambda: count(deployment, job_id, "RUNNING") == 3)

    def told() -> Any:
        (reason,) = deployment.ops.Why(ops.WhyRequest(job_id=job_id)).reasons
        return reason if reason.code == wait.code else None

    real = deployment.until(told)
    assert real.instances == wait.instances
    assert [each.code for each in real.blockers] == [each.code for each in wait.blockers]
    stop(deployment, job_id)


def test_nothing_is_changed(deployment: t.Deployment, folder: Path) -> None:
    pool = deployment.make_pool("still", cpu=2.0)
    job_id = deployment.create(job_of(deployment, pool, 4))
    deployment.until(lambda: count(deployment, job_id, "RUNNING") == 2)
    deployment.until(lambda: count(deployment, job_id, "PENDING") == 2)
    change = wire.PlanPoolRequest(pool_id=pool, config=t.pool_config("still", cpu=4.0))

    def ask() -> Any:
        planned(deployment, job_of(deployment, pool, 7))
        return deployment.plans.PlanPool(change)

    plan = unchanged(deployment, folder, ask)
    assert [(one.pool, one.job, one.instances) for one in plan.admitted] == [("/still", job_id, 2)]
    stop(deployment, job_id)


def test_the_rules_of_the_job_itself_are_named(deployment: t.Deployment) -> None:
    request = job_of(deployment, deployment.make_pool("own"), 6)
    request.config.sla.maximumRunningInstances = 2
    found = planned(deployment, request)
    assert (found.verdict, found.admitted, found.placed) == (WAITS, 2, 2)
    assert [(one.code, one.instances) for one in found.waits] == [("job-limit", 4)]


def test_a_gang_is_planned_as_one(deployment: t.Deployment) -> None:
    pool = deployment.make_pool("gang", cpu=6.0)
    request = job_of(deployment, pool, 5, defaultConfig=config(1.5))
    request.config.sla.minimumRunningInstances = 5
    found = planned(deployment, request)
    assert (found.admitted, found.placed) == (0, 0)
    wait = found.waits[0]
    assert wait.never and wait.instances == 5 and wait.blockers[0].wanted == 7.5
    request.config.sla.minimumRunningInstances = 4
    request.config.instanceCount = 4
    found = planned(deployment, request)
    assert (found.verdict, found.admitted, found.placed) == (STARTS, 4, 4)


def test_no_part_of_a_gang_is_planned_to_start(deployment: t.Deployment) -> None:
    request = job_of(deployment, deployment.make_pool("paced"), 6)
    request.config.sla.minimumRunningInstances = 4
    request.config.labels.add(key="peloton.throttle", value="2/m")
    found = planned(deployment, request)
    assert (found.verdict, found.admitted, found.placed) == (WAITS, 0, 0)
    assert [(one.code, one.instances) for one in found.waits] == [("throttle", 6)]
    assert "gang of 4" in found.waits[0].text


def test_a_gang_that_all_hosts_could_not_hold_is_proven_of_all_of_them(
    deployment: t.Deployment,
) -> None:
    pool = deployment.make_pool("whole")
    request = job_of(deployment, pool, 4, defaultConfig=config(2.5))
    request.config.sla.minimumRunningInstances = 4
    found = planned(deployment, request)
    assert (found.verdict, found.admitted, found.placed) == (NEVER, 4, 0)
    never = found.waits[0].blockers[0]
    assert never.never and "could hold 3" in never.text and "together" in never.proof
    assert "none fits" not in never.proof, "one of it fits on each"


def test_what_fits_no_host_ever_is_known_before(deployment: t.Deployment) -> None:
    pool = deployment.make_pool("large")
    found = planned(deployment, job_of(deployment, pool, 1, defaultConfig=config(5.0)))
    assert (found.verdict, found.admitted, found.placed) == (NEVER, 1, 0)
    (wait,) = found.waits
    assert wait.code == "can-never-run" and wait.blockers[0].proof
    assert [(each.rule, each.hosts) for each in wait.blockers[1:]] == [
        ("insufficient_offer_resources", len(t.HOSTS))
    ]


def test_what_fits_no_host_is_told_of_those_that_request_it(deployment: t.Deployment) -> None:
    pool = deployment.make_pool("some")
    request = job_of(deployment, pool, 2, defaultConfig=config(5.0))
    request.config.instanceConfig[1].resource.CopyFrom(config(1.0).resource)
    found = planned(deployment, request)
    assert (found.admitted, found.placed) == (2, 1)
    (wait,) = found.waits
    assert wait.instances == 1 and "cpu 5" in wait.blockers[0].change
    assert "cpu 5" in wait.blockers[1].text


def test_a_volume_is_counted_as_it_is_by_why(deployment: t.Deployment) -> None:
    pool = deployment.make_pool("stateful")
    large = config(1.0)
    large.resource.diskLimitMb = 10
    large.volume.containerPath, large.volume.sizeMB = "/data", 100_000_000
    request = job_of(deployment, pool, 1, defaultConfig=large, type=job.SERVICE)
    found = planned(deployment, request)
    assert (found.verdict, found.placed) == (NEVER, 0)
    assert "disk 100000010 MB" in found.waits[0].blockers[0].change
    job_id = deployment.create(request)

    def changes() -> list[str]:
        why = deployment.ops.Why(ops.WhyRequest(job_id=job_id))
        return [each.change for reason in why.reasons for each in reason.blockers]

    deployment.until(lambda: any("disk 100000010 MB" in each for each in changes()))
    deployment.tasks.Stop(task.StopRequest(jobId=t.named(job_id)))


def test_what_would_wait_for_its_pool_and_fits_no_host_either_is_told_both(
    deployment: t.Deployment,
) -> None:
    pool = deployment.make_pool("tight", cpu=6.0)
    found = planned(deployment, job_of(deployment, pool, 2, defaultConfig=config(5.0)))
    assert (found.verdict, found.admitted, found.placed) == (NEVER, 1, 0)
    wait = next(wait for wait in found.waits if wait.code == "pool-limit")
    assert wait.never and "this job would hold 5" in wait.text
    codes = [blocker.code for blocker in wait.blockers]
    assert codes == ["pool-limit", "no-host-ever", "hosts"]


def test_a_wrong_file_is_refused_with_its_field(deployment: t.Deployment) -> None:
    wrong, stub = grpc.StatusCode.INVALID_ARGUMENT, deployment.plans
    request = job_of(deployment, "none", 1)
    assert t.refused(stub.PlanJob, wire.PlanJobRequest(config=request.config)) == (
        wrong, "config: resource pool not found"
    )  # fmt: skip
    request = job_of(deployment, deployment.pool, 1, defaultConfig=config(-1.0))
    code, text = t.refused(stub.PlanJob, wire.PlanJobRequest(config=request.config))
    assert code == wrong and text.startswith("config.defaultConfig.resource.cpuLimit: ")
    low = t.pool_config("low", cpu=1.0)
    low.resources[0].reservation = 9.0
    code, text = t.refused(stub.PlanPool, wire.PlanPoolRequest(config=low))
    assert code == wrong and text.startswith("config.resources[cpu].reservation: ")
    gone = wire.PlanPoolRequest(pool_id="gone", config=t.pool_config("gone"))
    assert t.refused(stub.PlanPool, gone)[0] == grpc.StatusCode.NOT_FOUND
    assert t.refused(stub.PlanPool, wire.PlanPoolRequest())[0] == wrong


def test_who_would_give_back_is_named(deployment: t.Deployment) -> None:
    lender = deployment.make_pool("lends")
    borrower = deployment.make_pool("borrows")
    lent = job_of(deployment, borrower, CPUS)
    lent.config.sla.preemptible = True
    lent_id = deployment.create(lent)
    deployment.until(lambda: count(deployment, lent_id, "RUNNING") == CPUS)
    found = planned(deployment, job_of(deployment, lender, CPUS))
    assert (found.verdict, found.admitted) == (wire.VERDICT_PREEMPTS, 0)
    (given,) = found.given_back
    assert (given.pool, given.job, given.instances) == ("/borrows", lent_id, CPUS // 2)
    assert (given.amount.cpu, found.admitted_later) == (CPUS // 2, CPUS // 2)
    assert found.preempts_after_s == 6000.0
    wanted = job_of(deployment, lender, CPUS)
    wanted.config.sla.preemptible = True
    waits = deployment.create(wanted)
    deployment.until(lambda: count(deployment, waits, "PENDING") == CPUS)
    assert not planned(deployment, job_of(deployment, lender, 1)).given_back, "anyway, not for it"
    resources = t.pool_config("lends")
    for one in resources.resources:
        if one.kind == "cpu":
            one.reservation, one.limit = 8.0, 12.0
    plan = deployment.plans.PlanPool(wire.PlanPoolRequest(pool_id=lender, config=resources))
    shares = {share.path: share for share in plan.shares}
    assert (shares["/lends"].before.cpu, shares["/lends"].after.cpu) == (6, 10)
    assert (shares["/borrows"].before.cpu, shares["/borrows"].after.cpu) == (6, 2)
    assert [(one.job, one.instances) for one in plan.given_back] == [(lent_id, 4)]
    for job_id in (waits, lent_id):
        stop(deployment, job_id)


def test_a_new_pool_is_planned_before_it_is_there(deployment: t.Deployment) -> None:
    plan = deployment.plans.PlanPool(wire.PlanPoolRequest(config=t.pool_config("later")))
    share = next(share for share in plan.shares if share.path == "/later")
    assert share.before.cpu == 0 and share.after.cpu > 0
    found = deployment.pools.LookupResourcePoolID(
        t.respool_pb2.LookupRequest(path={"value": "/later"})
    )
    assert found.HasField("error"), "it is not there"


def test_a_pool_is_explained_as_it_is(deployment: t.Deployment, folder: Path) -> None:
    pool = deployment.make_pool("explained", cpu=2.0)
    request = job_of(deployment, pool, 5)
    job_id = deployment.jobs.Create(request).jobId.value
    deployment.until(lambda: count(deployment, job_id, "RUNNING") == 2)
    asked = wire.ExplainPoolRequest(path="/explained")
    found = unchanged(deployment, folder, lambda: deployment.plans.ExplainPool(asked))
    assert found.pool.path == "/explained" and found.above.path == "/"
    cpu = next(each for each in found.steps if each.kind == "cpu")
    (held,) = (kind for kind in found.pool.kinds if kind.kind == "cpu")
    assert cpu.entitlement == held.entitlement == 2.0
    assert cpu.by_reservation + cpu.by_need + cpu.offered == 2.0 and cpu.need == 2.0
    assert (found.waiting_in_all, found.waiting[0].job, found.waiting[0].instances) == (
        3,
        job_id,
        3,
    )
    assert "limit of pool /explained" in found.waiting[0].text and found.text
    history = deployment.ops.PoolHistory(ops.PoolHistoryRequest(path="/explained"))
    (hour,) = history.hours
    assert hour.open and hour.held.cpu > 0 and hour.ended > hour.began
    assert hour.held.cpu <= 2.0 * (hour.ended - hour.began) / 3600 + 1e-6
    stop(deployment, job_id)


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/none", grpc.StatusCode.NOT_FOUND),
        ("none", grpc.StatusCode.INVALID_ARGUMENT),
        ("", grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
def test_a_path_without_a_pool_is_refused(
    deployment: t.Deployment, path: str, code: grpc.StatusCode
) -> None:
    stub = deployment.plans
    assert t.refused(stub.ExplainPool, wire.ExplainPoolRequest(path=path))[0] == code
    history = deployment.ops.PoolHistory
    assert t.refused(history, ops.PoolHistoryRequest(path=path))[0] == code


def test_instances_that_keep_apart_are_planned_as_they_are_placed(deployment: t.Deployment) -> None:
    pool = deployment.make_pool("apart")
    spread = {"placementStrategy": job.PLACEMENT_STRATEGY_SPREAD_JOB}
    found = planned(deployment, job_of(deployment, pool, 2, **spread))
    assert found.placed == found.hosts_in_all == 2 and not found.waits
