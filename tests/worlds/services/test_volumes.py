"""Volumes of services on simulated clusters: an instance runs where its volume is, or waits.

What counts is which runs have written into which volume.
"""

from __future__ import annotations

import msgspec
import pytest

from peloton.actors.host.machine_messages import (
    NO_VOLUME,
    VOLUME_HELD,
    DeleteVolume,
    VolumeConfig,
    VolumeDeleted,
    volume_name,
)
from peloton.actors.host.messages import (
    BackendUp,
    CompleteMaintenance,
    ConfigureHost,
    HostGone,
    StartMaintenance,
)
from peloton.actors.host.stages import HostStates, Maintenance
from peloton.actors.job.messages import StartJob, StopJob
from peloton.actors.job.slice.messages import (
    InstanceView,
    LeaveVolume,
    ListVolumeHomes,
    VolumeHomesListed,
    VolumeLeft,
    slice_key,
)
from peloton.actors.job.slice.task_config import Override, TaskConfig
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.stages import JobStates
from peloton.actors.job.workflow.messages import ReplaceJob, WorkflowOptions
from peloton.actors.resources import UNIT, Resources
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.world.cluster import HOST_CAPACITY, ClusterSetup, job_spec
from peloton.chaos.cluster.world.machines import FAILURE, MACHINE_BACKEND, Fate
from peloton.runtime.vocabulary import Key, Refused

FOR_EVER = Fate(None)
SIZE_MB = 40
VOLUME = VolumeConfig("/data", SIZE_MB)


def cluster_of(*fates: Fate, hosts: int = 3, seed: int = 0) -> CheckedCluster:
    """Runs of an instance of `s` end like this, one after the other; all others never."""

    def fate(run: str) -> Fate:
        number = int(run.rpartition("-")[2])
        return fates[number - 1] if number <= len(fates) and "s-" in run else FOR_EVER

    setup = ClusterSetup(fates=fate)
    return CheckedCluster(hosts=hosts, seed=seed, setup=setup)


def stateful(instances: int = 2, *, volume: VolumeConfig = VOLUME, **fields: object) -> JobSpec:
    spec = job_spec(instances, resources=Resources(UNIT), volume=volume)
    return msgspec.structs.replace(spec, job_type="SERVICE", **fields)


def started(cluster: CheckedCluster, spec: JobSpec, name: str = "s") -> Key:
    job = cluster.create_job(spec, name)
    all_run(cluster, job, spec.instances)
    return job


def all_run(cluster: CheckedCluster, job: Key, count: int = 2, *, within_s: float = 120.0) -> None:
    cluster.run_until(lambda: cluster.counts(job) == {"RUNNING": count}, within_s=within_s)


def where(cluster: CheckedCluster, job: Key, instance: int = 0) -> Key:
    return Key(cluster.instances(job, instance + 1)[instance].host)


def one(cluster: CheckedCluster, job: Key) -> InstanceView:
    return cluster.instances(job, 1)[0]


def volume_of(job: Key, instance: int = 0) -> str:
    return f"{job.partition('/')[2]}-{instance}"


def writers(cluster: CheckedCluster, job: Key, instance: int = 0) -> dict[Key, int]:
    """How many runs of the instance have had its volume, by host."""
    name, found = volume_of(job, instance), cluster.machines.volumes
    return {host: len(runs) for (host, volume), runs in found.items() if volume == name}


def stopped(cluster: CheckedCluster, job: Key) -> None:
    cluster.ask(job, StopJob())
    cluster.run_until(lambda: cluster.job(job).summary.state == JobStates.KILLED, within_s=60)


def left(cluster: CheckedCluster, job: Key) -> object:
    return cluster.ask(the_slice(job), LeaveVolume(0), keyed=False)


def the_slice(job: Key) -> Key:
    return slice_key(job.partition("/")[2], 0)


def test_a_run_that_ends_is_followed_by_one_with_the_same_volume() -> None:
    cluster = cluster_of(Fate(5.0, FAILURE), Fate(5.0, FAILURE))
    job = started(cluster, stateful())
    home = where(cluster, job)
    cluster.run_for(200.0)
    all_run(cluster, job)
    assert one(cluster, job).run == 3
    assert writers(cluster, job) == {home: 3}
    other = where(cluster, job, 1)
    assert cluster.ask(the_slice(job), ListVolumeHomes()) == VolumeHomesListed(
        tuple(sorted({home, other})), ((0, home), (1, other))
    )
    stopped(cluster, job)
    cluster.check_quiet()


