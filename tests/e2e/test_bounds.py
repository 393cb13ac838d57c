"""A journal that does not grow for ever: floors move, cuts work, and a restart knows all.

Simulated runs, so that eight hundred thousand tasks end within a minute or two.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bench.end_to_end import Bench

ROUNDS, JOBS, SIZE = 16, 50, 1000
KEPT_BYTES_MAX = 40 * 1024 * 1024


def kept_bytes(bench: Bench) -> int:
    """Of frames and checkpoints."""
    with closing(sqlite3.connect(f"{bench.journal.path.as_uri()}?mode=ro", uri=True)) as db:
        tables = [f"SELECT sum(length(body)) FROM {name}" for name in ("journal", "checkpoint")]
        return sum(db.execute(table).fetchone()[0] or 0 for table in tables)


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_eight_hundred_thousand_tasks(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 2000, 0.2)
    bench.wait_for_capacity()
    for done in range(1, ROUNDS + 1):
        bench.create(JOBS, SIZE)
        bench.wait_for(("SUCCEEDED",), done * JOBS * SIZE)
    left = kept_bytes(bench)
    assert bench.journal.bytes > KEPT_BYTES_MAX, "not enough was written to show anything"
    assert left < KEPT_BYTES_MAX, f"{left} of {bench.journal.bytes} bytes are still there"
    bench.root.stop()

    again = Bench(tmp_path, 2000, 0.2)
    again.wait_for(("SUCCEEDED",), ROUNDS * JOBS * SIZE)
    again.root.stop()
