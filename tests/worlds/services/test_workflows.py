"""Workflows of services on simulated clusters: updates and restarts, a batch at a time.

What counts is which runs there are, how many are down at once, and what the job says of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec
import pytest

from peloton.actors.job.messages import CreateJob, DeleteJob, StartInstances, StopJob
from peloton.actors.job.slice import renewing
from peloton.actors.job.slice.rollouts import Rollout
from peloton.actors.job.slice.task_config import Command, Override, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.stages import JobStates
from peloton.actors.job.state import Job
from peloton.actors.job.workflow import progress
from peloton.actors.job.workflow.leaves import tallies_of
from peloton.actors.job.workflow.messages import (
    ControlWorkflow,
    ReplaceJob,
    RestartJob,
    WorkflowOptions,
    WorkflowOrders,
    WorkflowStates,
    WorkflowTypes,
    WorkflowView,
)
from peloton.actors.resources import Resources
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import NEED, STORM_POOL, ClusterSetup, job_id, job_spec
from peloton.chaos.cluster.world.machines import FAILURE, Fate
from peloton.runtime.simulation.scan import Contradiction
from peloton.runtime.vocabulary import At, Bits, Decision, Key, Refused
from tests.worlds.planted import Planted, planted

FOR_EVER = Fate(None)
COUNT = 6
ROLLING, DONE = WorkflowStates.ROLLING_FORWARD, WorkflowStates.SUCCEEDED


def cluster_of(fate: Callable[[str], Fate] = lambda run: FOR_EVER, seed: int = 0) -> CheckedCluster:
    setup = ClusterSetup(fates=fate)
    cluster = CheckedCluster(hosts=3, seed=seed, setup=setup)
    cluster.machines.start_s = 1.0  # else a whole workflow is one instant
    return cluster


def service(instances: int = COUNT, command: str = "", **fields: object) -> JobSpec:
    spec = msgspec.structs.replace(job_spec(instances), job_type="SERVICE", **fields)
    if not command:
        return spec
    config = msgspec.structs.replace(spec.default, command=Command(command))
    return msgspec.structs.replace(spec, default=config)


def running(cluster: CheckedCluster, instances: int = COUNT) -> Key:
    job = cluster.create_job(service(instances), "s")
    cluster.run_until(lambda: up(cluster, job) == instances, within_s=60)
    return job


def up(cluster: CheckedCluster, job: Key) -> int:
    return cluster.counts(job).get("RUNNING", 0)


def quiet(cluster: CheckedCluster, job: Key) -> None:
    """Stop it, and let all checkers judge what is left."""
    cluster.ask(job, StopJob())
    cluster.run_until(lambda: cluster.job(job).summary.state == JobStates.KILLED, within_s=60)
    cluster.check_quiet()


def workflow(cluster: CheckedCluster, job: Key) -> WorkflowView:
    return cluster.job(job).workflows[0]


def runs(cluster: CheckedCluster, job: Key, count: int = COUNT) -> list[int]:
    return [each.run for each in cluster.instances(job, count)]


def versions(cluster: CheckedCluster, job: Key, count: int = COUNT) -> list[int]:
    return [each.config_version for each in cluster.instances(job, count)]


def finished(cluster: CheckedCluster, job: Key, state: WorkflowStates = DONE) -> None:
    cluster.run_until(lambda: workflow(cluster, job).completed_at > 0, within_s=900)
    assert workflow(cluster, job).state == state


def least_up(cluster: CheckedCluster, job: Key, count: int = COUNT) -> int:
    """How many ran at the worst moment until the workflow was over."""
    least = count

    def over() -> bool:
        nonlocal least
        least = min(least, sum(each.state == "RUNNING" for each in cluster.instances(job, count)))
        return workflow(cluster, job).completed_at > 0

    cluster.run_until(over, within_s=900)
    return least


@pytest.mark.parametrize("batch", [0, 1, 2, COUNT])
def test_an_update_changes_a_batch_at_a_time(batch: int) -> None:
    cluster = cluster_of()
    job = running(cluster)
    message = ReplaceJob(service(command="other"), options=WorkflowOptions(batch=batch))
    answer = cluster.ask(job, message)
    assert str(answer.version) == str(cluster.job(job).version) == "2-1-2"
    least = least_up(cluster, job)
    assert COUNT - (batch or COUNT) <= least < COUNT
    assert runs(cluster, job) == [2] * COUNT and versions(cluster, job) == [2] * COUNT
    assert {each.config.command.value for each in cluster.instances(job, COUNT)} == {"other"}
    view = workflow(cluster, job)
    assert (view.state, view.done, view.total, view.current) == (DONE, COUNT, COUNT, 0)
    assert up(cluster, job) == COUNT and len(cluster.machines.running) == COUNT
    quiet(cluster, job)


def test_what_is_not_new_to_an_instance_leaves_its_run_alone() -> None:
    cluster = cluster_of()
    job = running(cluster)
    own = TaskConfig(command=Command("own"))
    message = ReplaceJob(service(), overrides=((0, (Override(3, own),)),))
    cluster.ask(job, message)
    finished(cluster, job)
    assert runs(cluster, job) == [1, 1, 1, 2, 1, 1]
    assert versions(cluster, job) == [2] * COUNT
    assert workflow(cluster, job).total == 1
    # Names and orders do not matter.
    cluster.ask(job, ReplaceJob(service(), overrides=((0, (Override(3, named(own)),)),)))
    finished(cluster, job)
    assert runs(cluster, job) == [1, 1, 1, 2, 1, 1] and versions(cluster, job) == [3] * COUNT
    quiet(cluster, job)


def named(config: TaskConfig) -> TaskConfig:
    return msgspec.structs.replace(config, name="another name")


def test_an_update_that_needs_more_moves_to_another_lot() -> None:
    cluster = cluster_of()
    job = running(cluster)
    spec = service()
    more = msgspec.structs.replace(spec.default.resources, memory=2 * NEED.memory)
    for needs in (more, spec.default.resources, more):
        config = msgspec.structs.replace(spec.default, resources=needs)
        spec = msgspec.structs.replace(spec, default=config)
        cluster.ask(job, ReplaceJob(spec, options=WorkflowOptions(batch=2)))
        finished(cluster, job)
    assert runs(cluster, job) == [4] * COUNT
    assert len({each.lot for each in cluster.instances(job, COUNT)}) == 1
    quiet(cluster, job)


def test_a_restart_begins_new_runs_of_its_instances_alone() -> None:
    cluster = cluster_of()
    job = running(cluster)
    answer = cluster.ask(job, RestartJob(ranges=((1, 3), (5, 9))))
    assert str(answer.version) == "2-1-2"
    finished(cluster, job)
    assert runs(cluster, job) == [1, 2, 2, 1, 1, 2]
    assert workflow(cluster, job).ranges == ((1, 3), (5, 6))
    cluster.ask(job, RestartJob(options=WorkflowOptions(batch=1)))
    assert least_up(cluster, job) == COUNT - 1
    assert runs(cluster, job) == [2, 3, 3, 2, 2, 3]


def test_a_restart_starts_what_was_stopped() -> None:
    cluster = cluster_of()
    job = running(cluster)
    cluster.ask(job, StopJob())
    cluster.run_until(lambda: cluster.job(job).summary.state == JobStates.KILLED, within_s=60)
    cluster.ask(job, RestartJob(ranges=((0, 2),), options=WorkflowOptions(batch=1)))
    finished(cluster, job)
    cluster.run_for(5.0)
    assert cluster.counts(job) == {"RUNNING": 2, "KILLED": 4}
    cluster.ask(job, RestartJob())
    finished(cluster, job)
    assert cluster.counts(job) == {"RUNNING": COUNT}


def test_an_update_of_a_stopped_job_starts_nothing_unless_asked() -> None:
    cluster = cluster_of()
    job = running(cluster)
    cluster.ask(job, StopJob())
    cluster.run_until(lambda: cluster.job(job).summary.state == JobStates.KILLED, within_s=60)
    cluster.ask(job, ReplaceJob(service(COUNT + 2, command="other")))
    finished(cluster, job)
    assert cluster.counts(job) == {"KILLED": COUNT + 2}
    assert versions(cluster, job, COUNT + 2) == [2] * (COUNT + 2)
    assert cluster.job(job).summary.state == JobStates.KILLED
    options = WorkflowOptions(batch=2, starts=True)
    cluster.ask(job, ReplaceJob(service(COUNT + 2, command="third"), options=options))
    finished(cluster, job)
    assert cluster.counts(job) == {"RUNNING": COUNT + 2}
    quiet(cluster, job)


def test_instances_are_added_first() -> None:
    cluster = cluster_of()
    job = running(cluster)
    cluster.ask(job, ReplaceJob(service(8, command="other"), options=WorkflowOptions(batch=2)))
    cluster.run_until(lambda: workflow(cluster, job).done >= 2, within_s=60)
    assert runs(cluster, job) == [1] * COUNT or up(cluster, job) >= COUNT - 2
    finished(cluster, job)
    assert runs(cluster, job, 8) == [2] * COUNT + [1, 1]
    view = workflow(cluster, job)
    assert (view.added, view.updated, view.done) == (2, COUNT, 8)
    assert cluster.counts(job) == {"RUNNING": 8}


def test_a_paused_workflow_waits_and_goes_on() -> None:
    cluster = cluster_of()
    job = running(cluster)
    options = WorkflowOptions(batch=1, paused=True)
    cluster.ask(job, ReplaceJob(service(command="other"), options=options))
    cluster.run_for(30.0)
    assert workflow(cluster, job).state == WorkflowStates.PAUSED
    assert runs(cluster, job) == [1] * COUNT
    resumed = cluster.ask(job, ControlWorkflow(WorkflowOrders.RESUME))
    assert str(resumed.version) == "2-1-3"
    cluster.run_until(lambda: workflow(cluster, job).done == 2, within_s=60)
    cluster.ask(job, ControlWorkflow(WorkflowOrders.PAUSE))
    cluster.run_for(30.0)
    view = workflow(cluster, job)
    assert (view.state, view.previous) == (WorkflowStates.PAUSED, ROLLING)
    assert view.done in (2, 3) and view.current == 0
    assert sorted(runs(cluster, job)) == [1] * (COUNT - view.done) + [2] * view.done
    cluster.ask(job, ControlWorkflow(WorkflowOrders.RESUME))
    finished(cluster, job)
    assert runs(cluster, job) == [2] * COUNT


def test_an_aborted_workflow_leaves_what_it_has_done() -> None:
    cluster = cluster_of()
    job = running(cluster)
    cluster.ask(job, ReplaceJob(service(8, command="other"), options=WorkflowOptions(batch=1)))
    cluster.run_until(lambda: workflow(cluster, job).current == 1, within_s=60)
    cluster.ask(job, ControlWorkflow(WorkflowOrders.ABORT))
    cluster.run_for(60.0)
    assert cluster.counts(job) == {"RUNNING": 7}
    assert workflow(cluster, job).state == WorkflowStates.ABORTED
    assert versions(cluster, job, 8) == [1] * COUNT + [2], "one was added, one does not exist"
    assert cluster.job(job).unadded == 1
    cluster.ask(job, ReplaceJob(service(8, command="third"), options=WorkflowOptions(batch=4)))
    finished(cluster, job)
    assert cluster.counts(job) == {"RUNNING": 8} and versions(cluster, job, 8) == [3] * 8
    quiet(cluster, job)


@pytest.mark.parametrize("ranges", [(), ((0, 1),)], ids=["all", "one"])
def test_a_restart_adds_nothing_that_an_aborted_update_had_still_to_add(
    ranges: tuple[tuple[int, int], ...],
) -> None:
    cluster = cluster_of()
    job = running(cluster)
    cluster.ask(job, ReplaceJob(service(8), options=WorkflowOptions(batch=1)))
    cluster.run_until(lambda: workflow(cluster, job).current == 1, within_s=60)
    cluster.ask(job, ControlWorkflow(WorkflowOrders.ABORT))
    cluster.run_for(60.0)
    waits = {"RUNNING": 7}
    assert cluster.counts(job) == waits
    cluster.ask(job, RestartJob(ranges))
    finished(cluster, job)
    assert cluster.counts(job) == waits
    assert runs(cluster, job, 7) == ([2, *[1] * 6] if ranges else [2] * 7)
    assert len(cluster.instances(job, 8)) == 7
    cluster.ask(job, RestartJob(ranges))
    finished(cluster, job)
    assert cluster.counts(job) == waits, "nor does the next one"
    cluster.ask(job, ReplaceJob(service(8, command="third"), options=WorkflowOptions(batch=4)))
    finished(cluster, job)
    assert cluster.counts(job) == {"RUNNING": 8} and versions(cluster, job, 8) == [5] * 8
    quiet(cluster, job)


def test_a_new_update_takes_the_place_of_one_under_way() -> None:
    cluster = cluster_of()
    job = running(cluster)
    cluster.ask(job, ReplaceJob(service(command="other"), options=WorkflowOptions(batch=2)))
    cluster.run_until(lambda: workflow(cluster, job).done >= 2, within_s=60)
    cluster.ask(job, ReplaceJob(service(command="third"), options=WorkflowOptions(batch=2)))
    assert least_up(cluster, job) >= COUNT - 2
    found = cluster.job(job).workflows
    assert [each.state for each in found] == [DONE, WorkflowStates.ABORTED]
    assert versions(cluster, job) == [3] * COUNT
    assert {each.config.command.value for each in cluster.instances(job, COUNT)} == {"third"}
    refused = cluster.ask(job, ControlWorkflow(WorkflowOrders.ABORT, number=1))
    assert isinstance(refused, Refused) and refused.text == "no workflow found"


def test_the_same_update_again_is_the_same_workflow() -> None:
    cluster = cluster_of()
    job = running(cluster)
    message = ReplaceJob(service(command="other"), options=WorkflowOptions(batch=1))
    first = cluster.ask(job, message)
    again = cluster.ask(job, message)
    assert (again.version, again.number, again.changed) == (first.version, first.number, False)
    other = cluster.ask(job, msgspec.structs.replace(message, opaque="mine"))
    assert str(other.version) == "2-1-3" and other.number == first.number
    assert workflow(cluster, job).opaque == "mine"
    refused = cluster.ask(job, RestartJob())
    assert isinstance(refused, Refused)
    assert refused.text == "workflow RESTART cannot overwrite workflow UPDATE"
    finished(cluster, job)
    assert runs(cluster, job) == [2] * COUNT


def test_a_run_that_never_ran_is_no_obstacle() -> None:
    """An update to a config that no host can run is replaced by one that it can."""
    cluster = cluster_of()
    job = running(cluster)
    spec = service()
    huge = msgspec.structs.replace(spec.default.resources, memory=10**6 * NEED.memory)
    config = msgspec.structs.replace(spec.default, resources=huge)
    big = msgspec.structs.replace(spec, default=config)
    cluster.ask(job, ReplaceJob(big, options=WorkflowOptions(batch=2)))
    cluster.run_for(60.0)
    assert workflow(cluster, job).state == ROLLING and up(cluster, job) == COUNT - 2
    cluster.ask(job, ReplaceJob(service(command="third"), options=WorkflowOptions(batch=2)))
    finished(cluster, job)
    assert cluster.counts(job) == {"RUNNING": COUNT}
    quiet(cluster, job)


def failing(run: str) -> Fate:
    """Second runs fail at once."""
    return Fate(0.0, FAILURE) if run.endswith("-2") else FOR_EVER


def test_too_many_failures_fail_the_workflow() -> None:
    cluster = cluster_of(failing)
    job = running(cluster)
    options = WorkflowOptions(batch=1, max_attempts=1, tolerated=2)
    cluster.ask(job, ReplaceJob(service(command="other"), options=options))
    finished(cluster, job, WorkflowStates.FAILED)
    view = workflow(cluster, job)
    assert view.failed == 2 and "2 instances failed" in view.because
    cluster.run_for(60.0)
    # One that was seen to run, however shortly, is done.
    changed = view.failed + view.done
    assert sorted(versions(cluster, job)) == [1] * (COUNT - changed) + [2] * changed


def crashing(run: str) -> Fate:
    """The second run of the first instance fails half a second after its start."""
    return Fate(0.5, FAILURE) if run.endswith("-0-2") else FOR_EVER


STEADY_S = 5.0


@pytest.mark.parametrize("batch", [0, 1, 3])
def test_it_has_succeeded_once_all_have_stayed_well(batch: int) -> None:
    cluster = cluster_of()
    job = running(cluster)
    options = WorkflowOptions(batch=batch, max_attempts=1, tolerated=1, healthy_s=STEADY_S)
    cluster.ask(job, ReplaceJob(service(command="other"), options=options))
    cluster.run_until(lambda: workflow(cluster, job).done == COUNT, within_s=60)
    view, done_at = workflow(cluster, job), cluster.world.now
    assert (view.state, view.current) == (ROLLING, 0)
    finished(cluster, job)
    assert STEADY_S <= cluster.world.now - done_at < STEADY_S + 1.0
    quiet(cluster, job)


@pytest.mark.parametrize("batch", [0, 1, 3])
@pytest.mark.parametrize("back", [False, True])
def test_who_dies_soon_after_its_start_has_failed(batch: int, back: bool) -> None:
    cluster = cluster_of(crashing)
    job = running(cluster)
    options = WorkflowOptions(batch, max_attempts=1, tolerated=1, back=back, healthy_s=STEADY_S)
    cluster.ask(job, ReplaceJob(service(command="other"), options=options))
    finished(cluster, job, WorkflowStates.ROLLED_BACK if back else WorkflowStates.FAILED)
    assert workflow(cluster, job).because == "1 instance failed with 1 failure or more"
    if back:
        assert {each.config.command for each in cluster.instances(job, COUNT)} == {
            service().default.command
        }
        assert up(cluster, job) == COUNT
    quiet(cluster, job)


def test_who_dies_and_comes_back_is_waited_for() -> None:
    """Nobody fails for good: the third run stays, and the time begins anew with it."""
    cluster = cluster_of(lambda run: Fate(1.0, FAILURE) if run.endswith("-3-2") else FOR_EVER)
    job = running(cluster)
    cluster.ask(job, ReplaceJob(service(command="other"), options=WorkflowOptions(healthy_s=5.0)))
    cluster.run_until(lambda: workflow(cluster, job).done == COUNT, within_s=60)
    cluster.run_until(lambda: workflow(cluster, job).done == COUNT - 1, within_s=60)
    view = workflow(cluster, job)
    assert (view.state, view.current) == (ROLLING, 1)
    cluster.run_for(29.0)
    assert workflow(cluster, job).state == ROLLING
    finished(cluster, job)
    (view,) = [each for each in cluster.instances(job, COUNT) if each.instance == 3]
    assert view.run == 3 and cluster.world.now - (view.started_at or 0) >= STEADY_S
    quiet(cluster, job)


def test_while_one_is_down_that_was_done_no_further_one_is_begun_with() -> None:
    cluster = cluster_of(crashing)
    job = running(cluster)
    options = WorkflowOptions(batch=1, healthy_s=STEADY_S)
    cluster.ask(job, ReplaceJob(service(command="other"), options=options))
    cluster.run_for(25.0)
    assert versions(cluster, job).count(2) == 2, "the second one had begun by then"
    finished(cluster, job)
    quiet(cluster, job)


def test_what_is_stopped_need_not_stay_well() -> None:
    cluster = cluster_of()
    job = running(cluster)
    options = WorkflowOptions(healthy_s=600.0)
    cluster.ask(job, RestartJob(options=options, kind=WorkflowTypes.STOP))
    finished(cluster, job)
    cluster.run_for(2.0)
    cluster.ask(job, ReplaceJob(service(command="other"), options=options))
    cluster.run_for(2.0)
    assert workflow(cluster, job).state == DONE
    assert cluster.counts(job) == {"KILLED": COUNT}


def test_one_that_stays_well_for_long_is_no_lack_of_progress() -> None:
    cluster = cluster_of()
    job = running(cluster)
    spec = service(command="other", progress_s=20.0)
    cluster.ask(job, ReplaceJob(spec, options=WorkflowOptions(batch=3, healthy_s=60.0)))
    finished(cluster, job)


@pytest.mark.parametrize("seed", range(6))
def test_lost_shards_shorten_no_proof(seed: int) -> None:
    chance = random.Random(seed)
    cluster = cluster_of(seed=seed)
    job = running(cluster)
    options = WorkflowOptions(batch=2, healthy_s=STEADY_S)
    cluster.ask(job, ReplaceJob(service(command="other"), options=options))
    for _ in range(4):
        cluster.run_for(2 * chance.random())
        cluster.crash_shard(chance.choice((job, STORM_POOL)))
    finished(cluster, job)
    started = [each.started_at or 0.0 for each in cluster.instances(job, COUNT)]
    assert cluster.world.now - max(started) >= STEADY_S
    quiet(cluster, job)


def _at_once(_: object) -> Callable[..., Decision | None]:
    def steady(rollout: Rollout, at: At) -> Decision | None:
        proves = rollout.proves_until is not None
        return Decision(facts=(renewing._steady(at),)) if proves else None

    return steady


def _unproved(_: object) -> Callable[[Job], bool]:
    def is_through(job: Job) -> bool:
        known = tallies_of(job).values()
        return bool(known) and not any(tally.left for tally in known)

    return is_through


def _never_fallen(through: Callable[..., renewing._Through]) -> Callable[..., renewing._Through]:
    return lambda rollout, at: through(rollout, at)._replace(fallen=Bits())


UNSTEADY = {
    "a slice waits for nothing": (Planted(renewing, "_steady_at_once", _at_once), "has done its"),
    "a job waits for no slice": (Planted(progress, "is_through", _unproved), "has not said"),
    "nobody sees who fell": (Planted(renewing, "_through", _never_fallen), "do not do their work"),
}


@pytest.mark.parametrize("fault", UNSTEADY)
def test_what_has_not_stayed_well_is_noticed(fault: str) -> None:
    cluster = cluster_of(crashing)
    job = running(cluster)
    plant, text = UNSTEADY[fault]
    options = WorkflowOptions(healthy_s=STEADY_S)
    with planted(plant), pytest.raises(Contradiction, match=f"^R37 .*{text}"):
        cluster.ask(job, ReplaceJob(service(command="other"), options=options))
        cluster.run_for(20.0)


def test_too_many_failures_go_back_to_the_config_before() -> None:
    cluster = cluster_of(failing)
    job = running(cluster)
    options = WorkflowOptions(batch=1, max_attempts=1, tolerated=2, back=True)
    cluster.ask(job, ReplaceJob(service(command="other"), options=options))
    finished(cluster, job, WorkflowStates.ROLLED_BACK)
    assert versions(cluster, job) == [3] * COUNT
    assert set(runs(cluster, job)) == {1, 3}, "who was not reached keeps its run"
    assert len({each.config.command for each in cluster.instances(job, COUNT)}) == 1
    assert cluster.job(job).spec == msgspec.structs.replace(service(), config_version=3)
    assert str(cluster.job(job).version) == "3-1-2"
    cluster.run_until(lambda: up(cluster, job) == COUNT, within_s=60)
    quiet(cluster, job)


@pytest.mark.parametrize("seed", range(8))
def test_lost_shards_lose_no_workflow(seed: int) -> None:
    chance = random.Random(seed)
    cluster = cluster_of(seed=seed)
    job = running(cluster)
    cluster.ask(job, ReplaceJob(service(8, command="other"), options=WorkflowOptions(batch=2)))
    for _ in range(4):
        cluster.run_for(chance.random() * 2)
        cluster.crash_shard(chance.choice((job, STORM_POOL)))
    finished(cluster, job)
    assert versions(cluster, job, 8) == [2] * 8 and cluster.counts(job) == {"RUNNING": 8}
    assert len(cluster.machines.running) == 8


def test_many_slices_share_one_batch() -> None:
    cluster = cluster_of()
    count = 2500
    job = cluster.create_job(service(count, maximum_unavailable=0), "s")
    cluster.run_for(1.0)
    cluster.ask(job, StopJob())
    cluster.run_until(lambda: cluster.counts(job) == {"KILLED": count}, within_s=600)
    cluster.ask(job, ReplaceJob(service(count, command="other"), options=WorkflowOptions(batch=90)))

    def over() -> bool:
        assert workflow(cluster, job).current <= 90
        return workflow(cluster, job).completed_at > 0

    cluster.run_until(over, within_s=600)
    assert workflow(cluster, job).done == count


@pytest.mark.parametrize("batch", [0, 2])
def test_a_creation_adds_a_batch_at_a_time(batch: int) -> None:
    cluster = cluster_of()
    job = job_id("s")
    message = CreateJob(service(), options=WorkflowOptions(batch=batch, paused=True), opaque="mine")
    cluster.ask(job, message)
    cluster.run_for(30.0)
    assert cluster.counts(job) == {} and cluster.job(job).unadded == COUNT
    assert not cluster.instances(job, COUNT)
    assert str(cluster.job(job).version) == "1-1-1"
    cluster.ask(job, ControlWorkflow(WorkflowOrders.RESUME))

    def over() -> bool:
        view = workflow(cluster, job)
        assert view.current <= (batch or COUNT)
        return view.completed_at > 0

    cluster.run_until(over, within_s=60)
    view = workflow(cluster, job)
    assert (view.state, view.done, view.added, view.opaque) == (DONE, COUNT, COUNT, "mine")
    assert cluster.counts(job) == {"RUNNING": COUNT}
    quiet(cluster, job)


@pytest.mark.parametrize("batch", [0, 1, 2])
def test_fewer_instances_are_removed_the_last_ones_last(batch: int) -> None:
    cluster = cluster_of()
    job = running(cluster)
    message = ReplaceJob(service(4, command="other"), options=WorkflowOptions(batch=batch))
    cluster.ask(job, message)

    def over() -> bool:
        view = workflow(cluster, job)
        assert view.current <= (batch or COUNT)
        return view.completed_at > 0

    cluster.run_until(over, within_s=60)
    view = workflow(cluster, job)
    assert (view.state, view.total, view.updated, view.removed) == (DONE, 6, 4, 2)
    cluster.run_for(1.0)
    assert cluster.counts(job) == {"RUNNING": 4} and len(cluster.machines.running) == 4
    assert cluster.instances(job, COUNT)[-1].instance == 3
    quiet(cluster, job)


def test_instances_that_come_back_have_runs_of_new_names() -> None:
    cluster = cluster_of()
    job = running(cluster)
    for count in (3, 6, 1, 6):
        cluster.ask(job, ReplaceJob(service(count), options=WorkflowOptions(batch=2)))
        finished(cluster, job)
        cluster.run_for(1.0)
        assert cluster.counts(job) == {"RUNNING": count}
    found = runs(cluster, job)
    assert found[0] == 1 and found[1] == found[2] > 1 and found[3] > 2
    quiet(cluster, job)


@pytest.mark.parametrize("stopped", ["by a workflow", "before", "while they are removed"])
def test_instances_that_were_stopped_and_removed_run_once_they_are_added_again(
    stopped: str,
) -> None:
    cluster = cluster_of()
    job = running(cluster)
    stop = StopJob(ranges=((2, COUNT),))
    if stopped == "by a workflow":
        cluster.ask(job, RestartJob(ranges=((2, COUNT),), kind=WorkflowTypes.STOP))
        finished(cluster, job)
    if stopped == "before":
        cluster.ask(job, stop)
    paused = WorkflowOptions(batch=1, paused=True)
    cluster.ask(job, ReplaceJob(service(2), options=paused))
    if stopped == "while they are removed":
        cluster.ask(job, stop)
    cluster.run_for(5.0)
    cluster.ask(job, ControlWorkflow(WorkflowOrders.RESUME))
    finished(cluster, job)
    cluster.run_for(5.0)
    assert cluster.counts(job) == {"RUNNING": 2}
    cluster.ask(job, ReplaceJob(service()))
    finished(cluster, job)
    cluster.run_for(5.0)
    assert cluster.counts(job) == {"RUNNING": COUNT}
    quiet(cluster, job)


def test_an_aborted_removal_leaves_instances_for_the_next_update() -> None:
    cluster = cluster_of()
    job = running(cluster)
    cluster.ask(job, ReplaceJob(service(2), options=WorkflowOptions(batch=1)))
    cluster.run_until(lambda: workflow(cluster, job).current == 1, within_s=60)
    cluster.ask(job, ControlWorkflow(WorkflowOrders.ABORT))
    cluster.run_for(30.0)
    assert cluster.counts(job) == {"RUNNING": 5}, "what is under way goes on"
    cluster.ask(job, ReplaceJob(service(4), options=WorkflowOptions(batch=1)))
    finished(cluster, job)
    cluster.run_for(1.0)
    assert cluster.counts(job) == {"RUNNING": 4} and workflow(cluster, job).removed == 1
    quiet(cluster, job)


@pytest.mark.parametrize("count", [4, 8])
@pytest.mark.parametrize("moment", ["paused", "half", "last"])
def test_a_way_back_takes_away_what_was_added_and_adds_what_was_removed(
    count: int, moment: str
) -> None:
    cluster = cluster_of()
    job = running(cluster)
    options = WorkflowOptions(batch=1, paused=moment == "paused")
    cluster.ask(job, ReplaceJob(service(count, command="other"), options=options))
    if moment != "paused":
        done = 3 if moment == "half" or count < COUNT else count - 1
        cluster.run_until(lambda: workflow(cluster, job).done >= done, within_s=60)
    back = ControlWorkflow(WorkflowOrders.ROLL_BACK)
    assert str(cluster.ask(job, back).version) == "3-1-3"
    assert not cluster.ask(job, back).changed
    finished(cluster, job, WorkflowStates.ROLLED_BACK)
    assert versions(cluster, job) == [3] * COUNT
    assert len({each.config.command for each in cluster.instances(job, COUNT)}) == 1
    cluster.run_until(lambda: cluster.counts(job) == {"RUNNING": COUNT}, within_s=60)
    cluster.ask(job, RestartJob(options=WorkflowOptions(batch=1)))
    assert "nothing was before it" in cluster.ask(job, back).text
    finished(cluster, job)
    refused = cluster.ask(job, back)
    assert refused.text == "workflow RESTART cannot be rolled back: it is SUCCEEDED"
    quiet(cluster, job)


@pytest.mark.parametrize("third", [0, 1, 3, 6])
@pytest.mark.parametrize("aborted", [False, True])
def test_a_way_back_is_to_the_spec_before_though_not_all_had_it(third: int, aborted: bool) -> None:
    """The update before ended under way: what it had begun with has its config, and so has the
    rest, unless it was aborted: then that was left alone."""
    cluster = cluster_of()
    job = running(cluster)
    cluster.ask(job, ReplaceJob(service(command="second"), options=WorkflowOptions(batch=2)))
    cluster.run_until(lambda: versions(cluster, job).count(2) == 2, within_s=60)
    if aborted:
        cluster.ask(job, ControlWorkflow(WorkflowOrders.ABORT))
    cluster.ask(job, ReplaceJob(service(command="third"), options=WorkflowOptions(batch=3)))
    cluster.run_until(lambda: versions(cluster, job).count(3) >= third, within_s=60)
    cluster.ask(job, ControlWorkflow(WorkflowOrders.ROLL_BACK))
    finished(cluster, job, WorkflowStates.ROLLED_BACK)
    assert cluster.job(job).spec.default.command == Command("second")
    found = [each.config.command.value for each in cluster.instances(job, COUNT)]
    assert found == ["second"] * 2 + [found[-1]] * 4
    assert (found[-1] == "second") is not aborted
    assert versions(cluster, job) == [4] * COUNT
    quiet(cluster, job)


def test_a_way_back_adds_what_was_removed_by_then() -> None:
    cluster = cluster_of()
    job = running(cluster)
    spec = service(4, command="other")
    huge = msgspec.structs.replace(spec.default.resources, memory=10**6 * NEED.memory)
    stuck = ((0, (Override(0, TaskConfig(resources=huge)),)),)
    cluster.ask(job, ReplaceJob(spec, overrides=stuck, options=WorkflowOptions(batch=2)))
    cluster.run_until(lambda: workflow(cluster, job).done == 5, within_s=60)
    assert up(cluster, job) == 3
    cluster.ask(job, ControlWorkflow(WorkflowOrders.ROLL_BACK))
    finished(cluster, job, WorkflowStates.ROLLED_BACK)
    assert cluster.counts(job) == {"RUNNING": COUNT} and versions(cluster, job) == [3] * COUNT
    assert {each.config.resources for each in cluster.instances(job, COUNT)} == {
        service().default.resources
    }
    quiet(cluster, job)


@pytest.mark.parametrize("batch", [0, 1, 2])
def test_instances_are_stopped_and_started_a_batch_at_a_time(batch: int) -> None:
    cluster = cluster_of()
    job = running(cluster)
    options = WorkflowOptions(batch=batch)

    def rolled(kind: WorkflowTypes, *ranges: tuple[int, int]) -> None:
        cluster.ask(job, RestartJob(ranges, options, kind=kind))

        def over() -> bool:
            assert workflow(cluster, job).current <= (batch or COUNT)
            return workflow(cluster, job).completed_at > 0

        cluster.run_until(over, within_s=60)
        finished(cluster, job)
        cluster.run_for(1.0)

    rolled(WorkflowTypes.STOP, (1, 4))
    assert [each.state for each in cluster.instances(job, COUNT)][1:4] == ["KILLED"] * 3
    assert cluster.counts(job) == {"KILLED": 3, "RUNNING": 3}
    assert versions(cluster, job) == [2] * COUNT and workflow(cluster, job).total == 3
    rolled(WorkflowTypes.START, (0, 3))
    assert runs(cluster, job) == [1, 2, 2, 1, 1, 1], "who runs goes on"
    assert cluster.counts(job) == {"KILLED": 1, "RUNNING": 5}
    rolled(WorkflowTypes.STOP)
    assert cluster.counts(job) == {"KILLED": COUNT}
    assert cluster.job(job).summary.state == JobStates.KILLED
    cluster.ask(job, StartInstances(ranges=((5, 6),)))
    cluster.run_until(lambda: up(cluster, job) == 1, within_s=60)
    rolled(WorkflowTypes.START)
    assert cluster.counts(job) == {"RUNNING": COUNT}
    quiet(cluster, job)


def test_an_aborted_stop_leaves_the_others_running() -> None:
    cluster = cluster_of()
    job = running(cluster)
    message = RestartJob(options=WorkflowOptions(batch=1, paused=True), kind=WorkflowTypes.STOP)
    cluster.ask(job, message)
    cluster.run_for(10.0)
    assert up(cluster, job) == COUNT
    cluster.ask(job, ControlWorkflow(WorkflowOrders.ABORT))
    cluster.ask(job, ReplaceJob(service(command="other")))
    finished(cluster, job)
    assert cluster.counts(job) == {"RUNNING": COUNT}


@pytest.mark.parametrize("seed", range(6))
def test_lost_shards_stop_nobody_else(seed: int) -> None:
    chance = random.Random(seed)
    cluster = cluster_of(seed=seed)
    job = running(cluster)
    message = RestartJob(((0, 4),), WorkflowOptions(batch=1), kind=WorkflowTypes.STOP)
    cluster.ask(job, message)
    for _ in range(3):
        cluster.run_for(chance.random() / 2)
        cluster.crash_shard(chance.choice((job, STORM_POOL)))
    finished(cluster, job)
    cluster.run_for(2.0)
    assert cluster.counts(job) == {"KILLED": 4, "RUNNING": 2}
    cluster.ask(job, ReplaceJob(service(command="other")))
    finished(cluster, job)
    assert cluster.counts(job) == {"KILLED": 4, "RUNNING": 2}
    quiet(cluster, job)


def test_what_a_job_refuses_at_that_moment() -> None:
    cluster = cluster_of()
    job = running(cluster)
    cluster.ask(job, RestartJob(options=WorkflowOptions(batch=1, paused=True)))
    refused = cluster.ask(job, ReplaceJob(service(command="other")))
    assert refused.text == "workflow UPDATE cannot overwrite workflow RESTART"
    refused = cluster.ask(job, StopJob(expected=cluster.job(job).version))
    assert refused.text == "job has active update with start_pods set, cannot stop it now"
    cluster.ask(job, ControlWorkflow(WorkflowOrders.ABORT))
    cluster.ask(job, StopJob())
    starting = ReplaceJob(service(), options=WorkflowOptions(starts=True))
    if cluster.job(job).summary.state == JobStates.KILLING:
        refused = cluster.ask(job, starting)
        assert (refused.code, refused.text) == (
            "TERMINATING", "job is being terminated, cannot update with start_pods set now"
        )  # fmt: skip
    cluster.run_until(lambda: cluster.job(job).summary.state == JobStates.KILLED, within_s=60)
    cluster.ask(job, DeleteJob())
    assert cluster.ask(job, starting).text in ("job is going to be deleted", "job not found")


@pytest.mark.parametrize("restarts", [False, True])
def test_hosts_wait_for_runs_in_place(restarts: bool) -> None:
    setup = ClusterSetup(fates=lambda run: FOR_EVER)
    cluster = CheckedCluster(hosts=12, seed=3, setup=setup)
    cluster.machines.start_s = 1.0
    spec = msgspec.structs.replace(service(), spread=True)
    job = cluster.create_job(spec, "s")
    cluster.run_until(lambda: up(cluster, job) == COUNT, within_s=60)
    before = [each.host for each in cluster.instances(job, COUNT)]
    options = WorkflowOptions(batch=2, in_place=True)
    other = msgspec.structs.replace(service(command="other"), spread=True)
    message = RestartJob(options=options) if restarts else ReplaceJob(other, options=options)
    cluster.ask(job, message)
    finished(cluster, job)
    assert runs(cluster, job) == [2] * COUNT
    assert [each.host for each in cluster.instances(job, COUNT)] == before
    quiet(cluster, job)


def test_a_host_waits_in_vain_for_a_while_only() -> None:
    cluster = cluster_of()
    job = running(cluster)
    spec = service()
    huge = msgspec.structs.replace(spec.default.resources, memory=10**6 * NEED.memory)
    config = msgspec.structs.replace(spec.default, resources=huge)
    big = msgspec.structs.replace(spec, default=config)

    def held() -> list[str]:
        hosts = cluster.cells("host").values()
        return sorted(hold.task[-2:] for host in hosts for hold in host.task_holds)

    cluster.ask(job, ReplaceJob(big, options=WorkflowOptions(batch=2, in_place=True)))
    cluster.run_for(10.0)
    assert held() == ["-0", "-1"] and up(cluster, job) == COUNT - 2
    cluster.run_for(180.0)
    assert held() == []
    cluster.ask(job, ControlWorkflow(WorkflowOrders.ROLL_BACK))
    finished(cluster, job, WorkflowStates.ROLLED_BACK)
    quiet(cluster, job)


@pytest.mark.parametrize("back", [False, True])
def test_a_workflow_without_progress_fails(back: bool) -> None:
    cluster = cluster_of()
    job = running(cluster)
    spec = service(progress_s=60.0)
    huge = msgspec.structs.replace(spec.default.resources, memory=10**6 * NEED.memory)
    stuck = ((0, tuple(Override(k, TaskConfig(resources=huge)) for k in (2, 4))),)
    spec = msgspec.structs.replace(spec, default=service(command="other").default)
    options = WorkflowOptions(batch=2, back=back)
    cluster.ask(job, ReplaceJob(spec, overrides=stuck, options=options))
    cluster.run_for(58.0)
    assert workflow(cluster, job).state == ROLLING and workflow(cluster, job).done == 3
    cluster.run_for(10.0)
    view = workflow(cluster, job)
    assert view.because.startswith("no instance was through for 60 s")
    if back:
        finished(cluster, job, WorkflowStates.ROLLED_BACK)
        cluster.run_until(lambda: up(cluster, job) == COUNT, within_s=60)
    else:
        finished(cluster, job, WorkflowStates.FAILED)
    quiet(cluster, job)


def test_a_pause_is_no_lack_of_progress() -> None:
    cluster = cluster_of()
    job = running(cluster)
    spec = service(command="other", progress_s=20.0)
    cluster.ask(job, ReplaceJob(spec, options=WorkflowOptions(batch=1, paused=True)))
    cluster.run_for(60.0)
    cluster.ask(job, ControlWorkflow(WorkflowOrders.RESUME))
    finished(cluster, job)
    cluster.run_for(60.0)
    finished(cluster, job)


def killed(cluster: CheckedCluster, job: Key) -> None:
    cluster.run_until(lambda: cluster.job(job).summary.state == JobStates.KILLED, within_s=60)


def test_a_creation_that_adds_nobody_is_stopped_and_goes_on() -> None:
    cluster, job = cluster_of(), job_id("s")
    cluster.ask(job, CreateJob(service(), options=WorkflowOptions(batch=1, paused=True)))
    cluster.run_for(2.0)
    cluster.ask(job, StopJob())
    killed(cluster, job)
    assert cluster.counts(job) == {}
    cluster.ask(job, StartInstances())
    cluster.ask(job, ControlWorkflow(WorkflowOrders.RESUME))
    finished(cluster, job)
    assert cluster.counts(job) == {"RUNNING": COUNT}
    quiet(cluster, job)


@pytest.mark.parametrize("aborted", [False, True])
def test_a_stopped_service_is_added_to_a_batch_at_a_time_as_well(aborted: bool) -> None:
    cluster = cluster_of()
    job = running(cluster)
    cluster.ask(job, StopJob())
    killed(cluster, job)
    options = WorkflowOptions(batch=1, paused=True)
    cluster.ask(job, ReplaceJob(service(8, command="other"), options=options))
    cluster.run_for(5.0)
    assert cluster.counts(job) == {"KILLED": COUNT} and cluster.job(job).unadded == 2
    order = WorkflowOrders.ABORT if aborted else WorkflowOrders.RESUME
    cluster.ask(job, ControlWorkflow(order))
    finished(cluster, job, WorkflowStates.ABORTED if aborted else DONE)
    cluster.run_for(2.0)
    assert cluster.counts(job) == {"KILLED": COUNT if aborted else 8}
    assert cluster.job(job).summary.state == JobStates.KILLED
    cluster.ask(job, StartInstances())
    cluster.run_until(lambda: up(cluster, job) == (COUNT if aborted else 8), within_s=60)
    quiet(cluster, job)


def test_who_is_stopped_before_he_is_added_is_added_as_stopped() -> None:
    cluster = cluster_of()
    job = running(cluster)
    paused = WorkflowOptions(batch=1, paused=True)
    cluster.ask(job, ReplaceJob(service(8), options=paused))
    cluster.ask(job, StopJob(((7, 8),)))
    cluster.run_for(2.0)
    assert cluster.counts(job) == {"RUNNING": COUNT}
    cluster.ask(job, ControlWorkflow(WorkflowOrders.RESUME))
    finished(cluster, job)
    cluster.run_for(1.0)
    assert cluster.counts(job) == {"RUNNING": 7, "KILLED": 1}
    quiet(cluster, job)


def test_what_a_failed_update_has_not_reached_does_not_exist() -> None:
    cluster = cluster_of(lambda run: Fate(0.5, FAILURE) if run.endswith("-6-1") else FOR_EVER)
    job = running(cluster)
    options = WorkflowOptions(batch=1, max_attempts=1, tolerated=1, healthy_s=STEADY_S)
    cluster.ask(job, ReplaceJob(service(12), options=options))
    finished(cluster, job, WorkflowStates.FAILED)
    there = len(cluster.instances(job, 12))
    assert there < 12 and sum(cluster.counts(job).values()) == there
    quiet(cluster, job)


def test_a_restart_ends_though_a_slice_has_no_instances_yet() -> None:
    """The creation was aborted before it came to the last three, which the next update adds."""
    cluster, job = cluster_of(), job_id("s")
    spec = service(1003)
    config = msgspec.structs.replace(spec.default, resources=Resources(100))
    spec = msgspec.structs.replace(spec, default=config)
    cluster.ask(job, CreateJob(spec, options=WorkflowOptions(batch=250)))
    cluster.run_for(3.5)
    cluster.ask(job, ControlWorkflow(WorkflowOrders.ABORT))
    cluster.run_for(3.0)
    assert cluster.counts(job) == {"RUNNING": 1000}
    cluster.ask(job, RestartJob(((0, 3),)))
    finished(cluster, job)
    assert cluster.counts(job) == {"RUNNING": 1000}
    cluster.ask(job, ReplaceJob(spec))
    finished(cluster, job)
    assert cluster.counts(job) == {"RUNNING": 1003}


def test_slices_that_go_and_come_back() -> None:
    cluster = cluster_of()
    job = cluster.create_job(service(2100, maximum_unavailable=0), "s")
    cluster.run_for(1.0)
    cluster.ask(job, StopJob())
    cluster.run_until(lambda: cluster.counts(job) == {"KILLED": 2100}, within_s=600)
    for count in (900, 2050, 5):
        cluster.ask(job, ReplaceJob(service(count), options=WorkflowOptions(batch=500)))
        finished(cluster, job)
        cluster.run_for(1.0)
        assert cluster.counts(job) == {"KILLED": count}
    cluster.ask(job, RestartJob())
    finished(cluster, job)
    assert cluster.counts(job) == {"RUNNING": 5}
    quiet(cluster, job)


def test_stopped_instances_are_removed_at_once_after_the_others() -> None:
    """Nobody misses them: one a turn would be too many steps of one turn for a large service."""
    cluster = cluster_of()
    job = running(cluster, 12)
    cluster.ask(job, StopJob(((2, 12),)))
    cluster.run_until(lambda: cluster.counts(job) == {"KILLED": 10, "RUNNING": 2}, within_s=60)
    cluster.ask(job, ReplaceJob(service(1, command="other"), options=WorkflowOptions(batch=1)))
    cluster.run_until(lambda: workflow(cluster, job).current == 1, within_s=60)
    assert cluster.counts(job)["KILLED"] == 10, "the removal comes last"
    finished(cluster, job)
    cluster.run_for(1.0)
    assert cluster.counts(job) == {"RUNNING": 1}
    quiet(cluster, job)


@pytest.mark.parametrize("seed", range(8))
def test_lost_shards_lose_no_removal(seed: int) -> None:
    chance = random.Random(seed)
    cluster = cluster_of(seed=seed)
    job = running(cluster, 8)
    for count in (3, 7):
        cluster.ask(job, ReplaceJob(service(count), options=WorkflowOptions(batch=2)))
        for _ in range(4):
            cluster.run_for(chance.random())
            cluster.crash_shard(chance.choice((job, STORM_POOL)))
        finished(cluster, job)
        cluster.run_for(1.0)
        assert cluster.counts(job) == {"RUNNING": count}
        assert len(cluster.machines.running) == count
    quiet(cluster, job)
