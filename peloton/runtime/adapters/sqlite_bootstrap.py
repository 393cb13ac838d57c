"""The first transaction on a SQLite journal: its cluster record, its registers and its witness.

Turns the groups of a daemon into rows that exist once for all. It claims no shard.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from peloton.runtime.adapters import sqlite_schema as sql
from peloton.runtime.adapters.sqlite_witness import JournalWitness
from peloton.runtime.core.journal import chain, register
from peloton.runtime.core.journal.register import OpNames
from peloton.runtime.core.journal.statements import FEATURES
from peloton.runtime.ports import JOURNAL_FORMAT, ClusterRecord


class NewCluster(NamedTuple):
    """The arguments of `Journal.bootstrap`, and the op names for the writes of this process."""

    ops: OpNames
    groups: Mapping[str, int]
    name: str
    level: int


def bootstrap(
    db: sqlite3.Connection, ours: NewCluster, *, witness: JournalWitness | None
) -> ClusterRecord:
    """Perform `Journal.bootstrap` within the open transaction."""
    ops, groups, name = ours.ops, ours.groups, ours.name
    generation = witness.check(db, ops) if witness is not None else 0
    shards = [(group, n) for group, count in groups.items() for n in range(count)]
    record = (ops.process, JOURNAL_FORMAT, json.dumps(dict(groups), sort_keys=True))
    inserted = db.execute("INSERT OR IGNORE INTO cluster VALUES (1, ?, ?, ?)", record)
    if ours.level and inserted.rowcount:
        raise_level(db, ours.level, ops=ops)
    found = db.execute(sql.READ_CLUSTER).fetchone()
    if name:
        db.execute("INSERT OR IGNORE INTO cluster_name VALUES (1, ?)", (name,))
    named = db.execute(sql.READ_NAME).fetchone()
    cluster = ClusterRecord(
        found[0],
        found[1],
        json.loads(found[2]),
        name=named[0] if named else "",
        level=level(db),
        generation=generation,
    )
    register.check_format(cluster.format)
    register.same_cluster(cluster, groups, name=name)
    cluster = replace(cluster, shards=register.grown(cluster, groups))
    text = json.dumps(cluster.shards, sort_keys=True)
    db.execute("UPDATE cluster SET shards = ? WHERE shards != ?", (text, text))
    db.executemany(sql.CREATE_REGISTER, [(*shard, ops.next(), chain.GENESIS) for shard in shards])
    db.execute("COMMIT")
    if witness is not None:
        witness.begin(db, cluster)
    return cluster


def raise_level(db: sqlite3.Connection, to: int, *, ops: OpNames) -> int:
    """Raise the feature level, which never falls, within the open transaction; return the level."""
    db.execute(sql.CREATE_REGISTER, (*FEATURES, ops.next(), chain.GENESIS))
    db.execute(sql.RAISE_EPOCH, (to, ops.next(), *FEATURES))
    return level(db)


def level(db: sqlite3.Connection) -> int:
    """Return the feature level in the journal."""
    found = db.execute(sql.READ_REGISTER, FEATURES).fetchone()
    return int(found[0]) if found is not None else 0
