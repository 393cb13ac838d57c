"""The node that says which cluster a root of ZooKeeper belongs to: made once, then only compared.

Turns (root, cluster) into "it is ours", or into the reason why it is not. It must not change a mark
that stands: two clusters below one root would write each other's leader nodes, and two journals
under one name would share members and owners. Only a person knows that a cluster is no more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kazoo.exceptions import KazooException, NodeExistsError

from peloton.runtime.adapters.zookeeper_connection import RequestOutcome, ZooKeeperConnection
from peloton.runtime.adapters.zookeeper_nodes import Mark, Paths, mark_bytes, mark_of


class Found(NamedTuple):
    """Why the root is not ours; empty where it is. When `trouble` is set nobody knows."""

    refused: str = ""
    trouble: KazooException | None = None


def claim(
    connection: ZooKeeperConnection, paths: Paths, *, ours: Mark, tell: Callable[[Found], None]
) -> None:
    """The root is this cluster's, unless it is another's. Nothing else is made there before."""

    def root_made(reply: RequestOutcome) -> None:
        if reply.exception is None:
            connection.request(lambda c: c.create_async(paths.mark, mark_bytes(ours)), created)
        else:
            tell(Found(trouble=reply.exception))

    def created(reply: RequestOutcome) -> None:
        if reply.exception is None:
            tell(Found())
        elif isinstance(reply.exception, NodeExistsError):
            connection.request(lambda c: c.get_async(paths.mark), read)
        else:
            tell(Found(trouble=reply.exception))

    def read(reply: RequestOutcome) -> None:
        if reply.exception is not None:  # also where it was removed just now: we are asked again
            tell(Found(trouble=reply.exception))
        else:
            tell(Found(_difference(mark_of(reply.value[0]), paths=paths, ours=ours)))

    connection.request(lambda c: c.ensure_path_async(paths.root), root_made)


def _difference(known: Mark | None, *, paths: Paths, ours: Mark) -> str:
    if known is not None and known.id == ours.id:
        return ""
    whose = "no cluster that can be read"
    if known is not None:
        whose = f"cluster {known.name!r} (journal {known.id})"
    return (
        f"zookeeper.root {paths.root} belongs to {whose}, this daemon is of cluster {ours.name!r} "
        f"(journal {ours.id}). Name another root; or, if the other cluster is no more, remove "
        f"the node {paths.mark}"
    )
