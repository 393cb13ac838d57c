"""An admitted task that finds no host gives its allocation back, and keeps its place.

Whole clusters in virtual time. The times themselves: `tests/actors/tasks/test_parking.py`.
"""

from __future__ import annotations

import random

import msgspec
import pytest

from peloton.actors.job.messages import DeleteJob, StopJob
from peloton.actors.job.slice.parking import ParkingPolicy
from peloton.actors.job.slice.tally import GIVEN_BACK
from peloton.actors.job.spec import JobSpec
from peloton.actors.respool.lot.facts import LotEnqueued, LotParked
from peloton.actors.task.facts import AdmissionParking
from peloton.actors.task.messages import Policy, crowd_key
from peloton.actors.task.state import Admission, TaskStates
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.nemeses import Missed, Stopped, every_other, first
from peloton.chaos.cluster.world.cluster import HOST_CAPACITY, NEED, ClusterSetup, job_spec
from peloton.chaos.cluster.world.machines import Fate
from peloton.runtime.vocabulary import Key
from tests.worlds.hosts.test_preemption import for_ever

POLICY = ParkingPolicy(attempts=2, timeout_s=20.0, backoff_s=10.0)
HELD_S = 50.0
HOSTS = 2
POOL_CPUS = 4
"""Of the pool under test: one large task needs all of it."""


def cluster_of(policy: ParkingPolicy = POLICY, *, seed: int = 0) -> CheckedCluster:
    setup = ClusterSetup(fates=for_ever, parking=policy)
    return CheckedCluster(hosts=HOSTS, setup=setup, seed=seed)


def spec(count: int, pool: Key, size: int = 1, **fields: object) -> JobSpec:
    found = job_spec(count, pool=pool, resources=NEED.times(size))
    return msgspec.structs.replace(found, **fields)


class Stage:
    """Each host has one cpu less than the large task needs, which its pool admits first."""

    def __init__(self, policy: ParkingPolicy = POLICY, *, seed: int = 0) -> None:
        self.cluster = cluster = cluster_of(policy, seed=seed)
        self.pool = cluster.make_pool("tight", NEED.times(POOL_CPUS))
        other = cluster.make_pool("other", HOST_CAPACITY.times(HOSTS))
        self.blocking = cluster.create_job(spec(HOSTS, other, spread=True), "blocking")
        self.until(self.blocking, HOSTS)
        self.large = cluster.create_job(spec(1, self.pool, size=POOL_CPUS), "large")
        self.until(self.large, 1, Admission.ADMITTED, TaskStates.WAITING)
        self.small = cluster.create_job(spec(POOL_CPUS, self.pool), "small")

    def count(self, job: Key, admission: Admission, state: TaskStates) -> int:
        crowd = self.cluster.crowds().get(crowd_key(job.partition("/")[2], 0))
        if crowd is None:
            return 0
        wanted = admission, state
        return int(crowd.where(lambda t: (t.admission, t.state) == wanted).bit_count())

    def until(
        self,
        job: Key,
        count: int,
        admission: Admission = Admission.ADMITTED,
        state: TaskStates = TaskStates.RUNNING,
        within_s: float = 30.0,
    ) -> None:
        self.cluster.run_until(
            lambda: self.count(job, admission, state) == count, within_s=within_s
        )

    def facts(self, kind: type) -> int:
        return sum(
            isinstance(fact, kind)
            for frame in self.cluster.frames()
            for entry in frame.entries
            for fact in entry.facts
        )


def test_who_finds_no_host_lets_others_run_meanwhile() -> None:
    stage = Stage()
    stage.cluster.run_for(HELD_S - 10.0)
    assert stage.count(stage.small, Admission.ADMITTED, TaskStates.RUNNING) == 0
    stage.until(stage.small, POOL_CPUS)
    assert stage.count(stage.large, Admission.PARKED, TaskStates.WAITING) == 1
    (view,) = stage.cluster.instances(stage.large, 1)
    assert "its pool has the allocation back until there is one" in view.because
    stage.cluster.run_for(20 * HELD_S)
    assert stage.facts(LotParked) == 1, "it comes to rest"


