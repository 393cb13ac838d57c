"""A session with Cassandra, with the only driver settings under which the journal is safe.

Turns a `CassandraSettings` into an open session. Each setting below prevents a fault that the
driver's default causes; a session opened in another way has those faults. No request is ever sent a
second time: an unclear write is settled by the protocol.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cassandra import ConsistencyLevel, DriverException, InvalidRequest
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    ExecutionProfile,
    NoHostAvailable,
)
from cassandra.connection import ConnectionException
from cassandra.policies import (
    ConstantReconnectionPolicy,
    DCAwareRoundRobinPolicy,
    FallthroughRetryPolicy,
    LoadBalancingPolicy,
    NoSpeculativeExecutionPolicy,
    RoundRobinPolicy,
    TokenAwarePolicy,
)
from cassandra.protocol import ErrorMessage
from cassandra.query import dict_factory, tuple_factory
from msgspec import Struct

from peloton.runtime.ports import Unreachable

LEVEL = ConsistencyLevel.QUORUM
SERIAL = ConsistencyLevel.SERIAL
"""Fixed here only. The server accepts SERIAL and LOCAL_SERIAL side by side, and neither then sees
what the other decided."""
PROTOCOL_VERSION = 5
REQUEST_TIMEOUT_S = 3.0
"""Longer than the server's own timeouts (2 s), whose errors are more precise than ours."""
CONNECT_TIMEOUT_S = 5.0
HEARTBEAT_INTERVAL_S = 1.0
HEARTBEAT_TIMEOUT_S = 1.0
RECONNECT_DELAY_S = 0.5
TRIED = re.compile(r"^\[Errno -?\d+\] Tried connecting to \[.*?\]\. Last error: ")
"""How the driver begins the reason of one server: with the address, once more."""
CONDITIONAL = "conditional"
"""Name of the profile whose rows are dicts by column name."""

FAILURES = (NoHostAvailable, DriverException, ErrorMessage, ConnectionException)
"""Exceptions of requests that are not the journal's; the driver has no common base for them."""


class CassandraSettings(Struct, frozen=True, kw_only=True):
    """The store's address and credentials. Requests go to `data_centre`; None: the only one."""

    contacts: tuple[str, ...] = ("127.0.0.1",)
    port: int = 9042
    keyspace: str = "peloton"
    data_centre: str | None = None
    username: str | None = None
    password: str | None = None
    ca_file: Path | None = None
    """The authority that signed the servers' certificates; None: no encryption."""
    connect_s: float = CONNECT_TIMEOUT_S


class Connected(Struct, frozen=True):
    """An open session and the cluster object to shut down with it."""

    cluster: Any
    session: Any

    def close(self) -> None:
        self.cluster.shutdown()


def connect(
    settings: CassandraSettings,
    *,
    keyspace: bool = True,
    protocol_version: int = PROTOCOL_VERSION,
) -> Connected:
    """Open a session; without a keyspace if `keyspace` is False.

    Raises Unreachable, or the driver's InvalidRequest if there is no such keyspace.
    """
    try:
        cluster = _cluster(settings, protocol_version)
    except FAILURES as error:
        raise Unreachable(f"{_where(settings)}: no name can be resolved") from error
    try:
        session = cluster.connect()
        # A row and the deletion of its partition may come from two daemons. The servers' clocks
        # stamp both, so that a daemon whose clock runs ahead cannot leave rows that no deletion
        # covers.
        session.use_client_timestamp = False
        if keyspace:
            session.set_keyspace(settings.keyspace)
    except InvalidRequest:
        cluster.shutdown()
        raise
    except FAILURES as error:
        cluster.shutdown()
        raise Unreachable(f"{_where(settings)}: {_reasons(error)}") from error
    except BaseException:
        cluster.shutdown()
        raise
    return Connected(cluster, session)


@contextlib.contextmanager
def asking() -> Iterator[None]:
    """Raise Unreachable for failures of a command's own requests, which may all be repeated."""
    try:
        yield
    except FAILURES as error:
        raise Unreachable(f"{error}; requests in flight may have been done") from error


def _cluster(settings: CassandraSettings, protocol_version: int) -> Cluster:
    named = _profile(settings)
    named.row_factory = dict_factory
    plain = _profile(settings)
    plain.row_factory = tuple_factory
    auth = None
    if settings.username is not None:
        auth = PlainTextAuthProvider(settings.username, settings.password or "")
    tls = None
    if settings.ca_file is not None:
        try:
            tls = ssl.create_default_context(cafile=str(settings.ca_file))
        except OSError as error:  # ssl.SSLError is one
            why = getattr(error, "reason", None) or error.strerror
            raise Unreachable(f"the CA file {settings.ca_file} cannot be used: {why}") from error
    return Cluster(
        contact_points=list(settings.contacts),
        port=settings.port,
        auth_provider=auth,
        ssl_context=tls,
        # (The default's name is an object of the driver's; under any other name a profile would
        # be added to a default that writes to one replica and retries.)
        execution_profiles={EXEC_PROFILE_DEFAULT: plain, CONDITIONAL: named},
        # Pinned: otherwise one refusal by a server downgrades the whole session.
        protocol_version=protocol_version,
        # Without it a 64 KiB row waits 40 ms for a delayed ACK of the kernel.
        sockopts=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        # A silent partition is detected by heartbeats only. At the default of 30 s one cut server
        # of three stalls nearly all commits for as long.
        idle_heartbeat_interval=HEARTBEAT_INTERVAL_S,
        idle_heartbeat_timeout=HEARTBEAT_TIMEOUT_S,
        # The default backs off to ten minutes; a shard is abandoned after 15 s.
        reconnection_policy=ConstantReconnectionPolicy(RECONNECT_DELAY_S, max_attempts=None),
        connect_timeout=settings.connect_s,
        control_connection_timeout=settings.connect_s,
    )


def _profile(settings: CassandraSettings) -> ExecutionProfile:
    child: LoadBalancingPolicy = RoundRobinPolicy()
    if settings.data_centre is not None:
        child = DCAwareRoundRobinPolicy(local_dc=settings.data_centre)
    return ExecutionProfile(
        # One shard, one coordinator: two that propose for one register contend.
        # (For this the driver follows the schema; without, it knows no replicas.)
        load_balancing_policy=TokenAwarePolicy(child, shuffle_replicas=False),
        # The default sends a conditional write again, to another server, when the connection drops
        # or the server fails. If the first copy had been done, the second is refused, and
        # our success is reported as "not applied".
        retry_policy=FallthroughRetryPolicy(),
        speculative_execution_policy=NoSpeculativeExecutionPolicy(),
        consistency_level=LEVEL,
        serial_consistency_level=SERIAL,
        request_timeout=REQUEST_TIMEOUT_S,
    )


def _where(settings: CassandraSettings) -> str:
    return f"Cassandra at {', '.join(settings.contacts)} port {settings.port}"


def _reasons(error: Exception) -> str:
    """Why each server could not be reached, if the error has a list of them."""
    errors = getattr(error, "errors", None) or {}
    reasons = [(_name(host), TRIED.sub("", str(why))) for host, why in errors.items()]
    if len(reasons) == 1:
        return reasons[0][1]  # its address is named already
    return "; ".join(f"{host}: {why}" for host, why in reasons) or str(error)


def _name(host: Any) -> str:
    return str(host.endpoint if hasattr(host, "endpoint") else host)
