"""The root: starts the shells of a daemon, and restarts them when they fail.

Starts one shell per owned shard, and restarts a shell that failed after a pause that grows. If
shells raise too often, or the journal raises once, the daemon ends (`Root.exited`), and the
supervisor of the process starts another. What a person has to mend is not retried: a damaged shard
stays closed, and health reports it.

Alone (`start`) a daemon owns every shard. In a fleet (`assemble` with `FleetPorts`) the claim shell
chooses the shards. There the root restarts no shard that ended by itself, but reports it: another
daemon may own it by now.

    root = start(kinds, journal, sizes=sizes, clock=clock)
    root.opened.result(30)    every shard has recovered or is reported as damaged
    root.region.ask(...)
    root.stop()
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TimesUp
from typing import Any, Protocol

from peloton.runtime.core.entities.codec import Codec
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.kinds import Kind
from peloton.runtime.ports import Journal, ShardId
from peloton.runtime.shells.collector import Collector
from peloton.runtime.shells.daemon_context import DaemonContext
from peloton.runtime.shells.dispatcher import Threads
from peloton.runtime.shells.ephemeral import (
    EphemeralService,
    EphemeralShell,
    RequestingService,
)
from peloton.runtime.shells.features import FeatureShell, LevelReader, adopt
from peloton.runtime.shells.fleet import ALONE, DaemonSetup, join
from peloton.runtime.shells.goals import Goals
from peloton.runtime.shells.journal import JournalShell, begin_readers
from peloton.runtime.shells.region import Region
from peloton.runtime.shells.restarts import Restarts
from peloton.runtime.shells.round import RoundShell
from peloton.runtime.shells.shard import ShardShell, shard_shell_name
from peloton.runtime.shells.shell import Clock, Driver, Shell, begin_shell
from peloton.runtime.shells.shell_messages import (
    AwaitOpen,
    Closed,
    Disown,
    Drain,
    DrainAll,
    Drop,
    EpochObeyed,
    Opened,
    Own,
    Ref,
    ShardLost,
    ShellFailed,
    Wake,
    resolve,
    send,
)
from peloton.runtime.vocabulary import Key

BREAKS_MAX = 8
BREAKS_WINDOW_S = 60.0
ROOT_STOP_S_MAX = 5.0


class Drivers(Protocol):
    """Makes the drivers of shells: threads, or one stepper for all."""

    @property
    def clock(self) -> Clock:
        """The clock of the shells."""

    def driver(self, name: str) -> Driver:
        """Return the driver of that name."""

    def stop(self) -> None:
        """Stop: no shell runs afterwards."""


class _DisownOrder:
    """An order to disown shards, and the future that waits for it."""

    def __init__(self, message: Disown) -> None:
        self.remaining = dict.fromkeys(message.shards)
        self._answer = message.answer

    def answer_if_done(self) -> None:
        """Answer the order once no shard remains."""
        if not self.remaining:
            resolve(self._answer, None)


class RootShell(Shell):
    """Supervises all shells of a daemon."""

    def __init__(self, driver: Driver, *, region: Region, exited: Future[str]) -> None:
        super().__init__("root", driver)
        self.context: DaemonContext | None = None
        self.claim: Ref | None = None
        self._region = region
        self._exited = exited
        self._owned: dict[ShardId, Ref | None] = {}  # None: its shell has ended, no next has begun
        self._open: dict[ShardId, None] = {}
        self._damaged: dict[ShardId, None] = {}  # halted until a person acts
        self._restarts = Restarts()
        self._breaks: list[float] = []
        self._open_waiters: list[Future[Any]] = []
        self._ending: dict[ShardId, list[_DisownOrder]] = {}

    def handle(self, message: Any) -> None:
        """Process an order to own or give up shards, or a shell's report of its state."""
        if isinstance(message, Own):
            for shard in message.shards:
                self._owned.setdefault(shard, None)
                self._begin(shard)
        elif isinstance(message, Disown):
            self._disown(message)
        elif isinstance(message, Drop):
            for shard in message.shards:
                self._drop(shard)
        elif isinstance(message, Opened):
            self._opened(message.shard)
        elif isinstance(message, Closed):
            self._closed(message.shard)
        elif isinstance(message, ShardLost):
            self._lost(message)
        elif isinstance(message, ShellFailed):
            self._broke(message.name, message.text, fatal=message.fatal)
        elif isinstance(message, EpochObeyed) and self.context is not None:
            send(self.context.reader_of(message.shard), message)
        elif isinstance(message, AwaitOpen):
            self._open_waiters.append(message.answer)
            self._answer_if_open()
        elif isinstance(message, Wake):
            for shard in self._restarts.due(self.now):
                self._begin(shard)
        if (next_s := self._restarts.next_s) is not None:
            self.wake(next_s)

    def failed(self, error: BaseException) -> None:
        """End the daemon: only the supervisor of the process can restart the root."""
        self._exit(f"root: {type(error).__name__}: {error}")

    def _begin(self, shard: ShardId) -> None:
        self._restarts.forget(shard)
        if self._owned.get(shard) is not None or shard not in self._owned:
            return
        assert self.context is not None
        self._clear_damage(shard)
        ref = self._owned[shard] = ShardShell.start(shard, self.context)
        self._region.set_shard(shard, ref)

    def _opened(self, shard: ShardId) -> None:
        self._open[shard] = None
        self._restarts.opened(shard, self.now)
        self._send_claim(Opened(shard))
        self._answer_if_open()

    def _answer_if_open(self) -> None:
        # A damaged shard does not hold up the others, which accept mail; health reports it.
        if len(self._open) + len(self._damaged) == len(self._owned):
            waiting, self._open_waiters = self._open_waiters, []
            for future in waiting:
                resolve(future, None)

    def _lost(self, lost: ShardLost) -> None:
        shard = lost.shard
        self._region.set_shard(shard, None)
        self._open.pop(shard, None)
        if shard in self._ending:
            self._closed(shard)
            return
        if shard not in self._owned:
            return
        self._owned[shard] = None
        if lost.broken:
            self._broke(str(shard), lost.text, fatal=False)
        if self.claim is not None:
            del self._owned[shard]
            self._region.report_problem(shard_shell_name(shard), "")
            send(self.claim, lost)
            return
        if lost.damaged:
            self._damaged[shard] = None  # a person has to act; health shows the reason
            self._region.status.damaged[shard] = lost.text
            self._answer_if_open()
            return
        self._restarts.lost(lost, self.now)

    def _disown(self, message: Disown) -> None:
        """Drain the shards; the order is answered when the last of them is released."""
        order = _DisownOrder(message)
        for shard in message.shards:
            self._ending.setdefault(shard, []).append(order)
        for shard in message.shards:
            self._restarts.forget(shard)
            ref = self._owned.get(shard)
            if ref is None or not send(ref, Drain()):
                self._closed(shard)
        order.answer_if_done()

    def _drop(self, shard: ShardId) -> None:
        # The shard may end by itself before it receives this; `Closed` is sent once all the same.
        self._ending.setdefault(shard, [])
        ref = self._owned.get(shard)
        if ref is None or not send(ref, Drop((shard,))):
            self._closed(shard)

    def _send_claim(self, message: Any) -> None:
        if self.claim is not None:
            send(self.claim, message)

    def _closed(self, shard: ShardId) -> None:
        self._region.set_shard(shard, None)
        self._region.report_problem(shard_shell_name(shard), "")
        self._send_claim(Closed(shard))
        self._owned.pop(shard, None)
        self._open.pop(shard, None)
        self._clear_damage(shard)
        for order in self._ending.pop(shard, []):
            order.remaining.pop(shard, None)
            order.answer_if_done()

    def _clear_damage(self, shard: ShardId) -> None:
        """Clear the damage: the shard is tried again, or belongs to another daemon."""
        if shard in self._damaged:
            del self._damaged[shard]
            self._region.status.damaged.pop(shard, None)

    def _broke(self, name: str, text: str, *, fatal: bool) -> None:
        self._breaks = [at for at in self._breaks if at + BREAKS_WINDOW_S > self.now]
        self._breaks.append(self.now)
        if fatal or len(self._breaks) > BREAKS_MAX:
            self._exit(f"{name}: {text}")

    def _exit(self, reason: str) -> None:
        self._region.status.dead = reason
        resolve(self._exited, reason)


