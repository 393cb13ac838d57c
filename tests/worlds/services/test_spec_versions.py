"""Earlier specs of services on simulated clusters: they outlive their owners, and go with the job.

What counts is what clients read, and what is in memory and the store.
"""

from __future__ import annotations

import msgspec
import pytest

from peloton.actors.job.messages import DeleteJob, StartInstances, StartJob, StopJob, UpdateJob
from peloton.actors.job.slice.task_config import Command, Override, TaskConfig
from peloton.actors.job.stages import JobStates
from peloton.actors.job.version.messages import SPECS_KEPT_MAX, GetSpec, SpecView, version_key
from peloton.actors.job.workflow.messages import (
    ControlWorkflow,
    ReplaceJob,
    RestartJob,
    WorkflowOrders,
)
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.ports import ShardId
from peloton.runtime.simulation.daemon import Moment
from peloton.runtime.vocabulary import Key
from tests.worlds.deaths import dies_at
from tests.worlds.services.test_workflows import cluster_of, quiet, running, service, up

COMMANDS = ("one", "two", "three")


def commands(cluster: CheckedCluster, job: Key) -> list[str]:
    """What the earlier specs of a job run, the oldest first, as clients read it."""
    found = []
    for kept in cluster.job(job).past:
        view = cluster.ask(version_key(job, kept.stored), GetSpec())
        assert isinstance(view, SpecView), view
        found.append(view.spec.default.command.value)
    return found


def replaced(cluster: CheckedCluster, job: Key, command: str) -> None:
    cluster.ask(job, ReplaceJob(service(command=command)))


def stored(cluster: CheckedCluster, keys: list[Key]) -> list[Key]:
    """Of which of these the store has a row that is not deleted."""
    journal = FencedRows(cluster.world.store.rows("operator"), process=bytes(15) + b"o")
    shards = [ShardId("jobmgr", number) for number in range(64)]
    known = [shard for shard in shards if shard in cluster.world.store.registers.registers]
    return [
        key
        for key in keys
        if any(journal.read_ended(one, kind="version", key=key) is not None for one in known)
    ]


def in_memory(cluster: CheckedCluster) -> int:
    return len(cluster.cells("version"))


def test_earlier_specs_lie_in_rows_and_not_in_memory() -> None:
    cluster = cluster_of()
    job = running(cluster)
    for command in COMMANDS:
        replaced(cluster, job, command)
    cluster.run_until(lambda: in_memory(cluster) == 0, within_s=30)
    keys = [version_key(job, kept.stored) for kept in cluster.job(job).past]
    assert stored(cluster, keys) == keys and len(keys) == len(COMMANDS)
    cluster.crash_shard(job)
    assert commands(cluster, job)[1:] == ["one", "two"] and in_memory(cluster) == 0
    quiet(cluster, job)


