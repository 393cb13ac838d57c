"""Wires a whole cluster in one process, and holds what it shares with a daemon of a fleet.

Turns settings into a running cluster of kinds, shards, adapters, backends and a gateway, and back.
It must not decide anything that an actor or a shell could: it starts parts, sends the first
messages to roots and hosts, and stops in reverse order. `assembly_daemon.py` wires a daemon of a
fleet.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from peloton.actors.host.inventory.messages import OpenInventory, inventory_key
from peloton.actors.host.messages import ConfigureHost, HostGone
from peloton.actors.resources import Resources, millionths
from peloton.actors.respool.messages import ROOT, OpenRoot
from peloton.backends import keeper_folder
from peloton.backends.keeper.calling import KeeperUnavailable
from peloton.backends.keeper_folder import KeeperOwner
from peloton.backends.port import Backend
from peloton.backends.process import ProcessBackend
from peloton.backends.simulated import RunScript, SimulatedBackend
from peloton.config import Address, HostSetting, MiniclusterSettings
from peloton.gateway.http import HttpServer
from peloton.gateway.server import build_server
from peloton.kinds import GROUPS, kinds
from peloton.placement.messages import Label
from peloton.placer_service import PlacerService
from peloton.readiness import Readiness
from peloton.runtime.adapters import claimed_folder
from peloton.runtime.adapters.data_folder import DataFolder, FolderHeld
from peloton.runtime.adapters.sqlite_store import SqliteJournal
from peloton.runtime.adapters.system_clock import SystemClock
from peloton.runtime.core.envelope import Envelope
from peloton.runtime.ports import ClusterRecord, JournalError
from peloton.runtime.shells.ephemeral import EphemeralService
from peloton.runtime.shells.region import Region
from peloton.runtime.shells.root import start
from peloton.runtime.vocabulary import Key, key

START_MAX_S = 60.0
STOP_TASKS_GRACE_S = 5.0


class CannotStart(Exception):
    """Why the cluster cannot run; for a person."""


class ClusterFailed(Exception):
    """Why a running cluster could not go on."""


class Doors(NamedTuple):
    """The addresses for clients. `sandboxes` has the files of runs, if they are `on_disk`."""

    grpc: Address
    http: Address
    sandboxes: Path
    on_disk: bool
    receive_max_bytes: int
    classic: Sequence[Address] = ()
    grpc_setting: str = "--grpc"
    http_setting: str = "--http"


class Wired:
    """What every process has: resources taken in one order and released in the reverse."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self._undo: list[Callable[[], object]] = []
        self._region: Region

    def _take_folder(self, path: Path, *, holder: str) -> DataFolder:
        try:
            claimed_folder.check_ours(path)
            folder = DataFolder(path)
        except claimed_folder.ForeignFolder as error:
            raise CannotStart(str(error)) from error
        except FolderHeld as error:
            by = f"the {holder} with pid {error.pid}" if error.pid else "another process"
            raise CannotStart(f"data folder {path} is held by {by}") from error
        except OSError as error:
            raise CannotStart(f"data folder {path}: {error.strerror}") from error
        self._undo.append(folder.close)
        return folder

    def _listen_http(self, doors: Doors) -> None:
        refuse_busy(doors.http_setting, doors.http)
        try:
            server = HttpServer(doors.http, self._region, sandboxes=doors.sandboxes)
        except OSError as error:
            raise CannotStart(f"{doors.http_setting}: {doors.http}: {error.strerror}") from error
        self._undo.append(server.close)
        self.http = server.address

    def _listen_grpc(self, doors: Doors) -> None:
        addresses = [doors.grpc]
        for address in doors.classic:
            if not why_not(address):
                addresses.append(address)
            else:
                self.warnings.append(f"classic port {address} is busy: not listening there")
        refuse_busy(doors.grpc_setting, doors.grpc)
        try:
            self._server, ports = build_server(
                self._region,
                [str(address) for address in addresses],
                http=self.http,
                receive_max_bytes=doors.receive_max_bytes,
                sandboxes=doors.sandboxes if doors.on_disk else None,
            )
        except RuntimeError as error:  # taken since the check above
            raise CannotStart(f"{doors.grpc_setting}: {doors.grpc}: {error}") from error
        self._server.start()
        self.grpc = Address(doors.grpc.host, ports[0])

    def _unwind(self) -> None:
        while self._undo:
            with contextlib.suppress(OSError):
                self._undo.pop()()


