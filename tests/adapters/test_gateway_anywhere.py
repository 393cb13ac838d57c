"""Every call that the gateway serves, asked of a daemon that owns nothing.

One table of all calls says what each needs; it is held against the servicers, so that a new call
has to be entered. Daemons are as they are wired, several in one process; store and membership are
those of this process. What two daemons do under storms is tested elsewhere.
"""

from __future__ import annotations

import copy
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2 as job
from peloton.api.v0.job import job_pb2_grpc
from peloton.api.v0.respool import respool_pb2 as respool
from peloton.api.v0.respool import respool_pb2_grpc
from peloton.api.v0.task import task_pb2 as task
from peloton.api.v0.task import task_pb2_grpc
from peloton.assembly.daemon import Daemon
from peloton.gateway.cluster import cluster_client
from peloton.gateway.ops import waits
from peloton.gateway.ops.ops import Ops
from peloton.gateway.ops.plans import Plans
from peloton.gateway.v0.job_manager import JobManager
from peloton.gateway.v0.resource_manager import ResourceManager
from peloton.gateway.v0.task_manager import TaskManager
from peloton.ops.v1 import ops_pb2 as ops
from peloton.ops.v1 import ops_pb2_grpc, plans_pb2_grpc
from peloton.ops.v1 import plans_pb2 as plans
from peloton.runtime.core.reading import listing, views
from peloton.runtime.ports import Session, SessionState, ShardId
from tests.adapters.test_daemon_wiring import SHARDS, Fleet, deployment, until
from tests.channels import channel_to
from tests.gateway.fleet_fixture import Deployment, default_config, named, pool_config

ANSWER_S_MAX, ASK_S_MAX = 90.0, 600.0
"""To learn that nobody is there takes no timeout: the daemons' is longer than the clients'."""
GROUPS = ("jobmgr", "resmgr", "hostmgr")
UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
Code = grpc.StatusCode


class Known(NamedTuple):
    """What there is in the cluster of a test."""

    deployment: Deployment
    job: str
    ended: str


class Call(NamedTuple):
    """One call: which groups must be there for it, and a request that is answered well."""

    needs: str
    request: Callable[[Known], Any]
    command: bool = False
    code: Code = Code.OK


def id_of(known: Known) -> peloton_pb2.JobID:
    return named(known.job)


def new_pool(known: Known) -> respool.CreateRequest:
    return respool.CreateRequest(config=pool_config(f"p{time.monotonic_ns()}", cpu=1.0))


def same_pool(known: Known) -> respool.UpdateRequest:
    pool = peloton_pb2.ResourcePoolID(value=known.deployment.pool)
    return respool.UpdateRequest(id=pool, config=pool_config("work"))


