"""The masters of a Mesos cluster in the settings: one address, or their place in ZooKeeper.

A place may begin with a credential, which must not be printed.
"""

from __future__ import annotations

from typing import NamedTuple

_ZOOKEEPER = "zk://"


class ZooKeeperPath(NamedTuple):
    """ZooKeeper servers, and the folder in which masters stand for election."""

    servers: str
    folder: str

    @classmethod
    def of(cls, master: str) -> ZooKeeperPath | None:
        """Parse `zk://[CREDENTIAL@]HOST:PORT,…/PATH`; return None for an address."""
        if not master.startswith(_ZOOKEEPER):
            return None
        servers, _, path = master.removeprefix(_ZOOKEEPER).partition("/")
        return cls(servers.rpartition("@")[2], f"/{path}")


def printable(master: str) -> str:
    """Return the setting without its credential; if it is malformed, rather too little of it."""
    if "@" not in master:
        return master
    scheme = _ZOOKEEPER if master.startswith(_ZOOKEEPER) else ""
    return scheme + master.rpartition("@")[2]
