"""The private services: what tools read of hosts, queues and tasks."""

from __future__ import annotations

import uuid
from typing import Any

import grpc
import pytest

from peloton.api.v0.task import task_pb2
from peloton.private.hostmgr.hostsvc import hostsvc_pb2 as hostsvc
from peloton.private.hostmgr.hostsvc import hostsvc_pb2_grpc
from peloton.private.hostmgr.v1alpha.svc import hostmgr_svc_pb2 as hostmgr_svc
from peloton.private.hostmgr.v1alpha.svc import hostmgr_svc_pb2_grpc
from peloton.private.jobmgrsvc import jobmgrsvc_pb2 as jobmgrsvc
from peloton.private.jobmgrsvc import jobmgrsvc_pb2_grpc
from peloton.private.resmgr import resmgr_pb2 as resmgr
from peloton.private.resmgrsvc import resmgrsvc_pb2 as resmgrsvc
from peloton.private.resmgrsvc import resmgrsvc_pb2_grpc
from tests.cli.terminal import Printed, typed
from tests.gateway.fleet_fixture import HOSTS, Deployment, default_config

LONG_S = 600.0
NO_POOL = "8c95fa0c-d174-40cd-ac17-6a1a166ec1a8"


@pytest.fixture
def hosts(deployment: Deployment) -> Any:
    return hostsvc_pb2_grpc.InternalHostServiceStub(deployment.channel)


@pytest.fixture
def tasks(deployment: Deployment) -> Any:
    return resmgrsvc_pb2_grpc.ResourceManagerServiceStub(deployment.channel)


def config(cpu: float = 1.0) -> task_pb2.TaskConfig:
    found = default_config(LONG_S)
    found.resource.cpuLimit = cpu
    return found


def kinds(found: Any) -> dict[str, float]:
    return {one.kind: one.capacity for one in found}


def scalars(found: Any) -> dict[str, float]:
    return {one.name: one.scalar.value for one in found}


def running(deployment: Deployment, count: int, **more: Any) -> str:
    job = deployment.create(deployment.request(count, defaultConfig=config(), **more))
    deployment.until(lambda: deployment.job(job).runtime.taskStats["RUNNING"] == count)
    return job


@pytest.fixture
def job(deployment: Deployment) -> Any:
    """A job with two running instances of one cpu, that is gone afterwards."""
    found = running(deployment, 2)
    yield found
    deployment.tasks.Stop(task_pb2.StopRequest(jobId={"value": found}))
    deployment.ended(found)
    free = hostsvc_pb2_grpc.InternalHostServiceStub(deployment.channel)
    deployment.until(lambda: held(free) == 0)


def held(hosts: Any) -> float:
    return kinds(hosts.ClusterCapacity(hostsvc.ClusterCapacityRequest()).resources)["cpu"]


def test_capacity_is_what_there_is_and_what_runs_hold(
    deployment: Deployment, hosts: Any, job: str
) -> None:
    deployment.until(lambda: held(hosts) == 2.0)
    found = hosts.ClusterCapacity(hostsvc.ClusterCapacityRequest())
    total = {"cpu": 12.0, "memory": 6144.0, "disk": 60000.0, "gpu": 0.0}
    assert kinds(found.physicalResources) == total
    assert kinds(found.resources) == {"cpu": 2.0, "memory": 2.0, "disk": 0.0, "gpu": 0.0}
    assert set(kinds(found.physicalSlackResources).values()) == {0.0}
    newer = hostmgr_svc_pb2_grpc.HostManagerServiceStub(deployment.channel)
    again = newer.ClusterCapacity(hostmgr_svc.ClusterCapacityRequest())
    assert kinds(again.capacity) == total and kinds(again.allocation)["cpu"] == 2.0
    assert not again.slack_capacity
    cache = newer.GetHostCache(hostmgr_svc.GetHostCacheRequest()).summaries
    assert [one.hostname for one in cache] == [*HOSTS]
    assert {one.status for one in cache} == {"ready"}
    assert sum(kinds(one.allocation)["cpu"] for one in cache) == 2.0


def test_offers_are_what_is_free(deployment: Deployment, hosts: Any, job: str) -> None:
    def offers() -> Any:
        return hosts.GetOutstandingOffers(hostsvc.GetOutstandingOffersRequest()).offers

    deployment.until(lambda: sum(scalars(one.resources)["cpus"] for one in offers()) == 10.0)
    found = offers()
    assert [one.hostname for one in found] == [*HOSTS]
    assert all(one.agent_id.value == one.hostname for one in found)
    (attribute,) = found[0].attributes
    assert (attribute.name, attribute.text.value) == ("rack", "r1")
    assert "gpus" not in scalars(found[0].resources)


