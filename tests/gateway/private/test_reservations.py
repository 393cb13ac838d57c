"""Hosts that are held for tasks, as callers of the private services order it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from peloton.api.v0.task import task_pb2
from peloton.gateway.grpc_server import STANDARD_OPTIONS
from peloton.gateway.private.kill_switch import KILLS_DISABLED, KillSwitch
from peloton.private.hostmgr.hostsvc import hostsvc_pb2 as hostsvc
from peloton.private.hostmgr.hostsvc import hostsvc_pb2_grpc
from peloton.private.hostmgr.v1alpha.svc import hostmgr_svc_pb2 as hostmgr_svc
from peloton.private.hostmgr.v1alpha.svc import hostmgr_svc_pb2_grpc
from peloton.private.resmgrsvc import resmgrsvc_pb2 as resmgrsvc
from peloton.private.resmgrsvc import resmgrsvc_pb2_grpc
from tests.gateway.fleet_fixture import HOSTS, Deployment, refused, running
from tests.gateway.private.test_holds import CODE, acquire, config, launch_request, release, runs_of


@pytest.fixture
def hosts(deployment: Deployment) -> Iterator[Any]:
    """The service of v0; afterwards no host is held for a task."""
    stub = hostsvc_pb2_grpc.InternalHostServiceStub(deployment.channel)
    yield stub
    tasks = [task for one in queried(stub).values() for task in one.held_tasks]
    stub.ReleaseHostsHeldForTasks(hostsvc.ReleaseHostsHeldForTasksRequest(ids=tasks))
    found = stub.GetOutstandingOffers(hostsvc.GetOutstandingOffersRequest())
    release(stub, *((one.hostname, one.id.value) for one in found.offers))
    deployment.until(lambda: {one.status for one in queried(stub).values()} == {"ready"})


def queried(stub: Any) -> dict[str, Any]:
    found = stub.GetHostsByQuery(hostsvc.GetHostsByQueryRequest()).hosts
    return {one.hostname: one for one in found}


def waits_for(stub: Any) -> dict[str, list[str]]:
    """The hosts that are held, with the tasks that they are held for."""
    found = queried(stub).items()
    return {name: [t.value for t in one.held_tasks] for name, one in found if one.held_tasks}


def kill_and_reserve(stub: Any, *entries: tuple[str, str, str]) -> Any:
    return stub.KillAndReserveTasks(
        hostsvc.KillAndReserveTasksRequest(
            entries=[
                {"taskId": {"value": run}, "id": {"value": task}, "hostToReserve": host}
                for run, task, host in entries
            ]
        )
    )


def reserve(stub: Any, task: str, cpu: float, *names: str) -> Any:
    sent = hostsvc.ReserveHostsRequest()
    sent.reservation.task.id.value = task
    sent.reservation.task.resource.cpuLimit = cpu
    for name in names:
        sent.reservation.hosts.add(hostname=name)
    return stub.ReserveHosts(sent)


def completed(stub: Any) -> Any:
    return stub.GetCompletedReservations(hostsvc.GetCompletedReservationRequest())


def host_of(deployment: Deployment, job: str) -> str:
    sent = task_pb2.GetRequest(jobId={"value": job}, instanceId=0)
    return str(deployment.tasks.Get(sent).result.runtime.host)


def test_a_killed_task_comes_back_to_the_host_that_waits_for_it(
    deployment: Deployment, hosts: Any
) -> None:
    job = deployment.create(deployment.request(1, defaultConfig=config()))
    deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 1)
    (other,) = sorted({*HOSTS} - {host_of(deployment, job)})[-1:]
    assert not kill_and_reserve(hosts, (f"{job}-0-1", f"{job}-0", other)).HasField("error")
    assert waits_for(hosts) == {other: [f"{job}-0"]} and queried(hosts)[other].status == "held"
    deployment.until(lambda: deployment.job(job).runtime.taskStats["KILLED"] == 1)
    counts = dict(acquire(hosts, quantity={"maxHosts": 3}).filterResultCounts)
    assert counts == {"match": 2, "mismatch_status": 1}, "nobody else gets it"
    deployment.tasks.Start(task_pb2.StartRequest(jobId={"value": job}))
    deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 1)
    assert host_of(deployment, job) == other and not waits_for(hosts)
    deployment.tasks.Stop(task_pb2.StopRequest(jobId={"value": job}))
    deployment.until(lambda: deployment.job(job).runtime.taskStats["KILLED"] == 1)


def test_what_was_not_killed_holds_nothing(hosts: Any) -> None:
    nothing = kill_and_reserve(hosts).error.invalidTaskIDs
    assert nothing.message == "Empty task ids"
    failed = kill_and_reserve(hosts, ("t-0-1", "t-0", "a"), ("t-1-1", "", "nobody")).error
    assert [one.value for one in failed.killFailure.taskIds] == ["t-0-1", "t-1-1"]
    assert not waits_for(hosts)


def test_callers_come_back_by_a_hint(deployment: Deployment, hosts: Any) -> None:
    (offer,) = acquire(hosts, quantity={"maxHosts": 1}).hostOffers
    hosts.LaunchTasks(launch_request(offer, "task-0-1"))
    assert not kill_and_reserve(hosts, ("task-0-1", "", "b")).HasField("error")
    deployment.until(lambda: not runs_of(hosts))
    assert waits_for(hosts) == {"b": ["task-0"]}
    for task, wanted in (("task-9", ""), ("task-0", "b")):
        hint = {"hostHint": [{"hostname": "b", "taskID": {"value": task}}]}
        (offer,) = acquire(hosts, quantity={"maxHosts": 1}, hint=hint).hostOffers
        assert (offer.hostname == "b") is bool(wanted)
        release(hosts, (offer.hostname, offer.id.value))
    (offer,) = acquire(hosts, quantity={"maxHosts": 1}, hint=hint).hostOffers
    hosts.LaunchTasks(launch_request(offer, "task-0-2"))
    assert not waits_for(hosts) and runs_of(hosts) == {"b": ["task-0-2"]}
    assert not kill_and_reserve(hosts, ("task-0-2", "task-0", "c")).HasField("error")
    deployment.until(lambda: not runs_of(hosts))
    (offer,) = acquire(hosts, quantity={"maxHosts": 1}).hostOffers
    hosts.LaunchTasks(launch_request(offer, "task-0-3"))
    assert not waits_for(hosts), "it runs on another host, so none waits for it"
    hosts.KillTasks(hostsvc.KillTasksRequest(taskIds=[{"value": "task-0-3"}]))
    deployment.until(lambda: not runs_of(hosts))


def test_kills_and_releases_end_holds(deployment: Deployment, hosts: Any) -> None:
    job = deployment.create(deployment.request(2, defaultConfig=config()))
    deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 2)
    kill_and_reserve(
        hosts, *((f"{job}-{at}-1", f"{job}-{at}", host) for at, host in enumerate("ab"))
    )
    assert waits_for(hosts) == {"a": [f"{job}-0"], "b": [f"{job}-1"]}
    hosts.KillTasks(hostsvc.KillTasksRequest(taskIds=[{"value": f"{job}-0-1"}]))
    assert waits_for(hosts) == {"b": [f"{job}-1"]}
    sent = hostsvc.ReleaseHostsHeldForTasksRequest(ids=[{"value": f"{job}-1"}, {"value": "x"}])
    assert not hosts.ReleaseHostsHeldForTasks(sent).HasField("error")
    assert not waits_for(hosts)
    deployment.until(lambda: deployment.job(job).runtime.taskStats["KILLED"] == 2)
    assert reserve(hosts, f"{job}-1", 1.0, "c").host.hostname == "c"
    tasks = resmgrsvc_pb2_grpc.ResourceManagerServiceStub(deployment.channel)
    tasks.KillTasks(resmgrsvc.KillTasksRequest(tasks=[{"value": f"{job}-1"}]))
    assert not waits_for(hosts)


def test_pods_are_killed_and_held(deployment: Deployment, hosts: Any) -> None:
    pods = hostmgr_svc_pb2_grpc.HostManagerServiceStub(deployment.channel)
    (offer,) = acquire(hosts, quantity={"maxHosts": 1}).hostOffers
    hosts.LaunchTasks(launch_request(offer, "pod-0-1"))
    entry = {"pod_id": {"value": "pod-0-1"}, "hostToHold": "c"}
    pods.KillAndHoldPods(hostmgr_svc.KillAndHoldPodsRequest(entries=[entry]))
    assert waits_for(hosts) == {"c": ["pod-0"]}
    deployment.until(lambda: not runs_of(hosts))
    hint = {"host_hint": [{"hostname": "c", "pod_id": {"value": "pod-0-2"}}]}
    request = hostmgr_svc.AcquireHostsRequest(filter={"max_hosts": 1, "hint": hint})
    (lease,) = pods.AcquireHosts(request).hosts
    assert lease.host_summary.hostname == "c"
    release(hosts, ("c", lease.lease_id.value))
    entry = {"pod_id": {"value": "pod-0-1"}, "hostToHold": "a"}
    code, text = refused(pods.KillAndHoldPods, hostmgr_svc.KillAndHoldPodsRequest(entries=[entry]))
    assert code is CODE.INTERNAL and "pod-0-1" in text


def test_a_reservation_is_complete_once_there_is_room(deployment: Deployment, hosts: Any) -> None:
    (offer,) = acquire(hosts, quantity={"maxHosts": 1}).hostOffers
    hosts.LaunchTasks(launch_request(offer, "old-0-1", cpu=3.0))
    assert reserve(hosts, "new-0", 2.0, "nobody", offer.hostname).host.hostname == offer.hostname
    assert queried(hosts)[offer.hostname].status == "reserved"
    assert completed(hosts).error.notFound.message == "no reservation is complete"
    failed = reserve(hosts, "other-0", 1.0, offer.hostname).error.failed.message
    assert "held for others" in failed
    hosts.KillTasks(hostsvc.KillTasksRequest(taskIds=[{"value": "old-0-1"}]))
    deployment.until(lambda: not runs_of(hosts))
    (one,) = completed(hosts).completedReservations
    assert (one.host.hostname, one.task.id.value) == (offer.hostname, "new-0")
    assert one.task.resource.cpuLimit == 2.0 and not waits_for(hosts)
    assert completed(hosts).HasField("error"), "each is told once"
    hosts.LaunchTasks(launch_request(one.hostOffer, "new-0-1", cpu=2.0))
    hosts.KillTasks(hostsvc.KillTasksRequest(taskIds=[{"value": "new-0-1"}]))
    deployment.until(lambda: not runs_of(hosts))


@pytest.mark.parametrize(
    ("task", "cpu", "names", "text"),
    [
        ("", 1.0, ["a"], "not the name of a task"),
        ("a/b", 1.0, ["a"], "not the name of a task"),
        ("t", 1.0, [], "no host is named"),
        ("t", 1.0, ["nobody"], "not a Peloton agent"),
        ("t", 99.0, ["a", "b"], "too small"),
        ("t", -1.0, ["a"], "reservation.task.resource.cpuLimit"),
    ],
)
def test_what_cannot_be_reserved_is_said(
    hosts: Any, task: str, cpu: float, names: list[str], text: str
) -> None:
    assert text in reserve(hosts, task, cpu, *names).error.failed.message


def test_a_waiting_task_of_a_job_gets_the_host_that_is_reserved_for_it(
    deployment: Deployment, hosts: Any
) -> None:
    offers = acquire(hosts).hostOffers
    job = deployment.create(deployment.request(2, defaultConfig=config(cpu=4.0)))
    release(hosts, *((one.hostname, one.id.value) for one in offers if one.hostname != "b"))
    deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 2)
    (held,) = (one for one in offers if one.hostname == "b")
    release(hosts, ("b", held.id.value))
    deployment.tasks.Stop(task_pb2.StopRequest(jobId={"value": job}))
    deployment.until(lambda: deployment.job(job).runtime.taskStats["KILLED"] == 2)
    assert reserve(hosts, f"{job}-1", 4.0, "b").host.hostname == "b"
    deployment.tasks.Start(task_pb2.StartRequest(jobId={"value": job}))
    deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 2)
    sent = task_pb2.GetRequest(jobId={"value": job}, instanceId=1)
    assert deployment.tasks.Get(sent).result.runtime.host == "b" and not waits_for(hosts)
    deployment.tasks.Stop(task_pb2.StopRequest(jobId={"value": job}))
    deployment.until(lambda: deployment.job(job).runtime.taskStats["KILLED"] == 2)


def test_hosts_come_in_the_order_that_a_hint_names(hosts: Any) -> None:
    (offer,) = acquire(
        hosts, hint={"hostHint": [{"hostname": "c"}]}, quantity={"maxHosts": 1}
    ).hostOffers
    hosts.LaunchTasks(launch_request(offer, "t-0-1"))
    for rank, first in (("FILTER_HINT_RANKING_LEAST_AVAILABLE_FIRST", {"c"}),
                        ("FILTER_HINT_RANKING_INVALID", {"a"}),
                        ("FILTER_HINT_RANKING_RANDOM", {*HOSTS})):  # fmt: skip
        (found,) = acquire(hosts, quantity={"maxHosts": 1}, hint={"rankHint": rank}).hostOffers
        assert found.hostname in first
        release(hosts, (found.hostname, found.id.value))
    hosts.KillTasks(hostsvc.KillTasksRequest(taskIds=[{"value": "t-0-1"}]))


def test_no_kill_passes_once_they_are_disabled(tmp_path: Path) -> None:
    kills = KillSwitch()
    with running(tmp_path, options=STANDARD_OPTIONS._replace(kills=kills)) as deployment:
        stub = hostsvc_pb2_grpc.InternalHostServiceStub(deployment.channel)
        pods = hostmgr_svc_pb2_grpc.HostManagerServiceStub(deployment.channel)
        (offer,) = acquire(stub, quantity={"maxHosts": 1}).hostOffers
        stub.LaunchTasks(launch_request(offer, "t-0-1"))
        assert not kills.notes()
        for _ in range(2):
            stub.DisableKillTasks(hostsvc.DisableKillTasksRequest())
        sent = hostsvc.KillTasksRequest(taskIds=[{"value": "t-0-1"}])
        for answer in (stub.KillTasks(sent), kill_and_reserve(stub, ("t-0-1", "t-0", "a"))):
            assert answer.error.killFailure.message == KILLS_DISABLED
            assert [one.value for one in answer.error.killFailure.taskIds] == ["t-0-1"]
        for call, request in (
            (pods.KillPods, hostmgr_svc.KillPodsRequest(pod_ids=[{"value": "t-0-1"}])),
            (pods.KillAndHoldPods, hostmgr_svc.KillAndHoldPodsRequest()),
        ):
            assert refused(call, request) == (grpc.StatusCode.INTERNAL, KILLS_DISABLED)
        assert runs_of(stub) and not waits_for(stub)
        (note,) = kills.notes()
        assert KILLS_DISABLED in str(note)
