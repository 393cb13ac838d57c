"""The root: starts the shells of a daemon, and starts them anew when they fail.

Turns "own these shards" into shells, and their ends into new ones after a pause that grows. A
shell that raises too often, or a journal that raises at all, ends the daemon (`Root.exited`):
whoever watches the process starts another. It must not retry what a person has to look at: a
damaged shard stays closed, and health says so.

Alone (`start`) a daemon owns every shard. In a fleet (`assemble` with a `Fleet`) the claim shell
says which, and a shard that ended by itself is its business: it may be another's by now.

    root = start(kinds, journal, sizes, clock, softs)
    root.opened.result(30)    all shards have recovered, but those that health calls damaged
    root.region.ask(...)
    root.stop()
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TimesUp
from typing import Any, Protocol

from peloton.runtime.core.codec import Codec
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.ports import Journal, ShardId
from peloton.runtime.shells.collector import Collector
from peloton.runtime.shells.daemon_context import DaemonContext
from peloton.runtime.shells.dispatcher import Threads
from peloton.runtime.shells.ephemeral import EphemeralService, EphemeralShell
from peloton.runtime.shells.features import FeatureShell, adopt
from peloton.runtime.shells.fleet import ALONE, DaemonSetup, join
from peloton.runtime.shells.journal import JournalShell, ReaderShell
from peloton.runtime.shells.region import Region
from peloton.runtime.shells.shard import ShardShell, shard_shell_name
from peloton.runtime.shells.shell import Clock, Driver, Shell, begin_shell
from peloton.runtime.shells.shell_messages import (
    AwaitOpen,
    Closed,
    Disown,
    Drain,
    DrainAll,
    Drop,
    Opened,
    Own,
    Ref,
    ShardLost,
    ShellFailed,
    Wake,
    resolve,
    send,
)
from peloton.runtime.vocabulary import Kind

RESTART_FIRST_S = 0.2
SHELL_RESTART_S_MAX = 15.0
BREAKS_MAX = 8
BREAKS_WINDOW_S = 60.0
ROOT_STOP_S_MAX = 5.0
READERS = 4
"""Claims under way at once. Each is a handful of round trips one after the other; a store has
room for more of them than a takeover may wait for."""


class Drivers(Protocol):
    """Where shells get their drivers: threads, or one stepper for all."""

    @property
    def clock(self) -> Clock:
        """The time the shells live in."""

    def driver(self, name: str) -> Driver:
        """The driver of that name."""

    def stop(self) -> None:
        """No shell runs afterwards."""


class _Order:
    """Shards to be given back, and who waits for it."""

    def __init__(self, message: Disown) -> None:
        self.left = dict.fromkeys(message.shards)
        self._answer = message.answer

    def look(self) -> None:
        """Answer once nothing is left."""
        if not self.left:
            resolve(self._answer, None)


class RootShell(Shell):
    """The supervisor of all shells of a daemon."""

    def __init__(self, driver: Driver, *, region: Region, exited: Future[str]) -> None:
        super().__init__("root", driver)
        self.context: DaemonContext | None = None
        self.claim: Ref | None = None
        self._region = region
        self._exited = exited
        self._mine: dict[ShardId, Ref | None] = {}  # None: waits for its next shell
        self._open: dict[ShardId, None] = {}
        self._damaged: dict[ShardId, None] = {}  # halted, until a person has looked
        self._fails: dict[ShardId, int] = {}
        self._restart: dict[ShardId, float] = {}
        self._breaks: list[float] = []
        self._all_open: list[Future[Any]] = []
        self._giving: dict[ShardId, list[_Order]] = {}

    def handle(self, message: Any) -> None:
        """A shell said what became of it, or shards are wanted or given back."""
        if isinstance(message, Own):
            for shard in message.shards:
                self._mine.setdefault(shard, None)
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
        elif isinstance(message, AwaitOpen):
            self._all_open.append(message.answer)
            self._answer_if_open()
        elif isinstance(message, Wake):
            for shard in [name for name, at_s in self._restart.items() if at_s <= self.now]:
                self._begin(shard)
        if self._restart:
            self.wake(min(self._restart.values()))

    def failed(self, error: BaseException) -> None:
        """Nobody supervises the supervisor but the process's own."""
        self._exit(f"root: {type(error).__name__}: {error}")

    def _begin(self, shard: ShardId) -> None:
        self._restart.pop(shard, None)
        if self._mine.get(shard) is not None or shard not in self._mine:
            return
        assert self.context is not None
        self._repaired(shard)
        ref = self._mine[shard] = ShardShell.start(shard, self.context)
        self._region.place(shard, ref)

    def _opened(self, shard: ShardId) -> None:
        self._open[shard] = None
        self._fails.pop(shard, None)
        self._tell_claim(Opened(shard))
        self._answer_if_open()

    def _answer_if_open(self) -> None:
        # One that is damaged harms itself alone: the others take mail, and health is red.
        if len(self._open) + len(self._damaged) == len(self._mine):
            waiting, self._all_open = self._all_open, []
            for future in waiting:
                resolve(future, None)

    def _lost(self, lost: ShardLost) -> None:
        shard = lost.shard
        self._region.place(shard, None)
        self._open.pop(shard, None)
        if shard in self._giving:
            self._closed(shard)
            return
        if shard not in self._mine:
            return
        self._mine[shard] = None
        if lost.broken:
            self._broke(str(shard), lost.text, fatal=False)
        if self.claim is not None:
            del self._mine[shard]
            self._region.trouble(shard_shell_name(shard), "")
            send(self.claim, lost)
            return
        if lost.damaged:
            self._damaged[shard] = None  # a person has to look; health is red with the reason
            self._region.status.damaged[shard] = lost.text
            self._answer_if_open()
            return
        fails = self._fails[shard] = self._fails.get(shard, 0) + 1
        self._restart[shard] = self.now + min(
            RESTART_FIRST_S * 2 ** (fails - 1), SHELL_RESTART_S_MAX
        )

    def _disown(self, message: Disown) -> None:
        """The order is answered when the last of its shards is back."""
        order = _Order(message)
        for shard in message.shards:
            self._giving.setdefault(shard, []).append(order)
        for shard in message.shards:
            self._restart.pop(shard, None)
            ref = self._mine.get(shard)
            if ref is None or not send(ref, Drain()):
                self._closed(shard)
        order.look()

    def _drop(self, shard: ShardId) -> None:
        # The shard may end by itself before it hears of this; whoever dropped it hears once.
        self._giving.setdefault(shard, [])
        ref = self._mine.get(shard)
        if ref is None or not send(ref, Drop((shard,))):
            self._closed(shard)

    def _tell_claim(self, message: Any) -> None:
        if self.claim is not None:
            send(self.claim, message)

    def _closed(self, shard: ShardId) -> None:
        self._region.place(shard, None)
        self._region.trouble(shard_shell_name(shard), "")
        self._tell_claim(Closed(shard))
        self._mine.pop(shard, None)
        self._open.pop(shard, None)
        self._repaired(shard)
        for order in self._giving.pop(shard, []):
            order.left.pop(shard, None)
            order.look()

    def _repaired(self, shard: ShardId) -> None:
        """Nobody knows of damage (any more): it is tried again, or somebody else's."""
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
    """One daemon's shells, seen from outside."""

    def __init__(
        self, region: Region, shell: Ref, *, journal: Journal, drivers: Drivers, exited: Future[str]
    ) -> None:
        self.region = region
        self.opened: Future[None] = Future()
        """Done when all shards that were asked for take mail, or are halted as damaged."""
        self.exited = exited
        """Done with the reason when the daemon should end; it goes on serving what it can."""
        self._shell = shell
        self._journal = journal
        self._drivers = drivers
        self.collector: Collector | None = None
        self.claim: Ref | None = None

    def own(self, shards: tuple[ShardId, ...]) -> None:
        """Claim these shards, beside those that are owned."""
        send(self._shell, Own(shards))

    def own_all(self, sizes: Mapping[str, int]) -> Future[None]:
        """Claim every shard of these groups; done when all but the damaged ones take mail."""
        self.own(tuple(ShardId(group, at) for group in sizes for at in range(sizes[group])))
        send(self._shell, AwaitOpen(self.opened))
        return self.opened

    def disown(self, shards: tuple[ShardId, ...]) -> Future[Any]:
        """Finish what is in flight and give the shards back."""
        future: Future[Any] = Future()
        send(self._shell, Disown(shards, future))
        return future

    def leave(self) -> Future[Any]:
        """Give back all there is; in a fleet the others are told first, so that they go on."""
        if self.claim is None:
            return self.disown(tuple(self.region.owned()))
        future: Future[Any] = Future()
        send(self.claim, DrainAll(future))
        return future

    def stop(self, *, drain: bool = True) -> None:
        """End within seconds: finish frames in flight, release shards, close the journal."""
        self.region.status.closed = True
        if drain:
            try:
                self.leave().result(ROOT_STOP_S_MAX)
            except TimesUp:
                pass  # an unclear frame: the next owner finds out what became of it
        self._drivers.stop()
        if self.collector is not None:
            self.collector.give_back()
        self._journal.close()

    def give_up(self, reason: str) -> None:
        """The daemon cannot go on, for a reason outside of its shells."""
        self.region.status.dead = reason
        resolve(self.exited, reason)

    def broken(self, text: str) -> None:
        """A thread of this daemon ended by an exception: so must the daemon."""
        self.region.status.dead = text
        resolve(self.exited, text)

    def health(self) -> tuple[bool, list[str]]:
        """Whether all is well, and if not, why."""
        return self.region.health()


