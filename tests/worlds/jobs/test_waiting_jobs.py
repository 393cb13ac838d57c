"""Jobs that begin after others, end by a deadline, or hold their name, on simulated clusters.

What counts is when runs begin, and how jobs end.
"""

from __future__ import annotations

import itertools

import msgspec
import pytest

from peloton.actors.job.messages import (
    AddChange,
    CreateJob,
    DeleteJob,
    StartInstances,
    StopJob,
    UpdateJob,
)
from peloton.actors.job.name.decide import RESERVATION_S
from peloton.actors.job.name.messages import (
    NAME_TAKEN,
    CancelReservation,
    NameReserved,
    ReserveName,
    name_key,
)
from peloton.actors.job.spec import After, Deadline, JobSpec
from peloton.actors.job.stages import JobStates
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import STORM_POOL, ClusterSetup, job_id, job_spec
from peloton.chaos.cluster.world.machines import FAILURE, SUCCESS, Fate
from peloton.runtime.simulation.sends import SendFaults
from peloton.runtime.vocabulary import Key, Message, Refused

FOREVER, SHORT = Fate(None), Fate(2.0)
NAME = name_key(STORM_POOL, "j")


def cluster_of(fate: Fate = SHORT, **setup: object) -> CheckedCluster:
    given = {"fates": lambda run: fate, **setup}
    return CheckedCluster(hosts=3, setup=ClusterSetup(**given))


def wanted(instances: int = 1, **fields: object) -> JobSpec:
    return msgspec.structs.replace(job_spec(instances), **fields)


def state_of(cluster: CheckedCluster, job: Key) -> JobStates:
    return cluster.job(job).summary.state


def after(job: Key, state: str = "SUCCEEDED") -> tuple[After, ...]:
    return (After(job, state),)


def test_a_job_begins_once_the_other_has_succeeded() -> None:
    cluster = cluster_of()
    first = cluster.create_job(job_spec(2), "first")
    second = cluster.create_job(wanted(2, after=after(first)), "second")
    cluster.run_for(1.0)
    assert state_of(cluster, second) == JobStates.INITIALIZED
    assert cluster.job(second).because == f"waits for <job {first[4:]}> to be SUCCEEDED"
    cluster.run_until(cluster.over)
    ended, began = cluster.job(first).summary, cluster.job(second).summary
    assert (ended.state, began.state) == (JobStates.SUCCEEDED, JobStates.SUCCEEDED)
    assert began.started_at >= ended.completed_at
    cluster.check_quiet()


@pytest.mark.parametrize(
    ("fate", "state", "end"),
    [
        (SUCCESS, "SUCCEEDED", JobStates.SUCCEEDED),
        (SUCCESS, "ENDED", JobStates.SUCCEEDED),
        (SUCCESS, "FAILED", JobStates.KILLED),
        (FAILURE, "FAILED", JobStates.FAILED),
        (FAILURE, "ENDED", JobStates.FAILED),
        (FAILURE, "SUCCEEDED", JobStates.KILLED),
    ],
)
def test_how_the_other_ended_decides(fate: object, state: str, end: JobStates) -> None:
    """Whether it ends while it is waited for, or had ended before."""
    cluster = cluster_of(Fate(2.0, fate))
    first = cluster.create_job(job_spec(), "first")
    early = cluster.create_job(wanted(after=after(first, state)), "early")
    cluster.run_until(cluster.over)
    late = cluster.create_job(wanted(after=after(first, state)), "late")
    cluster.run_until(cluster.over)
    for job in (early, late):
        view = cluster.job(job)
        assert view.summary.state == end
        assert (f"did not end as {state}" in view.because) == (end == JobStates.KILLED)
    cluster.check_quiet()


def test_a_job_waits_for_all_the_others() -> None:
    cluster = cluster_of()
    others = [cluster.create_job(job_spec(), f"o{number}") for number in range(3)]
    each = tuple(After(other) for other in others)
    last = cluster.create_job(wanted(1010, after=each), "last")
    cluster.run_until(cluster.over)
    began = cluster.job(last).summary
    assert began.state == JobStates.SUCCEEDED
    assert began.started_at >= max(cluster.job(other).summary.completed_at for other in others)
    cluster.check_quiet()


def test_who_waits_for_a_job_that_does_not_exist_is_killed() -> None:
    cluster = cluster_of()
    job = cluster.create_job(wanted(2, after=after(job_id("none"))), "waits")
    cluster.run_until(cluster.over)
    view = cluster.job(job)
    assert (view.summary.state, view.summary.counts) == (JobStates.KILLED, (("KILLED", 2),))
    assert "it does not exist" in view.because and not view.summary.started_at


def test_who_waits_for_a_job_that_is_deleted_is_killed() -> None:
    cluster = cluster_of(FOREVER)
    first = cluster.create_job(job_spec(), "first")
    job = cluster.create_job(wanted(after=after(first, "ENDED")), "waits")
    cluster.run_for(1.0)
    cluster.ask(first, DeleteJob(force=True))
    cluster.run_until(cluster.over)
    assert state_of(cluster, job) == JobStates.KILLED
    assert "it was deleted" in cluster.job(job).because
    cluster.run_for(20.0)
    cluster.check_gone(first)


