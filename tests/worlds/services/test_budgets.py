"""How many instances of a service are down at once, whatever is wanted of it and of its hosts.

Whole clusters in virtual time, with the checks of storms (R34 is one). What counts is how many run
at the worst moment, and that everything comes to its end.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest

from peloton.actors.host.messages import CompleteMaintenance, StartMaintenance
from peloton.actors.host.stages import Maintenance
from peloton.actors.job.messages import CreateJob, StopJob
from peloton.actors.job.slice import renewing, sparing
from peloton.actors.job.slice.messages import slice_key
from peloton.actors.job.slice.rollout_messages import MemberRestarted, RestartIfSpared
from peloton.actors.job.slice.task_config import Command, Override, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.stages import JobStates
from peloton.actors.job.workflow.messages import (
    ReplaceJob,
    RestartJob,
    WorkflowOptions,
    WorkflowTypes,
)
from peloton.actors.respool.reclaims import PreemptionPolicy
from peloton.actors.task.messages import (
    HOST_MAINTENANCE,
    SLICE_SIZE,
    crowd_key,
)
from peloton.actors.task.state import TaskStates
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import (
    HOST_CAPACITY,
    NEED,
    STORM_POOL,
    ClusterSetup,
    job_id,
    job_spec,
)
from peloton.chaos.cluster.world.machines import FAILURE, Fate
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.vocabulary import Key, Refused
from tests.worlds.planted import Planted, planted

COUNT = 6
FOR_EVER = Fate(None)


def cluster_of(
    fate: Callable[[str], Fate] = lambda run: FOR_EVER, *, seed: int = 0, hosts: int = 3
) -> CheckedCluster:
    setup = ClusterSetup(fates=fate, preemption=PreemptionPolicy(sustained_s=5.0))
    cluster = CheckedCluster(hosts=hosts, seed=seed, setup=setup)
    cluster.machines.start_s = 1.0
    return cluster


def service(bound: int, instances: int = COUNT, command: str = "x", **fields: object) -> JobSpec:
    spec = job_spec(instances)
    default = msgspec.structs.replace(spec.default, command=Command(command))
    given = {"default": default, "maximum_unavailable": bound, **fields}
    return msgspec.structs.replace(spec, job_type="SERVICE", **given)


def running(cluster: CheckedCluster, bound: int, instances: int = COUNT, **fields: object) -> Key:
    job = cluster.create_job(service(bound, instances, **fields), "s")
    cluster.run_until(lambda: up(cluster, job) == instances, within_s=120)
    return job


def up(cluster: CheckedCluster, job: Key) -> int:
    return cluster.counts(job).get("RUNNING", 0)


def runs_up(cluster: CheckedCluster, job: Key, count: int = COUNT) -> int:
    """As its tasks are at this moment."""
    name = job.partition("/")[2]
    crowds = cluster.crowds()
    found = (crowds.get(crowd_key(name, number)) for number in range(-(-count // SLICE_SIZE)))
    running = (each.where(lambda task: task.state == TaskStates.RUNNING) for each in found if each)
    return sum(raw.bit_count() for raw in running)


def over(cluster: CheckedCluster, job: Key) -> bool:
    """Whether its workflow is, if its owner is there to say so."""
    known = cluster.cells("job").get(job)
    return known is not None and known.workflow is not None and known.workflow.is_over


def phase(cluster: CheckedCluster, host: Key) -> Maintenance | None:
    known = cluster.cells("host").get(host)
    return known.maintenance if known is not None else None


def least_up(
    cluster: CheckedCluster, job: Key, until: Callable[[], bool], *, count: int = COUNT
) -> int:
    """How many ran at the worst moment until then."""
    least = count

    def done() -> bool:
        nonlocal least
        least = min(least, runs_up(cluster, job, count))
        return until()

    cluster.run_until(done, within_s=900)
    return least


def quiet(cluster: CheckedCluster, *jobs: Key) -> None:
    """Stop them, and let all checkers judge what is left."""
    for job in jobs:
        cluster.ask(job, StopJob())
        cluster.run_until(lambda at=job: cluster.job(at).summary.state == JobStates.KILLED)  # type: ignore[misc]
    cluster.check_quiet()


def spared(cluster: CheckedCluster) -> int:
    assert cluster.checks is not None
    return cluster.checks.promises.budgets.checked


@pytest.mark.parametrize("bound", [1, 2, 4])
def test_an_update_of_all_at_once_takes_down_no_more_than_may_be(bound: int) -> None:
    cluster = cluster_of()
    job = running(cluster, bound)
    cluster.ask(job, ReplaceJob(service(bound, command="y")))
    least = least_up(cluster, job, lambda: over(cluster, job))
    assert least == COUNT - bound and spared(cluster)
    assert [each.run for each in cluster.instances(job, COUNT)] == [2] * COUNT
    quiet(cluster, job)


def test_a_service_without_a_bound_is_updated_all_at_once() -> None:
    cluster = cluster_of()
    job = running(cluster, 0)
    cluster.ask(job, ReplaceJob(service(0, command="y")))
    assert least_up(cluster, job, lambda: over(cluster, job)) == 0
    assert not spared(cluster), "and nothing is journaled of it"
    quiet(cluster, job)


def test_a_stop_by_a_workflow_asks_nobody() -> None:
    cluster = cluster_of()
    job = running(cluster, 1)
    cluster.ask(job, RestartJob(kind=WorkflowTypes.STOP))
    cluster.run_until(lambda: over(cluster, job), within_s=60)
    assert runs_up(cluster, job) == 0 and not spared(cluster)
    cluster.ask(job, RestartJob(options=WorkflowOptions(batch=2)))
    cluster.run_until(lambda: over(cluster, job), within_s=60)
    assert runs_up(cluster, job) == COUNT
    quiet(cluster, job)


def test_what_is_down_already_is_changed_first_and_without_leave() -> None:
    """The old config fails at once: with one that may be down, five are, and all are changed."""

    def fate(run: str) -> Fate:
        instance, number = (int(part) for part in run.split("-")[-2:])
        return Fate(0.1, FAILURE) if instance < 5 and number == 1 else FOR_EVER

    cluster = cluster_of(fate)
    job = cluster.create_job(service(1), "s")
    cluster.run_until(lambda: cluster.counts(job).get("PENDING", 0) == 5 and up(cluster, job) == 1)
    cluster.ask(job, ReplaceJob(service(1, command="y")))
    began = cluster.world.now
    assert least_up(cluster, job, lambda: over(cluster, job)) == 1, "the one that ran came last"
    assert cluster.world.now - began < 25.0, "no pause was waited for"
    quiet(cluster, job)


def test_a_host_that_goes_down_ends_its_instances_as_the_job_can_spare_them() -> None:
    cluster = cluster_of()
    job = running(cluster, 1)
    host = Key(cluster.instances(job, COUNT)[0].host)
    there = [each.instance for each in cluster.instances(job, COUNT) if each.host == host]
    assert len(there) > 1
    cluster.ask(host, StartMaintenance())
    least = least_up(cluster, job, lambda: phase(cluster, host) == Maintenance.DOWN)
    assert least == COUNT - 1
    after = cluster.instances(job, COUNT)
    assert {each.host for each in after} == {*cluster.hosts} - {host}
    assert [each.instance for each in after if each.run == 2] == there
    moved = after[there[0]].runs[-1].outcome
    assert moved is not None and moved.reason == HOST_MAINTENANCE
    assert {each.failures for each in after} == {0}, "no attempt was used up"
    quiet(cluster, job)


def test_a_drain_waits_while_the_budget_is_exceeded_and_says_so() -> None:
    """Another instance fails, and waits out its pause: nobody is moved before it is back."""

    def fate(run: str) -> Fate:
        return Fate(5.0, FAILURE) if run.endswith("-0-1") else FOR_EVER

    cluster = cluster_of(fate)
    job = running(cluster, 1)
    cluster.run_until(lambda: up(cluster, job) == COUNT - 1)
    host = Key(cluster.instances(job, COUNT)[1].host)
    cluster.ask(host, StartMaintenance())
    cluster.run_for(20.0)
    assert phase(cluster, host) == Maintenance.DRAINING and runs_up(cluster, job) == COUNT - 1
    waits = [each for each in cluster.instances(job, COUNT) if each.code == "SPARE"]
    assert waits and {each.host for each in waits} == {host}
    assert "no more than 1 instance of its job may be down at once" in waits[0].because
    least = least_up(cluster, job, lambda: phase(cluster, host) == Maintenance.DOWN)
    assert least == COUNT - 1
    quiet(cluster, job)


def test_an_instance_is_restarted_only_if_it_can_be_spared() -> None:
    cluster = cluster_of()
    job = running(cluster, 1)
    to = slice_key(job.partition("/")[2], 0)
    assert cluster.ask(to, RestartIfSpared(2)) == MemberRestarted(wanted=True)
    refused = cluster.ask(to, RestartIfSpared(3))
    assert isinstance(refused, Refused)
    assert (refused.code, refused.text) == ("VIOLATES_SLA", "pod restart would violate SLA")
    # Of one that is down already nobody has to be asked.
    assert cluster.ask(to, RestartIfSpared(2)) == MemberRestarted(wanted=True)
    cluster.run_until(lambda: runs_up(cluster, job) == COUNT, within_s=60)
    assert [each.run for each in cluster.instances(job, COUNT)] == [1, 1, 2, 1, 1, 1]
    assert cluster.ask(to, RestartIfSpared(3)) == MemberRestarted(wanted=True)
    cluster.run_until(lambda: runs_up(cluster, job) == COUNT, within_s=60)
    cluster.ask(job, StopJob(((4, 5),)))
    cluster.run_until(lambda: runs_up(cluster, job) == COUNT - 1, within_s=60)
    assert cluster.ask(to, RestartIfSpared(4)) == MemberRestarted(wanted=False)
    # A stopped one is not down: another can be spared.
    assert cluster.ask(to, RestartIfSpared(0)) == MemberRestarted(wanted=True)
    cluster.run_until(lambda: runs_up(cluster, job) == COUNT - 1, within_s=60)
    quiet(cluster, job)


def test_a_pool_gets_back_no_more_than_can_be_spared() -> None:
    cluster = cluster_of()
    other = cluster.make_pool("q", HOST_CAPACITY.times(3))
    job = running(cluster, 1, instances=12)
    batch = cluster.create_job(job_spec(6, pool=other), "b")
    least = least_up(cluster, job, lambda: cluster.counts(batch).get("RUNNING", 0) >= 1, count=12)
    assert least >= 11
    cluster.run_for(120.0)
    assert runs_up(cluster, job, 12) == 11, "the one that was taken has no room now"
    assert cluster.counts(batch).get("RUNNING", 0) == 1
    quiet(cluster, batch, job)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("bound", [1, 2])
def test_all_at_once_never_exceeds_the_budget(bound: int, seed: int) -> None:
    """An update, a host that goes down, a pool that takes back, restarts, and daemons that die."""
    chance = random.Random(f"{seed} {bound}")
    cluster = cluster_of(seed=seed, hosts=4)
    other = cluster.make_pool("q", HOST_CAPACITY.times(4))
    count = 10
    job = running(cluster, bound, instances=count)
    to = slice_key(job.partition("/")[2], 0)
    host = Key(cluster.instances(job, count)[0].host)
    cluster.ask(job, ReplaceJob(service(bound, count, "y"), options=WorkflowOptions(batch=0)))
    cluster.ask(host, StartMaintenance())
    batch = cluster.create_job(job_spec(5, pool=other), "b")
    least, steps = count, 0

    def look() -> bool:
        nonlocal least, steps
        least, steps = min(least, runs_up(cluster, job, count)), steps + 1
        if steps % 100 == 0 and steps < 1000:
            cluster.order(to, RestartIfSpared(chance.randrange(count)))
        if steps == 1500:
            cluster.order(
                batch, StopJob()
            )  # else the service has too little room with its host down
        return over(cluster, job) and phase(cluster, host) == Maintenance.DOWN

    for _ in range(3):
        cluster.run_for(chance.random() * 2)
        least = min(least, runs_up(cluster, job, count))
        cluster.crash_shard(chance.choice((job, STORM_POOL, host)))
    cluster.run_until(look, within_s=900)
    assert count - bound <= least < count and spared(cluster)
    cluster.ask(host, CompleteMaintenance())
    cluster.run_until(lambda: runs_up(cluster, job, count) == count, within_s=300)
    quiet(cluster, job)


@pytest.mark.parametrize("bound", [3, 40])
def test_many_slices_share_one_budget(bound: int) -> None:
    cluster = cluster_of()
    count = 2100
    job = cluster.create_job(tiny(bound, count), "s")
    cluster.run_until(lambda: runs_up(cluster, job, count) == count, within_s=300)
    ranges = ((0, 20), (1000, 1020), (2000, 2020))
    cluster.ask(job, RestartJob(ranges))
    least = count

    def look() -> bool:
        nonlocal least
        least = min(least, runs_up(cluster, job, count))
        return over(cluster, job)

    cluster.run_until(look, within_s=900)
    assert count - bound <= least < count
    restarted = {each.instance for each in cluster.instances(job, count) if each.run == 2}
    assert restarted == {at for start, stop in ranges for at in range(start, stop)}
    assert not any(share.allowance for share in cluster.cells("job")[job].shares.values())
    quiet(cluster, job)


def test_a_pool_gets_back_from_slices_that_share_a_budget() -> None:
    cluster = cluster_of()
    other = cluster.make_pool("q", HOST_CAPACITY.times(3))
    count = 1100
    own = TaskConfig(command=Command("z"), resources=NEED)
    large = (
        *((0, Override(at, own)) for at in (3, 4)),
        *((1, Override(1000 + at, own)) for at in range(9)),
    )
    overrides = tuple((n, tuple(one for number, one in large if number == n)) for n in (0, 1))
    job = job_id("s")
    spec = msgspec.structs.replace(tiny(1, count), own_configs=len(large))
    cluster.ask(job, CreateJob(spec, overrides=overrides))
    cluster.run_until(lambda: runs_up(cluster, job, count) == count, within_s=300)
    batch = cluster.create_job(job_spec(6, pool=other), "b")
    cluster.run_for(12.0)
    assert cluster.counts(batch).get("RUNNING", 0) == 2, "one was free, one was given back"
    assert runs_up(cluster, job, count) == count - 1
    quiet(cluster, batch, job)


def tiny(bound: int, count: int) -> JobSpec:
    spec = service(bound, count)
    config = msgspec.structs.replace(spec.default, resources=HOST_CAPACITY.times(0))
    return msgspec.structs.replace(spec, default=config)


def _any_number(_: object) -> Callable[..., int]:
    return lambda slice_, index: int(slice_.count)


def _silent(_: object) -> Callable[..., tuple[()]]:
    return lambda slice_, members, *, by, index: ()


FAULTS = {
    "a workflow spares anybody": (Planted(renewing, "spare_of", _any_number), "^R34 .* 6 are down"),
    "a host spares anybody": (Planted(sparing, "spare_of", _any_number), "^R34 .* are down, 1 may"),
    "a restart spares anybody": (Planted(sparing, "spare_of", _any_number), "^R34 "),
    "nobody is said to be spared": (Planted(renewing, "spared", _silent), "not spared"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_budget_that_is_exceeded_is_noticed(fault: str) -> None:
    cluster = cluster_of()
    job = running(cluster, 1)
    to = slice_key(job.partition("/")[2], 0)
    host = Key(cluster.instances(job, COUNT)[0].host)
    plant, text = FAULTS[fault]
    with planted(plant), pytest.raises(Contradiction, match=text):
        if "restart" in fault:
            for member in range(COUNT):
                cluster.order(to, RestartIfSpared(member))
        elif "host" in fault:
            cluster.order(host, StartMaintenance())
        else:
            cluster.order(job, ReplaceJob(service(1, command="y")))
        cluster.run_for(10.0)