class Minicluster(Wired):
    """A cluster in this process, from construction to `stop`."""

    def __init__(self, settings: MiniclusterSettings, failed: Callable[[], None]) -> None:
        super().__init__()
        self._settings = settings
        try:
            self._start(failed)
        except BaseException:
            self._unwind()
            raise

    def stop(self) -> bool:
        """Stop taking turns, commit what is in flight, release everything.

        False if tasks were to be killed and some are left. Raises `ClusterFailed` if the cluster
        had failed before.
        """
        self._server.stop(grace_s=0.5).wait(2.0)
        self._root.stop()
        clean = not self._settings.stop_tasks or self._backend.stop_all(STOP_TASKS_GRACE_S)
        self._undo.remove(self._root.stop)
        self._unwind()
        if self._root.exited.done():
            raise ClusterFailed(self._root.exited.result())
        return clean

    # ---- starting ----

    def _start(self, failed: Callable[[], None]) -> None:
        settings = self._settings
        # Before anything is written: a start that fails should leave nothing behind.
        refuse_busy("--http", settings.http)
        refuse_busy("--grpc", settings.grpc)
        folder = self._take_folder(settings.folder, holder="minicluster")
        self._claim_folder(folder)
        journal = open_sqlite(folder)
        self._undo.append(journal.close)
        try:
            record = journal.bootstrap(GROUPS)
        except JournalError as error:
            raise CannotStart(f"journal {folder.journal_path}: {error}") from error
        sizes = {group: record.shards[group] for group in GROUPS}
        self._inventories = [inventory_key(number) for number in range(sizes["hostmgr"])]
        self._backend = self._make_backend(folder.path / "keeper", record)
        services: dict[str, EphemeralService] = {
            "placer": PlacerService(self._inventories),
            self._backend.key: self._backend,
        }
        self._root = start(
            kinds(sizes), journal, sizes=sizes, clock=SystemClock(), services=services
        )
        self._undo.append(self._root.stop)
        self._root.exited.add_done_callback(lambda reason: failed())
        self._region = self._root.region
        self._region.status.report = report_line
        self._readiness = Readiness(self._region, self._inventories, over=self._root.exited.done)
        self._wait(self._root.opened.done, "its shards")
        gone = self._open_roots_and_hosts(self._backend.key)
        self._backend.start(self._region.tell, self._region.report_problem)
        self._undo.append(self._backend.close)
        # Only now: a removed host has the running backend kill its runs.
        self._region.tell([Envelope(host, HostGone()) for host in gone])
        self._wait(self._hosts_up, "its hosts")
        self._wait(lambda: self._region.condition().ready, "readiness")
        doors = Doors(
            grpc=settings.grpc,
            http=settings.http,
            sandboxes=folder.path / "keeper" / "runs",
            on_disk=settings.backend == "process",
            receive_max_bytes=settings.receive_max_bytes,
            classic=settings.classic,
        )
        self._listen_http(doors)
        self._listen_grpc(doors)

    def _claim_folder(self, folder: DataFolder) -> None:
        try:
            if self._settings.fresh:
                # The keeper of the old cluster kills its runs and exits once its folder is deleted.
                claimed_folder.empty_folder(folder.path)
            claimed_folder.claim_folder(folder.path, self._settings.backend)
        except claimed_folder.ForeignFolder as error:
            raise CannotStart(str(error)) from error
        except UnicodeDecodeError as error:
            mark = folder.path / claimed_folder.MAKER
            raise CannotStart(f"{mark} does not name a backend: {error.reason}") from error
        except OSError as error:
            raise CannotStart(f"data folder {folder.path}: {error.strerror}") from error

    def _make_backend(self, keeper: Path, record: ClusterRecord) -> Backend:
        settings = self._settings
        names = [host.name for host in settings.hosts]
        if settings.backend == "process":
            owner = keeper_owner(record)
            way_on = "--fresh starts empty, and kills all tasks of the old cluster"
            claim_keeper(keeper, owner, way_on=way_on)
            return ProcessBackend(keeper, names, owner=owner)
        fates = RunScript(settings.simulated_seed, settings.simulated_duration_s)
        return SimulatedBackend(names, fates)

    def _open_roots_and_hosts(self, backend: Key) -> list[Key]:
        """Create the roots and configure the hosts; returns the hosts missing in the config."""
        region = self._region
        region.tell([Envelope(ROOT, OpenRoot())])
        region.tell([Envelope(inventory, OpenInventory()) for inventory in self._inventories])
        known = {view.summary.host for view in self._readiness.hosts()}
        wanted = {key("host", host.name): host for host in self._settings.hosts}
        gone = sorted(known - wanted.keys())
        region.tell([Envelope(name, configured(host, backend)) for name, host in wanted.items()])
        for host in gone:
            self.warnings.append(f"{host} is not part of the cluster any more: its tasks are lost")
        return gone

    def _hosts_up(self) -> bool:
        wanted = [key("host", host.name) for host in self._settings.hosts]
        return self._readiness.all_up(wanted, alone=True)

    def _wait(self, done: Callable[[], bool], what: str) -> None:
        """Until `done`. A damaged shard raises at once: only an operator can repair it."""
        until = time.monotonic() + START_MAX_S
        while True:
            if self._root.exited.done():
                raise CannotStart(self._root.exited.result())
            over, damaged = done(), self._region.condition().damaged
            if damaged:
                raise CannotStart("; ".join(map(str, damaged)))
            if over:
                return
            if time.monotonic() > until:
                reasons = self._region.health()[1] or self._readiness.down()
                why = "; ".join(reasons) or "no reason is known"
                raise CannotStart(f"waited {START_MAX_S:g} s for {what}: {why}")
            time.sleep(0.01)


