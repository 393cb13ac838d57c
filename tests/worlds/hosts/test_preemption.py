"""Pools take back what they lent: who gives, how much, what becomes of the victims and the freed.

Whole clusters in virtual time. The plans are tested in `tests/actors/pools/test_reclaiming.py`.
"""

from __future__ import annotations

import msgspec
import pytest

from peloton.actors.host.machine_messages import VolumeConfig
from peloton.actors.job.messages import StartInstances, StopJob
from peloton.actors.job.slice import evicting
from peloton.actors.job.spec import SERVICE, JobSpec
from peloton.actors.respool import giving
from peloton.actors.respool.messages import ROOT, GetPool
from peloton.actors.respool.proving import NOT_TOGETHER
from peloton.actors.respool.reclaims import PreemptionPolicy
from peloton.actors.respool.taking_back import NOT_PREEMPTIBLE
from peloton.actors.task.messages import PREEMPTED, crowd_key
from peloton.actors.task.state import TaskStates
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import (
    HOST_CAPACITY,
    NEED,
    STORM_POOL,
    ClusterSetup,
    job_spec,
)
from peloton.chaos.cluster.world.machines import Fate
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.vocabulary import Key
from tests.worlds.planted import Planted, planted

SUSTAINED_S = 30.0
POLICY = PreemptionPolicy(sustained_s=SUSTAINED_S)
HOSTS = 3
ALL = HOSTS * 4  # tasks of one cpu


def for_ever(run: str) -> Fate:
    return Fate(None)


def cluster_of(policy: PreemptionPolicy = POLICY, seed: int = 0) -> tuple[CheckedCluster, Key]:
    """A cluster with a second pool of equal rights."""
    setup = ClusterSetup(fates=for_ever, preemption=policy)
    cluster = CheckedCluster(hosts=HOSTS, setup=setup, seed=seed)
    return cluster, cluster.make_pool("q", HOST_CAPACITY.times(HOSTS))


def spec(count: int, pool: Key = STORM_POOL, **fields: object) -> JobSpec:
    size = fields.pop("size", 1)
    assert isinstance(size, int)
    own = {"kill_on_preempt": True} if fields.pop("for_good", False) else {}
    found = job_spec(count, pool=pool, resources=NEED.times(size), **own)
    return msgspec.structs.replace(found, **fields)


def running(cluster: CheckedCluster, job: Key) -> int:
    crowd = cluster.crowds().get(crowd_key(job.partition("/")[2], 0))
    if crowd is None:
        return 0
    return int(crowd.where(lambda task: task.state == TaskStates.RUNNING).bit_count())


def run_all(cluster: CheckedCluster, job: Key, count: int) -> None:
    cluster.run_until(lambda: running(cluster, job) == count, within_s=300)


def past_runs(cluster: CheckedCluster, job: Key) -> int:
    return sum(len(view.runs) for view in cluster.instances(job, ALL))