WRONG = Code.INVALID_ARGUMENT
CALLS: dict[tuple[str, str], Call] = {
    ("jobs", "Create"): Call("resmgr jobmgr", lambda k: k.deployment.request(), command=True),
    ("jobs", "Get"): Call("jobmgr", lambda k: job.GetRequest(id=id_of(k))),
    ("jobs", "Query"): Call("jobmgr", lambda k: job.QueryRequest(spec=job.QuerySpec())),
    ("jobs", "GetActiveJobs"): Call("jobmgr", lambda k: job.GetActiveJobsRequest()),
    ("jobs", "Delete"): Call(
        "jobmgr", lambda k: job.DeleteRequest(id=id_of(k)), command=True, code=Code.INTERNAL
    ),
    ("tasks", "Get"): Call("jobmgr", lambda k: task.GetRequest(jobId=id_of(k))),
    ("tasks", "List"): Call("jobmgr", lambda k: task.ListRequest(jobId=id_of(k))),
    ("tasks", "Query"): Call("jobmgr", lambda k: task.QueryRequest(jobId=id_of(k))),
    ("tasks", "Stop"): Call(
        "jobmgr", lambda k: task.StopRequest(jobId=named(k.ended)), command=True
    ),
    ("tasks", "Start"): Call(
        "jobmgr", lambda k: task.StartRequest(jobId=id_of(k)), command=True
    ),
    ("tasks", "Restart"): Call(
        "jobmgr", lambda k: task.RestartRequest(jobId=named(k.ended)), command=True
    ),
    ("tasks", "Refresh"): Call("jobmgr", lambda k: task.RefreshRequest(jobId=id_of(k))),
    ("tasks", "GetCache"): Call("jobmgr", lambda k: task.GetCacheRequest(jobId=id_of(k))),
    ("jobs", "GetCache"): Call("jobmgr", lambda k: job.GetCacheRequest(id=id_of(k))),
    ("jobs", "Refresh"): Call("jobmgr", lambda k: job.RefreshRequest(id=id_of(k))),
    ("jobs", "Update"): Call(
        "jobmgr", lambda k: job.UpdateRequest(id=id_of(k)), command=True, code=WRONG
    ),
    ("jobs", "Restart"): Call("jobmgr", lambda k: job.RestartRequest(id=id_of(k)), code=WRONG),
    ("jobs", "Start"): Call("jobmgr", lambda k: job.StartRequest(id=id_of(k)), code=WRONG),
    ("jobs", "Stop"): Call("jobmgr", lambda k: job.StopRequest(id=id_of(k)), code=WRONG),
    ("tasks", "GetPodEvents"): Call("jobmgr", lambda k: task.GetPodEventsRequest(jobId=id_of(k))),
    ("tasks", "DeletePodEvents"): Call(
        "jobmgr",
        lambda k: task.DeletePodEventsRequest(jobId=id_of(k), runId=1),
        command=True,
    ),
    ("tasks", "BrowseSandbox"): Call("jobmgr", lambda k: task.BrowseSandboxRequest(jobId=id_of(k))),
    ("pools", "CreateResourcePool"): Call("resmgr", new_pool, command=True),
    ("pools", "GetResourcePool"): Call("resmgr", lambda k: respool.GetRequest()),
    ("pools", "UpdateResourcePool"): Call("resmgr", same_pool, command=True),
    ("pools", "DeleteResourcePool"): Call(
        "resmgr",
        lambda k: respool.DeleteRequest(path=respool.ResourcePoolPath(value="/none")),
        command=True,
    ),
    ("pools", "LookupResourcePoolID"): Call(
        "resmgr", lambda k: respool.LookupRequest(path=respool.ResourcePoolPath(value="/work"))
    ),
    ("pools", "Query"): Call("resmgr", lambda k: respool.QueryRequest()),
    ("plans", "PlanJob"): Call(
        "resmgr hostmgr",
        lambda k: plans.PlanJobRequest(config=k.deployment.request().config),
    ),
    ("plans", "PlanPool"): Call(
        "resmgr",
        lambda k: plans.PlanPoolRequest(
            pool_id=same_pool(k).id.value, config=same_pool(k).config
        ),
    ),
    ("plans", "ExplainPool"): Call("resmgr", lambda k: plans.ExplainPoolRequest(path="/work")),
    ("ops", "Why"): Call("jobmgr", lambda k: ops.WhyRequest(job_id=k.job)),
    ("ops", "WaitJob"): Call("jobmgr", lambda k: ops.WaitJobRequest(job_id=k.job, timeout_s=0.1)),
    ("ops", "Watch"): Call("jobmgr", lambda k: ops.WatchRequest(job_id=k.job)),
    ("ops", "ListQuarantine"): Call("jobmgr resmgr hostmgr", lambda k: ops.ListQuarantineRequest()),
    ("ops", "Redrive"): Call(
        "jobmgr resmgr hostmgr",
        lambda k: ops.RedriveRequest(key=f"job/{k.job}"),
        command=True,
        code=Code.NOT_FOUND,
    ),
    ("ops", "Story"): Call("jobmgr", lambda k: ops.StoryRequest(key=f"job/{k.job}")),
    ("ops", "ListHosts"): Call("hostmgr", lambda k: ops.ListHostsRequest()),
    ("ops", "ListPools"): Call("resmgr", lambda k: ops.ListPoolsRequest()),
    ("ops", "PoolHistory"): Call("resmgr", lambda k: ops.PoolHistoryRequest(path="/work")),
    ("ops", "ShowHost"): Call(
        "hostmgr", lambda k: ops.ShowHostRequest(name="nobody"), code=Code.NOT_FOUND
    ),
    ("ops", "ForgetHost"): Call(
        "hostmgr",
        lambda k: ops.ForgetHostRequest(name="nobody"),
        command=True,
        code=Code.NOT_FOUND,
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_client, "CALL_ASK_S_MAX", ASK_S_MAX)
    monkeypatch.setattr(waits, "PATIENCE_S", ANSWER_S_MAX)


@pytest.fixture
def hurried(patient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits is told soon that nobody knows any more."""
    monkeypatch.setattr(waits, "PATIENCE_S", 0.2)


def said(known: Known, name: tuple[str, str]) -> tuple[Code, str]:
    """The status of a call, and its text."""
    service, method = name
    stub = getattr(known.deployment, service)
    try:
        answer = getattr(stub, method)(CALLS[name].request(known), timeout=ANSWER_S_MAX)
        if isinstance(answer, grpc.Future):  # a stream, which says at once that it has begun
            next(answer)
            answer.cancel()
    except grpc.RpcError as error:
        return error.code(), error.details()
    return Code.OK, ""


def well(known: Known) -> None:
    """Every call is answered as it should be."""
    for name, call in CALLS.items():
        code, text = said(known, name)
        assert code is call.code, (name, code, text)


@contextmanager
def fleet_with(*daemons: tuple[str, str]) -> Iterator[tuple[Fleet, Daemon, Known]]:
    """These daemons, a job that runs and one that has ended, and a door that owns nothing."""
    fleet = Fleet()
    try:
        for name, roles in daemons:
            fleet.start(name, roles)
        door = fleet.start("door", "api")
        until(fleet.settled)
        assert not door._region.owned()
        with deployment(door) as clients:
            running = clients.create(clients.request(defaultConfig=default_config(600.0)))
            ended = clients.create(clients.request())
            assert clients.ended(ended).done
            clients.until(lambda: clients.job(running).runtime.state == job.RUNNING)
            yield fleet, door, Known(clients, running, ended)
    finally:
        fleet.close()


EACH = tuple((group, f"{group},placement" if group == "hostmgr" else group) for group in GROUPS)


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def ready(door: Daemon, known: Known) -> set[bool]:
    """What all ways to ask for it say; one of them in it is unanimity."""
    Check = health_pb2.HealthCheckResponse
    answer = health_pb2_grpc.HealthStub(known.deployment.channel).Check(
        health_pb2.HealthCheckRequest()
    )
    found = {answer.status == Check.SERVING, door.health()[0]}
    assert status(f"http://{door.http}/health") == 200, "whatever is away, it can go on"
    return found | {status(f"http://{door.http}/ready") == 200}


def known_owners(door: Daemon, group: str) -> list[ShardId]:
    """Shards that this daemon believes to have an owner: it is told of changes a moment later."""
    membership_status = door._region.routes.membership_status
    shards = [ShardId(group, number) for number in range(SHARDS[group])]
    return [
        shard for shard in shards if membership_status is None or membership_status.owner_of(shard)
    ]


def test_the_table_has_every_call_that_is_served() -> None:
    servicers = {
        "jobs": JobManager,
        "tasks": TaskManager,
        "pools": ResourceManager,
        "ops": Ops,
        "plans": Plans,
    }
    served = {
        (name, method)
        for name, servicer in servicers.items()
        for method in vars(servicer)
        if method[0].isupper()
    }
    assert served == CALLS.keys()


@pytest.mark.parametrize("group", GROUPS)
def test_shards_without_an_owner_are_named_at_once_and_the_rest_is_answered(group: str) -> None:
    with fleet_with(*EACH) as (fleet, door, known):
        assert fleet.daemons.pop(group).stop()
        until(lambda: not known_owners(door, group))
        assert ready(door, known) == {False}, "all the cluster's shards count"
        assert f"no daemon with role {group} is there" in str(door.health()[1])
        for name, call in CALLS.items():
            code, text = said(known, name)
            if group in call.needs.split():
                assert code is UNAVAILABLE, (name, code, text)
                assert f"shard {group}/" in text, (name, text)
                assert f"has no owner: no daemon with role {group} is there" in text, (name, text)
            else:
                assert code is call.code, (name, code, text)
        fleet.start("again", dict(EACH)[group])
        until(fleet.settled)
        until(lambda: all(said(known, name)[0] is not UNAVAILABLE for name in CALLS))


def test_pages_of_a_listing_neither_overlap_nor_leave_anything_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Shards of two daemons, each looking at two of its jobs for one question."""
    for module in (listing, views):
        monkeypatch.setattr(module, "SCAN_MAX", 2)
    with fleet_with(*EACH, ("more", "jobmgr")) as (_, door, known):
        jobs = known.deployment.jobs
        made = [
            known.deployment.create(known.deployment.request(name=f"n{at % 3}")) for at in range(20)
        ]
        for each in made:
            known.deployment.ended(each)
        everything = {known.job, known.ended, *made}

        def paged(**spec: Any) -> list[str]:
            found: list[str] = []
            while True:
                asked = job.QueryRequest(spec=job.QuerySpec(**spec), summaryOnly=True)
                asked.spec.pagination.offset, asked.spec.pagination.limit = len(found), 5
                answer = jobs.Query(asked)
                assert len(answer.results) == min(5, answer.pagination.total - len(found))
                found += [line.id.value for line in answer.results]
                if len(found) == answer.pagination.total:
                    return found

        found = paged()
        assert len(found) == len(everything) and set(found) == everything
        assert found[::-1][2:] == made, "the newest first"
        assert paged(name="n1") == [each for each in found if each in made[1::3]]
        assert paged(jobStates=[job.RUNNING]) == [known.job]
        few = job.QueryRequest(spec=job.QuerySpec())
        few.spec.pagination.maxLimit = few.spec.pagination.limit = 7
        answer = jobs.Query(few)
        assert (len(answer.results), len(answer.records), answer.pagination.total) == (7, 7, 7)
        active = jobs.GetActiveJobs(job.GetActiveJobsRequest()).ids
        assert [one.value for one in active] == [known.job]
        with urllib.request.urlopen(f"http://{door.http}/metrics", timeout=60) as metrics:
            text = metrics.read().decode()
        assert 'peloton_jobs{state="SUCCEEDED"} 21.0' in text
        assert 'peloton_instances{state="RUNNING"} 1.0' in text


@contextmanager
def waiting(known: Known) -> Iterator[Callable[[], Code]]:
    """A call that waits for the job which runs on; it gives the status it ended with."""
    request = ops.WaitJobRequest(job_id=known.job, timeout_s=ASK_S_MAX)
    future = known.deployment.ops.WaitJob.future(request)
    assert not future.done()

    def ended() -> Code:
        over = threading.Event()
        future.add_done_callback(lambda done: over.set())
        assert over.wait(ANSWER_S_MAX), "it still waits"
        return Code(future.code())

    yield ended
    future.cancel()


def test_waits_and_watches_go_on_when_the_owner_of_their_shards_leaves() -> None:
    """Each change once and in order, and no gap; the waiter hears of the end from the new owner."""
    with fleet_with(*EACH, ("more", "jobmgr")) as (fleet, door, known):
        deployment = known.deployment
        stream = deployment.ops.Watch(ops.WatchRequest(kinds=["job"]), timeout=ASK_S_MAX)
        next(stream)
        made = [deployment.create(deployment.request()) for _ in range(6)]
        with waiting(known) as ended:
            assert fleet.daemons.pop("jobmgr").stop()
            until(fleet.settled)
            made += [deployment.create(deployment.request()) for _ in range(6)]
            for each in made:
                deployment.ended(each)
            deployment.tasks.Stop(task.StopRequest(jobId=named(known.job)))
            assert ended() is Code.OK
        found: list[ops.Event] = []
        while not any("StopOrdered" in event.facts for event in found):
            message = next(stream)
            assert not message.gaps
            found += message.events
        for shard in sorted({event.shard for event in found}):
            places = [(event.position, event.k) for event in found if event.shard == shard]
            assert places == sorted(set(places))
        created = [event.key for event in found if "JobMade" in event.facts]
        assert sorted(created) == sorted(f"job/{each}" for each in made)
        stream.cancel()


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("owner", [False, True], ids=["door", "owner"])
def test_a_daemon_that_lost_its_session_answers_nothing(owner: bool) -> None:
    """It may be cut off from everybody else, who know better by now."""
    with fleet_with(*EACH, ("rest", "jobmgr,api")) as (fleet, door, known):
        name = "rest" if owner else "door"
        line, daemon = fleet.lines[name], fleet.daemons[name]
        with channel_to(daemon.grpc) as channel, waiting(known):
            here = known._replace(deployment=reached(known.deployment, channel))
            with waiting(here) as ended:
                join, line.join = line.join, lambda *words: None  # type: ignore[method-assign]
                line.expire()
                assert ended() is UNAVAILABLE
            for call in CALLS:
                code, text = said(here, call)
                assert code is UNAVAILABLE, (call, code, text)
            assert ready(daemon, here) == {False}
            line.join = join  # type: ignore[method-assign]
        if owner:
            well(known)  # the others go on, with its shards


@pytest.mark.usefixtures("hurried")
def test_a_daemon_whose_session_is_in_doubt_answers_no_question() -> None:
    """Commands go on: the journal refuses those of an owner that is none any more. Before that and
    after it, a door that owns nothing answers every call."""
    with fleet_with(*EACH) as (fleet, door, known):
        assert ready(door, known) == {True}
        line = fleet.lines["door"]
        places = door._region.routes
        with waiting(known) as ended:
            # As after a pause of the process: nobody has told it anything yet.
            sure_for_s, places.sure_for_s = places.sure_for_s, lambda: 0.0
            assert ended() is UNAVAILABLE
        for name, call in CALLS.items():
            code, text = said(known, name)
            assert code is UNAVAILABLE or (call.command and code is call.code), (name, code, text)
        assert ready(door, known) == {False}
        line._tell(Session(line.member, SessionState.SUSPENDED))
        until(lambda: any("session is suspended" in text for text in door.health()[1]))
        code, text = said(known, ("jobs", "Get"))
        assert code is UNAVAILABLE and "ZooKeeper is unreachable since" in text, text
        places.sure_for_s = sure_for_s
        line._tell(Session(line.member, SessionState.CONNECTED, fleet.service.version))
        until(lambda: ready(door, known) == {True})
        well(known)


def reached(deployment: Deployment, channel: grpc.Channel) -> Deployment:
    """The same deployment, seen through another door."""
    there = copy.copy(deployment)
    there.channel = channel
    there.pools = respool_pb2_grpc.ResourceManagerStub(channel)
    there.jobs = job_pb2_grpc.JobManagerStub(channel)
    there.tasks = task_pb2_grpc.TaskManagerStub(channel)
    there.ops = ops_pb2_grpc.OpsStub(channel)
    there.plans = plans_pb2_grpc.PlansStub(channel)
    return there