def open_sqlite(folder: DataFolder) -> SqliteJournal:
    """The journal in a folder that is held."""
    try:
        return SqliteJournal(folder.journal_path)
    except JournalError as error:
        raise CannotStart(f"journal {folder.journal_path}: {error}") from error


def keeper_owner(record: ClusterRecord) -> KeeperOwner:
    """The cluster of this record, as a keeper's folder remembers it."""
    return KeeperOwner(record.cluster_id.hex(), record.name)


def claim_keeper(folder: Path, owner: KeeperOwner, *, adopt: bool = False, way_on: str) -> None:
    """Take the keeper's folder for this cluster. Raises CannotStart, with the owner and a remedy.

    `adopt`: kill what runs there for another cluster, and start with an empty folder.
    """
    try:
        try:
            keeper_folder.claim(folder, owner)
        except keeper_folder.OwnedByAnother:
            if not adopt:
                raise
            keeper_folder.adopt(folder, owner)
    except keeper_folder.OwnedByAnother as error:
        raise CannotStart(f"{error}. {way_on}") from error
    except KeeperUnavailable as error:
        raise CannotStart(f"keeper folder {folder}: {error}") from error
    except OSError as error:
        raise CannotStart(f"keeper folder {folder}: {error.strerror}") from error


def configured(host: HostSetting, backend: Key) -> ConfigureHost:
    """The message that configures a host."""
    capacity = Resources(
        millionths(host.cpus, "cpus"),
        millionths(host.memory_mb, "memory_mb"),
        millionths(host.disk_mb, "disk_mb"),
        millionths(host.gpus, "gpus"),
    )
    labels = tuple(Label(name, value) for name, value in sorted(host.attributes.items()))
    return ConfigureHost(capacity, labels, backend)


def report_line(line: str) -> None:
    """Print one line on stderr, the log of the process, which may be closed."""
    with contextlib.suppress(OSError, ValueError):
        print(line, file=sys.stderr, flush=True)


def refuse_busy(setting: str, address: Address) -> None:
    """Raise CannotStart if the address cannot be bound, for example because it is in use."""
    why = why_not(address) if address.port else ""
    if why:
        raise CannotStart(f"{setting}: {address} {why}")


def why_not(address: Address) -> str:
    """Why we could not listen there; empty where we could."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address.host, address.port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return "is busy: another program listens there"
        return f"cannot be had: {error.strerror or error}"
    return ""
