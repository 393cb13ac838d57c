"""The gRPC server: which services there are, under which names, and how they are reached.

A method that a servicer has is served, all others of the contract answer that they are not
supported yet. `serving.py` runs the calls: nothing of the cluster ever waits for a client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from peloton.api.v0.host import host_pb2
from peloton.api.v0.host.svc import host_svc_pb2
from peloton.api.v0.job import job_pb2
from peloton.api.v0.job.svc import job_svc_pb2
from peloton.api.v0.respool import respool_pb2
from peloton.api.v0.respool.svc import respool_svc_pb2
from peloton.api.v0.task import task_pb2
from peloton.api.v0.task.svc import task_svc_pb2
from peloton.api.v0.update.svc import update_svc_pb2
from peloton.api.v0.volume import volume_pb2
from peloton.api.v0.volume.svc import volume_svc_pb2
from peloton.api.v1alpha.admin.svc import admin_svc_pb2
from peloton.api.v1alpha.host import host_pb2 as host_v1_pb2
from peloton.api.v1alpha.host.svc import host_svc_pb2 as host_svc_v1_pb2
from peloton.api.v1alpha.job.stateless.svc import stateless_svc_pb2
from peloton.api.v1alpha.pod.svc import pod_svc_pb2
from peloton.api.v1alpha.respool.svc import respool_svc_pb2 as respool_svc_v1_pb2
from peloton.api.v1alpha.volume import volume_pb2 as volume_v1_pb2
from peloton.api.v1alpha.volume.svc import volume_svc_pb2 as volume_svc_v1_pb2
from peloton.api.v1alpha.watch.svc import watch_svc_pb2
from peloton.gateway.access.access_table import ACCESS_TABLE
from peloton.gateway.access.authentication import Authentication
from peloton.gateway.access.lockdowns import FollowedLocks, NoLocks, refusing
from peloton.gateway.access.permissions import Permissions
from peloton.gateway.cluster.cluster_client import ClusterClient
from peloton.gateway.cluster.feed import ClusterFeed
from peloton.gateway.cluster.files_anywhere import FilesAnywhere
from peloton.gateway.cluster.gates import Gates
from peloton.gateway.cluster.names_in_texts import TextGate
from peloton.gateway.cluster.sandboxes import SandboxFiles
from peloton.gateway.ops.actors import Actors
from peloton.gateway.ops.endpoints import Endpoints
from peloton.gateway.ops.health import Health
from peloton.gateway.ops.ops import Ops
from peloton.gateway.ops.plans import Plans
from peloton.gateway.ops.run_outputs import Leases, Outputs
from peloton.gateway.ops.schedules import Schedules
from peloton.gateway.private.kill_switch import KillSwitch
from peloton.gateway.private.private_services import private_services
from peloton.gateway.server.audit import AuditLog
from peloton.gateway.server.execution import REAL, Execution
from peloton.gateway.server.gate import GateOf
from peloton.gateway.server.intake import Intake
from peloton.gateway.server.receiving import parsed
from peloton.gateway.server.serving import Server
from peloton.gateway.server.unimplemented import refusals, services
from peloton.gateway.translate.short_names import SHORT, add_short
from peloton.gateway.translate.strategy_choice import STANDARD_STRATEGIES, StrategyChoice
from peloton.gateway.v0.host_service import HostService
from peloton.gateway.v0.job_manager import JobManager
from peloton.gateway.v0.resource_manager import ResourceManager
from peloton.gateway.v0.second_services import JobService, ResourcePoolService, TaskService
from peloton.gateway.v0.task_manager import TaskManager
from peloton.gateway.v0.update_service import UpdateService
from peloton.gateway.v0.volumes import VolumeService
from peloton.gateway.v1alpha.admin import AdminService
from peloton.gateway.v1alpha.pods import PodService
from peloton.gateway.v1alpha.service_watches import WATCHES_MAX, WatchService
from peloton.gateway.v1alpha.stateless import StatelessJobs
from peloton.ops.v1 import actors_pb2, endpoints_pb2, ops_pb2, outputs_pb2, plans_pb2, schedules_pb2
from peloton.runtime.far_files import FarFiles
from peloton.runtime.job_files import JobFileStore
from peloton.runtime.kinds import Kind
from peloton.runtime.shells.region import Region
from peloton.runtime.shells.secret_vault import SecretVault
from peloton.settings.config import RECEIVE_MAX_BYTES
from peloton.settings.notify import NO_URLS, AllowedUrls

MESSAGES_IN_FLIGHT = 3
"""So many of the longest messages may be coming in at once, over all calls; one may be at work."""
CONNECTIONS_MAX = 4096
WINDOW_BYTES = 64 * 1024
"""What a client may send of a message before it is read."""
HANDSHAKE_MS_MAX = 10_000
METADATA_BYTES_MAX = 16 * 1024


class ServerOptions(NamedTuple):
    """Optional settings of a server.

    `permissions` has the rules in force, and `audit` takes the changes; a daemon's has both.
    `notify` has the URLs where ends of jobs may be told. `images_run`: tasks with a container image
    are containers. `kills`: whether kills of the private services pass. `scarce_gpu`: hosts with
    gpus are kept for tasks that ask for one. `strategies`: by which tasks may be placed. `watches`:
    how many streams of WatchService may be open. `locks`: what is locked down. `secrets`: those of
    jobs; None: there are none. `far_files`: sources of the files of runs on other machines.
    `outside`: the hosts are of a cluster of another kind, which runs images and fetches files.
    `lease`: keeps what the runs of a job leave, if that can be done. `extensions`: kinds of others.
    `execution`: what the calls run on.
    """

    receive_max_bytes: int = RECEIVE_MAX_BYTES
    permissions: Permissions | None = None
    audit: AuditLog | None = None
    notify: AllowedUrls = NO_URLS
    images_run: bool = False
    kills: KillSwitch | None = None
    scarce_gpu: bool = False
    strategies: StrategyChoice = STANDARD_STRATEGIES
    watches: int = WATCHES_MAX
    locks: FollowedLocks = NoLocks()
    secrets: SecretVault | None = None
    far_files: Sequence[FarFiles] = ()
    outside: bool = False
    lease: Leases = lambda job, for_s: False
    files: JobFileStore | None = None
    extensions: Mapping[str, Kind] = {}
    execution: Execution = REAL


STANDARD_OPTIONS = ServerOptions()


def build_server(
    cluster: Region,
    addresses: Sequence[str],
    *,
    authentication: Authentication,
    boxes: SandboxFiles,
    options: ServerOptions = STANDARD_OPTIONS,
) -> tuple[Server, list[int]]:
    """Return a server on all these addresses, not started yet, and the ports it got.

    `authentication` knows its callers; `boxes` are the sandboxes, if those lie on this machine:
    then a listing names all files, and else the customary ones. Raises RuntimeError when an address
    cannot be had, and UnlistedMethod for a method without a row in the table of access.
    """
    cluster_client = ClusterClient(
        cluster,
        options.permissions,
        notify=options.notify,
        strategies=options.strategies,
        images_run=options.images_run,
    )
    cluster_client.execution = options.execution
    cluster_client.secrets, cluster_client.files = options.secrets, options.files
    cluster_client.on_mesos = options.outside
    feed = ClusterFeed(cluster)
    gates = Gates(cluster_client, ACCESS_TABLE, audit=options.audit)
    server = _limited(options, authentication, gates=gates.of)
    server.answers = TextGate(cluster_client)
    _share(server, cluster_client)
    server.locked = refusing(options.locks, ACCESS_TABLE)
    kills = options.kills or KillSwitch()
    files = FilesAnywhere(boxes, options.far_files)
    images_run = options.images_run or options.outside
    served = _services(cluster_client, files, feed=feed, images_run=images_run, kills=kills)
    served += _own_services(cluster_client, feed, options=options)
    outputs = Outputs(cluster_client, files, lease=options.lease)
    served.append((outputs_pb2.DESCRIPTOR.services_by_name["Outputs"], outputs))
    names = {*services()}
    for service, servicer in served:
        names |= {*_names(service)}
        if service.full_name in SHORT:
            add_short(service, SHORT[service.full_name])
        server.add(service, servicer, names=_names(service))
    health = health_pb2.DESCRIPTOR.services_by_name["Health"]
    names |= {health.full_name, reflection.SERVICE_NAME}
    checked = Health(cluster, frozenset(names))
    server.add(health, checked, names=[health.full_name])
    server.add_each(f"/{reflection.SERVICE_NAME}/ServerReflectionInfo", _reflection(names))
    server.refuse(refusals())
    return server, server.listen(addresses)


def _share(server: Server, cluster_client: ClusterClient) -> None:
    """Let callers have the places of this server, with some kept for administrators."""
    rights = cluster_client.permissions.rights
    server.administers = lambda context: rights(context) is None
    cluster_client.places += server.places
    server.places = cluster_client.places


def _services(
    cluster_client: ClusterClient,
    files: FilesAnywhere,
    *,
    feed: ClusterFeed,
    images_run: bool,
    kills: KillSwitch,
) -> list[tuple[ServiceDescriptor, Any]]:
    jobs = JobManager(cluster_client)
    tasks = TaskManager(cluster_client, files, images_run=images_run)
    pools = ResourceManager(cluster_client)
    second_pools = ResourcePoolService(pools, cluster_client, v1=False)
    pools_v1 = ResourcePoolService(pools, cluster_client, v1=True)
    return [
        (job_pb2.DESCRIPTOR.services_by_name["JobManager"], jobs),
        (task_pb2.DESCRIPTOR.services_by_name["TaskManager"], tasks),
        (respool_pb2.DESCRIPTOR.services_by_name["ResourceManager"], pools),
        (job_svc_pb2.DESCRIPTOR.services_by_name["JobService"], JobService(jobs, cluster_client)),
        (task_svc_pb2.DESCRIPTOR.services_by_name["TaskService"], TaskService(tasks)),
        (respool_svc_pb2.DESCRIPTOR.services_by_name["ResourcePoolService"], second_pools),
        (respool_svc_v1_pb2.DESCRIPTOR.services_by_name["ResourcePoolService"], pools_v1),
        (
            stateless_svc_pb2.DESCRIPTOR.services_by_name["JobService"],
            StatelessJobs(cluster_client),
        ),
        (
            pod_svc_pb2.DESCRIPTOR.services_by_name["PodService"],
            PodService(cluster_client, files, images_run=images_run),
        ),
        (
            update_svc_pb2.DESCRIPTOR.services_by_name["UpdateService"],
            UpdateService(cluster_client),
        ),
        *_host_services(cluster_client),
        *_volume_services(cluster_client),
        (schedules_pb2.DESCRIPTOR.services_by_name["Schedules"], Schedules(cluster_client)),
        *private_services(cluster_client, feed, kills=kills),
    ]


def _own_services(
    cluster_client: ClusterClient, feed: ClusterFeed, *, options: ServerOptions
) -> list[tuple[ServiceDescriptor, Any]]:
    """Return the services that need what a server was given."""
    scarce_gpu = options.scarce_gpu
    return [
        (
            ops_pb2.DESCRIPTOR.services_by_name["Ops"],
            Ops(
                cluster_client,
                feed,
                scarce_gpu=scarce_gpu,
                locks=options.locks,
                extensions=options.extensions.keys(),
            ),
        ),
        (
            actors_pb2.DESCRIPTOR.services_by_name["Actors"],
            Actors(cluster_client, feed, kinds=options.extensions),
        ),
        (
            plans_pb2.DESCRIPTOR.services_by_name["Plans"],
            Plans(cluster_client, scarce_gpu=scarce_gpu),
        ),
        (
            admin_svc_pb2.DESCRIPTOR.services_by_name["AdminService"],
            AdminService(cluster_client, options.locks),
        ),
        (endpoints_pb2.DESCRIPTOR.services_by_name["Endpoints"], Endpoints(cluster_client)),
        (
            watch_svc_pb2.DESCRIPTOR.services_by_name["WatchService"],
            WatchService(cluster_client, feed, watches_max=options.watches),
        ),
    ]


def _host_services(cluster_client: ClusterClient) -> list[tuple[ServiceDescriptor, Any]]:
    generations = ((host_pb2, host_svc_pb2), (host_v1_pb2, host_svc_v1_pb2))
    return [
        (
            svc.DESCRIPTOR.services_by_name["HostService"],
            HostService(cluster_client, host=host, svc=svc),
        )
        for host, svc in generations
    ]


def _volume_services(cluster_client: ClusterClient) -> list[tuple[ServiceDescriptor, Any]]:
    generations = ((volume_pb2, volume_svc_pb2), (volume_v1_pb2, volume_svc_v1_pb2))
    return [
        (
            svc.DESCRIPTOR.services_by_name["VolumeService"],
            VolumeService(cluster_client, volume=volume, svc=svc),
        )
        for volume, svc in generations
    ]


def _limited(
    options: ServerOptions,
    authentication: Authentication,
    *,
    gates: GateOf,
) -> Server:
    receive_max_bytes = options.receive_max_bytes
    return Server(
        [
            ("grpc.max_receive_message_length", receive_max_bytes),
            ("grpc.max_send_message_length", -1),
            # Two servers on one port would share its calls, each with a part of them.
            ("grpc.so_reuseport", 0),
            # Clients that wait for an answer ask now and then whether we are alive; left to
            # itself gRPC takes that for an attack, and hangs up.
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
            ("grpc.max_allowed_incoming_connections", CONNECTIONS_MAX),
            ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS_MAX),
            # A stream that nobody reads holds so much; gRPC would let it grow to megabytes.
            ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
            ("grpc.http2.bdp_probe", 0),
            ("grpc.max_metadata_size", METADATA_BYTES_MAX),
            ("grpc.absolute_max_metadata_size", METADATA_BYTES_MAX),
        ],
        Intake(
            message_bytes_max=receive_max_bytes, bytes_max=MESSAGES_IN_FLIGHT * receive_max_bytes
        ),
        authentication=authentication,
        gates=gates,
        execution=options.execution,
    )


def _names(service: ServiceDescriptor) -> list[str]:
    short = SHORT.get(service.full_name)
    return [service.full_name] if short is None else [service.full_name, short]


def _reflection(names: Iterable[str]) -> Callable[[bytes], bytes]:
    """Return a function that answers one question of a client that asks which calls there are."""
    servicer = reflection.ReflectionServicer(sorted(names))

    def answer(data: bytes) -> bytes:
        sent = parsed(reflection_pb2.ServerReflectionRequest, data)
        (found,) = servicer.ServerReflectionInfo(iter((sent,)), None)
        return bytes(found.SerializeToString())

    return answer
