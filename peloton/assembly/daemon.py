"""Wires one daemon: its store, its membership, the streams to other daemons, its listeners.

Turns settings into the running shells of a daemon and back. A daemon that is alone (also that of a
minicluster) is wired in the same way, without a membership. Resources are taken in one order and
released in the reverse.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TimesUp
from typing import NamedTuple

from peloton.actors.host.inventory.messages import inventory_key
from peloton.assembly.backends import Backends
from peloton.assembly.canary import Canary
from peloton.assembly.default_pool import DefaultPool
from peloton.assembly.exchange import fleet_ports, open_exchange
from peloton.assembly.extensions import extensions, tell_health
from peloton.assembly.first_messages import FirstMessages, apart, configured
from peloton.assembly.folders import (
    adopt_copy,
    behind_text,
    claim_keeper,
    measured_disks,
    take_data_folder,
    witness_options,
)
from peloton.assembly.job_file_sweep import begin_sweeps
from peloton.assembly.kinds import kinds_of
from peloton.assembly.listeners import ChosenPorts, ClientListeners
from peloton.assembly.lockdowns import LockFollower, rest_goals, stop_placer
from peloton.assembly.make_backend import make_backends
from peloton.assembly.notifier import furnish_notifier
from peloton.assembly.placer_service import placer_service
from peloton.assembly.process_log import log_line
from peloton.assembly.reloading import Reloading
from peloton.assembly.secrets import keys_of, open_vault
from peloton.assembly.servers import open_cassandra, open_zookeeper
from peloton.assembly.task_accounts import check_accounts
from peloton.assembly.task_images import check_task_images
from peloton.assembly.task_limits import check_task_limits
from peloton.failures import CannotStart, ClusterFailed, JournalBehind
from peloton.runtime.adapters.data_folder import DataFolder
from peloton.runtime.adapters.grpc_exchange import GrpcExchange
from peloton.runtime.adapters.sqlite_store import SqliteJournal
from peloton.runtime.adapters.system_clock import SystemClock
from peloton.runtime.core.ended.gathering import GATHERED_MIN
from peloton.runtime.core.health import CASSANDRA, DISK
from peloton.runtime.core.turning.supervision import Failure, attempt
from peloton.runtime.ports import (
    ClusterRecord,
    Journal,
    JournalError,
    Membership,
    RolledBack,
)
from peloton.runtime.shells.collector import Collector
from peloton.runtime.shells.daemon_context import DaemonLimits
from peloton.runtime.shells.dispatcher import Threads
from peloton.runtime.shells.fleet import DaemonSetup
from peloton.runtime.shells.root import Root, assemble
from peloton.runtime.vocabulary import Key, key
from peloton.settings.daemon import DaemonSettings
from peloton.settings.start_options import STANDARD_START, StartOptions

START_MAX_S = 300.0
"""Time limit of a start that is all or nothing. 40,000 hosts with ten tasks each take most of a
minute on a busy machine."""
POLL_S = 0.02
STOP_TASKS_GRACE_S = 5.0
LEAVE_S_MAX = 30.0
"""Time limit for handing over shards; the end of the session releases the rest."""


class ExternalServices(NamedTuple):
    """The external services of a daemon. Without a membership it is alone."""

    journal: Journal
    membership: Membership | None = None


class Daemon:
    """A daemon, up to `stop`. `failed` is called when it cannot go on, from any thread."""

    def __init__(
        self,
        settings: DaemonSettings,
        *,
        failed: Callable[[], None],
        options: StartOptions = STANDARD_START,
        outside: ExternalServices | None = None,
    ) -> None:
        ports = ChosenPorts(settings)
        self._settings = ports.settings
        self._options = options
        self._outside = outside
        self._undo: list[Callable[[], object]] = [ports.close]
        self._refused: Future[str] | None = None
        """Done with the reason when ZooKeeper belongs to another cluster."""
        self._journal_text = "journal"
        self._listeners = ClientListeners(self._settings, options, report=log_line)
        self._reloading = Reloading(settings, self._listeners, report=log_line)
        try:
            self._start(failed)
            if options.all_or_nothing:
                self._await_ready()
                self._listen()
        except BaseException:
            self._unwind()
            raise

    def stop(self) -> bool:
        """Hand over, answer the calls under way, and release; return whether nothing was left.

        Left behind are a shard that was not handed over, or a task that was to be killed. Raises
        `ClusterFailed` if the daemon had ended by itself: then there is nobody to hand over to.
        """
        try:
            clean = self._hand_over()
        finally:
            self._unwind()
        if self._root.exited.done():
            raise ClusterFailed(self._root.exited.result())
        return clean

    def _hand_over(self) -> bool:
        """Do the ordered part of `stop`; return whether nothing was left behind."""
        self._first.stop()
        root, alone, clean = self._root, self._settings.alone, True
        if not alone and not root.exited.done():
            try:
                # Meanwhile calls are forwarded to the next owners.
                root.leave().result(LEAVE_S_MAX)
            except TimesUp:
                clean = False
        self._listeners.stop_calls()
        # Alone there is nobody to hand over to: what is in flight is committed.
        root.stop(drain=alone and not root.exited.done())
        self._undo.remove(self._stop_root)
        # Only now: no shard sees the ends of its runs and starts others.
        if self._options.stop_tasks:
            clean = self._backends.stop_all(STOP_TASKS_GRACE_S) and clean
        return clean

    @property
    def ready_text(self) -> str:
        """The line with the address for clients, and whether everybody on this machine may call."""
        open_to = self._listeners.access.open_to
        anybody = f"({open_to}) " if open_to else ""
        return f"ready: grpc {anybody}{self.grpc}"

    def reload(self, read: Callable[[], DaemonSettings]) -> None:
        """Reload what can be while the daemon runs; `read` returns the present settings."""
        self._reloading.reload(read)

    def health(self) -> tuple[bool, list[str]]:
        """Return whether the daemon is ready, and if not, why."""
        return self._root.health()

    # ---- starting ----

    def _start(self, failed: Callable[[], None]) -> None:
        settings = self._settings
        # Before anything is written: a start that fails should leave nothing behind.
        self._extensions = extensions()
        self._listeners.read_permissions()
        self._listeners.check()
        check_accounts(settings, self._options.names, report=log_line)
        check_task_limits(settings)
        self._engine = check_task_images(settings)
        keys = keys_of(settings)
        journal = self._outside.journal if self._outside else self._open_journal()
        self._undo.append(journal.close)
        vault = self._vault = self._listeners.vault = open_vault(settings, keys)
        self._undo += [vault.store.close] if vault is not None else []
        # Who we are comes first: nothing of another cluster may be touched.
        record, self._sizes = self._bootstrap(journal)
        self._record = self._listeners.record = record
        self._take_keeper()
        membership = self._outside.membership if self._outside else self._meet(record)
        outside = ExternalServices(journal, membership)
        exchange = self._open_exchange() if membership is not None else None
        self._root = root = self._assemble(outside, exchange)
        self._region = root.region
        self._undo.append(self._stop_root)
        root.exited.add_done_callback(lambda reason: failed())
        if self._refused is not None:
            self._refused.add_done_callback(lambda why: root.give_up(why.result()))
        self._backends = backends = self._furnish()
        self._locks.start()
        if membership is not None:  # a disk is measured with each question
            self._undo.append(Canary(journal.probe, root.region.status, server=CASSANDRA).stop)
        self._listeners.backend_notes, self._listeners.lease = backends.notes, backends.lease
        self._first = first = self._first_messages(backends.of_config)
        self._undo += [backends.close, first.stop]
        self.greeted = first.ready
        """Done once our first messages are answered, our hosts up, all shards owned and open."""
        if not self._options.all_or_nothing:
            self._listen()
        if membership is None:
            # All owners are here: each host is configured before it hears of its backend. To a
            # shard that is not claimed yet a message would be lost for a second.
            first.start_backend = backends.start
            root.own_all(self._sizes).add_done_callback(lambda opened: self._opened())
        else:
            first.answered.add_done_callback(lambda answered: self._collector.own())
            backends.start()
            first.start()

    def _open_journal(self) -> Journal:
        setting = self._settings.journal
        if setting.cassandra is not None:
            return open_cassandra(setting.cassandra)
        assert setting.sqlite is not None
        backend = self._settings.backend.name
        folder = take_data_folder(
            setting.sqlite.folder, backend=backend, options=self._options, report=log_line
        )
        self._undo.append(folder.close)
        journal = self._open_sqlite(folder)
        folder.secure()  # SQLite makes its files as the umask of this process has it
        return journal

    def _open_sqlite(self, folder: DataFolder) -> Journal:
        self._journal_text = f"journal {folder.journal_path}"
        witness = witness_options(self._settings, self._options, report=log_line)
        try:
            adopt_copy(folder, witness=witness)
            return SqliteJournal(folder.journal_path, witness=witness)
        except RolledBack as error:
            raise JournalBehind(behind_text(error, self._options.names)) from error
        except JournalError as error:
            raise CannotStart(f"{self._journal_text}: {error}") from error

    def _bootstrap(self, journal: Journal) -> tuple[ClusterRecord, dict[str, int]]:
        try:
            return self._extensions.bootstrap(journal, self._settings)
        except JournalError as error:
            raise CannotStart(f"{self._journal_text}: {error}") from error

    def _take_keeper(self) -> None:
        """Claim the keeper's folder for this journal."""
        setting = self._settings.backend.process
        if setting is not None and "hostmgr" in self._settings.roles:
            claim_keeper(
                setting.folder,
                self._record,
                options=self._options,
                report=log_line,
                runs=self._runs,
            )

    def _runs(self) -> Iterator[tuple[str, str]]:
        """Yield the runs on hosts in the journal of a copied data folder."""
        from peloton.assembly.journal_reader import runs_on_hosts

        sqlite = self._settings.journal.sqlite
        assert sqlite is not None
        return runs_on_hosts(sqlite.folder, report=log_line)

    def _meet(self, record: ClusterRecord) -> Membership | None:
        """Return the membership of a fleet; None if the daemon is alone."""
        settings = self._settings
        if settings.alone:
            return None
        membership = open_zookeeper(settings, record)
        self._undo.append(membership.close)
        self._refused = membership.refused
        return membership

    def _open_exchange(self) -> GrpcExchange:
        exchange = self._reloading.exchange = open_exchange(self._settings)
        self._undo.append(exchange.stop)
        return exchange

    def _assemble(self, outside: ExternalServices, exchange: GrpcExchange | None) -> Root:
        settings = self._settings
        fleet = None
        if outside.membership is not None and exchange is not None:
            fleet = fleet_ports(settings, outside.membership, exchange=exchange)
        self._collector = Collector()
        drivers = Threads(SystemClock(), on_idle=self._collector.idle)
        if fleet is None:
            # The journal is a file. A server's answers are waited for on a thread of their own.
            drivers.lend("journal")
        limits = DaemonLimits(
            checkpoint_bytes_min=settings.limits.checkpoint_bytes_min,
            # In a file a row costs the same alone and with others.
            ended_rows_gathered=1 if fleet is None else GATHERED_MIN,
        )
        store = DISK if fleet is None else CASSANDRA
        try:
            root = assemble(
                {**kinds_of(settings), **self._extensions.kinds},
                outside.journal,
                sizes=self._sizes,
                drivers=drivers,
                setup=DaemonSetup(limits, fleet, store, self._record),
            )
        except JournalError as error:
            raise CannotStart(f"{self._journal_text}: {error}") from error
        root.region.status.report = log_line
        root.region.status.rooms = measured_disks(settings)
        tell_health(root.region, self._record.shards, known=self._sizes)
        root.collector = self._collector
        drivers.on_broken = root.give_up
        return root

    def _furnish(self) -> Backends:
        """Register the ephemeral services of the daemon's roles; return the backends."""
        settings, region = self._settings, self._region
        self._inventories = [inventory_key(at) for at in range(settings.sizes["hostmgr"])]
        locks = self._locks = self._listeners.locks = LockFollower(region)
        self._undo.append(locks.stop)
        locks.on_change(rest_goals(self._root.goals))
        region.routes.roles["placer"] = "placement"  # whether or not we have one ourselves
        if "placement" in settings.roles:
            known = self._listeners.strategies.table
            placer = placer_service(settings, self._inventories, strategies=known)
            region.register_service("placer", placer, role="placement")
            locks.on_change(stop_placer(region.tell, lambda: placer.placer.key))
        if "jobmgr" in settings.roles:
            self._undo.append(furnish_notifier(settings, region, report=log_line).close)
            self._listeners.furnish_rights(region)
            self._undo += begin_sweeps(self._vault, self._listeners.files, region=region)
        if "hostmgr" not in settings.roles:
            return Backends((), self._root, locks=locks)
        obeyed = self._root.epoch_obeyed
        found = make_backends(
            settings, self._record, engine=self._engine, vault=self._vault, obeyed=obeyed
        )
        return Backends(found, self._root, locks=locks)

    def _first_messages(self, backend: Key | None) -> FirstMessages:
        hosts = {}
        if backend is not None:
            found = self._settings.backend.hosts
            hosts = {key("host", host.name): configured(host, backend) for host in found}
            hosts = apart(hosts) if self._settings.backend.process is not None else hosts
        first = FirstMessages(
            self._region,
            hosts,
            inventories=self._inventories,
            # Hosts of Mesos are in no configuration: the cluster says which there are.
            alone=self._settings.alone and self._settings.backend.mesos is None,
            report=log_line,
        )
        sqlite = self._settings.journal.sqlite
        if self._options.default_pool and sqlite is not None:
            first.settle_pools = DefaultPool(self._region, sqlite.folder).settle
        if self._options.all_or_nothing:
            first.report_after_s = float("inf")  # the reasons come with the error
        return first

    def _opened(self) -> None:
        # Before thousands of hosts are created: the collector's defaults double the time of that.
        self._collector.own()
        self._first.start()

    def _await_ready(self) -> None:
        """Wait until the daemon is ready; raise at once if a shard is damaged."""
        until_s = time.monotonic() + START_MAX_S
        while True:
            if self._root.exited.done():
                raise CannotStart(self._root.exited.result())
            ready, condition = self.greeted.done(), self._region.daemon_health()
            if condition.damaged:
                raise CannotStart("; ".join(map(str, condition.damaged)))
            if ready:
                return
            if time.monotonic() > until_s:
                why = "; ".join(map(str, condition.reasons))
                raise CannotStart(f"not ready after {START_MAX_S:g} s: {why}")
            with contextlib.suppress(TimesUp):
                self.greeted.result(POLL_S)

    def _listen(self) -> None:
        self._undo.append(self._listeners.close)
        self.http = self._listeners.listen_http(self._region)
        self._reloading.token_made()
        if "api" in self._settings.roles:
            self.grpc = self._listeners.listen_grpc(
                self._region, http=self.http, broken=self._root.give_up
            )

    def _stop_root(self) -> None:
        self._root.stop(drain=False)

    def _unwind(self) -> None:
        """Release everything; report a step that fails, and go on."""
        while self._undo:
            step = self._undo.pop()
            failure = attempt(step)
            if isinstance(failure, Failure):
                name = getattr(step, "__qualname__", repr(step))
                log_line(f"warning: {name} failed: {failure.error}")
