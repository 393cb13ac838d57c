"""A cluster with two doors: an open one to make objects, and one that is guarded by rules.

Who calls is said by metadata at both doors, in place of a proof: `how:name:role`.
"""

from __future__ import annotations

import contextlib
import functools
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from peloton.api.v0.job import job_pb2
from peloton.api.v0.task import task_pb2
from peloton.gateway.access.authentication import Authentication
from peloton.gateway.access.permissions import Permissions
from peloton.gateway.cluster.sandboxes import SandboxFiles
from peloton.gateway.grpc_server import STANDARD_OPTIONS, ServerOptions, build_server
from peloton.gateway.private.kill_switch import KillSwitch
from peloton.gateway.server.audit import AUDIT_LOG, AuditLog
from peloton.runtime.core.principal import BASIC, UNVERIFIED, Principal
from peloton.runtime.core.reading.changes import CHANGES_MAX, Mark
from peloton.runtime.kinds import Kind
from tests.gateway import fleet_fixture as t

CALLER = "test-caller"
RULES = """\
pools:
  /: {administer: ["role:admin"]}
  /team: {submit: [sue], stop: [otto], see: [vera], administer: ["role:team-admin"]}
  /other: {submit: [olga], see: [olga], stop: [olga]}
"""
ROLES = {
    "administrator": Principal("root", BASIC, role="admin"),
    "pool admin": Principal("paula", BASIC, role="team-admin"),
    "operator": Principal("otto", BASIC),
    "submitter": Principal("sue", BASIC),
    "viewer": Principal("vera", BASIC),
    "stranger": Principal("zoe", BASIC),
    "unverified": Principal("sue", UNVERIFIED),
}
JOBS, TASKS = "peloton.api.v0.job.JobManager", "peloton.api.v0.task.TaskManager"
POOLS, OPS = "peloton.api.v0.respool.ResourceManager", "peloton.ops.v1.Ops"
LONG_S = 6000.0


def believed() -> Authentication:
    """Takes the word of a caller for a proof; whoever says nothing is an administrator."""
    return Authentication(_believed)


def _believed(path: str, metadata: Mapping[str, Any], *, peer: str, identities: Any) -> Principal:
    how, name, role = metadata.get(CALLER, f"{BASIC}:setup:admin").split(":")
    return Principal(name, how, "10.0.0.7", role=role)


def said_by(principal: Principal) -> list[tuple[str, str]]:
    """The metadata of a call."""
    return [(CALLER, f"{principal.how}:{principal.name}:{principal.role}")]


class Guarded:
    """Both doors, and the pools of the rules with a long job in each."""

    def __init__(self, open_door: t.Deployment, channel: grpc.Channel, *, folder: Path) -> None:
        self.open = open_door
        self.channel = channel
        self.folder = folder
        self._looked: dict[Any, Looked] = {}
        pool = open_door.make_pool
        team, other = pool("team"), pool("other")
        self.pools = {
            "/team": team,
            "/other": other,
            "/team/jobs": pool("jobs", team),
            "/team/more": pool("more", team),
            "/other/jobs": pool("jobs", other),
        }
        self.job("/team/more")

    def job(self, path: str, by: Principal | None = None, **more: Any) -> str:
        """A new job in a pool that runs for long, by anybody; it has its first event."""
        default = t.default_config(seconds=LONG_S)
        request = self.open.request(1, defaultConfig=default, **more)
        request.config.respoolID.value = self.pools[path]
        said = said_by(by) if by is not None else None
        job = self.open.create(request, metadata=said)
        # Before it has an event it is to some calls as a job that does not exist.
        sent = task_pb2.GetPodEventsRequest(jobId=t.named(job), limit=1)
        self.open.until(lambda: self.open.tasks.GetPodEvents(sent).result)
        return job

    def call(self, method: str, sent: Any, by: Principal) -> tuple[grpc.StatusCode, str, bytes]:
        """Code, text and answer of a unary call through the guarded door."""
        service, _, name = method.rpartition(".")
        call = self.channel.unary_unary(f"/{service}/{name}")
        try:
            data = call(sent.SerializeToString(), metadata=said_by(by), timeout=t.WAIT_S_MAX)
        except grpc.RpcError as error:
            return error.code(), error.details(), b""
        return grpc.StatusCode.OK, "", data

    def digest(self) -> tuple[Mark | None, ...]:
        """The newest change in each shard that a client ordered: another order would move one."""
        region, known = self.open.region, self._looked
        looks = {
            shard: region.inspect(shard, functools.partial(_looked, known.get(shard, NOTHING)))
            for shard in region.owned()
        }
        known |= {shard: look.result(t.WAIT_S_MAX) for shard, look in looks.items()}
        return tuple(known[shard].ordered for shard in looks)


class Looked(NamedTuple):
    """How far the changes of a shard were looked through, and the newest that a client ordered."""

    end: Mark
    ordered: Mark | None


NOTHING = Looked(Mark(0, 0), None)


def _looked(before: Looked, core: Any) -> Looked:
    end, ordered, more = *before, True
    while more:
        page = core.changes.after(end, limit=CHANGES_MAX)
        end, more = page.mark, page.more
        ordered = max((one.mark for one in page.changes if one.line.who), default=ordered)
    return Looked(end, ordered)


class _Unthrown(KillSwitch):
    """One cluster serves every cell of the table, in whatever order."""

    def disable(self) -> None:
        """Nothing: the next kill passes."""


@contextlib.contextmanager
def guarded(
    folder: Path,
    rules: str = RULES,
    *,
    options: ServerOptions = STANDARD_OPTIONS,
    extensions: Mapping[str, Kind] = t.NO_EXTENSIONS,
) -> Iterator[Guarded]:
    """The cluster, which is gone afterwards; `options` of the guarded door."""
    file = folder / "access.yaml"
    file.write_text(rules)
    audit = AuditLog(folder / AUDIT_LOG)
    with t.running(folder, authentication=believed(), extensions=extensions) as open_door:
        server, (port,) = build_server(
            open_door.region,
            ["127.0.0.1:0"],
            authentication=believed(),
            boxes=SandboxFiles(None, ("127.0.0.1", 1)),
            options=options._replace(
                permissions=Permissions(file),
                audit=audit,
                kills=_Unthrown(),
                extensions=extensions,
            ),
        )
        server.start()
        try:
            with grpc.insecure_channel(f"127.0.0.1:{port}", options=t.CHANNEL) as channel:
                yield Guarded(open_door, channel, folder=folder)
        finally:
            server.stop(0).wait(t.WAIT_S_MAX)
            audit.close()


def create_request(pool: str, **more: Any) -> job_pb2.CreateRequest:
    """A job for a pool by its id."""
    config = job_pb2.JobConfig(name="test", instanceCount=1, defaultConfig=t.default_config(LONG_S))
    config.MergeFrom(job_pb2.JobConfig(**more))
    config.respoolID.value = pool
    return job_pb2.CreateRequest(config=config)


def unknown_id() -> str:
    """An id of nothing."""
    return str(uuid.uuid4())
