"""A whole cluster in this process: real shells and journal, simulated runs, real servers.

Turns a folder (with `runs`, where sandboxes are looked for) into stubs of every service. A test
says only what a client can say.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest

from peloton.actors.host.inventory.messages import OpenInventory, inventory_key
from peloton.actors.host.messages import ConfigureHost
from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool.messages import ROOT, OpenRoot
from peloton.api.v0 import peloton_pb2
from peloton.api.v0.job import job_pb2, job_pb2_grpc
from peloton.api.v0.respool import respool_pb2, respool_pb2_grpc
from peloton.api.v0.task import task_pb2, task_pb2_grpc
from peloton.assembly.kinds import kinds
from peloton.assembly.lockdowns import GatedBackend, LockFollower, rest_goals, stop_placer
from peloton.assembly.notifier import Notifier
from peloton.assembly.owner_rights import OwnerRights
from peloton.assembly.placer_service import PlacerService
from peloton.assembly.readiness import Readiness
from peloton.backends import simulated
from peloton.backends.port import Backend
from peloton.gateway.access.authentication import Authentication
from peloton.gateway.access.permissions import Permissions
from peloton.gateway.cluster.files_anywhere import FileRoots
from peloton.gateway.cluster.sandboxes import SandboxFiles
from peloton.gateway.grpc_server import STANDARD_OPTIONS, ServerOptions, build_server
from peloton.gateway.http_server import OPEN, HttpServer
from peloton.ops.v1 import ops_pb2, ops_pb2_grpc, plans_pb2_grpc
from peloton.placement.messages import Label
from peloton.runtime.adapters.sqlite_store import SqliteJournal
from peloton.runtime.adapters.system_clock import SystemClock
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.kinds import Kind
from peloton.runtime.shells.root import start
from peloton.runtime.vocabulary import key
from peloton.settings.config import Address
from peloton.settings.notify import LOOPBACK, AllowedUrls
from tests.channels import CHANNEL

SIZES = {"jobmgr": 2, "resmgr": 1, "hostmgr": 2}
NO_EXTENSIONS: Mapping[str, Kind] = {}
EXTENSION_SHARDS = 4
HOSTS = ("a", "b", "c")
ROOM = Resources(4 * UNIT, 2048 * UNIT, 20000 * UNIT, 0)
WAIT_S_MAX = 60.0
"""For what takes a moment, on a machine that has other things to do."""
RECEIVE_BYTES_MAX = 16 * 1024 * 1024
OPEN_TO_ALL: dict[str, Any] = {
    "authentication": Authentication.open(),
    "boxes": SandboxFiles(None, ("127.0.0.1", 1)),
}
"""For a server that serves no files, and whoever calls."""


def refused(call: Any, sent: Any) -> tuple[grpc.StatusCode, str]:
    """The code and the text with which a call ends."""
    with pytest.raises(grpc.RpcError) as caught:
        call(sent)
    return caught.value.code(), caught.value.details()


class Deployment:
    """The stubs, and the pool `/work` that may use everything."""

    def __init__(self, region: Any, channel: grpc.Channel, *, http: Address, api: str = "") -> None:
        self.region = region
        self.api = api
        self.channel = channel
        self.http = http
        self.pools = respool_pb2_grpc.ResourceManagerStub(channel)
        self.jobs = job_pb2_grpc.JobManagerStub(channel)
        self.tasks = task_pb2_grpc.TaskManagerStub(channel)
        self.ops = ops_pb2_grpc.OpsStub(channel)
        self.plans = plans_pb2_grpc.PlansStub(channel)
        path = respool_pb2.LookupRequest(path={"value": "/work"})
        known = str(self.pools.LookupResourcePoolID(path).id.value)
        self.pool = known or self.make_pool("work")  # the journal may be an older deployment's

    def make_pool(self, name: str, parent: str = "root", *, cpu: float = 12.0) -> str:
        """A pool and its id."""
        config = pool_config(name, parent, cpu=cpu)
        answer = self.pools.CreateResourcePool(respool_pb2.CreateRequest(config=config))
        assert not answer.HasField("error"), answer
        return str(answer.result.value)

    def request(self, instances: int = 1, **more: Any) -> job_pb2.CreateRequest:
        """A job that any pool takes; fields of the config by name."""
        config = job_pb2.JobConfig(
            name="test",
            owningTeam="team",
            instanceCount=instances,
            respoolID=peloton_pb2.ResourcePoolID(value=self.pool),
            defaultConfig=more.pop("defaultConfig", default_config()),
        )
        config.MergeFrom(job_pb2.JobConfig(**more))
        return job_pb2.CreateRequest(config=config)

    def create(self, request: job_pb2.CreateRequest, **options: Any) -> str:
        """The id of a new job."""
        answer = self.jobs.Create(request, **options)
        assert not answer.HasField("error"), answer
        return str(answer.jobId.value)

    def job(self, job_id: str) -> job_pb2.JobInfo:
        """A job that exists."""
        answer = self.jobs.Get(job_pb2.GetRequest(id=named(job_id)))
        assert not answer.HasField("error"), answer
        return answer.jobInfo

    def ended(self, job_id: str) -> ops_pb2.WaitJobResponse:
        """Wait for the end of a job."""
        answer = self.ops.WaitJob(ops_pb2.WaitJobRequest(job_id=job_id, timeout_s=60))
        assert answer.done, answer
        return answer

    def task(self, job_id: str, instance: int = 0) -> task_pb2.GetResponse:
        """One instance."""
        return self.tasks.Get(task_pb2.GetRequest(jobId=named(job_id), instanceId=instance))

    def until(self, wanted: Callable[[], Any]) -> Any:
        """Ask until there is an answer."""
        return until(wanted)


def until(wanted: Callable[[], Any], *, within_s: float = WAIT_S_MAX) -> Any:
    """Ask until there is an answer."""
    end_s, pause = time.monotonic() + within_s, threading.Event()
    while time.monotonic() < end_s:
        found = wanted()
        if found:
            return found
        pause.wait(0.01)
    raise AssertionError("it never came to be")


def named(job_id: str) -> peloton_pb2.JobID:
    """The message of an id."""
    return peloton_pb2.JobID(value=job_id)


def pool_config(
    name: str, parent: str = "root", *, cpu: float = 12.0
) -> respool_pb2.ResourcePoolConfig:
    """A pool with a limit for every kind."""
    limits = {"cpu": cpu, "memory": 6144.0, "disk": 60000.0, "gpu": 0.0}
    config = respool_pb2.ResourcePoolConfig(name=name)
    config.parent.value = parent
    for kind, limit in limits.items():
        config.resources.add(kind=kind, reservation=0, limit=limit, share=1)
    return config


def default_config(seconds: float = 0.02, code: int = 0) -> task_pb2.TaskConfig:
    """A small task that ends after a while."""
    config = task_pb2.TaskConfig(name="t")
    config.resource.cpuLimit, config.resource.memLimitMb = 0.1, 1.0
    config.command.shell, config.command.value = True, "true"
    add = config.command.environment.variables.add
    add(name=simulated.DURATION_VARIABLE, value=str(seconds))
    add(name=simulated.EXIT_VARIABLE, value=str(code))
    return config


@contextlib.contextmanager
def running(
    folder: Path,
    journal: SqliteJournal | None = None,
    *,
    backend: Backend | None = None,
    options: ServerOptions = STANDARD_OPTIONS,
    of_kinds: Mapping[str, Kind] | None = None,
    authentication: Authentication | None = None,
    extensions: Mapping[str, Kind] = NO_EXTENSIONS,
) -> Iterator[Deployment]:
    """A cluster that is gone afterwards; on a journal and a backend of its own, or on these."""
    sizes = SIZES | dict.fromkeys(extensions, EXTENSION_SHARDS)
    inventories = [inventory_key(number) for number in range(SIZES["hostmgr"])]
    backend = backend or simulated.SimulatedBackend(HOSTS)
    placer = PlacerService(inventories)
    gate = GatedBackend(backend, lambda mail: root.region.tell(mail))
    root = start(
        {**(of_kinds or kinds(SIZES)), **extensions},
        journal or SqliteJournal(folder / "journal.db"),
        sizes=sizes,
        clock=SystemClock(),
        services={"placer": placer, backend.key: gate},
    )
    allowed = AllowedUrls([LOOPBACK])
    notifier = Notifier(allowed, cluster="test", report=print)
    http = server = None
    locks = LockFollower(root.region)
    locks.on_change(rest_goals(root.goals))
    locks.on_change(gate.obey)
    locks.on_change(stop_placer(root.region.tell, lambda: placer.placer.key))
    try:
        region = root.region
        root.opened.result(WAIT_S_MAX)
        region.register_service(notifier.key, notifier, outward=True)
        notifier.start(region.tell)
        judge = OwnerRights(options.permissions or Permissions(), lambda: None, denied=print)
        region.register_service(judge.key, judge, outward=True)
        locks.start()
        region.tell([Envelope(ROOT, OpenRoot())])
        region.tell([Envelope(inventory, OpenInventory()) for inventory in inventories])
        labels = (Label("rack", "r1"),)
        hosts = [key("host", name) for name in HOSTS]
        configure = ConfigureHost(ROOM, labels, backend.key)
        region.tell([Envelope(host, configure) for host in hosts])
        backend.start(region.tell)
        _wait_for_room(region, inventories)
        here, runs = Address("127.0.0.1", 0), folder / "runs"
        http = HttpServer(here, region, sandboxes=FileRoots(runs), access=OPEN)
        server, ports = build_server(
            region,
            ["127.0.0.1:0"],
            authentication=authentication or Authentication.open(),
            boxes=SandboxFiles(runs, (http.address.host, http.address.port)),
            options=options._replace(
                receive_max_bytes=RECEIVE_BYTES_MAX,
                notify=allowed,
                locks=locks,
                extensions=extensions,
            ),
        )
        server.start()
        api = f"127.0.0.1:{ports[0]}"
        with grpc.insecure_channel(api, options=CHANNEL) as channel:
            yield Deployment(region, channel, http=http.address, api=api)
    finally:
        if server is not None:
            server.stop(0).wait(WAIT_S_MAX)
        if http is not None:
            http.close()
        locks.stop()
        root.stop()
        notifier.close()


def _wait_for_room(region: Any, inventories: list[Any]) -> None:
    end, pause = time.monotonic() + WAIT_S_MAX, threading.Event()
    muster, hosts = Readiness(region, inventories), [key("host", name) for name in HOSTS]
    while time.monotonic() < end:
        if muster.all_up(hosts, alone=True):
            return
        pause.wait(0.01)
    raise AssertionError("the hosts never came up")
