"""Makes the journal of a copied data folder that of another cluster: it gets another id.

Whatever belongs to the first cluster (a keeper's folder) is refused to the second by that id. It
must not change a shard: the first owner in the new cluster raises the epochs, as any owner does.
"""

from __future__ import annotations

import sqlite3
import uuid
from pathlib import Path

from peloton.runtime.adapters import sqlite_schema as sql
from peloton.runtime.ports import Unreachable

SET_CLUSTER_ID = "UPDATE cluster SET cluster_id = ?"


def renew_cluster_id(journal: Path) -> None:
    """Raises Unreachable. In a journal that is new there is no id yet, and nothing is done."""
    try:
        db = sql.open_writer(journal)
        try:
            db.execute(SET_CLUSTER_ID, (uuid.uuid4().bytes,))
        finally:
            db.close()
    except sqlite3.Error as error:
        raise Unreachable(f"{journal}: {error}") from error
