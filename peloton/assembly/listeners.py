"""The listeners for clients: the HTTP server and the gRPC server of a daemon, and their addresses.

Turns settings into servers on a region, or into `CannotStart` with the name of the setting. The
caller decides when they begin to listen.
"""

from __future__ import annotations

import errno
import functools
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

from peloton.actors.schedule.messages import AskRights
from peloton.assembly import access, task_accounts, task_images, task_limits
from peloton.assembly.access import ClientAccess
from peloton.assembly.actor_calls import ActorClient
from peloton.assembly.dead_threads import DEAD_THREADS
from peloton.assembly.extensions import extensions
from peloton.assembly.mesos_access import far_files
from peloton.assembly.owner_rights import OwnerRights, audit_entry
from peloton.assembly.port_holder import port_holder
from peloton.assembly.strategies import strategies_of
from peloton.backends.job_files import JobFileFolder
from peloton.failures import CannotStart
from peloton.gateway.access.lockdowns import FollowedLocks, NoLocks, lock_notes
from peloton.gateway.access.permissions import Permissions
from peloton.gateway.access.principals import SharedQuota
from peloton.gateway.cluster.files_anywhere import FileRoots
from peloton.gateway.cluster.sandboxes import SandboxFiles
from peloton.gateway.grpc_server import ServerOptions, build_server
from peloton.gateway.http_server import HttpServer
from peloton.gateway.ops.run_outputs import Leases
from peloton.gateway.private.kill_switch import KillSwitch
from peloton.gateway.server.audit import AUDIT_LOG, AuditLog
from peloton.gateway.server.carrier import carrier_notes
from peloton.runtime.adapters import private_folder
from peloton.runtime.core.health import NotReadyReason
from peloton.runtime.far_files import FarFiles
from peloton.runtime.ports import ClusterRecord
from peloton.runtime.shells.region import Region
from peloton.runtime.shells.secret_vault import SecretVault
from peloton.runtime.vocabulary import kind_of
from peloton.sdk.kit.calls import CLIENT
from peloton.settings.config import Address, BadSetting
from peloton.settings.daemon import DaemonSettings
from peloton.settings.notify import AllowedUrls
from peloton.settings.start_options import StartOptions

LIMITS = "limits"
"""In health: who takes what callers share."""
CALLS_GRACE_S = 0.5
CALLS_STOP_S_MAX = 2.0


