"""Finds the leaders of a cluster in ZooKeeper, as clients of the original do.

`<root>/<role>/leader` is a JSON of hostname, ip, http, grpc and version; the address is `ip:grpc`.
No session is kept: each lookup connects anew, so idle clients cost ZooKeeper nothing. kazoo is
imported only when needed, because most clients are given an address.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from peloton import missing_package
from peloton.sdk.errors import BadSpec, ServerError, ServiceUnavailable, Unsupported

DEFAULT_ZK_ROOT = "/peloton"
LOOKUP_S_MAX = 5.0
LEADER_NAMES = {"jobmgr": "jobmanager", "resmgr": "resourcemanager", "hostmgr": "hostmanager"}
"""Under which name the leader of each role is found."""
NO_ZOOKEEPER, NO_LEADER = "NO_ZOOKEEPER", "NO_LEADER"
PORT_MAX = 65_535
PROBE_S_MAX = 0.5
REFUSED = "connection refused: no server listens there"


class NodesRead:
    """The nodes that one session reads."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def data(self, path: str) -> bytes | None:
        """Return the data of one node; None if there is none."""
        from kazoo.exceptions import NoNodeError

        try:
            return bytes(self._client.get(path)[0])
        except NoNodeError:
            return None

    def children(self, path: str) -> dict[str, bytes]:
        """Return the data of the nodes below a path, by name; empty if there is none."""
        from kazoo.exceptions import NoNodeError

        try:
            names = self._client.get_children(path)
        except NoNodeError:
            return {}
        found = {name: self.data(f"{path}/{name}") for name in names}
        return {name: data for name, data in found.items() if data is not None}  # else just deleted


@contextmanager
def reading(servers: Sequence[str], *, timeout_s: float = LOOKUP_S_MAX) -> Iterator[NodesRead]:
    """Open a session that reads some nodes. Raises as `leaders`."""
    with _session(servers, timeout_s) as client:
        yield NodesRead(client)


def leaders(
    servers: Sequence[str], *, root: str = DEFAULT_ZK_ROOT, timeout_s: float = LOOKUP_S_MAX
) -> dict[str, str]:
    """Return the address of each role's leader, if it has one; raises `ServiceUnavailable` if
    none has."""
    hosts = ",".join(servers)
    with reading(servers, timeout_s=timeout_s) as nodes:
        data_of = {role: nodes.data(_path(root, name)) for role, name in LEADER_NAMES.items()}
    found = {
        role: address_in(data, _path(root, LEADER_NAMES[role]))
        for role, data in data_of.items()
        if data
    }
    if not found:
        names = ", ".join(_path(root, name) for name in LEADER_NAMES.values())
        text = f"no leader in ZooKeeper at {hosts}: nothing at {names}"
        raise ServiceUnavailable(text, kind=NO_LEADER)
    return found


@contextmanager
def _session(servers: Sequence[str], timeout_s: float) -> Iterator[Any]:
    """Open a session for a few questions. What goes wrong meanwhile is `ServiceUnavailable`."""
    try:
        from kazoo.exceptions import KazooException
        from kazoo.handlers.threading import KazooTimeoutError
    except ImportError:
        text = f"finding a cluster in ZooKeeper: {missing_package('kazoo')}"
        raise Unsupported(text) from None
    hosts = ",".join(servers)
    try:
        client = _client(hosts, timeout_s)
    except ValueError as error:
        raise BadSpec(f"ZooKeeper: {hosts!r} are no addresses: {error}") from None
    try:
        if _all_refuse(hosts):
            raise ServiceUnavailable(f"ZooKeeper at {hosts}: {REFUSED}", kind=NO_ZOOKEEPER)
        client.start(timeout=timeout_s)
        yield client
    except KazooTimeoutError:
        text = f"ZooKeeper at {hosts} does not answer within {timeout_s:g} s"
        raise ServiceUnavailable(text, kind=NO_ZOOKEEPER) from None
    except (KazooException, OSError) as error:
        text = f"ZooKeeper at {hosts}: {type(error).__name__} {error}".rstrip()
        raise ServiceUnavailable(text, kind=NO_ZOOKEEPER) from None
    finally:
        client.stop()
        client.close()


def _all_refuse(hosts: str) -> bool:
    """Return whether no server listens at any of the addresses: kazoo would try until its time
    is over."""
    from kazoo.hosts import collect_hosts

    for host, port in collect_hosts(hosts)[0]:
        try:
            socket.create_connection((host, port), timeout=PROBE_S_MAX).close()
        except ConnectionRefusedError:
            continue
        except OSError:
            pass  # it may only be slow
        return False
    return True


def address_in(data: bytes, path: str) -> str:
    """Return the address in a leader's node; raises if an operator wrote something else there."""
    try:
        node = json.loads(data)
        host, port = node["ip"], node["grpc"]
    except (ValueError, KeyError, TypeError):
        host = port = None
    if not isinstance(host, str) or not host or type(port) is not int or not 0 < port <= PORT_MAX:
        raise ServerError(f"ZooKeeper: {path} names no ip and grpc port: {data[:200]!r}")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _client(hosts: str, timeout_s: float) -> Any:
    from kazoo.client import KazooClient
    from kazoo.retry import KazooRetry

    # The exceptions report lost connections in one line.
    quiet = logging.getLogger("peloton.sdk.zookeeper")
    quiet.addHandler(logging.NullHandler())
    quiet.propagate = False
    retry = KazooRetry(max_tries=-1, delay=0.1, backoff=2, max_delay=1.0, deadline=timeout_s)
    return KazooClient(
        hosts=hosts,
        timeout=timeout_s,
        connection_retry=retry,
        read_only=True,
        logger=quiet,
    )


def _path(root: str, name: str) -> str:
    return f"/{root.strip('/')}/{name}/leader".replace("//", "/")
