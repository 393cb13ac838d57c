"""One daemon of a simulated fleet, life after life: the real shells over simulated ports.

Turns every call of a port into a moment at which the process may die, before the call or after it.
A death does not stop a pykka actor at once: the call raises, all later calls of that process raise
too, and what the step still does in memory is lost with the memory.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Container, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol, cast

from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.core.health import CASSANDRA
from peloton.runtime.core.journal.statements import InsertRow, Statement, StatementReply
from peloton.runtime.core.shard import Shard
from peloton.runtime.core.turning.envelope import Envelope, Stamp
from peloton.runtime.kinds import Kind
from peloton.runtime.ports import (
    Exchange,
    MemberNode,
    Membership,
    ShardId,
)
from peloton.runtime.shells.daemon_context import DaemonLimits
from peloton.runtime.shells.fleet import DaemonSetup, FleetPorts
from peloton.runtime.shells.region import Region
from peloton.runtime.shells.root import Root, assemble
from peloton.runtime.shells.shard import ShardShell
from peloton.runtime.shells.shell_messages import Drop, Ref, send
from peloton.runtime.simulation.membership import Ensemble, SimulatedMembership
from peloton.runtime.simulation.network import Network
from peloton.runtime.simulation.process import SimulatedProcess
from peloton.runtime.simulation.stepper import Stepper
from peloton.runtime.simulation.store import MemberRows, SimulatedStore


class Moment(enum.Enum):
    """A side of a port call."""

    BEFORE = "before"
    AFTER = "after"


class PortCall(NamedTuple):
    """A call of a port by one daemon, at which its process may die."""

    daemon: str
    port: str
    name: str
    moment: Moment


Outlet = Callable[[list[Envelope], Stamp | None], Iterable[Envelope]]
"""Turns the envelopes to be sent into those that are sent: all, fewer, or older ones.

