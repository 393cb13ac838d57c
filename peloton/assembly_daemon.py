"""Wires one daemon: its store, its membership, the streams to other daemons, its listeners.

Turns settings into the running shells of a daemon and back; a daemon that is alone is wired in the
same way, without a membership. It must not decide who owns what, nor wait for other daemons: they
may wait for this one.

A thread creates the root pool and the inventories and configures the hosts of this backend: it
repeats each message until it is answered, because an owner may not be ready yet, and then ends.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TimesUp
from pathlib import Path
from typing import NamedTuple

from peloton.actors.host.inventory.messages import OpenInventory, inventory_key
from peloton.actors.host.messages import PingBackend
from peloton.actors.respool.messages import ROOT, OpenRoot
from peloton.assembly import (
    CannotStart,
    ClusterFailed,
    Doors,
    Wired,
    claim_keeper,
    configured,
    keeper_owner,
    open_sqlite,
    report_line,
)
from peloton.backends.port import Backend
from peloton.backends.process import PROCESS_BACKEND as PROCESS
from peloton.backends.process import ProcessBackend
from peloton.backends.simulated import SIMULATED_BACKEND as SIMULATED
from peloton.backends.simulated import RunScript, SimulatedBackend
from peloton.config import Address
from peloton.kinds import SERVICE_MESSAGES, kinds
from peloton.placer_service import PlacerService
from peloton.readiness import Readiness
from peloton.runtime.adapters.grpc_exchange import CannotListen, GrpcExchange, Tls
from peloton.runtime.adapters.system_clock import SystemClock
from peloton.runtime.core.condition import CASSANDRA, DISK
from peloton.runtime.core.envelope import Envelope
from peloton.runtime.ports import ClusterRecord, Journal, JournalError, MemberNode, Membership
from peloton.runtime.shells.collector import Collector
from peloton.runtime.shells.daemon_context import DaemonLimits
from peloton.runtime.shells.dispatcher import Threads
from peloton.runtime.shells.fleet import DaemonSetup, FleetPorts
from peloton.runtime.shells.root import Root, assemble
from peloton.runtime.vocabulary import Key, Message, Unavailable, key, kind_of
from peloton.servers import open_cassandra, open_zookeeper
from peloton.settings import DaemonSettings

RESEND_S = 1.0
REPORT_AFTER_S = 5.0
"""A daemon that is not ready after this time prints the reasons."""
REASONS_REPORTED_MAX = 5
START = "start"
"""Component of the reason why a daemon that starts is not ready."""
HOSTS_UNKNOWN = "not all hosts of this daemon are up and known yet"
POLL_S, POLL_S_MAX = 0.05, 5.0
LEAVE_S_MAX = 30.0
"""Time limit for handing over shards; the end of the session releases the rest."""


class ExternalServices(NamedTuple):
    """The external services of a daemon. Without a membership it is alone."""

    journal: Journal
    membership: Membership | None = None


class Daemon(Wired):
    """From construction to `stop`. `failed` is called when it cannot go on, from any thread.

    `adopt_keeper`, an operator's order: empty a keeper folder of another cluster for this one.
    """

    def __init__(
        self,
        settings: DaemonSettings,
        *,
        failed: Callable[[], None],
        outside: ExternalServices | None = None,
        adopt_keeper: bool = False,
    ) -> None:
        super().__init__()
        # Free ports are chosen now: they are published to clients before anything listens.
        self._settings = settings.with_doors(_with_port(settings.grpc), _with_port(settings.http))
        self._outside = outside
        self._adopt_keeper = adopt_keeper
        self._refused: Future[str] | None = None
        """Done with the reason when ZooKeeper belongs to another cluster."""
        self._leaving = threading.Event()
        self.greeted: Future[None] = Future()
        """Done when all our first messages are answered, our hosts are up, every shard of the
        cluster has an owner, and those that are ours take mail."""
        self._report_after_s = REPORT_AFTER_S
        try:
            self._start(failed)
        except BaseException:
            self._unwind()
            raise

    def stop(self) -> bool:
        """Hand over what we own, answer what is under way, let go; whether all was handed over.

        Raises `ClusterFailed` when the daemon had ended by itself: then there is nobody to hand
        over to.
        """
        self._leaving.set()
        root, clean = self._root, True
        if not root.exited.done():
            try:
                root.leave().result(LEAVE_S_MAX)
            except TimesUp:
                clean = False
        if "api" in self._settings.roles:
            self._server.stop(grace_s=0.5).wait(2.0)
        self._unwind()
        if root.exited.done():
            raise ClusterFailed(root.exited.result())
        return clean

    def health(self) -> tuple[bool, list[str]]:
        """Whether all is well, and if not, why."""
        return self._root.health()

    # ---- starting ----

    def _start(self, failed: Callable[[], None]) -> None:
        settings = self._settings
        journal = self._outside.journal if self._outside else self._open_journal()
        self._undo.append(journal.close)
        # Who we are comes first: nothing of another cluster may be touched.
        try:
            self._record = record = journal.bootstrap(settings.sizes, name=settings.cluster)
        except JournalError as error:
            raise CannotStart(f"journal: {error}") from error
        self._take_keeper()
        membership = self._outside.membership if self._outside else self._meet(record)
        outside = ExternalServices(journal, membership)
        exchange = self._open_exchange() if membership is not None else None
        self._root = root = self._assemble(outside, exchange)
        self._region = root.region
        self._undo.append(lambda: root.stop(drain=False))
        root.exited.add_done_callback(lambda reason: failed())
        self._region.report_problem(START, HOSTS_UNKNOWN)
        if self._refused is not None:
            self._refused.add_done_callback(lambda why: root.give_up(why.result()))
        backend = self._furnish()
        doors = self._doors()
        self._listen_http(doors)
        if "api" in settings.roles:
            self._listen_grpc(doors)
        if outside.membership is None:
            root.own_all(settings.sizes)
        if backend is not None:
            backend.start(self._region.tell, self._region.report_problem)
            self._undo.append(backend.close)
        threading.Thread(
            target=self._send_first_messages, name="first-messages", daemon=True
        ).start()

    def _open_journal(self) -> Journal:
        journal = self._settings.journal
        if journal.sqlite is not None:
            folder = self._take_folder(journal.sqlite.folder, holder="daemon")
            return open_sqlite(folder)
        assert journal.cassandra is not None
        return open_cassandra(journal.cassandra)

    def _meet(self, record: ClusterRecord) -> Membership | None:
        """The others, if there are any."""
        settings = self._settings
        if settings.zookeeper is None:
            return None
        membership = open_zookeeper(settings, record)
        self._undo.append(membership.close)
        self._refused = membership.refused
        return membership

    def _take_keeper(self) -> None:
        """The folder where our tasks run serves this journal, and no other."""
        setting = self._settings.backend.process
        if setting is None or "hostmgr" not in self._settings.roles:
            return
        claim_keeper(
            setting.folder,
            keeper_owner(self._record),
            adopt=self._adopt_keeper,
            way_on="Name another backend.process.folder; or, to end the runs there for good, start "
            "one daemon with --adopt-keeper",
        )

    def _open_exchange(self) -> GrpcExchange:
        files = self._settings.tls
        tls = None
        if files is not None:
            tls = Tls(files.ca, files.certificate, files.key, files.server_name)
        try:
            exchange = GrpcExchange(self._settings.listen.exchange, tls=tls)
        except CannotListen as error:
            raise CannotStart(f"listen.exchange: {error}") from error
        self._undo.append(exchange.stop)
        return exchange

    def _assemble(self, outside: ExternalServices, exchange: GrpcExchange | None) -> Root:
        settings = self._settings
        fleet = None
        if outside.membership is not None and exchange is not None:
            address = settings.listen.advertise or exchange.address
            node = MemberNode(address, tuple(settings.roles))
            fleet = FleetPorts(
                _process_name(), node, outside.membership, exchange, SERVICE_MESSAGES
            )
        self._collector = Collector()
        drivers = Threads(SystemClock(), on_idle=self._collector.idle)
        limits = DaemonLimits(checkpoint_bytes_min=settings.limits.checkpoint_bytes_min)
        store = DISK if fleet is None else CASSANDRA
        try:
            root = assemble(
                kinds(settings.sizes),
                outside.journal,
                sizes=settings.sizes,
                drivers=drivers,
                setup=DaemonSetup(limits, fleet, store, self._record),
            )
        except JournalError as error:
            raise CannotStart(f"journal: {error}") from error
        root.region.status.report = report_line
        root.collector = self._collector
        drivers.on_broken = root.broken
        return root

    def _furnish(self) -> Backend | None:
        """The soft machines that our roles ask for; the backend, if we have one."""
        settings, region = self._settings, self._region
        self._inventories = [inventory_key(at) for at in range(settings.sizes["hostmgr"])]
        region.routes.roles["placer"] = "placement"  # whether or not we have one ourselves
        if "placement" in settings.roles:
            region.register_service("placer", PlacerService(self._inventories), role="placement")
        if "hostmgr" not in settings.roles:
            return None
        backend = self._make_backend()
        region.register_service(backend.key, backend, outward=True)
        return backend

    def _make_backend(self) -> Backend:
        setting = self._settings.backend
        names = [host.name for host in setting.hosts]
        if setting.process is not None:
            owner = keeper_owner(self._record)
            return ProcessBackend(setting.process.folder, names, owner=owner)
        assert setting.simulated is not None
        fates = RunScript(setting.simulated.seed, setting.simulated.duration_s)
        return SimulatedBackend(names, fates)

    def _doors(self) -> Doors:
        settings = self._settings
        runs = settings.backend.process
        return Doors(
            grpc=settings.grpc,
            http=settings.http,
            # Below a file there is nothing, ever.
            sandboxes=(runs.folder if runs is not None else Path(os.devnull)) / "runs",
            on_disk=runs is not None,
            receive_max_bytes=settings.limits.receive_max_bytes,
            grpc_setting="listen.grpc",
            http_setting="listen.http",
        )

    # ---- first messages: roots, inventories, hosts ----

    def _send_first_messages(self) -> None:
        """Runs on a thread of its own, until every first message is answered."""
        self._waiting_since_s = time.monotonic()
        left = self._first_messages()
        ours = [to for to in left if kind_of(to) == "host"]
        while left and not self._leaving.is_set():
            sent = [(to, self._region.ask(to, left[to])) for to in sorted(left)]
            for to, future in sent:
                # Every future gets a result, at the latest Unavailable from the carrier.
                if not isinstance(future.result(), Unavailable):
                    del left[to]
                    self._ping_backend(to)
            if left:
                self._report_waiting()
                self._leaving.wait(RESEND_S)
        if not left:
            self._collector.own()
            self._await_ready(ours)

    def _await_ready(self, ours: list[Key]) -> None:
        """Wait until all shards have owners and our hosts are up: a client that reads `ready`
        relies on both."""
        readiness = Readiness(self._region, self._inventories, over=self._leaving.is_set)
        pause_s = POLL_S
        while not self._leaving.is_set():
            # At each poll: a host that was up may have moved here and found another keeper.
            up = readiness.all_up(ours, alone=False)
            self._region.report_problem(START, "" if up else _hosts_down(readiness.down(ours)))
            if self._region.condition().ready:
                self.greeted.set_result(None)
                return
            self._report_waiting()
            self._leaving.wait(pause_s)
            pause_s = min(2 * pause_s, POLL_S_MAX)  # each poll lists every host

    def _report_waiting(self) -> None:
        """Print why the daemon is not ready, after a while, with growing pauses."""
        now = time.monotonic()
        if now - self._waiting_since_s < self._report_after_s:
            return
        self._report_after_s *= 2
        found = self._region.condition().reasons
        report_line(f"not ready yet: {'; '.join(map(str, found[:REASONS_REPORTED_MAX]))}")

    def _ping_backend(self, host: Key) -> None:
        """A host that was just created has missed the first message of its backend."""
        if kind_of(host) == "host":
            self._region.tell([Envelope(self._backend_key, PingBackend(host))])

    def _first_messages(self) -> dict[Key, Message]:
        found: dict[Key, Message] = {ROOT: OpenRoot()}
        found |= {inventory: OpenInventory() for inventory in self._inventories}
        if "hostmgr" in self._settings.roles:
            of = self._backend_key
            hosts = self._settings.backend.hosts
            found |= {key("host", host.name): configured(host, of) for host in hosts}
        return found

    @property
    def _backend_key(self) -> Key:
        real = self._settings.backend.process is not None
        return PROCESS if real else SIMULATED


def _hosts_down(down: Sequence[str]) -> str:
    return "; ".join((HOSTS_UNKNOWN, *down[:REASONS_REPORTED_MAX]))


def _process_name() -> str:
    """Unique for ever: pids and the host names of containers are reused."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


def _with_port(address: Address) -> str:
    """The address, with a port that is free now if its port is 0."""
    if address.port:
        return str(address)
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((address.host, 0))
        return str(Address(address.host, probe.getsockname()[1]))