class Root:
    """The shells of one daemon, for those who start and stop them."""

    def __init__(
        self, region: Region, shell: Ref, *, journal: Journal, drivers: Drivers, exited: Future[str]
    ) -> None:
        self.region = region
        self.opened: Future[None] = Future()
        """Done when every shard of `own_all` accepts mail or is halted as damaged."""
        self.exited = exited
        """Done, with the reason, when the daemon should end; until then it serves what it can."""
        self._shell = shell
        self._journal = journal
        self._drivers = drivers
        self.collector: Collector | None = None
        self.claim: Ref | None = None
        self.goals = Goals(region.routes)

    def epoch_obeyed(self, of: Key, epoch: int) -> None:
        """Record that this key's backend has obeyed an owner of this epoch; from any thread."""
        send(self._shell, EpochObeyed(self.region.routes.sharding.shard_of(of), epoch))

    def own(self, shards: tuple[ShardId, ...]) -> None:
        """Claim these shards in addition to the owned ones."""
        send(self._shell, Own(shards))

    def own_all(self, sizes: Mapping[str, int]) -> Future[None]:
        """Claim every shard of these groups; done when all but the damaged ones accept mail."""
        self.own(tuple(ShardId(group, at) for group in sizes for at in range(sizes[group])))
        send(self._shell, AwaitOpen(self.opened))
        return self.opened

    def disown(self, shards: tuple[ShardId, ...]) -> Future[Any]:
        """Finish the frames in flight and release the shards; done when all are released."""
        future: Future[Any] = Future()
        send(self._shell, Disown(shards, future))
        return future

    def leave(self) -> Future[Any]:
        """Release all shards; in a fleet the others are notified first, so that they take over."""
        if self.claim is None:
            return self.disown(tuple(self.region.owned()))
        future: Future[Any] = Future()
        send(self.claim, DrainAll(future))
        return future

    def stop(self, *, drain: bool = True) -> None:
        """Stop within seconds: finish frames in flight, release shards, close the journal."""
        self.region.status.closed = True
        if drain:
            try:
                self.leave().result(ROOT_STOP_S_MAX)
            except TimesUp:
                pass  # a commit is unclear: the claim of the next owner settles it
        self._drivers.stop()
        if self.collector is not None:
            self.collector.give_back()
        self._journal.close()

    def give_up(self, reason: str) -> None:
        """End the daemon: one of its threads failed, or for a reason outside of its shells."""
        self.region.status.dead = reason
        resolve(self.exited, reason)

    def health(self) -> tuple[bool, list[str]]:
        """Return whether the daemon is ready, and the reasons if it is not."""
        return self.region.health()


