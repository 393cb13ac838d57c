"""A journal that does not grow for ever: floors move, cuts work, and a restart knows all.

Simulated runs, so that eight hundred thousand tasks end within a minute or two.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.end_to_end import Bench
from peloton.runtime.ports import ShardId, Sizes
from peloton.settings.daemon import ALONE_SHARDS

ROUNDS, JOBS, SIZE = 16, 50, 1000
KEPT_BYTES_MAX = 40 * 1024 * 1024


def kept(bench: Bench) -> list[Sizes]:
    shards = [ShardId(group, n) for group, count in ALONE_SHARDS.items() for n in range(count)]
    return [bench.journal.sizes(shard) for shard in shards]


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_eight_hundred_thousand_tasks(tmp_path: Path) -> None:
    bench = Bench(tmp_path, 2000, 0.2)
    bench.wait_for_capacity()
    for done in range(1, ROUNDS + 1):
        bench.create(JOBS, SIZE)
        bench.wait_for(("SUCCEEDED",), done * JOBS * SIZE)
    sizes = kept(bench)
    left = sum(size.journal_bytes + size.checkpoint_bytes for size in sizes)
    assert bench.journal.bytes > KEPT_BYTES_MAX, "not enough was written to show anything"
    assert left < KEPT_BYTES_MAX, f"{left} of {bench.journal.bytes} bytes are still there"
    bench.root.stop()

    again = Bench(tmp_path, 2000, 0.2)
    again.wait_for(("SUCCEEDED",), ROUNDS * JOBS * SIZE)
    again.root.stop()