class ClientListeners:
    """Both servers, from `listen_http` and `listen_grpc` to `stop_calls` and `close`."""

    def __init__(
        self, settings: DaemonSettings, options: StartOptions, *, report: Callable[[str], object]
    ) -> None:
        """Set up. `report` takes warnings for people. Raises CannotStart."""
        self._settings = settings
        self.strategies = strategies_of(settings)
        self._names = options.names
        self._classic = options.classic
        runs = settings.backend.process
        # Below a file there is nothing, ever.
        self._sandboxes = (runs.folder if runs is not None else Path(os.devnull)) / "runs"
        self._stop_grpc: list[Callable[[], object]] = []
        self._stop_http: list[Callable[[], object]] = []
        self._report = report
        self._permissions = Permissions()
        self._audit: AuditLog | None = None
        self._kills = KillSwitch()
        self.locks: FollowedLocks = NoLocks()
        """What is locked down; set before anything listens."""
        self.vault: SecretVault | None = None
        """Secrets of jobs, if there can be any; set before anything listens."""
        self._places: list[SharedQuota] = []
        self.backend_notes: Callable[[], tuple[NotReadyReason, ...]] = tuple
        """The troubles of a backend outside; set before anything listens."""
        self.reload_notes: Callable[[], tuple[NotReadyReason, ...]] = tuple
        """Why what is in the files is not in force."""
        self.lease: Leases = lambda job, for_s: False
        """Keeps what the runs of a job leave; set before anything listens."""
        self.record: ClusterRecord | None = None
        """Which cluster this is; set before anything listens."""
        self._access: ClientAccess | None = None
        self._tasks = (
            *task_accounts.health_notes(settings),
            *task_limits.health_notes(settings),
        )

    def read_permissions(self) -> None:
        """Read the permissions. Raises CannotStart."""
        try:
            self._permissions = Permissions(self._settings.access.file)
        except BadSetting as error:
            raise CannotStart(str(error)) from error

    @property
    def access(self) -> ClientAccess:
        """The access of clients; its files are read, or made, when first needed."""
        if self._access is None:
            self._access = ClientAccess(self._settings, report=self._report)
        return self._access

    def furnish_rights(self, region: Region) -> None:
        """Answer schedules from now on what their owners may do, by the files in force."""

        def denied(asked: AskRights, why: str) -> None:
            if self._audit is not None:
                self._audit.add(audit_entry(asked, why))

        judge = OwnerRights(self._permissions, lambda: self.access.users, denied=denied)
        region.register_service(judge.key, judge, outward=True)
        region.routes.roles[kind_of(CLIENT)] = "api"  # whether or not we have one ourselves

    def check(self) -> None:
        """Raise CannotStart if an address is busy now, or the files of access are unusable."""
        settings, remedy = self._settings, self._names.other_ports
        _refuse_busy(self._names.http, settings.http, remedy=remedy)
        if "api" in settings.roles:
            _refuse_busy(self._names.grpc, settings.grpc, remedy=remedy)
        texts = access.problems(settings)
        if texts:
            raise CannotStart("\n".join(texts))

    def listen_http(self, region: Region) -> Address:
        """Serve health, metrics and files; return the address, with the port that was found."""
        wanted = self._settings.http
        _refuse_busy(self._names.http, wanted, remedy=self._names.other_ports)
        try:
            server = HttpServer(
                wanted,
                region,
                sandboxes=FileRoots(self._sandboxes, self._far_files),
                access=self.access.files,
                notes=self._notes,
            )
        except OSError as error:
            raise CannotStart(f"{self._names.http}: {wanted}: {error.strerror}") from error
        self._places.append(server.places)
        self._stop_http.append(server.close)
        return server.address

    def listen_grpc(
        self, region: Region, *, http: Address, broken: Callable[[str], object]
    ) -> Address:
        """Serve calls; return the address.

        `http` is where their answers say that files are. `broken` is called with a text if no call
        can be served any more.
        """
        wanted = self._settings.grpc
        addresses = [wanted]
        for address in self._classic:
            if not why_not(address):
                addresses.append(address)
            else:
                self._report(f"warning: classic port {address} is busy: not listening there")
        _refuse_busy(self._names.grpc, wanted, remedy=self._names.other_ports)
        self._audit = audit = self._open_audit()
        self._stop_grpc.append(audit.close)
        allowed, here = self.access, self._settings.backend.process is not None
        unix = allowed.prepare_socket()
        try:
            server, ports = build_server(
                region,
                [*map(str, addresses), *([unix] if unix else [])],
                authentication=allowed.authentication,
                boxes=SandboxFiles(
                    self._sandboxes if here else None,
                    (http.host, http.port),
                    links=allowed.files.links,
                ),
                options=self._options(audit),
            )
        except RuntimeError as error:  # taken since the check above
            raise CannotStart(f"{self._names.grpc}: {wanted}: {error}") from error
        for note in carrier_notes():
            self._report(f"warning: {note}")
        self._places += server.places
        served = [Address(one.host, port) for one, port in zip(addresses, ports, strict=False)]
        allowed.publish(served)
        server.start(broken=broken)
        client = ActorClient(server, region, kinds=extensions().kinds.keys())
        region.register_service(kind_of(CLIENT), client, role="api")
        self._stop_grpc.append(client.close)
        self._stop_grpc.append(lambda: server.stop(grace_s=CALLS_GRACE_S).wait(CALLS_STOP_S_MAX))
        # The last comes first. The port is free for others before we have ended, so the entries go
        # before it does; and calls of who finds none must not be refused as those of a stranger.
        self._stop_grpc += [allowed.withdraw, server.refuse_new]
        return served[0]

    def _options(self, audit: AuditLog) -> ServerOptions:
        return ServerOptions(
            receive_max_bytes=self._settings.limits.receive_max_bytes,
            permissions=self._permissions,
            audit=audit,
            notify=AllowedUrls(self._settings.notify.allow),
            images_run=task_images.runs_images(self._settings),
            kills=self._kills,
            scarce_gpu="GPU" in self._settings.limits.scarce_resource_types,
            strategies=self.strategies,
            watches=self._settings.limits.watches,
            locks=self.locks,
            secrets=self.vault,
            far_files=self._far_files,
            outside=self._settings.backend.mesos is not None,
            lease=self.lease,
            files=self.files,
            extensions=extensions().kinds,
        )

    @functools.cached_property
    def files(self) -> JobFileFolder | None:
        """The files that come with jobs, in our keeper's folder, where their tasks find them."""
        process = self._settings.backend.process
        return JobFileFolder(process.folder) if process is not None else None

    @functools.cached_property
    def _far_files(self) -> tuple[FarFiles, ...]:
        """The access to files on other machines, which both servers share with its cache."""
        assert self.record is not None, "it is set before anything listens"
        return far_files(self._settings.backend, self.record)

    def stop_calls(self) -> None:
        """Stop answering calls; those under way have a moment to end."""
        while self._stop_grpc:
            self._stop_grpc.pop()()

    def close(self) -> None:
        """Stop listening."""
        self.stop_calls()
        while self._stop_http:
            self._stop_http.pop()()
        if self._access is not None:
            self._access.close()

    def _open_audit(self) -> AuditLog:
        """Open the audit log, named by our address: daemons of a fleet may share a folder."""
        settings, sqlite = self._settings, self._settings.journal.sqlite
        folder = settings.access.audit_folder or (sqlite.folder if sqlite is not None else None)
        assert folder is not None, "the settings have one for a journal in Cassandra"
        name = AUDIT_LOG if settings.alone else f"audit-{settings.grpc}.log"
        try:
            private_folder.make(folder)
            if settings.access.audit_folder is not None:  # the data folder was checked before
                _refuse_foreign(folder)
            return AuditLog(folder / name)
        except OSError as error:
            at, why = error.filename or folder / name, error.strerror or error
            raise CannotStart(f"access.audit_folder: {at}: {why}") from error

    def _notes(self) -> tuple[NotReadyReason, ...]:
        """Return the other remarks of health, which are no reason against being ready."""
        audit = (*self._audit.notes(), *carrier_notes()) if self._audit is not None else ()
        others = (*self._permissions.notes(), *self._kills.notes(), *lock_notes(self.locks.now))
        outside = (*self.backend_notes(), *self.reload_notes(), *DEAD_THREADS.notes())
        texts = [each.note() for each in self._places]
        full = [NotReadyReason(LIMITS, text) for text in texts if text]
        return (*self.access.notes, *self._tasks, *others, *audit, *outside, *full)


