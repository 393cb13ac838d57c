"""Where contract tests get their memberships: one rig per adapter, all with the same doors.

A rig makes clients, waits, and does to them what a network and a service do. The tests have the
assertions.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Protocol

from kazoo.client import KazooClient

from peloton.chaos.nemesis.proxy import Door
from peloton.runtime.adapters.zookeeper_membership import ZooKeeperMembership
from peloton.runtime.adapters.zookeeper_session import ZooKeeperConfig
from peloton.runtime.ports import (
    MemberNode,
    Membership,
    MembershipNews,
    MembershipView,
    NodeAnswer,
    NodeOutcome,
    Session,
    SessionState,
    ShardId,
)
from peloton.runtime.simulation.membership import Ensemble, SimulatedMembership
from peloton.runtime.simulation.scheduled import begun
from peloton.runtime.simulation.stepper import Stepper
from tests.servers import zookeeper

WAIT_S_MAX = 60.0
SHARD = ShardId("a", 0)
LOOK_AGAIN_S = 0.005


class Rig(Protocol):
    """One service, and the clients of it."""

    session_s: float
    moment_s: float
    """For how long a test looks whether something comes that must not."""

    def client(self) -> Membership:
        """The port as one more daemon holds it."""

    def wait(self, until: Callable[[], bool]) -> None:
        """Until it holds; raises if it never does."""

    def rest(self, seconds: float) -> None:
        """That long."""

    def cut(self, client: Membership) -> None:
        """Nothing passes between this client and the service."""

    def mend(self, client: Membership) -> None:
        """It passes again."""

    def expire(self, client: Membership) -> None:
        """The service ends the session though nothing is wrong."""

    def elsewhere(self) -> None:
        """Somebody else writes to the service what no client here watches."""

    def close(self) -> None:
        """Let go of everything."""


class Simulated:
    """The simulated ensemble in a calm."""

    session_s = 10.0
    moment_s = 2.5

    def __init__(self) -> None:
        self.stepper = Stepper(1)
        self.ensemble = begun(Ensemble(self.stepper, session_s=self.session_s))
        self._names = itertools.count(1)

    def client(self) -> Membership:
        return SimulatedMembership(self.ensemble, f"client-{next(self._names)}")

    def wait(self, until: Callable[[], bool]) -> None:
        self.stepper.run(until)

    def rest(self, seconds: float) -> None:
        end_s = self.stepper.clock.now() + seconds
        self.ensemble.at(end_s, lambda: None)
        self.stepper.run(lambda: self.stepper.clock.now() >= end_s)

    def cut(self, client: Membership) -> None:
        assert isinstance(client, SimulatedMembership)
        client.cut()

    def mend(self, client: Membership) -> None:
        assert isinstance(client, SimulatedMembership)
        client.heal()

    def expire(self, client: Membership) -> None:
        assert isinstance(client, SimulatedMembership)
        client.expire()

    def elsewhere(self) -> None:
        self.ensemble.elsewhere()

    def close(self) -> None:
        """There is nothing."""


class Real:
    """A real ZooKeeper, each client behind a proxy of its own."""

    session_s = 8.0
    """A connection on which nothing comes for a third of it is cut, also of a busy machine."""
    moment_s = 0.3
    _clusters = itertools.count(1)

    def __init__(self) -> None:
        self.server = zookeeper.shared()
        self.cluster = f"contract-{next(self._clusters)}"
        self._proxies: dict[int, Door] = {}
        self._clients: list[ZooKeeperMembership] = []

    def client(self) -> Membership:
        proxy = Door(self.server.port)
        config = ZooKeeperConfig(proxy.address, self.cluster, session_s=self.session_s)
        client = ZooKeeperMembership(config)
        self._proxies[id(client)] = proxy
        self._clients.append(client)
        return client

    def wait(self, until: Callable[[], bool]) -> None:
        wait(until)

    def rest(self, seconds: float) -> None:
        rest(seconds)

    def cut(self, client: Membership) -> None:
        self._proxies[id(client)].cut()

    def mend(self, client: Membership) -> None:
        self._proxies[id(client)].mend()

    def expire(self, client: Membership) -> None:
        assert isinstance(client, ZooKeeperMembership)
        expire(client, self.server.address)

    def elsewhere(self) -> None:
        other = KazooClient(self.server.address)
        other.start(timeout=WAIT_S_MAX)
        other.create("/elsewhere-", sequence=True, ephemeral=True)
        other.stop()
        other.close()

    def close(self) -> None:
        for client in self._clients:
            client.close()
        for proxy in self._proxies.values():
            proxy.close()


def node(name: str, *, leaving: bool = False) -> MemberNode:
    return MemberNode(f"{name}:1", ("a", "a-b"), unfit=("a",), leaving=leaving)


class Daemon:
    """A client, and everything it was told; `wait` of the rig is how it waits."""

    def __init__(self, rig: Rig, name: str, *, client: Membership | None = None) -> None:
        self.rig = rig
        self.name = name
        self.news: list[MembershipNews] = []
        self.client = client or rig.client()
        self.client.listen(self.news.append)
        self.member = ""

    def join(self, life: int = 1) -> Daemon:
        """A session that stands, and its first view."""
        self.member = f"{self.name}.{life}"
        self.client.join(self.member, node(self.name))
        self.rig.wait(lambda: self.view() is not None)
        return self

    def of_session(self) -> list[MembershipNews]:
        return [news for news in list(self.news) if news.member == self.member]

    def states(self) -> list[SessionState]:
        return [news.state for news in self.of_session() if isinstance(news, Session)]

    def answers(self, shard: ShardId = SHARD) -> list[NodeAnswer]:
        found = [news for news in self.of_session() if isinstance(news, NodeAnswer)]
        return [answer for answer in found if answer.shard == shard]

    def outcomes(self, shard: ShardId = SHARD) -> list[NodeOutcome]:
        return [answer.outcome for answer in self.answers(shard)]

    def views(self) -> list[MembershipView]:
        return [news for news in self.of_session() if isinstance(news, MembershipView)]

    def view(self) -> MembershipView | None:
        return next(reversed(self.views()), None)

    def owners(self) -> dict[ShardId, str]:
        view = self.view()
        return view.owners if view is not None else {}

    def members(self) -> dict[str, MemberNode]:
        view = self.view()
        return view.members if view is not None else {}

    def create(self, shard: ShardId = SHARD) -> NodeAnswer:
        return self._answer(shard, self.client.create_owner)

    def remove(self, shard: ShardId = SHARD) -> NodeAnswer:
        return self._answer(shard, self.client.remove_owner)

    def _answer(self, shard: ShardId, ask: Callable[[ShardId], object]) -> NodeAnswer:
        known = len(self.answers(shard))  # before: the answer may be there when `ask` returns
        ask(shard)
        self.rig.wait(lambda: len(self.answers(shard)) > known)
        return self.answers(shard)[-1]


RIGS: list[Callable[[], Rig]] = [Simulated, Real]


def expire(client: ZooKeeperMembership, address: str) -> None:
    """End its session behind its back: a second client of the same session closes it."""
    identity = identity_of(client)
    assert identity is not None
    end_session(identity, address)


def identity_of(client: ZooKeeperMembership) -> tuple[int, bytes] | None:
    """Of its session; None while it has none."""
    session = client._session
    found: tuple[int, bytes] | None = session._connection.client.client_id if session else None
    return found


def end_session(identity: tuple[int, bytes], address: str) -> None:
    """A second client of the session, which closes it; of one that is over, it closes another."""
    double = KazooClient(address, client_id=identity)
    double.start(timeout=WAIT_S_MAX)
    double.stop()
    double.close()


def wait(until: Callable[[], bool], seconds: float = WAIT_S_MAX) -> None:
    """By the clock of the machine."""
    pause, end_s = threading.Event(), time.monotonic() + seconds
    while not until():
        if time.monotonic() > end_s:
            raise AssertionError(f"not so after {seconds} s")
        pause.wait(LOOK_AGAIN_S)


def rest(seconds: float) -> None:
    """Likewise."""
    threading.Event().wait(seconds)
