"""Keyspaces of the shared Cassandra for tests: the journal's tables, without a row.

To create a keyspace takes over a second, to empty one a few hundredths. Each test run has one, and
whoever asks gets it empty; so no two tests may use it at once. Only tests may delete registers, as
done here.
"""

from __future__ import annotations

import atexit
import functools
from collections.abc import Mapping

from peloton.runtime.adapters import cassandra_schema, cassandra_session
from peloton.runtime.adapters.cassandra_session import CassandraSettings, Connected
from tests.servers import cassandra
from tests.servers.patient import executed

KEYSPACE = "tests"
REPLICATION = {cassandra.Cassandra.data_centre: 1}
Keys = Mapping[str, tuple[str, ...]]
"""Of tables."""
# Rows that conditions guard go by a condition too: the server does not see both in one order.
GUARDED: Keys = {"cluster": ("one",), "shard_registers": ("part", "shard_group", "shard_number")}
PLAIN: Keys = {
    "frames": ("segment",),
    "checkpoint": ("shard_group", "shard_number", "position", "epoch", "bucket"),
    "ended_states": ("shard_group", "shard_number", "bucket"),
    "secrets": ("job",),
}


class Lasting(Connected, frozen=True):
    """A session that many journals use one after the other; none of them ends it."""

    def close(self) -> None:
        """Stay open."""


def settings() -> CassandraSettings:
    """Where the shared server is, with the tables in place, full or empty."""
    _session()
    return CassandraSettings(port=cassandra.shared().port, keyspace=KEYSPACE)


def empty() -> Connected:
    """The session, in the keyspace, with all rows gone."""
    connected = _session()
    empty_tables(connected)
    return connected


def empty_tables(connected: Connected, *, guarded: Keys = GUARDED, plain: Keys = PLAIN) -> None:
    """Of the keyspace that the session is in."""
    for table, key in {**guarded, **plain}.items():
        where = " AND ".join(f"{column} = %s" for column in key)
        # A guarded row has a key of its own, the others go by whole partitions.
        condition, each = (" IF EXISTS", "") if table in guarded else ("", "DISTINCT ")
        for row in executed(connected, f"SELECT {each}{', '.join(key)} FROM {table}"):
            executed(connected, f"DELETE FROM {table} WHERE {where}{condition}", row)


@functools.cache
def _session() -> Lasting:
    where = CassandraSettings(port=cassandra.shared().port, keyspace=KEYSPACE)
    maker = cassandra_session.connect(where, keyspace=False)
    cassandra_schema.apply(maker, KEYSPACE, replication=REPLICATION)
    maker.close()
    connected = cassandra_session.connect(where)
    # Before the server goes: the driver would look for it while the interpreter ends.
    atexit.register(connected.close)
    return Lasting(connected.cluster, connected.session)
