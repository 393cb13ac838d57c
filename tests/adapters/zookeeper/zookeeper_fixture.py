"""Daemons that own shards on a real ZooKeeper and do nothing else, each on threads of its own.

Turns the claim shell's orders into a steward that obeys after a while, as a root does. The tests
compute how shards should be ranked.
"""

from __future__ import annotations

import random
import threading
from concurrent.futures import Future
from typing import Any

from peloton.chaos.nemesis.proxy import Door
from peloton.runtime.adapters.system_clock import SystemClock
from peloton.runtime.adapters.zookeeper_membership import ZooKeeperMembership
from peloton.runtime.adapters.zookeeper_session import ZooKeeperConfig
from peloton.runtime.core.owning.handoff import Handoff
from peloton.runtime.core.owning.ownership import ranked
from peloton.runtime.ports import MemberNode, ShardId
from peloton.runtime.shells.claim import ClaimShell, MembershipStatus
from peloton.runtime.shells.dispatcher import Threads
from peloton.runtime.shells.shell import begin_shell
from peloton.runtime.shells.shell_messages import Closed, DrainAll, Opened, send

WORK_S_MAX = 0.02


class Root:
    """A steward, and where broken shells are reported. Each order is done a little later."""

    def __init__(self, deployment: Deployment, name: str) -> None:
        self.deployment = deployment
        self.name = name
        self.claim: Any = None
        self.running: dict[ShardId, int] = {}  # shard → its epoch
        self.membership_status: MembershipStatus | None = None
        self.orders: list[tuple[str, ShardId]] = []
        self.broke: list[Any] = []

    def own(self, shards: tuple[ShardId, ...]) -> None:
        for shard in shards:
            assert shard not in self.running
            self.running[shard] = 0
            self._later("own", shard, self._open)

    def disown(self, shards: tuple[ShardId, ...]) -> None:
        for shard in shards:
            self._later("drain", shard, self._close)

    def drop(self, shards: tuple[ShardId, ...]) -> None:
        for shard in shards:
            self._later("drop", shard, self._close)

    def status_changed(self, membership_status: MembershipStatus) -> None:
        self.membership_status = membership_status

    def tell(self, letter: Any) -> None:
        """As a reference to the root: only what broke is told it."""
        self.broke.append(letter)

    def _later(self, order: str, shard: ShardId, do: Any) -> None:
        self.orders.append((order, shard))
        timer = threading.Timer(random.random() * WORK_S_MAX, do, (shard,))
        timer.daemon = True
        timer.start()

    def _open(self, shard: ShardId) -> None:
        if shard in self.running:
            self.running[shard] = self.deployment.claim(shard)
            send(self.claim, Opened(shard))

    def _close(self, shard: ShardId) -> None:
        self.running.pop(shard, None)
        send(self.claim, Closed(shard))


class Daemon:
    """One process, but for the process."""

    def __init__(self, deployment: Deployment, name: str) -> None:
        self.proxy = Door(deployment.port)
        config = ZooKeeperConfig(
            self.proxy.address, deployment.cluster, session_s=deployment.session_s
        )
        self.membership = ZooKeeperMembership(config)
        self.threads = Threads(SystemClock())
        self.root = Root(deployment, name)
        self.handoff = Handoff(name, MemberNode(f"{name}:1", ("a",)), sizes=deployment.sizes)
        self.claim = ClaimShell(
            self.threads.driver("shards"),
            handoff=self.handoff,
            membership=self.membership,
            controller=self.root,
            root=self.root,  # type: ignore[arg-type]
        )
        self.root.claim = begin_shell(self.claim)

    def drain(self) -> None:
        """Leave in good order."""
        gone: Future[Any] = Future()
        send(self.root.claim, DrainAll(gone))
        gone.result(60.0)

    def kill(self) -> None:
        """Without a word: nothing passes any more."""
        self.proxy.cut()
        self.threads.stop()

    def end(self) -> None:
        self.threads.stop()
        self.membership.close()
        self.proxy.close()


class Deployment:
    """All daemons on one server."""

    def __init__(self, port: int, cluster: str, *, shards: int, session_s: float) -> None:
        self.port = port
        self.cluster = cluster
        self.session_s = session_s
        self.sizes = {"a": shards}
        self.epochs: dict[ShardId, int] = {}
        self.daemons: dict[str, Daemon] = {}
        self.all: list[Daemon] = []
        self._claiming = threading.Lock()

    def claim(self, shard: ShardId) -> int:
        with self._claiming:
            self.epochs[shard] = self.epochs.get(shard, 0) + 1
            return self.epochs[shard]

    def start(self, name: str) -> Daemon:
        daemon = self.daemons[name] = Daemon(self, name)
        self.all.append(daemon)
        return daemon

    def settled(self) -> bool:
        """Every shard is with its first in rank, works there and nowhere else, and all see it.

        Under which epoch is not asked: one that has lost the shard may have begun to claim it
        before it heard, and then stops. The owner learns of that from the fence, at its next write.
        """
        members = {d.handoff.member: d for d in self.daemons.values()}
        nodes = {member: daemon.handoff.node for member, daemon in members.items()}
        for at in range(self.sizes["a"]):
            shard = ShardId("a", at)
            first = ranked(shard, nodes)[0]
            for member, daemon in members.items():
                membership_status, runs = (
                    daemon.root.membership_status,
                    bool(daemon.root.running.get(shard)),
                )
                if (
                    membership_status is None
                    or not membership_status.current
                    or membership_status.owner_of(shard) != first
                ):
                    return False
                if runs != (member == first):
                    return False
        return True

    def end(self) -> None:
        for daemon in self.all:
            daemon.end()