def test_it_comes_back_to_its_place_once_a_host_has_room() -> None:
    # Of this seed a host has room before the pool has: else the later one is admitted first.
    stage = Stage(seed=1)
    stage.until(stage.small, POOL_CPUS, within_s=2 * HELD_S)
    later = stage.cluster.create_job(spec(POOL_CPUS, stage.pool), "later")
    stage.until(later, POOL_CPUS, Admission.QUEUED, TaskStates.WAITING)
    stage.cluster.ask(stage.blocking, StopJob())
    stage.cluster.ask(stage.small, StopJob())
    stage.until(stage.large, 1)
    assert stage.count(later, Admission.QUEUED, TaskStates.WAITING) == POOL_CPUS
    stage.cluster.ask(stage.large, StopJob())
    stage.until(later, POOL_CPUS)


def test_nobody_waits_for_a_timer_to_be_placed() -> None:
    """The timer bounds how long an allocation is held; what places is the news of a host."""
    stage = Stage(policy=ParkingPolicy(timeout_s=1e6))
    stage.cluster.ask(stage.blocking, StopJob())
    stage.until(stage.large, 1, within_s=5.0)
    assert stage.facts(AdmissionParking) == 0


def test_without_the_policy_it_holds_on() -> None:
    stage = Stage(policy=ParkingPolicy(enabled=False))
    stage.cluster.run_for(5 * HELD_S)
    assert stage.facts(AdmissionParking) == 0


def test_who_is_parked_may_be_stopped_and_leaves_nothing() -> None:
    stage = Stage()
    stage.until(stage.large, 1, Admission.PARKED, TaskStates.WAITING, within_s=2 * HELD_S)
    for job in (stage.large, stage.small, stage.blocking):
        stage.cluster.ask(job, StopJob())
    stage.cluster.run_until(stage.cluster.over, within_s=60.0)
    stage.cluster.run_for(10.0)
    stage.cluster.check_quiet()
    for job in (stage.large, stage.small, stage.blocking):
        stage.cluster.ask(job, DeleteJob())
    stage.cluster.run_for(20.0)
    for job in (stage.large, stage.small, stage.blocking):
        stage.cluster.check_gone(job)
    assert not stage.cluster.cells("lot")


def test_who_is_stopped_before_it_gives_back_is_forgotten() -> None:
    stage = Stage()
    stage.cluster.run_for(HELD_S / 2)
    stage.cluster.ask(stage.large, StopJob())
    stage.until(stage.small, POOL_CPUS)
    stage.cluster.run_for(3 * HELD_S)
    assert stage.facts(AdmissionParking) == 0


def test_it_survives_its_owners() -> None:
    stage = Stage()
    stage.until(stage.large, 1, Admission.PARKED, TaskStates.WAITING, within_s=2 * HELD_S)
    for number in range(3):
        stage.cluster.kill(number)
        stage.cluster.run_for(60.0)
    assert stage.count(stage.large, Admission.PARKED, TaskStates.WAITING) == 1
    before = stage.facts(LotEnqueued)
    stage.cluster.ask(stage.blocking, StopJob())
    stage.cluster.ask(stage.small, StopJob())
    stage.until(stage.large, 1)
    assert stage.facts(LotEnqueued) == before + 1


# ---- a gang ----


def test_a_gang_gives_back_as_one_and_comes_back_as_one() -> None:
    stage = Stage.__new__(Stage)
    stage.cluster = cluster = cluster_of()
    stage.pool = cluster.make_pool("tight", NEED.times(POOL_CPUS))
    other = cluster.make_pool("other", HOST_CAPACITY.times(HOSTS))
    stage.blocking = cluster.create_job(spec(HOSTS, other, spread=True), "blocking")
    stage.until(stage.blocking, HOSTS)
    third = cluster.create_job(spec(1, other, 2), "third")
    stage.until(third, 1)
    # One host has three cpus left and the other one: room for one of the gang.
    gang = cluster.create_job(spec(2, stage.pool, 2, minimum_running=2), "gang")
    stage.until(gang, 2, Admission.ADMITTED, TaskStates.WAITING)
    small = cluster.create_job(spec(2, stage.pool), "small")
    cluster.run_for(HELD_S - 10.0)
    assert stage.count(small, Admission.ADMITTED, TaskStates.RUNNING) == 0
    stage.until(small, 2)
    assert stage.count(gang, Admission.PARKED, TaskStates.WAITING) == 2
    (view, _) = cluster.instances(gang, 2)
    assert view.code == "HOST" and GIVEN_BACK in view.because
    cluster.ask(small, StopJob())
    cluster.ask(third, StopJob())
    stage.until(gang, 2)
    assert stage.facts(LotParked) == 1