def test_the_other_pool_gets_its_half_back() -> None:
    cluster, q = cluster_of()
    lent = cluster.create_job(spec(ALL), "a")
    run_all(cluster, lent, ALL)
    asked = cluster.create_job(spec(ALL, q), "b")
    cluster.run_for(SUSTAINED_S - 5)
    assert running(cluster, asked) == 0 and past_runs(cluster, lent) == 0
    run_all(cluster, asked, ALL // 2)
    assert running(cluster, lent) == ALL // 2
    assert past_runs(cluster, lent) == ALL // 2, "as many as the other is entitled to"
    victims = [view for view in cluster.instances(lent, ALL) if view.runs]
    assert {view.failures for view in victims} == {0}
    outcome = victims[0].runs[0].outcome
    assert outcome is not None and outcome.reason == PREEMPTED
    assert "<pool /q> waits for what it is entitled to" in outcome.message
    cluster.run_for(10 * SUSTAINED_S)
    assert past_runs(cluster, lent) == ALL // 2, "their new tickets move nobody"
    assert past_runs(cluster, asked) == 0


@pytest.mark.parametrize("stateful", [False, True])
def test_an_instance_with_a_volume_is_never_preempted(stateful: bool) -> None:
    """Though its job is preemptible: its data cannot go with it."""
    cluster, q = cluster_of()
    lent = spec(ALL, job_type=SERVICE)
    if stateful:
        volume = VolumeConfig("data", 1)
        lent = msgspec.structs.replace(
            lent, default=msgspec.structs.replace(lent.default, volume=volume)
        )
    job = cluster.create_job(lent, "a")
    run_all(cluster, job, ALL)
    asked = cluster.create_job(spec(ALL, q), "b")
    cluster.run_for(10 * SUSTAINED_S)
    assert (running(cluster, asked), past_runs(cluster, job)) == ((0, 0) if stateful else (6, 6))


@pytest.mark.parametrize("size", [1, 2])
def test_a_gang_gets_back_what_its_pool_is_entitled_to(size: int) -> None:
    """Its members are smaller than all it needs, so hosts have to have room for one at a time."""
    cluster, q = cluster_of()
    lent = cluster.create_job(spec(ALL), "a")
    run_all(cluster, lent, ALL)
    members = ALL // 2 // size
    asked = cluster.create_job(spec(members, q, size=size, minimum_running=members), "b")
    run_all(cluster, asked, members)
    assert running(cluster, lent) == ALL // 2
    assert past_runs(cluster, lent) == ALL // 2, "no more than the gang needs"
    cluster.run_for(10 * SUSTAINED_S)
    assert past_runs(cluster, lent) == ALL // 2


def test_the_newest_runs_are_ended_first() -> None:
    cluster, q = cluster_of()
    lent = cluster.create_job(spec(ALL), "a")
    run_all(cluster, lent, ALL)
    cluster.run_for(10.0)
    cluster.ask(lent, StartInstances(ranges=((3, 5),), again=True))
    cluster.run_for(10.0)
    run_all(cluster, lent, ALL)
    asked = cluster.create_job(spec(2, q), "b")
    run_all(cluster, asked, 2)
    twice = [view.instance for view in cluster.instances(lent, ALL) if len(view.runs) == 2]
    assert twice == [3, 4] and past_runs(cluster, lent) == 4


def test_a_run_that_is_not_to_run_again_ends() -> None:
    cluster, q = cluster_of()
    lent = cluster.create_job(spec(ALL, for_good=True), "a")
    run_all(cluster, lent, ALL)
    asked = cluster.create_job(spec(ALL, q), "b")
    run_all(cluster, asked, ALL // 2)
    views = cluster.instances(lent, ALL)
    assert sorted(view.state for view in views) == ["KILLED"] * 6 + ["RUNNING"] * 6
    ended = [view for view in views if view.state == "KILLED"]
    assert {(view.run, view.outcome.reason if view.outcome else "") for view in ended} == {
        (1, PREEMPTED)
    }


def test_what_may_not_be_preempted_is_not() -> None:
    cluster, q = cluster_of()
    kept = cluster.create_job(spec(ALL - 2, preemptible=False), "a")
    free = cluster.create_job(spec(2), "c")
    run_all(cluster, kept, ALL - 2)
    run_all(cluster, free, 2)
    asked = cluster.create_job(spec(ALL, q), "b")
    run_all(cluster, asked, 2)
    cluster.run_for(5 * SUSTAINED_S)
    assert (running(cluster, kept), running(cluster, asked)) == (ALL - 2, 2)
    views = cluster.ask(ROOT, GetPool(pool=q))
    assert NOT_PREEMPTIBLE in views[0].because


def test_a_large_task_gets_the_whole_of_a_host() -> None:
    """Of tasks of one cpu on all hosts, those of one host go, and no more."""
    cluster, q = cluster_of()
    lent = cluster.create_job(spec(ALL), "a")
    run_all(cluster, lent, ALL)
    asked = cluster.create_job(spec(1, q, size=4), "b")
    run_all(cluster, asked, 1)
    victims = [view for view in cluster.instances(lent, ALL) if view.runs]
    assert len(victims) == 4 and len({view.runs[0].host for view in victims}) == 1


def test_what_would_fit_on_no_host_ends_nobody() -> None:
    """Each host is shared with tasks that stay, so no host can be emptied for it."""
    cluster, q = cluster_of()
    kept = cluster.create_job(spec(HOSTS, preemptible=False, spread=True), "k")
    run_all(cluster, kept, HOSTS)
    lent = cluster.create_job(spec(ALL - HOSTS), "a")
    run_all(cluster, lent, ALL - HOSTS)
    cluster.create_job(spec(1, q, size=4), "b")
    cluster.run_for(10 * SUSTAINED_S)
    assert past_runs(cluster, lent) == 0 and running(cluster, lent) == ALL - HOSTS


def test_demand_that_flaps_ends_nobody_twice() -> None:
    cluster, q = cluster_of()
    lent = cluster.create_job(spec(ALL), "a")
    run_all(cluster, lent, ALL)
    for number in range(6):
        asked = cluster.create_job(spec(4, q), f"b{number}")
        cluster.run_for(SUSTAINED_S * 0.8)
        cluster.ask(asked, StopJob())
        cluster.run_for(1.0)
    assert past_runs(cluster, lent) == 0


@pytest.mark.parametrize("of", [ROOT, "job"])
def test_a_lost_shard_ends_nobody_in_vain(of: str) -> None:
    """The owner of the pools, or of the victims, is lost at each moment of the way."""
    for moment in range(10):
        cluster, q = cluster_of(seed=moment)
        lent = cluster.create_job(spec(ALL), "a")
        run_all(cluster, lent, ALL)
        asked = cluster.create_job(spec(ALL, q), "b")
        cluster.run_for(SUSTAINED_S - 0.05 + moment * 0.02)
        cluster.drop_shard(ROOT if of == ROOT else lent)
        run_all(cluster, asked, ALL // 2)
        cluster.run_for(3 * SUSTAINED_S)
        assert running(cluster, lent) == ALL // 2
        assert past_runs(cluster, lent) == ALL // 2


def lend_and_ask() -> None:
    cluster, q = cluster_of()
    lent = cluster.create_job(spec(ALL), "a")
    run_all(cluster, lent, ALL)
    asked = cluster.create_job(spec(ALL, q), "b")
    run_all(cluster, asked, ALL // 2)
    assert cluster.checks is not None and cluster.checks.promises.lending.checked


def test_more_than_was_ordered_is_noticed() -> None:
    lend_and_ask()
    too_many = Planted(
        evicting, "gaining", lambda _: lambda victims, free, **rest: [each for each, _ in victims]
    )
    with planted(too_many), pytest.raises(Contradiction, match="^R28 .* give back, not 6"):
        lend_and_ask()


INSIDE = msgspec.structs.replace(POLICY, inside=(("/p", 60.0),))


def test_a_higher_priority_displaces_tasks_of_its_pool_that_have_run_for_a_time() -> None:
    cluster, _ = cluster_of(INSIDE)
    low = cluster.create_job(spec(ALL, priority=1), "low")
    run_all(cluster, low, ALL)
    high = cluster.create_job(spec(2, priority=5), "high")
    cluster.run_for(55.0)
    assert running(cluster, high) == 0 and past_runs(cluster, low) == 0
    run_all(cluster, high, 2)
    assert past_runs(cluster, low) == 2
    victims = [view for view in cluster.instances(low, ALL) if view.runs]
    assert {view.failures for view in victims} == {0}
    outcome = victims[0].runs[0].outcome
    assert outcome is not None and outcome.reason == PREEMPTED
    assert "a task of priority 5 waits in <pool /p>, this one has priority 1" in outcome.message
    cluster.run_for(20 * SUSTAINED_S)
    assert past_runs(cluster, low) == 2, "their new tickets move nobody"


def test_nobody_is_displaced_in_a_pool_that_is_not_named() -> None:
    cluster, _ = cluster_of(POLICY)
    low = cluster.create_job(spec(ALL, priority=1), "low")
    run_all(cluster, low, ALL)
    high = cluster.create_job(spec(2, priority=5), "high")
    cluster.run_for(20 * SUSTAINED_S)
    assert running(cluster, high) == 0 and past_runs(cluster, low) == 0


def test_a_gang_displaces_as_many_as_it_needs() -> None:
    cluster, _ = cluster_of(INSIDE)
    low = cluster.create_job(spec(ALL, priority=1), "low")
    run_all(cluster, low, ALL)
    gang = cluster.create_job(spec(3, size=2, priority=5, minimum_running=3), "gang")
    run_all(cluster, gang, 3)
    assert past_runs(cluster, low) == 6


def test_one_that_is_killed_on_preemption_is_displaced_for_good() -> None:
    cluster, _ = cluster_of(INSIDE)
    low = cluster.create_job(spec(ALL, priority=1, for_good=True), "low")
    run_all(cluster, low, ALL)
    high = cluster.create_job(spec(2, priority=5), "high")
    run_all(cluster, high, 2)
    cluster.run_until(lambda: cluster.counts(low) == {"RUNNING": ALL - 2, "KILLED": 2})


def test_a_victim_of_the_same_priority_is_noticed() -> None:
    def ask() -> None:
        cluster, _ = cluster_of(INSIDE)
        low = cluster.create_job(spec(ALL, priority=5), "low")
        run_all(cluster, low, ALL)
        cluster.create_job(spec(2, priority=5), "same")
        cluster.run_for(10 * SUSTAINED_S)
        assert past_runs(cluster, low) == 0

    ask()
    anybody = Planted(giving, "may_give", lambda _: lambda *_, **__: True)
    with planted(anybody), pytest.raises(Contradiction, match="^R32 .* priority of 5 gives back"):
        ask()


def test_runs_that_have_just_begun_are_left_alone_until_they_are_old_enough() -> None:
    """The older ones are ended; of the others each as soon as it has run for long enough."""
    cluster, _ = cluster_of(msgspec.structs.replace(POLICY, inside=(("/p", 200.0),)))
    old = cluster.create_job(spec(2, priority=1), "old")
    run_all(cluster, old, 2)
    cluster.run_for(150.0)
    new = cluster.create_job(spec(ALL - 2, priority=1), "new")
    run_all(cluster, new, ALL - 2)
    high = cluster.create_job(spec(4, priority=5), "high")
    cluster.run_for(100.0)
    assert running(cluster, high) == past_runs(cluster, old) == 2
    assert past_runs(cluster, new) == 0
    run_all(cluster, high, 4)
    assert past_runs(cluster, new) == 2


def gang_between(cluster: CheckedCluster, q: Key, *, kept: int) -> tuple[Key, Key]:
    """Tasks of three cpus that stay on so many hosts, others of one; and a gang of two times three
    that its pool is entitled to."""
    cluster.create_job(spec(kept, size=3, preemptible=False), "kept")
    cluster.run_for(5.0)
    lent = cluster.create_job(spec(ALL - 3 * kept), "a")
    run_all(cluster, lent, ALL - 3 * kept)
    return lent, cluster.create_job(spec(2, q, size=3, minimum_running=2), "gang")


def test_nobody_is_ended_for_a_gang_that_does_not_go_on_the_hosts() -> None:
    """There is room for one of its members on the host without such a task, and no other."""
    cluster, q = cluster_of()
    lent, gang = gang_between(cluster, q, kept=2)
    cluster.run_for(10 * SUSTAINED_S)
    assert running(cluster, gang) == 0
    assert past_runs(cluster, lent) == 0
    views = cluster.ask(ROOT, GetPool(pool=q))
    assert NOT_TOGETHER in views[0].because


def test_as_many_as_it_takes_are_ended_for_one_that_does() -> None:
    cluster, q = cluster_of()
    lent, gang = gang_between(cluster, q, kept=1)
    run_all(cluster, gang, 2)
    assert past_runs(cluster, lent) == 6, "three on each of two hosts"
    cluster.run_for(10 * SUSTAINED_S)
    assert past_runs(cluster, lent) == 6


def test_what_several_jobs_hold_of_a_host_is_room_for_a_gang() -> None:
    """Two of each have a host together, where none of them alone makes room for a member."""
    cluster, q = cluster_of()
    jobs = [cluster.create_job(spec(6), f"{number}") for number in range(2)]
    for job in jobs:
        run_all(cluster, job, 6)
    gang = cluster.create_job(spec(2, q, size=3, minimum_running=2), "gang")
    run_all(cluster, gang, 2)
    assert sum(past_runs(cluster, job) for job in jobs) == 6
    assert all(past_runs(cluster, job) for job in jobs)


@pytest.mark.parametrize("of", [ROOT, "lent", "gang"])
def test_a_proof_that_is_lost_is_made_again(of: str) -> None:
    """The owner of the pools, of the victims, or of the gang, is lost at each moment of the way."""
    for moment in range(6):
        cluster, q = cluster_of(seed=moment)
        lent, gang = gang_between(cluster, q, kept=1)
        cluster.run_for(SUSTAINED_S - 0.05 + moment * 0.02)
        cluster.drop_shard({ROOT: ROOT, "lent": lent, "gang": gang}[of])
        run_all(cluster, gang, 2)
        cluster.run_for(3 * SUSTAINED_S)
        assert past_runs(cluster, lent) == 6


def test_a_gang_displaces_only_where_all_of_it_goes_on_the_hosts() -> None:
    cluster, _ = cluster_of(INSIDE)
    cluster.create_job(spec(2, size=3, preemptible=False), "kept")
    cluster.run_for(5.0)
    low = cluster.create_job(spec(6, priority=1), "low")
    run_all(cluster, low, 6)
    gang = cluster.create_job(spec(2, size=3, priority=5, minimum_running=2), "gang")
    cluster.run_for(10 * SUSTAINED_S)
    assert running(cluster, gang) == 0 and past_runs(cluster, low) == 0
    cluster.ask(gang, StopJob())
    gang = cluster.create_job(spec(2, size=2, priority=5, minimum_running=2), "small")
    run_all(cluster, gang, 2)
    assert past_runs(cluster, low) == 4


def test_two_gangs_do_not_count_on_the_same_room() -> None:
    """Both wait for long enough at once; the second proof is made when the first gang has come."""
    cluster, q = cluster_of()
    r = cluster.make_pool("r", HOST_CAPACITY.times(HOSTS))
    lent = cluster.create_job(spec(ALL), "a")
    run_all(cluster, lent, ALL)
    gangs = [
        cluster.create_job(spec(2, pool, size=2, minimum_running=2), name)
        for pool, name in ((q, "b"), (r, "c"))
    ]
    for gang in gangs:
        run_all(cluster, gang, 2)
    assert cluster.world.elapsed_s < 3 * SUSTAINED_S, "no timer between them"
    cluster.run_for(10 * SUSTAINED_S)
    assert past_runs(cluster, lent) == 8