def test_one_that_was_stopped_comes_back_to_its_volume() -> None:
    cluster = cluster_of()
    job = started(cluster, stateful())
    home = where(cluster, job)
    stopped(cluster, job)
    assert cluster.cells("host")[home].used.disk >= SIZE_MB * UNIT  # nobody else gets its room
    cluster.ask(job, StartJob())
    all_run(cluster, job)
    assert writers(cluster, job) == {home: 2}


def test_it_waits_for_a_host_that_is_lost_and_charges_no_failure() -> None:
    cluster = cluster_of()
    job = started(cluster, stateful(1))
    home = where(cluster, job)
    cluster.cut(home)
    cluster.run_until(lambda: cluster.cells("host")[home].state == HostStates.LOST, within_s=600)
    cluster.run_for(120.0)
    waits = one(cluster, job)
    assert (waits.state, waits.failures) == ("PENDING", 0)
    assert waits.because == f"its host {home.partition('/')[2]} is not up"
    cluster.mend(home)
    all_run(cluster, job, 1)
    assert writers(cluster, job) == {home: 2}


def test_it_waits_while_its_host_is_in_maintenance() -> None:
    cluster = cluster_of()
    job = started(cluster, stateful(1))
    home = where(cluster, job)
    cluster.ask(home, StartMaintenance())
    cluster.run_until(
        lambda: cluster.cells("host")[home].maintenance == Maintenance.DOWN, within_s=60
    )
    cluster.run_for(60.0)
    assert one(cluster, job).state == "PENDING"
    cluster.ask(home, CompleteMaintenance())
    all_run(cluster, job, 1)
    assert writers(cluster, job) == {home: 2}


