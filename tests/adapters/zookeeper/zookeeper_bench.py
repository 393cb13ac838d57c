"""What tests of the ZooKeeper adapter stand on: clients of some service, in a cluster of their own.

The tests have the assertions.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

from kazoo.client import KazooClient

from peloton.runtime.adapters.zookeeper_connection import now_s
from peloton.runtime.adapters.zookeeper_membership import ZooKeeperMembership
from peloton.runtime.adapters.zookeeper_nodes import Leader, Paths
from peloton.runtime.adapters.zookeeper_session import ZooKeeperConfig
from tests.contracts.memberships import Daemon, rest, wait

SESSION_S = 10.0
"""So long that whoever is kept from the processor for a while does not lose his."""
SHORT_SESSION_S = 4.0
"""Of those whose end a test waits for."""
LEADERS = {"a": ("jobmanager", Leader("west-1", "10.0.0.1", 5292, 5392))}


class Bench:
    """Clients of some service, in a cluster of their own."""

    _clusters = itertools.count(1)

    def __init__(self, address: str) -> None:
        self.address = address
        self.session_s = SESSION_S
        self.cluster = f"cluster-{next(self._clusters)}"
        self.paths = Paths(self.cluster, root=f"/{self.cluster}")
        self.clients: list[ZooKeeperMembership] = []
        self.operator = KazooClient(address)
        self.operator.start(timeout=60)

    def client(
        self, address: str = "", *, session_s: float = 0, cluster: str = "", cluster_id: str = ""
    ) -> ZooKeeperMembership:
        """Of this bench's cluster, or of another one below the same root."""
        config = ZooKeeperConfig(
            address or self.address,
            cluster or self.cluster,
            cluster_id=cluster_id,
            session_s=session_s or self.session_s,
            root=f"/{self.cluster}",
            leaders=LEADERS,
        )
        self.clients.append(ZooKeeperMembership(config))
        return self.clients[-1]

    def daemon(self, name: str, address: str = "", *, session_s: float = 0) -> Daemon:
        client = self.client(address, session_s=session_s)
        return Daemon(self, name, client=client).join()

    def wait(self, until: Callable[[], bool]) -> None:
        wait(until)

    def rest(self, seconds: float) -> None:
        rest(seconds)

    def close(self) -> None:
        for client in self.clients:
            client.close()
        self.operator.stop()
        self.operator.close()


class Watched:
    """For how long a member called itself sure, by the clock."""

    def __init__(self, daemon: Daemon) -> None:
        self.until_s: list[float] = []
        self._daemon = daemon
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._stop.wait(0.005):
            at_s, for_s = now_s(), self._daemon.client.sure_for_s()
            if for_s > 0:
                self.until_s.append(at_s + for_s)

    def stop(self) -> float:
        """The latest moment it ever called sure."""
        self._stop.set()
        self._thread.join()
        return max(self.until_s)