The stamp is the sending shard's; clients, machines and ephemeral services have none. Sends within a
shard do not pass here, because they are in the frame.
"""


class Died(Exception):
    """The process ended within this port call."""


class HostingWorld(Protocol):
    """The part of the world that a daemon needs."""

    stepper: Stepper
    ensemble: Ensemble
    store: SimulatedStore
    network: Network
    services: Mapping[str, Mapping[int, type]]
    sizes: dict[str, int]
    limits: DaemonLimits
    on_replies: list[Any]

    def strikes(self, call: PortCall) -> bool:
        """Return whether the process is to die at this call."""

    def draw_process(self) -> bytes:
        """Return the id of a new process."""


class SimulatedDaemon:
    """A daemon over all its lives: name and address stay, processes come and go."""

    def __init__(self, world: HostingWorld, name: str, *, roles: tuple[str, ...]) -> None:
        self.world = world
        self.name = name
        self.roles = roles
        self.lives = 0
        self.process: SimulatedProcess | None = None
        self.client: SimulatedMembership | None = None
        self.rows: MemberRows | None = None
        self.root: Root | None = None
        self.dying = False
        self.sends_last = False  # the statement at which it dies is still sent
        self.outlet: Outlet = lambda envelopes, stamp: envelopes
        self.hands_over: Callable[[], bool] = lambda: True
        """Whether messages of an open frame may leave their shard for one of the same round."""
        self.leaving: Future[Any] | None = None

    @property
    def address(self) -> str:
        """The address that its peers dial."""
        return f"{self.name}:1"

    @property
    def alive(self) -> bool:
        """Whether there is a process, which may be frozen."""
        return self.process is not None and not self.dying

    @property
    def region(self) -> Region:
        """The region of the present life."""
        assert self.root is not None
        return self.root.region

    def begin(self, kinds: Mapping[str, Kind], skew_s: float = 0.0) -> None:
        """Start a process."""
        assert self.process is None
        world = self.world
        self.lives += 1
        name = f"{self.name}.{self.lives}"
        self.dying, self.sends_last, self.leaving = False, False, None
        self.process = SimulatedProcess(world.stepper, name, skew_s=skew_s)
        self.client = SimulatedMembership(world.ensemble, name)
        node = MemberNode(self.address, self.roles)
        exchange = _Exchange(self, world.network.endpoint(self.address))
        members, session_s = _Membership(self, self.client), world.ensemble.session_s
        fleet = FleetPorts(name, node, members, exchange, world.services, session_s)
        process = world.draw_process()
        self.rows = world.store.rows(self.name)
        self.root = assemble(
            kinds,
            FencedRows(_Rows(self, self.rows), process=process),
            sizes=world.sizes,
            drivers=self.process,
            setup=DaemonSetup(world.limits, fleet, CASSANDRA),
        )
        self._intercept(self.root.region)

    def die(self) -> None:
        """End the process at once; nobody is notified."""
        if self.process is None:
            return
        assert self.client is not None
        self.process.end()
        self.client.die()
        self.world.network.die(self.address)
        self.process = self.client = self.rows = self.root = None
        self.dying, self.leaving = False, None

    def leave(self) -> None:
        """Ask the process to hand over its shards and end."""
        if self.root is not None and self.leaving is None:
            self.leaving = self.root.leave()

    def freeze(self) -> None:
        """Freeze the process: no heartbeats, and it does not notice the time that passes."""
        if self.process is not None and not self.process.frozen:
            assert self.client is not None
            self.client.cut()
            self.process.freeze()

    def thaw(self) -> None:
        """The process continues where it was."""
        if self.process is not None and self.process.frozen:
            assert self.client is not None
            self.process.thaw()
            self.client.heal()

    def shards(self) -> dict[ShardId, Shard]:
        """Return the cores of the shards that are open here now."""
        return {shell.shard: shell.core for shell in self._shard_shells() if shell.core is not None}

    def drop(self, shard: ShardId) -> bool:
        """End one shard at once; return False if it is not open here.

        The shard is recovered as after any loss, and all other shards continue. What is not in the
        journal is lost, and so is what was committed and is not sent yet.
        """
        for shell in self._shard_shells():
            if shell.shard == shard and shell.core is not None:
                return send(shell.ref, Drop((shard,)))
        return False

    def _shard_shells(self) -> list[ShardShell]:
        # Called after every step of a world: `isinstance` of an actor would cost ten times as much.
        shells = self.process.by_class.get(ShardShell, []) if self.process is not None else []
        return cast(list[ShardShell], shells)

    def _intercept(self, region: Region) -> None:
        """Let all messages that are sent in this process pass the outlet."""
        tell = region.tell

        def through(envelopes: Iterable[Envelope], stamp: Stamp | None = None) -> None:
            left = [*self.outlet([*envelopes], stamp)]
            if left:
                tell(left, stamp)

        region.tell = through  # type: ignore[method-assign]
        hand_over, deliver_to = region.hand_over, region.deliver_to

        def maybe(
            envelopes: Iterable[Envelope],
            stamp: Stamp,
            *,
            company: Container[Ref],
            withheld: dict[Hashable, None],
        ) -> tuple[list[Envelope], Iterable[Ref]]:
            some = company if self.hands_over() else ()
            return hand_over(envelopes, stamp, company=some, withheld=withheld)

        def within(ref: Ref, batch: list[Envelope], *, stamp: Stamp) -> None:
            left = [*self.outlet(batch, stamp)]
            if left:
                deliver_to(ref, left, stamp=stamp)

        region.hand_over = maybe  # type: ignore[method-assign]
        region.deliver_to = within  # type: ignore[method-assign]

    def call(self, port: str, name: str, *, do: Callable[[], Any]) -> Any:
        """Perform one call of a port, unless the process dies at it."""
        self.moment(port, name, at=Moment.BEFORE)
        answer = do()
        self.moment(port, name, at=Moment.AFTER)
        return answer

    def moment(self, port: str, name: str, *, at: Moment) -> None:
        """Pass one side of a call. Raises `Died` if the process dies here."""
        call = PortCall(self.name, port, name, at)
        if self.dying or self.world.strikes(call):
            self.dying = True
            raise Died(f"{call}")


class _Rows:
    """The store port of a process, which may die before any statement, or after all."""

    def __init__(self, daemon: SimulatedDaemon, rows: MemberRows) -> None:
        self._daemon = daemon
        self._rows = rows

    def run(self, statements: Sequence[Statement]) -> list[StatementReply]:
        for at, statement in enumerate(statements):
            try:
                self._daemon.moment("store", _name(statement), at=Moment.BEFORE)
            except Died:
                self._rows.run(statements[: at + self._daemon.sends_last])
                raise
        replies = self._rows.run(statements)
        for call in self._daemon.world.on_replies:
            call(self._daemon, [*zip(statements, replies, strict=True)])
        if statements:
            self._daemon.moment("store", _name(statements[-1]), at=Moment.AFTER)
        return replies

    def close(self) -> None: ...


def _name(statement: Statement) -> str:
    """Return the class of a statement; for inserts also the class of their row."""
    name = type(statement).__name__
    return f"{name} {type(statement.row).__name__}" if isinstance(statement, InsertRow) else name


class _Membership:
    """The membership port of a process, which may die at any call."""

    def __init__(self, daemon: SimulatedDaemon, client: Membership) -> None:
        self._daemon = daemon
        self._client = client

    def __getattr__(self, name: str) -> Any:
        do = getattr(self._client, name)
        if name in ("listen", "sure_for_s"):
            return do
        return lambda *args: self._daemon.call("membership", name, do=lambda: do(*args))


class _Exchange:
    """The exchange port of a process, which may die at any call."""

    def __init__(self, daemon: SimulatedDaemon, exchange: Exchange) -> None:
        self._daemon = daemon
        self._exchange = exchange

    def __getattr__(self, name: str) -> Any:
        do = getattr(self._exchange, name)
        if name in ("listen", "sure_for_s"):
            return do
        return lambda *args: self._daemon.call("exchange", name, do=lambda: do(*args))
