"""The first transaction on a SQLite journal: its cluster record, its registers, its witness.

Turns the groups that a daemon has into rows that exist once for all. It must not claim a shard.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping

from msgspec.structs import replace

from peloton.runtime.adapters import sqlite_schema as sql
from peloton.runtime.adapters.sqlite_witness import JournalWitness
from peloton.runtime.core import chain, register
from peloton.runtime.core.register import OpNames
from peloton.runtime.core.statements import FEATURES
from peloton.runtime.ports import JOURNAL_FORMAT, ClusterRecord


def bootstrap(
    db: sqlite3.Connection,
    groups: Mapping[str, int],
    *,
    name: str,
    ops: OpNames,
    witness: JournalWitness | None,
) -> ClusterRecord:
    """Do `Journal.bootstrap` in the transaction that has begun."""
    generation = witness.check(db, ops) if witness is not None else 0
    shards = [(group, n) for group, count in groups.items() for n in range(count)]
    record = (ops.process, JOURNAL_FORMAT, json.dumps(dict(groups), sort_keys=True))
    db.execute("INSERT OR IGNORE INTO cluster VALUES (1, ?, ?, ?)", record)
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
    register.of_format(cluster, JOURNAL_FORMAT)
    register.same_cluster(cluster, groups, name=name)
    cluster = replace(cluster, shards=register.grown(cluster, groups))
    text = json.dumps(cluster.shards, sort_keys=True)
    db.execute("UPDATE cluster SET shards = ? WHERE shards != ?", (text, text))
    db.executemany(sql.CREATE_REGISTER, [(*shard, ops.next(), chain.GENESIS) for shard in shards])
    db.execute("COMMIT")
    if witness is not None:
        witness.begin(db, cluster)
    return cluster


def level(db: sqlite3.Connection) -> int:
    """The feature level in the journal."""
    found = db.execute(sql.READ_REGISTER, FEATURES).fetchone()
    return int(found[0]) if found is not None else 0