def test_agents_have_what_their_hosts_have(hosts: Any, job: str) -> None:
    found = hosts.GetMesosAgentInfo(hostsvc.GetMesosAgentInfoRequest()).agents
    assert [one.agent_info.hostname for one in found] == [*HOSTS]
    assert all(one.active for one in found)
    assert scalars(found[0].total_resources) == {"cpus": 4.0, "mem": 2048.0, "disk": 20000.0}
    (one,) = hosts.GetMesosAgentInfo(hostsvc.GetMesosAgentInfoRequest(hostname="b")).agents
    assert one.agent_info.id.value == "b"
    missing = hosts.GetMesosAgentInfo(hostsvc.GetMesosAgentInfoRequest(hostname="nobody"))
    assert missing.error.hostNotFound.message == "host not found" and not missing.agents


def test_hosts_by_what_they_have_free(deployment: Deployment, hosts: Any, job: str) -> None:
    def names(**query: Any) -> list[str]:
        return [one.hostname for one in hosts.GetHostsByQuery(asked(**query)).hosts]

    def asked(**query: Any) -> hostsvc.GetHostsByQueryRequest:
        return hostsvc.GetHostsByQueryRequest(**query)

    deployment.until(lambda: held(hosts) == 2.0)
    every = hosts.GetHostsByQuery(asked()).hosts
    runs = sorted(task.value for one in every for task in one.tasks)
    assert runs == [f"{job}-0-1", f"{job}-1-1"]
    busy = {one.hostname for one in every if one.tasks}
    whole = {"cpuLimit": 4.0}
    assert set(names(resource=whole)) == {*HOSTS} - busy
    assert set(names(resource={"cpuLimit": 3.9, "memLimitMb": 1e6, "diskLimitMb": 1e6},
                     cmpLess=True)) == busy  # fmt: skip
    assert names(hostnames=["b"]) == ["b"]
    with pytest.raises(grpc.RpcError) as caught:
        hosts.GetHostsByQuery(asked(resource={"cpuLimit": -1.0}))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert caught.value.details() == "resource.cpuLimit: -1.0 is negative"


def test_a_cluster_without_room_has_no_offers(deployment: Deployment, hosts: Any) -> None:
    whole = config(4.0)
    whole.resource.memLimitMb, whole.resource.diskLimitMb = 2048.0, 20000.0
    job = deployment.create(deployment.request(3, defaultConfig=whole))
    deployment.until(lambda: held(hosts) == 12.0)
    found = hosts.GetOutstandingOffers(hostsvc.GetOutstandingOffersRequest())
    assert found.error.noOffers.message == "no offers present in offer pool"
    deployment.tasks.Stop(task_pb2.StopRequest(jobId={"value": job}))
    deployment.until(lambda: held(hosts) == 0)


def test_active_tasks_by_state(deployment: Deployment, tasks: Any, job: str) -> None:
    waits = deployment.create(deployment.request(1, defaultConfig=config(4.0), name="waits"))
    deployment.create(deployment.request(1))  # ends at once

    def found(**query: Any) -> dict[str, list[str]]:
        answer = tasks.GetActiveTasks(resmgrsvc.GetActiveTasksRequest(**query))
        by_state = answer.tasksByState
        return {state: [one.taskID for one in by_state[state].taskEntry] for state in by_state}

    deployment.until(lambda: found(jobID=waits).get("RUNNING"))
    more = deployment.create(deployment.request(3, defaultConfig=config(4.0), name="more"))
    deployment.until(lambda: len(found(jobID=more).get("PENDING", ())) >= 1)
    assert found(jobID=job) == {"RUNNING": [f"{job}-0-1", f"{job}-1-1"]}
    assert found(jobID=job, states=["PENDING"]) == {}
    assert found(jobID=job, states=["RUNNING", "NONE"]) == found(jobID=job)
    assert [*found(jobID=more, states=["PENDING"])] == ["PENDING"]
    assert found(states=["SUCCEEDED"]) == {}
    everywhere = found(respoolID=deployment.pool)["RUNNING"]
    assert {f"{job}-0-1", f"{waits}-0-1"} <= {*everywhere}
    assert found(respoolID="nobody") == {} and found(jobID="no id") == {}
    entry = tasks.GetActiveTasks(resmgrsvc.GetActiveTasksRequest(jobID=job)).tasksByState
    (first, _) = entry["RUNNING"].taskEntry
    assert first.hostname in HOSTS and first.lastUpdateTime.endswith("Z")
    assert first.taskState == "RUNNING"
    for one in (waits, more):
        deployment.tasks.Stop(task_pb2.StopRequest(jobId={"value": one}))
        deployment.ended(one)