class ChosenPorts:
    """Settings with free ports for those that are 0, which are bound until `close`.

    In a fleet the addresses are published to clients before anything listens there.
    """

    def __init__(self, settings: DaemonSettings) -> None:
        self._bound: list[socket.socket] = []
        self.settings = settings
        if not settings.alone:
            grpc, http = self._chosen(settings.grpc), self._chosen(settings.http)
            self.settings = settings.with_doors(grpc, http)

    def close(self) -> None:
        """Give back the ports that nobody listens at."""
        for bound in self._bound:
            bound.close()

    def _chosen(self, address: Address) -> str:
        if address.port:
            return str(address)
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        bound = socket.socket(family, socket.SOCK_STREAM)
        self._bound.append(bound)
        # A socket that is bound and does not listen keeps the kernel from giving the port to
        # others, and leaves it to who asks for it by number with this option, as servers do.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((address.host, 0))
        return str(Address(address.host, bound.getsockname()[1]))


def why_not(address: Address) -> str:
    """Return why we could not listen there; empty if we could."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address.host, address.port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            holder = port_holder(address)
            return f"is busy: {holder or 'another program'} listens there"
        return f"cannot be had: {error.strerror or error}"
    return ""


def _refuse_busy(setting: str, address: Address, *, remedy: str) -> None:
    why = why_not(address) if address.port else ""
    if why:
        raise CannotStart(f"{setting}: {address} {why}. {remedy}")


def _refuse_foreign(folder: Path) -> None:
    """Raise OSError for a folder whose files another user could replace."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise OSError(errno.EPERM, "it is a symbolic link, name the folder itself", str(folder))
    if found.st_uid != os.geteuid():
        owner = private_folder.user_name(found.st_uid)
        raise OSError(errno.EPERM, f"it belongs to user {owner}", str(folder))