def test_it_waits_for_room_on_its_host() -> None:
    cluster = cluster_of(Fate(5.0, FAILURE))
    job = started(cluster, stateful(1))
    home = where(cluster, job)
    cluster.run_until(lambda: one(cluster, job).code == "RETRY", within_s=60)
    small = msgspec.structs.replace(HOST_CAPACITY, cpu=UNIT // 2)
    cluster.tell(home, ConfigureHost(small, (), MACHINE_BACKEND))
    cluster.run_for(60.0)
    assert one(cluster, job).state == "PENDING"
    assert one(cluster, job).because.startswith(f"its host {home.partition('/')[2]} ")
    cluster.tell(home, ConfigureHost(HOST_CAPACITY, (), MACHINE_BACKEND))
    all_run(cluster, job, 1)
    assert writers(cluster, job) == {home: 2}


def test_what_a_host_has_survives_its_owner() -> None:
    cluster = cluster_of(Fate(200.0, FAILURE))
    job = started(cluster, stateful())
    home = where(cluster, job)
    cluster.crash_shard(home)
    cluster.crash_shard(the_slice(job))
    cluster.run_for(400.0)
    all_run(cluster, job)
    assert writers(cluster, job) == {home: 2}
    stopped(cluster, job)
    cluster.check_quiet()


def test_a_volume_is_deleted_only_while_nobody_has_it() -> None:
    cluster = cluster_of()
    job = started(cluster, stateful())
    home, name = where(cluster, job), volume_of(job)
    for at, message in ((the_slice(job), LeaveVolume(0)), (home, DeleteVolume(name))):
        refused = cluster.ask(at, message, keyed=False)
        assert isinstance(refused, Refused) and refused.code == VOLUME_HELD
    stopped(cluster, job)
    assert left(cluster, job) == VolumeLeft(home)
    assert left(cluster, job) == VolumeLeft(Key(""))
    before = cluster.cells("host")[home].used.disk
    assert cluster.ask(home, DeleteVolume(name), keyed=False) == VolumeDeleted(name)
    cluster.run_until(lambda: name not in cluster.cells("host")[home].volumes, within_s=60)
    assert before - cluster.cells("host")[home].used.disk == SIZE_MB * UNIT
    assert writers(cluster, job) == {}
    again = cluster.ask(home, DeleteVolume(name), keyed=False)
    assert isinstance(again, Refused) and again.code == NO_VOLUME
    cluster.ask(job, StartJob())
    all_run(cluster, job)
    assert sum(writers(cluster, job).values()) == 1  # a new, empty one
    assert writers(cluster, job, 1)[where(cluster, job, 1)] == 2
    stopped(cluster, job)
    cluster.check_quiet()


def test_the_order_to_remove_is_repeated_until_the_backend_has_answered() -> None:
    cluster = cluster_of(hosts=1)
    job = started(cluster, stateful(1))
    home, name = where(cluster, job), volume_of(job)
    stopped(cluster, job)
    left(cluster, job)
    cluster.cut(home)
    cluster.ask(home, DeleteVolume(name), keyed=False)
    cluster.run_for(1000.0)
    assert cluster.cells("host")[home].volumes[name].deleting
    cluster.ask(job, StartJob())
    cluster.run_for(60.0)
    cluster.mend(home)
    all_run(cluster, job, 1, within_s=600)
    assert writers(cluster, job) == {home: 1}


def test_another_host_is_tried_where_the_first_has_no_room_for_it() -> None:
    """A host that refuses has made no volume, so nothing ties the instance to it."""
    cluster = cluster_of()
    size = VolumeConfig("/data", int(0.6 * HOST_CAPACITY.disk / UNIT))
    job = started(cluster, stateful(3, volume=size))
    assert len({where(cluster, job, at) for at in range(3)}) == 3
    waiting = cluster.create_job(stateful(1, volume=size), "late")
    cluster.run_for(60.0)
    assert one(cluster, waiting).state == "PENDING"


def removed(cluster: CheckedCluster, job: Key) -> Key:
    """The home of an instance of a job of one, which is removed; the machine is switched off."""
    home = where(cluster, job)
    cluster.machines.vanish(home)
    cluster.cut(home)
    cluster.tell(home, HostGone())
    cluster.run_for(60.0)
    assert one(cluster, job).state == "PENDING"
    assert cluster.cells("host")[home].volumes
    return home


def back(cluster: CheckedCluster, home: Key) -> None:
    """The machine comes back, with what is on its disk."""
    cluster.mend(home)
    cluster.tell(home, ConfigureHost(HOST_CAPACITY, (), MACHINE_BACKEND))
    cluster.tell(home, BackendUp())
    cluster.run_until(lambda: cluster.cells("host")[home].state == HostStates.UP, within_s=600)


def test_a_removed_host_that_comes_back_has_its_volumes() -> None:
    cluster = cluster_of()
    job = started(cluster, stateful(1))
    home = removed(cluster, job)
    back(cluster, home)
    all_run(cluster, job, 1)
    assert writers(cluster, job) == {home: 2}
    assert [*cluster.cells("host")[home].volumes] == [volume_of(job)]
    stopped(cluster, job)
    cluster.check_quiet()


def test_what_was_deleted_while_its_host_was_removed_is_gone_when_it_comes_back() -> None:
    cluster = cluster_of()
    job = started(cluster, stateful(1))
    home, name = removed(cluster, job), volume_of(job)
    stopped(cluster, job)
    assert left(cluster, job) == VolumeLeft(home)
    assert cluster.ask(home, DeleteVolume(name), keyed=False) == VolumeDeleted(name)
    cluster.ask(job, StartJob())
    all_run(cluster, job, 1)
    elsewhere = where(cluster, job)
    assert writers(cluster, job) == {home: 1, elsewhere: 1} and elsewhere != home
    back(cluster, home)
    cluster.run_until(lambda: not cluster.cells("host")[home].volumes, within_s=5)
    assert writers(cluster, job) == {elsewhere: 1}
    stopped(cluster, job)
    cluster.check_quiet()


def test_a_volume_is_not_removed_while_a_lost_machine_may_still_write_into_it() -> None:
    """The ledger has ended its run; the machine runs it on, until it is reached and compared."""
    cluster = cluster_of()
    job = started(cluster, stateful(1))
    home, name = where(cluster, job), volume_of(job)
    cluster.cut(home)
    cluster.run_until(lambda: cluster.cells("host")[home].state == HostStates.LOST, within_s=600)
    stopped(cluster, job)
    left(cluster, job)
    assert home in cluster.machines.cut_off and cluster.machines.used(home).cpu
    del cluster.machines.cut_off[home]
    assert cluster.ask(home, DeleteVolume(name), keyed=False) == VolumeDeleted(name)
    cluster.run_until(lambda: not cluster.cells("host")[home].volumes, within_s=600)
    assert writers(cluster, job) == {} and not cluster.machines.running
    cluster.check_quiet()


def test_a_home_that_has_made_no_volume_is_none_once_it_says_so() -> None:
    """It is journaled where the volume is to be, and none is: the first launch was lost."""
    cluster = cluster_of()
    size = VolumeConfig("/data", int(0.6 * HOST_CAPACITY.disk / UNIT))
    home, *others = cluster.cells("host")
    for host in others:
        cluster.ask(host, StartMaintenance())
    cluster.drop_shard(home)
    job = cluster.create_job(stateful(1, volume=size), "s")
    cluster.run_until(lambda: one(cluster, job).host == home, within_s=60)
    stopped(cluster, job)
    assert cluster.ask(the_slice(job), ListVolumeHomes()).hosts == (home,)
    assert not cluster.cells("host")[home].volumes
    started(cluster, stateful(1, volume=size), "big")
    for host in others:
        cluster.ask(host, CompleteMaintenance())
    cluster.ask(job, StartJob())
    all_run(cluster, job, 1)
    assert where(cluster, job) != home


@pytest.mark.parametrize("size_mb", [SIZE_MB, SIZE_MB + 1])
def test_an_update_keeps_the_volume_and_may_not_resize_it(size_mb: int) -> None:
    cluster = cluster_of()
    spec = stateful()
    job = started(cluster, spec)
    home = where(cluster, job)
    volume = VolumeConfig("/elsewhere", size_mb)
    default = msgspec.structs.replace(spec.default, volume=volume)
    wanted = msgspec.structs.replace(spec, default=default)
    answer = cluster.ask(job, ReplaceJob(wanted, (), WorkflowOptions()))
    if size_mb != SIZE_MB:
        assert isinstance(answer, Refused) and answer.field == "config.defaultConfig.volume"
        return
    cluster.run_until(lambda: one(cluster, job).run == 2, within_s=60)
    all_run(cluster, job)
    assert writers(cluster, job) == {home: 2}
    assert cluster.cells("host")[home].volumes[volume_of(job)].config == volume


@pytest.mark.parametrize(
    ("own", "refused"),
    [
        ({0: 7}, ""),
        ({0: 7, 1: SIZE_MB, 2: 3}, ""),
        ({0: 8}, "config.instanceConfig[0].volume"),
        ({}, "config.instanceConfig[0].volume"),
        ({0: 7, 1: 9}, "config.instanceConfig[1].volume"),
    ],
)
def test_an_instance_with_a_volume_of_its_own_size_keeps_that(
    own: dict[int, int], refused: str
) -> None:
    cluster = cluster_of()
    spec = stateful()
    first = (own_volume(0, 7),)
    job = cluster.create_job(msgspec.structs.replace(spec, own_configs=1), "s", overrides=first)
    all_run(cluster, job)
    given = tuple(own_volume(*each) for each in own.items())
    wanted = msgspec.structs.replace(stateful(3), own_configs=len(given))
    answer = cluster.ask(job, ReplaceJob(wanted, ((0, given),) if given else (), WorkflowOptions()))
    assert (answer.field if isinstance(answer, Refused) else "") == refused
    if not refused:
        cluster.run_until(lambda: cluster.counts(job) == {"RUNNING": 3}, within_s=200)


def own_volume(instance: int, size_mb: int) -> Override:
    return Override(instance, TaskConfig(volume=VolumeConfig("/data", size_mb)))


def test_an_instance_that_is_to_have_no_volume_any_more_is_tied_to_no_host() -> None:
    cluster = cluster_of()
    spec = stateful(1)
    job = started(cluster, spec)
    home = where(cluster, job)
    cluster.ask(home, StartMaintenance())
    cluster.run_until(
        lambda: cluster.cells("host")[home].maintenance == Maintenance.DOWN, within_s=60
    )
    default = msgspec.structs.replace(spec.default, volume=None)
    wanted = msgspec.structs.replace(spec, default=default)
    cluster.ask(job, ReplaceJob(wanted, (), WorkflowOptions()))
    all_run(cluster, job, 1)
    assert where(cluster, job) != home


def test_its_name_is_that_of_the_instance() -> None:
    assert volume_name(Key("task/j/2"), 17) == "j-2017"