# ---- a run that never starts ----


def test_a_run_that_is_not_started_is_lost_and_its_next_one_goes_elsewhere() -> None:
    """The machine takes the order and does nothing: the row LAUNCHING of the original's table."""
    cluster = cluster_of()
    cluster.machines.deaf = True
    job = cluster.create_job(job_spec(1), "silent")
    cluster.run_until(lambda: cluster.counts(job) == {"LAUNCHED": 1}, within_s=5.0)
    (view,) = cluster.instances(job, 1)
    first, start_s = view.host, Policy().start_timeout_s
    cluster.run_for(start_s - 60.0)
    assert cluster.instances(job, 1)[0].run == 1
    cluster.machines.deaf = False
    cluster.run_until(lambda: cluster.counts(job) == {"RUNNING": 1}, within_s=120.0)
    (view,) = cluster.instances(job, 1)
    assert (view.run, view.failures) == (2, 0), "it is no failure of the program"
    assert view.host != first


def test_where_there_is_no_other_host_it_is_tried_there_again() -> None:
    cluster = CheckedCluster(hosts=1, setup=ClusterSetup(fates=for_ever))
    cluster.machines.deaf = True
    job = cluster.create_job(job_spec(1), "silent")
    cluster.run_for(Policy().start_timeout_s - 60.0)
    cluster.machines.deaf = False
    cluster.run_until(lambda: cluster.counts(job) == {"RUNNING": 1}, within_s=120.0)


# ---- with crashes ----

WORDS = [("lot", "ParkTicket"), ("task", "TicketParked")]
STOPS = [Missed(*word, which=every_other) for word in WORDS] + [
    Stopped(*word, which=first, behind=behind) for word in WORDS for behind in (False, True)
]


@pytest.mark.parametrize("nemesis", STOPS, ids=str)
def test_a_lost_word_or_a_death_at_it_changes_nothing(nemesis: Missed) -> None:
    stage = Stage()
    for daemon in stage.cluster.world.daemons.values():
        daemon.hands_over = lambda: False  # each word travels
    nemesis.attach(stage.cluster)
    stage.until(stage.large, 1, Admission.PARKED, TaskStates.WAITING, within_s=4 * HELD_S)
    assert nemesis.struck
    stage.until(stage.small, POOL_CPUS, within_s=4 * HELD_S)
    stage.cluster.ask(stage.blocking, StopJob())
    stage.cluster.ask(stage.small, StopJob())
    stage.until(stage.large, 1, within_s=60.0)


@pytest.mark.parametrize("seed", [1, 3, 5, 7, 8])
def test_whatever_crashes_everybody_runs_in_the_end_and_nothing_is_left(seed: int) -> None:
    """Large and small jobs of two pools on too few hosts, which give back after seconds."""
    chance = random.Random(seed)
    setup = ClusterSetup(
        fates=lambda run: Fate(chance.choice((9.0, 30.0))),
        parking=ParkingPolicy(attempts=1, timeout_s=4.0),
    )
    cluster = CheckedCluster(hosts=HOSTS, setup=setup, seed=seed)
    pools = [cluster.make_pool(name, NEED.times(6)) for name in ("one", "two")]
    jobs = []
    for number in range(12):
        size, pool = chance.choice((1, 2, 3)), chance.choice(pools)
        jobs.append(cluster.create_job(spec(chance.randrange(1, 5), pool, size), f"j{number}"))
        cluster.run_for(chance.random() * 8.0)
        if number % 4 == 3:
            cluster.kill(chance.randrange(3))
        if number == 6:
            cluster.ask(chance.choice(jobs), StopJob())
    cluster.run_until(cluster.over, within_s=900.0)
    cluster.run_for(20.0)
    cluster.check_quiet()
    assert sum(
        isinstance(f, LotParked)
        for frame in cluster.frames()
        for entry in frame.entries
        for f in entry.facts
    ), "nobody gave anything back"
