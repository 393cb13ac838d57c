"""Hosts that callers of the private services hold, launch on, and give back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from peloton.api.v0.task import task_pb2
from peloton.gateway.private.host_offers import HOLD_S
from peloton.private.eventstream import eventstream_pb2 as eventstream
from peloton.private.eventstream import eventstream_pb2_grpc
from peloton.private.hostmgr.hostsvc import hostsvc_pb2 as hostsvc
from peloton.private.hostmgr.hostsvc import hostsvc_pb2_grpc
from peloton.private.hostmgr.v1alpha.svc import hostmgr_svc_pb2 as hostmgr_svc
from peloton.private.hostmgr.v1alpha.svc import hostmgr_svc_pb2_grpc
from tests.gateway.fleet_fixture import HOSTS, Deployment, default_config, refused
from tests.gateway.private.test_private import held, kinds, scalars

CODE = grpc.StatusCode
LONG_S = 600.0
ONE_CPU = {"resourceConstraint": {"minimum": {"cpuLimit": 1.0}}}


@pytest.fixture
def hosts(deployment: Deployment) -> Iterator[Any]:
    """The service of v0; what a test holds is given back."""
    stub = hostsvc_pb2_grpc.InternalHostServiceStub(deployment.channel)
    yield stub
    found = stub.GetOutstandingOffers(hostsvc.GetOutstandingOffersRequest())
    release(stub, *((one.hostname, one.id.value) for one in found.offers))
    deployment.until(lambda: held(stub) == 0)
    deployment.until(lambda: states(stub) == {"ready"})


@pytest.fixture
def pods(deployment: Deployment, hosts: Any) -> Any:
    return hostmgr_svc_pb2_grpc.HostManagerServiceStub(deployment.channel)


def acquire(stub: Any, **by: Any) -> Any:
    by.setdefault("resourceConstraint", ONE_CPU["resourceConstraint"])
    return stub.AcquireHostOffers(hostsvc.AcquireHostOffersRequest(filter=by))


def release(stub: Any, *pairs: tuple[str, str]) -> None:
    offers = [{"hostname": host, "id": {"value": name}} for host, name in pairs]
    stub.ReleaseHostOffers(hostsvc.ReleaseHostOffersRequest(hostOffers=offers))


def states(stub: Any) -> set[str]:
    return {one.status for one in stub.GetHostsByQuery(hostsvc.GetHostsByQueryRequest()).hosts}


def config(cpu: float = 1.0) -> task_pb2.TaskConfig:
    found = default_config(LONG_S)
    found.resource.cpuLimit = cpu
    return found


def launch_request(offer: Any, *tasks: str, cpu: float = 1.0) -> hostsvc.LaunchTasksRequest:
    return hostsvc.LaunchTasksRequest(
        hostname=offer.hostname,
        agentId=offer.agentId,
        id=offer.id,
        tasks=[{"taskId": {"value": one}, "config": config(cpu)} for one in tasks],
    )


def runs_of(stub: Any) -> dict[str, list[str]]:
    found = stub.GetHostsByQuery(hostsvc.GetHostsByQueryRequest()).hosts
    return {one.hostname: [task.value for task in one.tasks] for one in found if one.tasks}


# ---- holds ----


def test_hosts_are_held_with_all_they_have(hosts: Any, pods: Any) -> None:
    answer = acquire(hosts, quantity={"maxHosts": 2})
    assert dict(answer.filterResultCounts) == {"match": 2, "mismatch_max_host_limit": 1}
    assert [one.hostname for one in answer.hostOffers] == ["a", "b"]
    one = answer.hostOffers[0]
    assert scalars(one.resources) == {"cpus": 4.0, "mem": 2048.0, "disk": 20000.0}
    assert one.agentId.value == "a" and one.attributes[0].name == "rack"
    shown = hosts.GetOutstandingOffers(hostsvc.GetOutstandingOffersRequest()).offers
    assert {o.hostname: o.id.value for o in shown}["a"] == one.id.value
    cache = pods.GetHostCache(hostmgr_svc.GetHostCacheRequest()).summaries
    assert {o.hostname: o.status for o in cache} == {"a": "placing", "b": "placing", "c": "ready"}
    assert all(kinds(o.allocation)["cpu"] == 0.0 for o in cache), "a hold is no allocation"
    assert held(hosts) == 0.0


def test_what_is_held_is_not_held_again_until_it_is_given_back(hosts: Any) -> None:
    first = acquire(hosts).hostOffers
    again = acquire(hosts)
    assert not again.hostOffers and dict(again.filterResultCounts) == {"mismatch_status": 3}
    pairs = [(one.hostname, one.id.value) for one in first]
    release(hosts, *pairs, *pairs, ("a", "unknown"), ("nobody", "unknown"), ("", ""))
    assert len(acquire(hosts).hostOffers) == 3


def test_tasks_wait_while_everything_is_held(deployment: Deployment, hosts: Any) -> None:
    offers = acquire(hosts).hostOffers
    job = deployment.create(deployment.request(1, defaultConfig=config()))
    wanted = deployment.job(job)
    assert wanted.runtime.taskStats["RUNNING"] == 0
    release(hosts, *((one.hostname, one.id.value) for one in offers))
    deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 1)
    deployment.tasks.Stop(task_pb2.StopRequest(jobId={"value": job}))
    deployment.ended(job)


@pytest.mark.parametrize(
    ("by", "counts"),
    [
        ({"resourceConstraint": {"minimum": {"cpuLimit": 5.0}}},
         {"insufficient_offer_resources": 3}),
        ({"resourceConstraint": {"numPorts": 100_000}}, {"insufficient_offer_resources": 3}),
        ({"resourceConstraint": {"minimum": {"cpuLimit": 1.0}, "revocable": True}},
         {"insufficient_offer_resources": 3}),
        ({"schedulingConstraint": {"type": 1, "labelConstraint": {
            "kind": 2, "condition": 3, "label": {"key": "hostname", "value": "nobody"}}}},
         {"mismatch_constraints": 3}),
    ],
)  # fmt: skip
def test_hosts_that_do_not_suit_are_counted(hosts: Any, by: Any, counts: Any) -> None:
    answer = acquire(hosts, **by)
    assert not answer.hostOffers and dict(answer.filterResultCounts) == counts


def test_hinted_hosts_come_first(hosts: Any) -> None:
    answer = acquire(hosts, quantity={"maxHosts": 1}, hint={"hostHint": [{"hostname": "c"}]})
    assert [one.hostname for one in answer.hostOffers] == ["c"]


def test_bad_filters_are_refused(hosts: Any, pods: Any) -> None:
    code, text = refused(hosts.AcquireHostOffers, hostsvc.AcquireHostOffersRequest())
    assert code is CODE.INVALID_ARGUMENT and text.startswith("invalid filter: ")
    bad = {"resourceConstraint": {"minimum": {"cpuLimit": -1.0}}}
    code, text = refused(hosts.AcquireHostOffers, hostsvc.AcquireHostOffersRequest(filter=bad))
    assert code is CODE.INVALID_ARGUMENT
    assert "filter.resourceConstraint.minimum.cpuLimit" in text
    assert refused(pods.AcquireHosts, hostmgr_svc.AcquireHostsRequest()) == (
        CODE.INTERNAL, "invalid host filter",
    )  # fmt: skip
    assert refused(hosts.GetHosts, hostsvc.GetHostsRequest()) == (
        CODE.INTERNAL, "invalid host filter",
    )  # fmt: skip


def test_matching_hosts_by_all_they_have(hosts: Any) -> None:
    acquire(hosts)
    found = hosts.GetHosts(hostsvc.GetHostsRequest(filter=ONE_CPU)).hosts
    assert [one.hostname for one in found] == [*HOSTS], "what is held now does not matter"
    assert scalars(found[0].resources)["cpus"] == 4.0
    too_much = {"resourceConstraint": {"minimum": {"cpuLimit": 5.0}}}
    code, text = refused(hosts.GetHosts, hostsvc.GetHostsRequest(filter=too_much))
    assert code is CODE.INTERNAL and text.startswith("could not return matching hosts")


def test_leases_are_holds(hosts: Any, pods: Any) -> None:
    request = hostmgr_svc.AcquireHostsRequest(
        filter={"resource_constraint": {"minimum": {"cpu_limit": 1.0}}, "max_hosts": 1}
    )
    answer = pods.AcquireHosts(request)
    (one,) = answer.hosts
    assert one.host_summary.hostname == "a" and one.host_summary.resources.cpu == 4.0
    assert dict(answer.filter_result_counts) == {
        "host_filter_match": 1, "host_filter_mismatch_max_host_limit": 2,
    }  # fmt: skip
    lease = {"hostname": "a", "lease_id": one.lease_id}
    pods.TerminateLeases(hostmgr_svc.TerminateLeasesRequest(leases=[lease]))
    code, text = refused(pods.TerminateLeases, hostmgr_svc.TerminateLeasesRequest(leases=[lease]))
    assert code is CODE.INTERNAL and one.lease_id.value in text
    assert HOLD_S == 300.0


# ---- launches and kills ----


def test_tasks_are_launched_on_an_offer_and_killed(deployment: Deployment, hosts: Any) -> None:
    events = eventstream_pb2_grpc.EventStreamServiceStub(deployment.channel)
    stream = events.InitStream(eventstream.InitStreamRequest(clientName="peloton-jobmgr"))
    (offer,) = acquire(hosts, quantity={"maxHosts": 1}).hostOffers
    hosts.LaunchTasks(launch_request(offer, "task-0-1", "task-1-1"))
    assert runs_of(hosts) == {offer.hostname: ["task-0-1", "task-1-1"]}
    assert held(hosts) == 2.0
    code, text = refused(hosts.LaunchTasks, launch_request(offer, "task-2-1"))
    assert code is CODE.INTERNAL and text.startswith("claim for launch failed: ")
    kill = hostsvc.KillTasksRequest(taskIds=[{"value": "task-0-1"}, {"value": "task-1-1"}])
    assert not hosts.KillTasks(kill).HasField("error")
    deployment.until(lambda: not runs_of(hosts))
    assert held(hosts) == 0.0

    def told() -> set[tuple[str, int]]:
        found = events.WaitForEvents(
            eventstream.WaitForEventsRequest(
                clientName="peloton-jobmgr", streamID=stream.streamID, beginOffset=stream.minOffset
            )
        ).events
        statuses = [one.mesosTaskStatus for one in found]
        return {(one.task_id.value, one.state) for one in statuses}

    deployment.until(lambda: len({one for one in told() if one[0].startswith("task-")}) >= 2)
    error = hosts.KillTasks(kill).error
    assert [one.value for one in error.killFailure.taskIds] == ["task-0-1", "task-1-1"]


def test_pods_are_launched_on_a_lease_and_killed(
    deployment: Deployment, hosts: Any, pods: Any
) -> None:
    request = hostmgr_svc.AcquireHostsRequest(filter={"max_hosts": 1})
    (lease,) = pods.AcquireHosts(request).hosts
    container = {
        "name": "c", "resource": {"cpu_limit": 1.0},
        "entrypoint": {"value": "sleep", "arguments": ["600"]},
        "ports": [{"name": "http", "env_name": "PORT"}],
    }  # fmt: skip
    pod = {"pod_id": {"value": "pod-0-1"}, "spec": {"containers": [container]}}
    sent = hostmgr_svc.LaunchPodsRequest(
        hostname=lease.host_summary.hostname, lease_id=lease.lease_id, pods=[pod]
    )
    sent.pods[0].ports["http"] = 31007
    pods.LaunchPods(sent)
    assert runs_of(hosts) == {lease.host_summary.hostname: ["pod-0-1"]}
    assert refused(pods.LaunchPods, sent)[0] is CODE.INTERNAL
    pods.KillPods(hostmgr_svc.KillPodsRequest(pod_ids=[{"value": "pod-0-1"}]))
    deployment.until(lambda: not runs_of(hosts))


def test_what_a_launch_lacks_is_named(hosts: Any, pods: Any) -> None:
    (offer,) = acquire(hosts, quantity={"maxHosts": 1}).hostOffers
    whole = launch_request(offer, "t")
    for field, text in (
        ("tasks", "empty task list"), ("agentId", "empty agent id"),
        ("hostname", "empty hostname"), ("id", "empty host offer"),
    ):  # fmt: skip
        sent = hostsvc.LaunchTasksRequest.FromString(whole.SerializeToString())
        sent.ClearField(field)
        said = refused(hosts.LaunchTasks, sent)
        assert said == (CODE.INVALID_ARGUMENT, f"validate launch tasks failed: {text}")
    for sent, text in (
        (hostmgr_svc.LaunchPodsRequest(), "Empty pods list"),
        (hostmgr_svc.LaunchPodsRequest(pods=[{}]), "Empty lease id"),
        (hostmgr_svc.LaunchPodsRequest(pods=[{}], lease_id={"value": "x"}), "Empty host name"),
    ):
        assert refused(pods.LaunchPods, sent) == (CODE.INTERNAL, text)
    for sent, code, text in (
        (launch_request(offer, "a/b"), CODE.INVALID_ARGUMENT, "tasks[0].id: "),
        (launch_request(offer, "t", cpu=-1.0), CODE.INVALID_ARGUMENT, "tasks[0].config.resource"),
        (launch_request(offer, "t", cpu=9.0), CODE.FAILED_PRECONDITION, "insufficient resources"),
    ):
        got, said_text = refused(hosts.LaunchTasks, sent)
        assert got is code and text in said_text
    hosts.LaunchTasks(whole)  # none of these has used the offer up
    hosts.KillTasks(hostsvc.KillTasksRequest(taskIds=[{"value": "t"}]))


def test_a_run_of_a_job_is_killed_through_its_job(deployment: Deployment, hosts: Any) -> None:
    job = deployment.create(deployment.request(2, defaultConfig=config()))
    deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == 2)
    names = [f"{job}-0-1", f"{job}-1-7", "nonsense", "no/name"]
    sent = hostsvc.KillTasksRequest(taskIds=[{"value": name} for name in names])
    failed = hosts.KillTasks(sent).error.killFailure
    assert [one.value for one in failed.taskIds] == names[1:], "7 is not its present run"
    deployment.until(lambda: deployment.job(job).runtime.taskStats["KILLED"] == 1)
    assert deployment.job(job).runtime.taskStats["RUNNING"] == 1
    deployment.tasks.Stop(task_pb2.StopRequest(jobId={"value": job}))
    deployment.ended(job)
    nothing = hosts.KillTasks(hostsvc.KillTasksRequest()).error.invalidTaskIDs
    assert nothing.message == "Empty task ids"
