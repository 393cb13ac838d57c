"""A new generation for a journal that was copied or restored, before a daemon opens it.

What the original acknowledged after the copy is not in it, so what the original's owners sent must
not apply, and runs get ids that the original never used. A copy that a person adopts becomes
another cluster as well: what belongs to the first one (a keeper's folder) is refused to it by its
id.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path

from peloton.runtime.adapters import sqlite_schema as sql
from peloton.runtime.adapters import witness_file
from peloton.runtime.adapters.sqlite_witness import JournalWitness, WitnessOptions
from peloton.runtime.core.journal.register import OpNames
from peloton.runtime.ports import ClusterRecord, Unreachable

SET_CLUSTER_ID = "UPDATE cluster SET cluster_id = ?"


def begin_anew(path: Path, options: WitnessOptions, *, other_cluster: bool) -> None:
    """Begin a generation of its own, with its witness; `options.anew` is the reason.

    Differences between the journal and its witness are accepted, because their files may have been
    copied at two moments. The call may be repeated after a crash. A journal that was never started
    is not changed. Raises JournalError.
    """
    assert options.anew, "the reason is needed"
    witness = JournalWitness(path, options)
    # The old one names the cluster and the generation that end here.
    witness_file.remove(options.folder)
    process = uuid.uuid4().bytes
    try:
        with closing(sql.open_writer(path)) as db:
            db.execute("BEGIN IMMEDIATE")
            found = db.execute(sql.READ_CLUSTER).fetchone()
            if found is None:
                db.execute("ROLLBACK")
                return
            generation = witness.check(db, OpNames(process))
            cluster_id, format_, shards = found
            if other_cluster:
                cluster_id = process
                db.execute(SET_CLUSTER_ID, (cluster_id,))
            db.execute("COMMIT")
            record = ClusterRecord(cluster_id, format_, json.loads(shards), generation=generation)
            witness.begin(db, record)
            witness.close(db)
    except sqlite3.Error as error:
        raise Unreachable(f"{path}: {error}") from error