def test_pending_tasks_are_those_in_the_queue_in_order(
    deployment: Deployment, tasks: Any, hosts: Any
) -> None:
    pool = deployment.make_pool("queue", cpu=1.0)
    first = deployment.request(3, defaultConfig=config())
    first.config.respoolID.value = pool
    one = deployment.create(first)
    deployment.until(lambda: deployment.job(one).runtime.taskStats["RUNNING"] == 1)
    second = deployment.request(2, defaultConfig=config())
    second.config.respoolID.value, second.config.sla.priority = pool, 5
    two = deployment.create(second)

    def queued(limit: int = 0) -> list[str]:
        asked = resmgrsvc.GetPendingTasksRequest(respoolID={"value": pool}, limit=limit)
        by_queue = tasks.GetPendingTasks(asked).pendingGangsByQueue
        assert by_queue.keys() == {"pending", "non-preemptible", "controller", "revocable"}
        return [name for gang in by_queue["pending"].pendingGangs for name in gang.taskIDs]

    deployment.until(lambda: len(queued()) == 4)
    left = [f"{one}-{at}" for at in range(3)]
    ran = next(name for name in left if name not in queued())
    left.remove(ran)
    assert queued() == [f"{two}-0", f"{two}-1", *left], "the higher priority first"
    assert queued(limit=3) == [f"{two}-0", f"{two}-1", left[0]]
    for job in (one, two):
        deployment.tasks.Stop(task_pb2.StopRequest(jobId={"value": job}))
        deployment.ended(job)
    deployment.until(lambda: queued() == [])


@pytest.mark.parametrize(
    ("pool", "code", "text"),
    [
        ("", grpc.StatusCode.INVALID_ARGUMENT, "resource pool ID cannot be nil"),
        ("root", grpc.StatusCode.INVALID_ARGUMENT, "resource pool is not a leaf node"),
        (NO_POOL, grpc.StatusCode.NOT_FOUND, "resource pool not found"),
    ],
)
def test_pending_tasks_of_what_is_no_leaf(
    tasks: Any, pool: str, code: grpc.StatusCode, text: str
) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        tasks.GetPendingTasks(resmgrsvc.GetPendingTasksRequest(respoolID={"value": pool}))
    assert (caught.value.code(), caught.value.details()) == (code, text)


def test_tasks_by_hosts(deployment: Deployment, tasks: Any, hosts: Any, job: str) -> None:
    deployment.until(lambda: held(hosts) == 2.0)
    found = tasks.GetTasksByHosts(resmgrsvc.GetTasksByHostsRequest()).hostTasksMap
    assert found.keys() == {*HOSTS}
    every = [one for name in found for one in found[name].tasks]
    assert sorted(one.taskId.value for one in every) == [f"{job}-0-1", f"{job}-1-1"]
    assert {one.jobId.value for one in every} == {job}
    assert {one.resource.cpuLimit for one in every} == {1.0}
    busy = every[0].hostname
    some = resmgrsvc.GetTasksByHostsRequest(hostnames=[busy, "nobody"])
    assert tasks.GetTasksByHosts(some).hostTasksMap.keys() == {busy}
    daemons = resmgrsvc.GetTasksByHostsRequest(type=resmgr.DAEMON)
    assert not tasks.GetTasksByHosts(daemons).hostTasksMap
    assert not tasks.GetOrphanTasks(resmgrsvc.GetOrphanTasksRequest()).orphanTasks


def test_tasks_are_killed_and_unknown_ones_named(deployment: Deployment, tasks: Any) -> None:
    job = running(deployment, 3)
    unknown = f"{uuid.uuid4()}-0"
    names = [f"{job}-1", unknown, f"{job}-7", "nonsense"]
    answer = tasks.KillTasks(resmgrsvc.KillTasksRequest(tasks=[{"value": one} for one in names]))
    missing = [one.notFound for one in answer.error]
    assert sorted(one.task.value for one in missing) == sorted(names[1:])
    assert {one.message for one in missing} == {"task not found"}
    deployment.until(lambda: deployment.job(job).runtime.taskStats["KILLED"] == 1)
    assert deployment.task(job, 1).result.runtime.state == task_pb2.KILLED
    assert deployment.job(job).runtime.taskStats["RUNNING"] == 2
    deployment.tasks.Stop(task_pb2.StopRequest(jobId={"value": job}))
    deployment.ended(job)


