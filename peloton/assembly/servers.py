"""Connects a daemon of a fleet to its servers: Cassandra and ZooKeeper.

Turns settings into a journal and a membership, or into `CannotStart` with the name of the setting.
Their libraries are imported only if they are used.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from peloton import missing_package
from peloton.failures import CannotStart
from peloton.runtime.adapters.fenced_rows import FencedRows
from peloton.runtime.ports import ClusterRecord, JournalError
from peloton.settings.daemon import Cassandra, DaemonSettings

if TYPE_CHECKING:
    from peloton.runtime.adapters.cassandra_session import CassandraSettings
    from peloton.runtime.adapters.zookeeper_membership import ZooKeeperMembership

LEADER_ROLES = {"jobmgr": "jobmanager", "resmgr": "resourcemanager", "hostmgr": "hostmanager"}
"""The node name under which clients find the owner of a group's first shard."""


def open_cassandra(setting: Cassandra, *, connect_s: float | None = None) -> FencedRows:
    """Open the journal that a cluster shares. `connect_s`: the time limit of each server."""
    try:
        from peloton.runtime.adapters import cassandra_session
        from peloton.runtime.adapters.cassandra_store import CassandraRows
    except ImportError as error:
        raise CannotStart(f"journal.cassandra: {missing_package('cassandra-driver')}") from error
    longest_s = cassandra_session.CONNECT_TIMEOUT_S if connect_s is None else connect_s
    try:
        rows = CassandraRows.open(cassandra_settings(setting, connect_s=longest_s))
    except (JournalError, OSError) as error:
        raise CannotStart(f"journal.cassandra: {error}") from error
    return FencedRows(rows, process=os.urandom(16))


def cassandra_settings(setting: Cassandra, *, connect_s: float) -> CassandraSettings:
    """Return the settings of the store's adapter. Raises CannotStart."""
    from peloton.runtime.adapters.cassandra_session import CassandraSettings

    return CassandraSettings(
        contacts=tuple(setting.contacts),
        port=setting.port,
        keyspace=setting.keyspace,
        data_centre=setting.data_centre,
        username=setting.username,
        password=_secret(setting.password_file),
        ca_file=setting.ca_file,
        connect_s=connect_s,
    )


def open_zookeeper(settings: DaemonSettings, record: ClusterRecord) -> ZooKeeperMembership:
    """Open the membership, which also shows clients where the owners of first shards are."""
    try:
        from peloton.runtime.adapters.zookeeper_membership import ZooKeeperMembership
        from peloton.runtime.adapters.zookeeper_nodes import Leader
        from peloton.runtime.adapters.zookeeper_session import ZooKeeperConfig
    except ImportError as error:
        raise CannotStart(f"zookeeper: {missing_package('kazoo')}") from error
    setting = settings.zookeeper
    assert setting is not None
    leaders: Mapping[str, tuple[str, Leader]] = {}
    if "api" in settings.roles:
        grpc, http = settings.grpc, settings.http
        here = Leader(socket.gethostname(), grpc.host, http.port, grpc.port)
        leaders = {group: (role, here) for group, role in LEADER_ROLES.items()}
    return ZooKeeperMembership(
        ZooKeeperConfig(
            hosts=",".join(setting.hosts),
            cluster=settings.cluster,
            session_s=setting.session_timeout_s,
            root=setting.root,
            leaders=leaders,
            cluster_id=record.cluster_id.hex(),
        )
    )


def _secret(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no text in UTF-8"
        raise CannotStart(f"journal.cassandra.password_file: {file}: {why}") from error
