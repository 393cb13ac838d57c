"""Daemon jobs on simulated clusters: one instance on every host that matches, and no other.

What counts is which runs are on which machines.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from peloton.actors.host.messages import (
    BackendUp,
    CompleteMaintenance,
    ConfigureHost,
    HostGone,
    StartMaintenance,
)
from peloton.actors.host.stages import HostStates, Maintenance
from peloton.actors.job.messages import CreateJob, DeleteJob, StartInstances, StartJob, StopJob
from peloton.actors.job.slice.messages import InstanceView
from peloton.actors.job.spec import JobSpec
from peloton.actors.job.stages import JobGoals, JobStates
from peloton.actors.job.workflow.messages import (
    ReplaceJob,
    RestartJob,
    WorkflowOptions,
    WorkflowTypes,
)
from peloton.actors.resources import UNIT, Resources
from peloton.actors.task.messages import SLICE_SIZE
from peloton.chaos.cluster.checked import CheckedCluster
from peloton.chaos.cluster.work.everywhere import DaemonsRun
from peloton.chaos.cluster.world.cluster import HOST_CAPACITY, ClusterSetup, job_id, job_spec
from peloton.chaos.cluster.world.furnished import SIZES
from peloton.chaos.cluster.world.machines import FAILURE, MACHINE_BACKEND, Fate, machine_report
from peloton.placement.messages import Constraint, Label
from peloton.runtime.vocabulary import Key, Refused, key

FOR_EVER = Fate(None)
SSD = Label("disk", "ssd")
ON_SSD = Constraint("label", "host", SSD, "greater", 0)


def cluster_of(
    *fates: Fate, hosts: int = 3, daemons: int = 1, seed: int = 0, **setup: Any
) -> CheckedCluster:
    """Runs of an instance end like this, one after the other, and then never."""

    def fate(run: str) -> Fate:
        number = int(run.rpartition("-")[2])
        return fates[number - 1] if number <= len(fates) else FOR_EVER

    given = {"fates": fate, **setup}
    return CheckedCluster(hosts=hosts, daemons=daemons, seed=seed, setup=ClusterSetup(**given))


def daemon(*, first: bool = False, cpu: int = 1, **config: Any) -> JobSpec:
    """A daemon job with two slices for each inventory."""
    inventories = SIZES["hostmgr"]
    spec = job_spec(2 * inventories * SLICE_SIZE, resources=Resources(cpu * UNIT), **config)
    return msgspec.structs.replace(
        spec, job_type="DAEMON", inventories=inventories, room_first=first
    )


def configured(*labels: Label, capacity: Resources = HOST_CAPACITY) -> ConfigureHost:
    return ConfigureHost(capacity, labels, MACHINE_BACKEND)


def add(cluster: CheckedCluster, name: str, *labels: Label) -> Key:
    host = key("host", name)
    cluster.tell(host, configured(*labels))
    up = machine_report(host, BackendUp())
    cluster.world.living()[0].region.tell((up,))
    cluster.run_until(lambda: is_up(cluster, host), within_s=60)
    return host


def is_up(cluster: CheckedCluster, host: Key) -> bool:
    state = cluster.cells("host").get(host)
    return state is not None and state.state == HostStates.UP and not state.removed


def drained(cluster: CheckedCluster, host: Key) -> bool:
    return bool(cluster.cells("host")[host].maintenance == Maintenance.DOWN)


def views(cluster: CheckedCluster, job: Key) -> list[InstanceView]:
    return cluster.instances(job, cluster.job(job).spec.instances)


def homes(cluster: CheckedCluster, job: Key) -> Counter[str]:
    """How many instances run on which host."""
    return Counter(view.host for view in views(cluster, job) if view.state == "RUNNING")


def everywhere(cluster: CheckedCluster, job: Key, *hosts: Key, within_s: float = 30.0) -> None:
    """Exactly these hosts have an instance each."""

    def so() -> bool:
        line, found = cluster.job(job).summary, homes(cluster, job)
        counted = (line.instances, dict(line.counts)) == (len(hosts), {"RUNNING": len(hosts)})
        return counted and found == Counter(hosts)

    cluster.run_until(so, within_s=within_s)


def started(cluster: CheckedCluster, spec: JobSpec, name: str = "d") -> Key:
    return cluster.create_job(spec, name)


def test_every_host_has_one_and_hosts_that_join_get_theirs() -> None:
    cluster = cluster_of()
    job = started(cluster, daemon())
    everywhere(cluster, job, *cluster.hosts)
    view = cluster.job(job)
    assert (view.goal, view.summary.state) == (JobGoals.RUNNING, JobStates.RUNNING)
    new = add(cluster, "new")
    everywhere(cluster, job, *cluster.hosts, new)
    cluster.ask(job, StopJob())
    cluster.run_until(lambda: cluster.job(job).summary.state == JobStates.KILLED, within_s=30)
    cluster.check_quiet()


def test_a_host_whose_instance_was_stopped_alone_is_not_waited_for() -> None:
    cluster = cluster_of()
    job = started(cluster, daemon())
    everywhere(cluster, job, *cluster.hosts)
    cluster.ask(job, StopJob(((0, 1),)))
    cluster.run_until(lambda: sum(homes(cluster, job).values()) == len(cluster.hosts) - 1)
    assert DaemonsRun(cluster).all_seen()
    add(cluster, "new")
    assert not DaemonsRun(cluster).all_seen(), "that one is to have one"
    cluster.run_until(DaemonsRun(cluster).all_seen)


def test_a_cluster_without_hosts_has_none_and_is_pending() -> None:
    cluster = cluster_of(hosts=1)
    job = started(cluster, daemon(constraint=ON_SSD))
    cluster.run_for(5.0)
    line = cluster.job(job).summary
    assert (line.state, line.instances, line.counts) == (JobStates.PENDING, 0, ())
    assert cluster.job(job).because == "no host is one that it is for"
    host = add(cluster, "fast", SSD)
    everywhere(cluster, job, host)


def test_a_host_that_is_removed_takes_its_instance_along() -> None:
    cluster = cluster_of()
    job = started(cluster, daemon())
    everywhere(cluster, job, *cluster.hosts)
    gone, *others = cluster.hosts
    cluster.tell(gone, HostGone())
    everywhere(cluster, job, *others)
    back = add(cluster, gone.partition("/")[2])
    everywhere(cluster, job, back, *others)
    assert all(view.failures == 0 for view in views(cluster, job))


def test_the_number_of_a_host_that_left_is_used_again() -> None:
    cluster = cluster_of()
    job = started(cluster, daemon())
    everywhere(cluster, job, *cluster.hosts)
    numbers = {view.instance for view in views(cluster, job)}
    for turn in range(3):
        cluster.tell(cluster.hosts[0] if not turn else key("host", f"x{turn - 1}"), HostGone())
        everywhere(cluster, job, *cluster.hosts[1:])
        new = add(cluster, f"x{turn}")
        everywhere(cluster, job, *cluster.hosts[1:], new)
    found = views(cluster, job)
    assert len(numbers | {view.instance for view in found}) <= 3 + 3
    assert all(view.instance % SLICE_SIZE < 3 for view in found)


def test_labels_decide_which_hosts_match() -> None:
    cluster = cluster_of()
    plain, *others = cluster.hosts
    cluster.tell(plain, configured(SSD))
    job = started(cluster, daemon(constraint=ON_SSD))
    everywhere(cluster, job, plain)
    cluster.tell(others[0], configured(SSD))
    everywhere(cluster, job, plain, others[0])
    cluster.tell(plain, configured())
    everywhere(cluster, job, others[0])
    cluster.tell(plain, configured(SSD))
    everywhere(cluster, job, plain, others[0])


def test_a_host_that_flaps_never_has_two() -> None:
    cluster = cluster_of()
    host = cluster.hosts[0]
    job = started(cluster, daemon(constraint=ON_SSD))
    for turn in range(12):
        cluster.tell(host, configured(*([SSD] if turn % 2 == 0 else [])))
        cluster.run_for(0.05)
        running = [run for run in cluster.machines.running if cluster.machines.running[run]]
        assert len(running) <= 1
    cluster.tell(host, configured(SSD))
    everywhere(cluster, job, host)


def test_on_a_host_that_drains_the_daemon_is_the_last_and_comes_back() -> None:
    cluster = cluster_of()
    host = cluster.hosts[0]
    job = started(cluster, daemon())
    everywhere(cluster, job, *cluster.hosts)
    other = cluster.create_job(job_spec(5), "b")
    cluster.run_until(lambda: cluster.counts(other) == {"RUNNING": 5}, within_s=30)
    cluster.machines.stop_s = 5.0
    cluster.ask(host, StartMaintenance())
    cluster.run_for(6.0)
    assert homes(cluster, job)[host] == 1  # its end began when the others had ended
    cluster.run_until(lambda: drained(cluster, host), within_s=60)
    assert homes(cluster, job) == Counter(cluster.hosts[1:])
    waits = [view for view in views(cluster, job) if view.state != "RUNNING"]
    assert [(each.host, each.failures) for each in waits] == [(host, 0)]
    cluster.run_for(10.0)
    (waits,) = [view for view in views(cluster, job) if view.state != "RUNNING"]
    assert (waits.code, waits.because) == ("NEVER", f"its host {host.partition('/')[2]} is not up")
    cluster.ask(host, CompleteMaintenance())
    everywhere(cluster, job, *cluster.hosts)


def test_a_lost_host_is_no_failure_and_nobody_else_gets_its_instance() -> None:
    cluster = cluster_of(unreachable_timeout_s=5.0)
    host = cluster.hosts[0]
    job = started(cluster, daemon())
    for _ in range(6):
        everywhere(cluster, job, *cluster.hosts, within_s=60)
        cluster.cut(host)
        cluster.run_until(
            lambda: cluster.cells("host")[host].state == HostStates.LOST, within_s=120
        )
        cluster.run_for(5.0)
        assert homes(cluster, job) == Counter(cluster.hosts[1:])
        cluster.mend(host)
    everywhere(cluster, job, *cluster.hosts, within_s=60)
    assert all(view.failures == 0 for view in views(cluster, job))


def test_without_room_it_waits_for_its_host_alone() -> None:
    cluster = cluster_of(hosts=2)
    full = cluster.create_job(job_spec(8), "full")
    cluster.run_until(lambda: cluster.counts(full) == {"RUNNING": 8}, within_s=30)
    job = started(cluster, daemon())
    cluster.run_for(5.0)
    found = views(cluster, job)
    assert {(each.state, each.host) for each in found} == {
        ("PENDING", host) for host in cluster.hosts
    }
    cluster.run_for(20.0)


def test_it_has_room_before_other_work_where_that_is_asked() -> None:
    """The hosts are full of short runs, of which many more wait."""

    def fate(run: str) -> Fate:
        return FOR_EVER if run.startswith(job_id("d").partition("/")[2]) else Fate(20.0)

    cluster = cluster_of(hosts=2, fates=fate)
    need = Resources(2 * UNIT)
    batch = cluster.create_job(job_spec(150, resources=Resources(UNIT)), "full")
    cluster.run_until(lambda: cluster.counts(batch).get("RUNNING", 0) == 8, within_s=30)
    high = msgspec.structs.replace(daemon(first=True), priority=100)
    high = msgspec.structs.replace(
        high, default=msgspec.structs.replace(high.default, resources=need)
    )
    job = started(cluster, high)
    everywhere(cluster, job, *cluster.hosts, within_s=120)


def test_two_daemon_jobs_do_not_know_each_other() -> None:
    cluster = cluster_of()
    one, two = started(cluster, daemon(), "d1"), started(cluster, daemon(), "d2")
    new = add(cluster, "new")
    for job in (one, two):
        everywhere(cluster, job, *cluster.hosts, new)
    cluster.ask(one, StopJob())
    cluster.run_until(lambda: cluster.job(one).summary.state == JobStates.KILLED, within_s=30)
    everywhere(cluster, two, *cluster.hosts, new)


def test_it_is_stopped_started_restarted_and_deleted() -> None:
    cluster = cluster_of()
    job = started(cluster, daemon())
    everywhere(cluster, job, *cluster.hosts)
    cluster.ask(job, StopJob())
    cluster.run_until(lambda: cluster.job(job).summary.state == JobStates.KILLED, within_s=30)
    assert not cluster.machines.running
    late = add(cluster, "late")
    cluster.run_for(5.0)
    assert not cluster.machines.running
    cluster.ask(job, StartJob())
    everywhere(cluster, job, *cluster.hosts, late)
    cluster.ask(job, StartInstances(again=True))
    cluster.run_until(lambda: all(view.run > 1 for view in views(cluster, job)), within_s=30)
    everywhere(cluster, job, *cluster.hosts, late)
    cluster.ask(job, DeleteJob(force=True))
    cluster.run_until(lambda: cluster.over() and not cluster.cells("slice"), within_s=30)
    cluster.run_for(20.0)  # what was owed is forgotten at a tick
    cluster.check_gone(job)
    new = add(cluster, "new")
    cluster.run_for(5.0)
    assert not cluster.machines.running
    assert not any(each.followers for each in cluster.cells("inventory").values()), new


def test_one_that_a_workflow_has_stopped_stays_so_whatever_hosts_join() -> None:
    cluster = cluster_of()
    job = started(cluster, daemon())
    everywhere(cluster, job, *cluster.hosts)
    stop = RestartJob(kind=WorkflowTypes.STOP, options=WorkflowOptions(batch=1))
    cluster.ask(job, stop)
    early = add(cluster, "early")
    cluster.run_until(lambda: cluster.job(job).summary.state == JobStates.KILLED, within_s=60)
    late = add(cluster, "late")
    cluster.run_for(5.0)
    assert not cluster.machines.running and cluster.job(job).workflows[0].completed_at
    cluster.ask(job, StartJob())
    everywhere(cluster, job, *cluster.hosts, early, late)
    new = add(cluster, "new")
    everywhere(cluster, job, *cluster.hosts, early, late, new)
    cluster.run_for(5.0)
    assert cluster.job(job).summary.state == JobStates.RUNNING


def test_a_stopped_one_without_hosts_is_killed_at_once() -> None:
    cluster = cluster_of(hosts=1)
    job = started(cluster, daemon(constraint=ON_SSD))
    cluster.run_for(2.0)
    cluster.ask(job, StopJob())
    cluster.run_until(lambda: cluster.job(job).summary.state == JobStates.KILLED, within_s=30)


def test_what_fails_is_throttled_and_a_new_host_does_not_wait_for_that() -> None:
    cluster = cluster_of(Fate(1.0, FAILURE))
    job = started(cluster, daemon())
    cluster.run_until(lambda: {view.code for view in views(cluster, job)} == {"RETRY"}, within_s=30)
    cluster.tell(cluster.hosts[0], HostGone())
    cluster.run_for(2.0)
    add(cluster, "new")
    cluster.run_until(lambda: homes(cluster, job)[key("host", "new")] == 1, within_s=20)


@pytest.mark.parametrize("batch", [0, 1])
def test_an_update_reaches_every_host(batch: int) -> None:
    cluster = cluster_of()
    job = started(cluster, daemon())
    everywhere(cluster, job, *cluster.hosts)
    cluster.tell(cluster.hosts[0], HostGone())
    everywhere(cluster, job, *cluster.hosts[1:])
    wanted = msgspec.structs.replace(cluster.job(job).spec)
    config = msgspec.structs.replace(wanted.default, labels=(("v", "2"),))
    wanted = msgspec.structs.replace(wanted, default=config)
    answer = cluster.ask(job, ReplaceJob(wanted, (), WorkflowOptions(batch=batch)))
    assert not isinstance(answer, Refused), answer
    new = add(cluster, "new")
    cluster.run_until(lambda: cluster.job(job).workflows[0].state.name == "SUCCEEDED", within_s=120)
    everywhere(cluster, job, *cluster.hosts[1:], new)
    assert {view.config.labels for view in views(cluster, job)} == {(("v", "2"),)}
    assert {run.config_version for view in views(cluster, job) for run in view.runs} == {1}


def down(cluster: CheckedCluster, host: Key) -> None:
    cluster.cut(host)
    cluster.run_until(lambda: cluster.cells("host")[host].state == HostStates.LOST, within_s=120)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_host_that_is_down_holds_up_no_workflow(restarts: bool) -> None:
    cluster = cluster_of(unreachable_timeout_s=5.0)
    host = cluster.hosts[1]
    job = started(cluster, daemon())
    everywhere(cluster, job, *cluster.hosts)
    down(cluster, host)
    wanted = cluster.job(job).spec
    config = msgspec.structs.replace(wanted.default, labels=(("v", "2"),))
    update = ReplaceJob(msgspec.structs.replace(wanted, default=config), (), WorkflowOptions(1))
    answer = cluster.ask(job, RestartJob((), WorkflowOptions(1)) if restarts else update)
    assert not isinstance(answer, Refused), answer
    cluster.run_until(lambda: cluster.job(job).workflows[0].state.name == "SUCCEEDED", within_s=120)
    assert homes(cluster, job) == Counter(one for one in cluster.hosts if one != host)
    cluster.mend(host)
    everywhere(cluster, job, *cluster.hosts, within_s=60)
    labels = () if restarts else (("v", "2"),)
    assert {view.config.labels for view in views(cluster, job)} == {labels}


def test_a_host_that_goes_down_meanwhile_holds_up_no_workflow() -> None:
    cluster = cluster_of(unreachable_timeout_s=5.0)
    job = started(cluster, daemon())
    everywhere(cluster, job, *cluster.hosts)
    for host in cluster.hosts[1:]:
        cluster.cut(host)
    cluster.ask(job, RestartJob((), WorkflowOptions(1)))
    cluster.run_until(lambda: cluster.job(job).workflows[0].state.name == "SUCCEEDED", within_s=240)
    assert homes(cluster, job) == Counter(cluster.hosts[:1])
    for host in cluster.hosts[1:]:
        cluster.mend(host)
    everywhere(cluster, job, *cluster.hosts, within_s=120)


def test_an_update_may_choose_other_hosts() -> None:
    cluster = cluster_of()
    host, other, *_ = cluster.hosts
    cluster.tell(host, configured(SSD))
    job = started(cluster, daemon())
    everywhere(cluster, job, *cluster.hosts)
    wanted = cluster.job(job).spec
    config = msgspec.structs.replace(wanted.default, constraint=ON_SSD)
    wanted = msgspec.structs.replace(wanted, default=config)
    answer = cluster.ask(job, ReplaceJob(wanted, (), WorkflowOptions(batch=1)))
    assert not isinstance(answer, Refused), answer
    everywhere(cluster, job, host, within_s=120)
    cluster.run_until(lambda: cluster.job(job).workflows[0].state.name == "SUCCEEDED", within_s=120)


@pytest.mark.parametrize("of", ["inventory", "slice", "host", "job"])
def test_whichever_shard_is_taken_over_it_goes_on(of: str) -> None:
    cluster = cluster_of(daemons=2)
    job = started(cluster, daemon())
    everywhere(cluster, job, *cluster.hosts)
    dropped = {
        "inventory": key("inventory", 0),
        "slice": key("slice", job.partition("/")[2], 1),
        "host": cluster.hosts[0],
        "job": job,
    }[of]
    cluster.crash_shard(dropped)
    new = add(cluster, "new")
    cluster.tell(cluster.hosts[0], HostGone())
    everywhere(cluster, job, *cluster.hosts[1:], new)
    cluster.crash_shard(dropped)
    more = add(cluster, "more")
    everywhere(cluster, job, *cluster.hosts[1:], new, more)
    assert {view.run for view in views(cluster, job)} <= {1, 2}


def test_more_hosts_than_numbers_in_a_part_are_in_others() -> None:
    cluster = cluster_of(hosts=24)
    job = started(cluster, daemon())
    everywhere(cluster, job, *cluster.hosts)
    assert len({view.instance // SLICE_SIZE for view in views(cluster, job)}) == 4


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"inventories": 0}, "config.instanceCount"),
        ({"instances": 7}, "config.instanceCount"),
        ({"maximum_running": 3}, "config.sla.maximumRunningInstances"),
        ({"minimum_running": 3}, "config.sla.minimumRunningInstances"),
        ({"own_configs": 1}, "config.instanceConfig"),
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, Any], field: str) -> None:
    cluster = cluster_of(hosts=1)
    answer = cluster.ask(job_id("d"), CreateJob(msgspec.structs.replace(daemon(), **change)))
    assert isinstance(answer, Refused)
    assert answer.field == field