def test_jobs_by_exact_name_and_whole_labels(deployment: Deployment) -> None:
    jobs = jobmgrsvc_pb2_grpc.JobManagerServiceStub(deployment.channel)

    def found(name: str = "", **labels: str) -> list[str]:
        spec = {"name": name, "labels": [{"key": k, "value": v} for k, v in labels.items()]}
        answer = jobs.QueryJobCache(jobmgrsvc.QueryJobCacheRequest(spec=spec))
        return [one.job_id.value for one in answer.result]

    labels = [{"key": "team", "value": "blue"}, {"key": "tier", "value": "one"}]
    one = deployment.create(deployment.request(1, name="exactly", labels=labels))
    two = deployment.create(deployment.request(1, name="exactly this", labels=labels[:1]))
    assert found("exactly") == [one]
    assert found(team="blue") == sorted([one, two])
    assert found(team="blue", tier="one") == [one]
    assert found(team="one") == [] and found("exactly", tier="two") == []


# ---- the command line ----


def said(deployment: Deployment, *words: str) -> Printed:
    return typed("--api", deployment.api, *words)


def cells(line: str) -> list[str]:
    return [one.strip() for one in line.split("|")][:-1]


def test_commands_that_look_at_hosts(deployment: Deployment, hosts: Any, job: str) -> None:
    deployment.until(lambda: held(hosts) == 2.0)
    printed = said(deployment, "hostmgr", "hosts")
    header, *rows = map(cells, printed.out.splitlines())
    assert header[:2] == ["Hostname", "CPU"] and header[-1] == "Task Running"
    assert [row[0] for row in rows] == [*HOSTS]
    assert sum(int(row[-1]) for row in rows) == 2
    assert sum(float(row[1]) for row in rows) == 10.0
    idle = said(deployment, "hostmgr", "hosts", "-c", "4").out.splitlines()[1:]
    assert {cells(line)[0] for line in idle} == {row[0] for row in rows if row[-1] == "0"}
    none = said(deployment, "hostmgr", "hosts", "-c", "5")
    assert none.out == "No hosts found satisfies the requirement\n"
    dumped = said(deployment, "hostmgr", "hostcache", "dump").out.splitlines()
    assert cells(dumped[0])[-1] == "Status" and len(dumped) == 1 + len(HOSTS)
    assert any(cells(line)[1] in ("1.00/4.00", "2.00/4.00") for line in dumped[1:])
    assert '"hostname": "a"' in said(deployment, "hostmgr", "offers").out


def test_commands_that_look_at_tasks(deployment: Deployment, job: str) -> None:
    active = said(deployment, "resmgr", "tasks", "active", "--job", job).out.splitlines()
    assert cells(active[0]) == ["TaskID", "State", "Hostname", "Reason", "Last Update Time"]
    assert [cells(line)[:2] for line in active[1:]] == [
        [f"{job}-0-1", "RUNNING"],
        [f"{job}-1-1", "RUNNING"],
    ]
    states = said(deployment, "resmgr", "tasks", "active", "--job", job, "--states", "pending")
    assert len(states.out.splitlines()) == 1
    pending = said(deployment, "resmgr", "tasks", "pending", "/work")
    assert pending.code == 0 and "pending" in pending.out
    missing = said(deployment, "resmgr", "tasks", "pending", "/nowhere")
    assert missing.code != 0 and "/nowhere" in missing.err
    assert len(said(deployment, "resmgr", "tasks", "orphan").out.splitlines()) == 1


def test_commands_that_look_at_jobs(deployment: Deployment) -> None:
    labels = [{"key": "team", "value": "green"}]
    job = deployment.create(deployment.request(1, name="cached", labels=labels))
    found = said(deployment, "jobmgr", "query-job-cache", "-n", "cached", "-l", "team=green")
    assert job in found.out
    assert said(deployment, "jobmgr", "query-job-cache", "-n", "cache").out == "No result\n"
    wrong = said(deployment, "jobmgr", "query-job-cache", "-l", "team")
    assert wrong.code == 64 and "'team' is not key=value" in wrong.err
