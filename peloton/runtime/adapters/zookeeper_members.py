"""Who is in a fleet right now: a single reading of its member nodes, for commands.

Turns ZooKeeper's nodes into members. It must not join, watch or change anything.
"""

from __future__ import annotations

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from peloton.runtime.adapters.zookeeper_nodes import Paths, member_of
from peloton.runtime.ports import MemberNode, Unreachable


def members(
    hosts: str, cluster: str, *, root: str, timeout_s: float
) -> dict[str, MemberNode | None]:
    """Members by their ids; None for a node that cannot be read. Raises Unreachable."""
    client, paths = KazooClient(hosts=hosts, timeout=timeout_s), Paths(cluster, root=root)
    try:
        client.start(timeout=timeout_s)
        found: dict[str, MemberNode | None] = {}
        for name in sorted(_children(client, paths.members)):
            try:
                found[name] = member_of(client.get(paths.member(name))[0])
            except NoNodeError:
                pass  # it left between the two readings
        return found
    except (KazooTimeoutError, KazooException, OSError) as error:
        text = f"ZooKeeper at {hosts}: {type(error).__name__} {error}".rstrip()
        raise Unreachable(text) from error
    finally:
        client.stop()
        client.close()


def _children(client: KazooClient, path: str) -> list[str]:
    try:
        return list(client.get_children(path))
    except NoNodeError:
        return []