def assemble(
    kinds: Mapping[str, Kind],
    journal: Journal,
    *,
    sizes: Mapping[str, int],
    drivers: Drivers,
    setup: DaemonSetup = ALONE,
) -> Root:
    """All shells of a daemon, owning no shard yet and knowing no soft machine."""
    record = setup.record or journal.bootstrap(sizes)
    # Groups that only a later version knows are claimed by its daemons, and by no other.
    sizes, codec = {group: record.shards[group] for group in sizes}, Codec(kinds)
    adopt(codec, journal, record=record, alone=setup.fleet is None)
    sharding = Sharding(kinds, sizes)
    region = Region(kinds, sharding=sharding, sizes=sizes)
    region.status.now = drivers.clock.now
    exited: Future[str] = Future()
    driver = drivers.driver("shards")
    shell = RootShell(driver, region=region, exited=exited)
    root_ref = begin_shell(shell)
    committer = JournalShell(drivers.driver("journal"), journal=journal, root=root_ref)
    shell.context = DaemonContext(
        kinds=kinds,
        codec=codec,
        sharding=sharding,
        region=region,
        driver=driver,
        root=root_ref,
        journal=begin_shell(committer),
        readers=_readers(drivers, journal, root=root_ref),
        store=setup.store,
        limits=setup.limits,
    )

    def on_service(prefix: str, machine: EphemeralService, *, outward: bool) -> Ref:
        own = drivers.driver(f"soft-{prefix}") if machine.own_thread else driver
        soft = EphemeralShell(prefix, own, machine=machine, region=region, root=root_ref)
        soft.outward, soft.held_mail_max = outward, setup.limits.held_mail_max
        return begin_shell(soft)

    region.on_service = on_service
    root = Root(region, root_ref, journal=journal, drivers=drivers, exited=exited)
    if setup.fleet is not None:
        root.claim = shell.claim = join(shell.context, setup.fleet, sizes=sizes)
        if codec.level < codec.known_level:
            reader = drivers.driver("reader-0")
            begin_shell(FeatureShell(reader, journal=journal, codec=codec, root=root_ref))
    return root


def _readers(drivers: Drivers, journal: Journal, *, root: Ref) -> tuple[Ref, ...]:
    names = [f"reader-{number}" for number in range(READERS)]
    return tuple(
        begin_shell(ReaderShell(name, drivers.driver(name), journal=journal, root=root))
        for name in names
    )


def start(
    kinds: Mapping[str, Kind],
    journal: Journal,
    *,
    sizes: Mapping[str, int],
    clock: Clock,
    services: Mapping[str, EphemeralService] | None = None,
) -> Root:
    """A daemon that owns every shard there is. Returns at once; see `Root.opened`."""
    collector = Collector()
    drivers = Threads(clock, on_idle=collector.idle)
    root = assemble(kinds, journal, sizes=sizes, drivers=drivers)
    root.collector = collector
    drivers.on_broken = root.broken
    for prefix, machine in (services or {}).items():
        root.region.register_service(prefix, machine)
    root.own_all(sizes).add_done_callback(lambda _: collector.own())
    return root