def test_a_chain_ends_with_its_first_failure() -> None:
    cluster = cluster_of(Fate(2.0, FAILURE))
    jobs = [cluster.create_job(job_spec(), "c0")]
    for number in range(1, 4):
        jobs.append(cluster.create_job(wanted(after=after(jobs[-1])), f"c{number}"))
    cluster.run_until(cluster.over)
    states = [state_of(cluster, job) for job in jobs]
    assert states == [JobStates.FAILED] + [JobStates.KILLED] * 3


@pytest.mark.parametrize("how", [StopJob(), DeleteJob(force=True)])
def test_a_job_that_waits_can_be_ended(how: object) -> None:
    """It never begins, and the other one ends as ever."""
    cluster = cluster_of()
    first = cluster.create_job(job_spec(), "first")
    job = cluster.create_job(wanted(after=after(first)), "waits")
    cluster.ask(job, how)
    cluster.run_until(cluster.over)
    if isinstance(how, StopJob):
        assert state_of(cluster, job) == JobStates.KILLED
        assert not cluster.job(job).summary.started_at
    else:
        cluster.run_for(20.0)
        cluster.check_gone(job)
    assert state_of(cluster, first) == JobStates.SUCCEEDED
    cluster.check_quiet()


@pytest.mark.parametrize("seed", range(6))
def test_no_end_is_missed_when_messages_and_owners_are_lost(seed: int) -> None:
    cluster = cluster_of(Fate(1.0 + seed))
    cluster.world.sends.faults = SendFaults(drop=0.3, repeat=0.2)
    jobs = [cluster.create_job(job_spec(), "c0")]
    for number in range(1, 5):
        jobs.append(
            cluster.create_job(
                wanted(after=after(jobs[-1]), unique=True, name=f"c{number}"), f"c{number}"
            )
        )
        cluster.crash_shard(jobs[seed % len(jobs)])
        if seed % 2:
            cluster.kill(seed % 3)
    cluster.calm()
    cluster.run_until(cluster.over)
    assert {state_of(cluster, job) for job in jobs} == {JobStates.SUCCEEDED}
    ends = [cluster.job(job).summary for job in jobs]
    assert all(a.completed_at <= b.started_at for a, b in itertools.pairwise(ends))
    assert not cluster.cells("name")
    cluster.check_quiet()


# ---- deadlines ----


@pytest.mark.parametrize("relative", [True, False])
def test_a_job_that_runs_past_its_deadline_is_killed(relative: bool) -> None:
    cluster = cluster_of(FOREVER)
    now = cluster.world.now
    deadline = Deadline("30s", 30.0) if relative else Deadline("then", at=now + 30.0)
    job = cluster.create_job(wanted(2, deadline=deadline))
    cluster.run_until(cluster.over)
    view = cluster.job(job)
    assert view.summary.state == JobStates.KILLED
    assert view.because == f"it had not ended by its deadline ({deadline.text})"
    assert now + 30.0 <= view.summary.completed_at < now + 40.0


def test_a_job_that_ends_in_time_is_left() -> None:
    cluster = cluster_of(SHORT)
    job = cluster.create_job(wanted(2, deadline=Deadline("30s", 30.0)))
    cluster.run_until(cluster.over)
    cluster.run_for(60.0)
    assert state_of(cluster, job) == JobStates.SUCCEEDED


def test_a_deadline_holds_for_a_job_that_waits_and_across_a_recovery() -> None:
    cluster = cluster_of(FOREVER)
    first = cluster.create_job(job_spec(), "first")
    wishes = {"after": after(first), "deadline": Deadline("20s", 20.0)}
    job = cluster.create_job(wanted(2, **wishes), "waits")
    created = cluster.job(job).summary.created_at
    cluster.run_for(10.0)
    cluster.crash_shard(job)
    cluster.run_until(lambda: state_of(cluster, job) == JobStates.KILLED)
    view = cluster.job(job)
    assert created + 20.0 <= cluster.world.now < created + 30.0 and not view.summary.started_at
    assert state_of(cluster, first) == JobStates.RUNNING


def test_a_deadline_is_not_moved_by_pieces_of_an_update() -> None:
    cluster = cluster_of(FOREVER)
    job = cluster.create_job(wanted(2, deadline=Deadline("700s", 700.0)))
    created = cluster.job(job).summary.created_at
    cluster.run_for(50.0)
    cluster.ask(job, AddChange(0, ()), keyed=False)
    cluster.run_until(cluster.over, within_s=1000.0)
    assert created + 700.0 <= cluster.job(job).summary.completed_at < created + 720.0


