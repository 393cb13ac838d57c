"""Well-formed requests that nobody means, to every method under every name of its service.

Each is answered, with a typed status or a typed error in the answer. What is refused has changed
nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import threading
from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v1alpha.admin.svc import admin_svc_pb2 as svc
from peloton.api.v1alpha.admin.svc import admin_svc_pb2_grpc
from peloton.gateway.access.access_table import ACCESS_TABLE
from peloton.gateway.server.unimplemented import described_services
from peloton.gateway.translate.short_names import SHORT
from peloton.ops.v1 import ops_pb2
from peloton.private.hostmgr.hostsvc import hostsvc_pb2 as hostsvc
from peloton.private.hostmgr.hostsvc import hostsvc_pb2_grpc
from tests.gateway import fleet_fixture as t
from tests.gateway.server.hostile import bytes_of, forget

CODE = grpc.StatusCode
FAILURES = {CODE.INTERNAL, CODE.UNKNOWN, CODE.DATA_LOSS, CODE.DEADLINE_EXCEEDED, CODE.CANCELLED}
INTERNAL_LISTS = ("StartMaintenance", "CompleteMaintenance")
"""These answer a list with a wrong host with INTERNAL, as the original does."""
UNKNOWN_ALWAYS = ("GetMesosMasterHostPort", "MoveHosts")
"""These answer so where they find no master, or cannot do it, as the original does."""
INTERNAL_ALWAYS = (
    "GetHosts", "LaunchTasks", "AcquireHosts", "TerminateLeases", "LaunchPods", "KillPods",
    "KillAndHoldPods",
)  # fmt: skip
"""These answer so whatever they refuse, or do not find."""
ANSWER_S_MAX = t.WAIT_S_MAX
WAITS = ("Watch", "WaitJob", "WatchEventStreamEvent", "WatchHostSummaryEvent")
"""Well-formed requests of these wait for what may never happen."""
WAIT_FOR_NOTHING = ("GetPreemptibleTasks", "DequeueGangs", "GetPlacements")
"""These answer that nothing came, after the timeout in milliseconds."""
EXAMPLES = 8
EXAMPLES_NIGHTLY = 100
UNSERVED_EXAMPLES = 2
REPEATED_EACH = 2
PASSES_MAX = 20
"""In one of them nothing is written: what was granted before may go on in others."""
A_WHILE_S = 0.2
"""What is done after an answer is written by then."""
SERVICES = (
    *described_services(),
    ops_pb2.DESCRIPTOR.services_by_name["Ops"],
    health_pb2.DESCRIPTOR.services_by_name["Health"],
)
EVERY = [method for service in SERVICES for method in service.methods]
METHODS = [method for method in EVERY if method.full_name in ACCESS_TABLE]
UNSERVED = [method for method in EVERY if method.full_name not in ACCESS_TABLE]


class Refused(NamedTuple):
    """A call that changed nothing, or so it was answered."""

    method: MethodDescriptor
    path: str
    data: bytes


class Caller:
    """Calls with any bytes, and what was refused of them."""

    def __init__(self, deployment: t.Deployment) -> None:
        self.deployment = deployment
        self.refused: list[Refused] = []
        self.begun = 0
        self.spoiled = True

    def begin(self, method: MethodDescriptor) -> None:
        """Make pools and a job, if earlier requests may have changed or deleted those before."""
        if self.spoiled:
            self._begin()
        self.spoiled = ACCESS_TABLE[method.full_name].objects is not None

    def _begin(self) -> None:
        deployment, self.begun = self.deployment, self.begun + 1
        self.unlock()
        self.release()
        self.pool = deployment.make_pool(f"work{self.begun}", cpu=1.0)
        self.parent = deployment.make_pool(f"parent{self.begun}", cpu=1.0)
        in_pool = peloton_pb2.ResourcePoolID(value=self.pool)
        granted = deployment.request(2, respoolID=in_pool)
        self.job = deployment.create(granted)
        deployment.ended(self.job)
        self.bases = _bases(granted, self.job, parent=self.parent)
        # No host by its name alone: it would be forgotten, and then there is no room for the job.
        self.known = (
            self.job, self.pool, self.parent, f"/work{self.begun}", "root", f"{self.job}-0",
            f"job/{self.job}", f"task/{self.job}/0", f"respool/{self.pool}",
            f"slice/{self.job}/0", "host/a", "inventory/0", "job", "task",
        )  # fmt: skip

    def unlock(self) -> None:
        """End the lockdowns that calls have begun: all other calls would be refused for them."""
        admin = admin_svc_pb2_grpc.AdminServiceStub(self.deployment.channel)
        admin.RemoveLockdown(svc.RemoveLockdownRequest(components=[*svc.Component.values()]))

    def release(self) -> None:
        """Give back the hosts that calls have held: jobs would wait for them."""
        hosts = hostsvc_pb2_grpc.InternalHostServiceStub(self.deployment.channel)
        offers = hosts.GetOutstandingOffers(hostsvc.GetOutstandingOffersRequest()).offers
        held = [{"hostname": one.hostname, "id": {"value": one.id.value}} for one in offers]
        hosts.ReleaseHostOffers(hostsvc.ReleaseHostOffersRequest(hostOffers=held))
        found = hosts.GetHostsByQuery(hostsvc.GetHostsByQueryRequest()).hosts
        tasks = [task for one in found for task in one.held_tasks]
        hosts.ReleaseHostsHeldForTasks(hostsvc.ReleaseHostsHeldForTasksRequest(ids=tasks))

    def call(self, path: str, method: MethodDescriptor, data: bytes) -> bool:
        """Whether it was refused, which it must be by a type."""
        kind = GetMessageClass(method.output_type)
        sent: Any = iter((data,)) if method.client_streaming else data
        make = "stream" if method.client_streaming else "unary"
        call = getattr(self.deployment.channel, f"{make}_stream")(path)
        key = (("peloton-request-key", hashlib.sha256(data).hexdigest()),)
        stream = call(sent, timeout=ANSWER_S_MAX, metadata=key)
        try:
            answer = kind.FromString(next(stream, b""))
        except grpc.RpcError as error:
            text = error.details()
            of_list = method.name in INTERNAL_LISTS and names_a_list(method, data)
            internal = of_list or method.name in INTERNAL_ALWAYS
            told = error.code() not in FAILURES or (internal and error.code() is CODE.INTERNAL)
            unknown = method.name in UNKNOWN_ALWAYS and error.code() is CODE.UNKNOWN
            told = told or unknown
            assert told, (path, data, error.code(), text)
            assert text and "Traceback" not in text and ".py" not in text, (path, data, text)
            refused = True
        else:
            refused = any(field.name == "error" for field, _ in answer.ListFields())
            stream.cancel()
        if refused:
            self.refused.append(Refused(method, path, data))
        return refused


def names_a_list(method: MethodDescriptor, data: bytes) -> bool:
    """Whether the request is for several hosts."""
    sent = GetMessageClass(method.input_type).FromString(data)
    return bool(sent.hostnames) and not sent.hostname


def _bases(granted: job_pb2.CreateRequest, job_id: str, *, parent: str) -> dict[str, bytes]:
    """Requests that would be granted, by method: what is added to one changes or spoils it."""
    pool = respool_pb2.CreateRequest(config=t.pool_config("hostile", parent, cpu=1.0))
    found = {
        "JobManager.Create": granted,
        "ResourceManager.CreateResourcePool": pool,
        "ResourceManager.UpdateResourcePool": respool_pb2.UpdateRequest(config=pool.config),
        "JobManager.Get": job_pb2.GetRequest(id=t.named(job_id)),
        "TaskManager.Stop": task_pb2.StopRequest(jobId=t.named(job_id)),
        "TaskManager.Start": task_pb2.StartRequest(jobId=t.named(job_id)),
        "TaskManager.List": task_pb2.ListRequest(jobId=t.named(job_id)),
        "TaskManager.Query": task_pb2.QueryRequest(jobId=t.named(job_id)),
        "TaskManager.GetPodEvents": task_pb2.GetPodEventsRequest(jobId=t.named(job_id)),
    }
    return {name: message.SerializeToString() for name, message in found.items()}


@pytest.fixture(scope="module")
def caller(deployment: t.Deployment) -> Iterator[Caller]:
    yield Caller(deployment)
    forget()


@pytest.fixture(autouse=True)
def healthy(deployment: t.Deployment) -> Iterator[None]:
    """Nothing was logged as a failure, and the server is healthy afterwards."""
    with capture_logs() as logged:
        yield
    assert [entry for entry in logged if entry["log_level"] == "error"] == []
    sent = health_pb2.HealthCheckRequest()
    answer = health_pb2_grpc.HealthStub(deployment.channel).Check(sent, timeout=t.WAIT_S_MAX)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def paths(method: MethodDescriptor) -> list[str]:
    service = method.containing_service.full_name
    names = [service, SHORT[service]] if service in SHORT else [service]
    return [f"/{name}/{method.name}" for name in names]


def requests(caller: Caller, method: MethodDescriptor) -> st.SearchStrategy[bytes]:
    """Any request of a method; also one that would be granted, but for what is added to it."""
    described = method.input_type
    name = f"{method.containing_service.name}.{method.name}"
    base = caller.bases.get(name, b"")
    any_bytes = bytes_of(described, caller.known)
    found = any_bytes | any_bytes.map(lambda data: base + data) if base else any_bytes
    if method.name in WAIT_FOR_NOTHING:
        kind = GetMessageClass(described)
        found = found.map(lambda data: data + kind(timeout=10).SerializeToString())
    if method.name in WAITS:  # a time that is over soon, whatever was said before
        soon = ops_pb2.WaitJobRequest(timeout_s=0.01).SerializeToString()
        found = found.map(lambda data: data + soon if method.name == "WaitJob" else data)
    return found


def attack(caller: Caller, method: MethodDescriptor, *, examples: int) -> None:
    @settings(
        max_examples=examples, deadline=None, database=None,
        suppress_health_check=[*HealthCheck],
    )  # fmt: skip
    @given(data=requests(caller, method), path=st.sampled_from(paths(method)))
    def each(data: bytes, path: str) -> None:
        caller.call(path, method, data)

    each()


def full_name(method: MethodDescriptor) -> str:
    return method.full_name


@pytest.mark.parametrize("method", METHODS, ids=full_name)
def test_every_request_is_answered_by_a_type(caller: Caller, method: MethodDescriptor) -> None:
    caller.begin(method)
    attack(caller, method, examples=EXAMPLES)


@pytest.mark.nightly
@pytest.mark.parametrize("method", METHODS, ids=full_name)
def test_very_many_requests(caller: Caller, method: MethodDescriptor) -> None:
    caller.begin(method)
    attack(caller, method, examples=EXAMPLES_NIGHTLY)


def test_what_nothing_serves_is_refused_whatever_it_says(caller: Caller) -> None:
    caller.begin(METHODS[0])
    before = len(caller.refused)
    for method in UNSERVED:
        attack(caller, method, examples=UNSERVED_EXAMPLES)
    assert len(caller.refused) - before >= len(UNSERVED)


def positions(folder: Path) -> list[tuple[str, int, int]]:
    """How far the journal of each shard is."""
    with contextlib.closing(sqlite3.connect(folder / "journal.db")) as journal:
        rows = journal.execute("SELECT shard_group, shard_number, last_position FROM register")
        return sorted(rows)


def newest_of_each(refused: list[Refused]) -> list[Refused]:
    """The last ones of each method."""
    kept: defaultdict[str, deque[Refused]] = defaultdict(lambda: deque(maxlen=REPEATED_EACH))
    for each in refused:
        kept[each.method.full_name].append(each)
    return [each for some in kept.values() for each in some]


def test_what_is_refused_changes_nothing(caller: Caller, folder: Path) -> None:
    """What the tests above were refused, once more, until nobody writes meanwhile."""
    if len(newest_of_each(caller.refused)) <= len(METHODS):  # this test is run alone
        for method in METHODS:
            caller.begin(method)
            attack(caller, method, examples=2 * REPEATED_EACH)
    refused = newest_of_each(caller.refused)
    assert len(refused) > len(METHODS)
    for _ in range(PASSES_MAX):
        before = positions(folder)
        # What is granted by now changes things, and is not repeated again.
        left = [each for each in refused if caller.call(each.path, each.method, each.data)]
        threading.Event().wait(A_WHILE_S)
        if left == refused and positions(folder) == before:
            break
        refused = left
    else:
        raise AssertionError("in each pass something was written")
    assert len(refused) > len(METHODS) // 2
