"""How settings name the masters of a Mesos cluster: one address, or their place in ZooKeeper.

A place may begin with a credential, which is told to nobody. Must not look whether anything is
there.
"""

from __future__ import annotations

from typing import NamedTuple

_ZOOKEEPER = "zk://"


class ZooKeeperPlace(NamedTuple):
    """Servers, and the folder in which masters stand for election."""

    servers: str
    folder: str

    @classmethod
    def of(cls, master: str) -> ZooKeeperPlace | None:
        """From `zk://[CREDENTIAL@]HOST:PORT,…/PATH`; None if it is an address."""
        if not master.startswith(_ZOOKEEPER):
            return None
        servers, _, path = master.removeprefix(_ZOOKEEPER).partition("/")
        return cls(servers.rpartition("@")[2], f"/{path}")


def printable(master: str) -> str:
    """As people may see it, also if it is not as it should be: rather too little of it."""
    if "@" not in master:
        return master
    scheme = _ZOOKEEPER if master.startswith(_ZOOKEEPER) else ""
    return scheme + master.rpartition("@")[2]