@pytest.mark.parametrize(
    "message",
    [StartInstances(((0, 1),), again=True), UpdateJob(job_spec(3)), AddChange(0, ())],
    ids=["restart", "update", "piece"],
)
def test_a_deadline_is_not_moved_by_a_change_of_a_job_that_runs(message: Message) -> None:
    cluster = cluster_of(FOREVER)
    job = cluster.create_job(wanted(2, deadline=Deadline("100s", 100.0)))
    created = cluster.job(job).summary.created_at
    cluster.run_for(60.0)
    assert not isinstance(cluster.ask(job, message), Refused)
    cluster.run_until(cluster.over, within_s=200.0)
    assert created + 100.0 <= cluster.job(job).summary.completed_at < created + 110.0


def test_a_job_started_again_after_its_deadline_runs() -> None:
    cluster = cluster_of(Fate(30.0))
    job = cluster.create_job(wanted(deadline=Deadline("10s", 10.0)))
    cluster.run_until(cluster.over)
    assert state_of(cluster, job) == JobStates.KILLED
    cluster.ask(job, StartInstances())
    cluster.run_until(cluster.over)
    assert state_of(cluster, job) == JobStates.SUCCEEDED


def test_a_deadline_that_has_passed_is_refused() -> None:
    cluster = cluster_of()
    spec = wanted(deadline=Deadline("then", at=cluster.world.now - 1.0))
    answer = cluster.ask(job_id("j"), CreateJob(spec))
    assert isinstance(answer, Refused) and "peloton.deadline: then has passed" in answer.text


# ---- names ----


def test_a_name_is_reserved_for_one_job_and_free_once_it_has_ended() -> None:
    cluster = cluster_of()
    one, two = job_id("one"), job_id("two")
    assert cluster.ask(NAME, ReserveName(one)) == NameReserved()
    assert cluster.ask(NAME, ReserveName(one), keyed=False) == NameReserved()
    refused = cluster.ask(NAME, ReserveName(two))
    assert isinstance(refused, Refused) and refused.code == NAME_TAKEN and refused.again
    cluster.create_job(wanted(unique=True), "one")
    cluster.run_until(cluster.over)
    cluster.run_for(5.0)
    assert state_of(cluster, one) == JobStates.SUCCEEDED
    assert cluster.cells("name") == {}
    assert cluster.ask(NAME, ReserveName(two)) == NameReserved()
    cluster.create_job(wanted(unique=True), "two")
    cluster.run_until(cluster.over)
    assert state_of(cluster, two) == JobStates.SUCCEEDED


def test_a_reservation_that_is_not_claimed_is_forgotten() -> None:
    cluster = cluster_of()
    cluster.ask(NAME, ReserveName(job_id("one")))
    cluster.run_for(RESERVATION_S - 5.0)
    assert cluster.cells("name")
    cluster.run_for(10.0)
    assert not cluster.cells("name")


def test_a_cancelled_reservation_leaves_a_claimed_name() -> None:
    cluster = cluster_of(FOREVER)
    one = job_id("one")
    cluster.ask(NAME, ReserveName(one))
    cluster.ask(NAME, CancelReservation(one), keyed=False)
    assert not cluster.cells("name")
    cluster.create_job(wanted(unique=True), "one")
    cluster.run_until(lambda: state_of(cluster, one) == JobStates.RUNNING)
    cluster.ask(NAME, CancelReservation(one), keyed=False)
    assert cluster.cells("name")[NAME].claimed


def test_of_two_jobs_created_at_once_one_has_the_name() -> None:
    """Even if nobody reserved it."""
    cluster = cluster_of()
    one, two = job_id("one"), job_id("two")
    orders = [cluster.order(job, CreateJob(wanted(unique=True))) for job in (one, two)]
    cluster.run_until(lambda: all(order.known for order in orders))
    cluster.run_until(cluster.over)
    states = sorted(state_of(cluster, job) for job in (one, two))
    assert states == [JobStates.SUCCEEDED, JobStates.KILLED]
    cluster.run_for(5.0)
    assert not cluster.cells("name")


@pytest.mark.parametrize("how", [StopJob(), DeleteJob(force=True)])
def test_a_name_is_free_once_its_job_is_stopped_or_deleted(how: object) -> None:
    cluster = cluster_of(FOREVER)
    job = cluster.create_job(wanted(2, unique=True))
    cluster.run_until(lambda: state_of(cluster, job) == JobStates.RUNNING)
    cluster.ask(job, how)
    cluster.run_until(cluster.over)
    cluster.run_for(5.0)
    assert not cluster.cells("name")
    cluster.check_quiet()


def test_a_job_that_gave_up_its_name_is_not_started_again() -> None:
    cluster = cluster_of()
    job = cluster.create_job(wanted(unique=True))
    cluster.run_until(cluster.over)
    answer = cluster.ask(job, StartInstances(again=True))
    assert isinstance(answer, Refused) and "given up its name" in answer.text


def test_a_job_that_has_left_memory_still_tells_its_end() -> None:
    cluster = cluster_of(finished_jobs_max=0)
    first = cluster.create_job(job_spec(), "first")
    cluster.run_until(cluster.over)
    cluster.run_until(lambda: first not in cluster.cells("job"))
    late = cluster.create_job(wanted(after=after(first)), "late")
    cluster.run_until(cluster.over)
    assert state_of(cluster, late) == JobStates.SUCCEEDED