def assemble(
    kinds: Mapping[str, Kind],
    journal: Journal,
    *,
    sizes: Mapping[str, int],
    drivers: Drivers,
    setup: DaemonSetup = ALONE,
) -> Root:
    """Make all shells of a daemon, without any shard or ephemeral service yet."""
    record = setup.record or journal.bootstrap(sizes)
    # Groups that only a later version knows are left to daemons of that version.
    sizes, codec = {group: record.shards[group] for group in sizes}, Codec(kinds)
    adopt(codec, journal, record=record, alone=setup.fleet is None)
    level = LevelReader(codec, journal)
    sharding = Sharding(kinds, sizes)
    region = Region(kinds, codec=codec, sharding=sharding, sizes=sizes)
    region.status.now = drivers.clock.now
    exited: Future[str] = Future()
    driver = drivers.driver("shards")
    shell = RootShell(driver, region=region, exited=exited)
    root_ref = begin_shell(shell)
    committer = JournalShell(drivers.driver("journal"), journal=journal, root=root_ref)
    rounds = RoundShell(
        driver,
        region=region,
        journal=begin_shell(committer),
        root=root_ref,
        passes_max=setup.limits.round_passes_max,
    )
    begin_shell(rounds)
    root = Root(region, root_ref, journal=journal, drivers=drivers, exited=exited)
    shell.context = DaemonContext(
        kinds=kinds,
        codec=codec,
        sharding=sharding,
        region=region,
        driver=driver,
        root=root_ref,
        journal=committer.ref,
        round=rounds,
        readers=begin_readers(drivers.driver, level, root=root_ref),
        goals=root.goals,
        store=setup.store,
        limits=setup.limits,
    )
    region.on_service = _begin_service(shell.context, drivers)
    if setup.fleet is not None:
        features = begin_shell(FeatureShell(drivers.driver("reader-0"), level=level, root=root_ref))
        root.claim = shell.claim = join(shell.context, setup.fleet, sizes=sizes, features=features)
    return root


def _begin_service(context: DaemonContext, drivers: Drivers) -> Callable[..., Ref]:
    def begin(prefix: str, service: EphemeralService, *, outward: bool) -> Ref:
        own = drivers.driver(f"service-{prefix}") if service.own_thread else context.driver
        region, limits = context.region, context.limits
        shell = EphemeralShell(prefix, own, service=service, region=region, root=context.root)
        shell.outward, shell.service_mail_max = outward, limits.service_mail_max
        ref = begin_shell(shell)
        if isinstance(service, RequestingService):
            region.routes.requesting.append(ref)
        if not outward and own is context.driver:
            context.round.enter_service(ref)
        return ref

    return begin


def start(
    kinds: Mapping[str, Kind],
    journal: Journal,
    *,
    sizes: Mapping[str, int],
    clock: Clock,
    services: Mapping[str, EphemeralService] | None = None,
) -> Root:
    """Start a daemon that owns every shard. Returns at once; see `Root.opened`."""
    collector = Collector()
    drivers = Threads(clock, on_idle=collector.idle)
    drivers.lend("journal")
    root = assemble(kinds, journal, sizes=sizes, drivers=drivers)
    root.collector = collector
    drivers.on_broken = root.give_up
    for prefix, service in (services or {}).items():
        root.region.register_service(prefix, service)
    root.own_all(sizes).add_done_callback(lambda _: collector.own())
    return root