@pytest.mark.parametrize("moment", Moment)
@pytest.mark.parametrize("name", ["Advance", "InsertRow FrameRow", "InsertRow EndedRow"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_death_between_loses_no_spec(name: str, moment: Moment, count: int) -> None:
    cluster = cluster_of(seed=count)
    job = running(cluster)
    replaced(cluster, job, "one")
    died = dies_at(cluster.world, name, moment=moment, count=count)
    replaced(cluster, job, "two")
    replaced(cluster, job, "three")
    cluster.run_for(30)
    assert died, "it never came to that"
    assert cluster.job(job).spec.default.command.value == "three"
    assert commands(cluster, job)[1:] == ["one", "two"]
    assert not cluster.cells("job")[job].versions.owes
    cluster.run_until(lambda: up(cluster, job) == 6, within_s=300)
    quiet(cluster, job)


@pytest.mark.parametrize("killed", [False, True])
def test_with_the_job_go_all_its_specs(killed: bool) -> None:
    cluster = cluster_of(seed=7)
    job = running(cluster)
    for command in COMMANDS:
        replaced(cluster, job, command)
    cluster.run_until(lambda: in_memory(cluster) == 0, within_s=30)
    keys = [version_key(job, kept.stored) for kept in cluster.job(job).past]
    cluster.ask(job, StopJob())
    cluster.run_until(lambda: cluster.job(job).summary.state == JobStates.KILLED, within_s=300)
    cluster.ask(job, DeleteJob())
    if killed:
        cluster.crash_shard(job)
    cluster.run_until(lambda: job not in cluster.cells("job"), within_s=60)
    cluster.run_for(30)
    cluster.check_gone(job)
    assert stored(cluster, keys) == [] and in_memory(cluster) == 0


def test_of_many_the_oldest_rows_go() -> None:
    cluster = cluster_of(seed=8)
    job = running(cluster)
    every = [str(number) for number in range(SPECS_KEPT_MAX + 4)]
    for command in every:
        replaced(cluster, job, command)
    cluster.run_for(10)
    assert commands(cluster, job) == every[-SPECS_KEPT_MAX - 1 : -1]
    keys = [version_key(job, number) for number in range(1, len(every) + 2)]
    assert len(stored(cluster, keys)) == SPECS_KEPT_MAX and in_memory(cluster) == 0
    quiet(cluster, job)


def test_what_goes_back_by_itself_is_stored_once() -> None:
    cluster = cluster_of(seed=9)
    own = (Override(1, TaskConfig(command=Command("own"), raw=b"own")),)
    spec = msgspec.structs.replace(service(), own_configs=1)
    job = cluster.create_job(spec, "s", overrides=own)
    cluster.run_until(lambda: up(cluster, job) == 6, within_s=60)
    replaced(cluster, job, "one")
    cluster.ask(job, ControlWorkflow(WorkflowOrders.ROLL_BACK))
    cluster.run_until(lambda: cluster.job(job).workflows[0].completed_at > 0, within_s=300)
    replaced(cluster, job, "four")
    first, _, third = cluster.job(job).past
    assert first.stored == third.stored == 1 and third.first == 3
    assert cluster.ask(version_key(job, 1), GetSpec()).overrides == own
    quiet(cluster, job)


def test_the_spec_of_an_updated_batch_job_is_kept_until_it_is_deleted() -> None:
    cluster = cluster_of(seed=10)
    spec = msgspec.structs.replace(service(2), job_type="BATCH")
    job = cluster.create_job(spec, "b")
    cluster.ask(job, UpdateJob(msgspec.structs.replace(spec, instances=3)))
    view = cluster.ask(version_key(job, 1), GetSpec())
    assert (view.spec.instances, cluster.job(job).spec.instances) == (2, 3)
    cluster.ask(job, DeleteJob(force=True))
    cluster.run_until(lambda: job not in cluster.cells("job"), within_s=300)
    cluster.run_for(30)
    cluster.check_gone(job)


def ran_by(cluster: CheckedCluster, job: Key) -> tuple[int, ...]:
    """By which config each run of the first instance ran, the present one last."""
    view = cluster.instances(job, 1)[0]
    past = (run.config_version for run in view.runs)
    return (*past, view.ran_by or view.config_version)


def through(cluster: CheckedCluster, job: Key) -> None:
    cluster.run_until(lambda: cluster.job(job).workflows[0].completed_at > 0, within_s=300)
    cluster.run_until(lambda: up(cluster, job) == 6, within_s=300)


def test_each_run_knows_by_which_config_it_ran() -> None:
    cluster = cluster_of(seed=11)
    job = running(cluster)
    cluster.ask(job, StartInstances(again=True))
    cluster.run_until(lambda: cluster.instances(job, 1)[0].run == 2, within_s=60)
    cluster.run_until(lambda: up(cluster, job) == 6, within_s=300)
    assert ran_by(cluster, job) == (1, 1)
    replaced(cluster, job, "two")
    through(cluster, job)
    assert ran_by(cluster, job) == (1, 1, 2)
    # Nothing of an instance changes: its run goes on, and learns the new version.
    cluster.ask(job, ReplaceJob(service(command="two", description="other")))
    through(cluster, job)
    assert ran_by(cluster, job) == (1, 1, 3)
    cluster.ask(job, RestartJob())
    through(cluster, job)
    assert ran_by(cluster, job) == (1, 1, 3, 4)
    cluster.crash_shard(job)
    assert ran_by(cluster, job) == (1, 1, 3, 4)
    quiet(cluster, job)


def test_the_last_run_of_a_stopped_instance_keeps_its_config() -> None:
    cluster = cluster_of(seed=12)
    job = running(cluster)
    cluster.ask(job, StopJob())
    cluster.run_until(lambda: cluster.job(job).summary.state == JobStates.KILLED, within_s=300)
    for spec in (service(command="two"), service(command="two", description="other")):
        cluster.ask(job, ReplaceJob(spec))
        cluster.run_until(lambda: cluster.job(job).workflows[0].completed_at > 0, within_s=300)
        assert ran_by(cluster, job) == (1,)
    assert cluster.instances(job, 1)[0].config_version == 3
    cluster.ask(job, StartJob())
    cluster.run_until(lambda: up(cluster, job) == 6, within_s=300)
    assert ran_by(cluster, job) == (1, 3)
    quiet(cluster, job)


def test_an_instance_that_is_to_change_shows_what_is_coming() -> None:
    cluster = cluster_of(seed=13)
    job = running(cluster)
    cluster.machines.stop_s = 5.0
    replaced(cluster, job, "two")
    cluster.run_until(lambda: cluster.instances(job, 1)[0].coming == 2, within_s=60)
    view = cluster.instances(job, 1)[0]
    assert (view.run, view.config_version, view.ran_by) == (1, 1, 0)
    through(cluster, job)
    assert cluster.instances(job, 1)[0].coming == 0 and ran_by(cluster, job) == (1, 2)
    quiet(cluster, job)
