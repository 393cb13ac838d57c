"""Keys that were looked up once: each cache keeps the last ones, whatever has been before."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc

from peloton.assembly.kinds import kinds
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.vocabulary import KEYS_KEPT_MAX, Key, kind_of

SIZES = {"jobmgr": 4, "resmgr": 1, "hostmgr": 2}
KEYS_OF_A_JOB = "job/{}", "slice/{}/0", "task/{}/0", "lot/{}/0"


def test_jobs_that_have_left_leave_no_keys() -> None:
    # Other threads of this process, of clients of other tests, would be counted as well.
    code = f"from {__name__} import grown; print(*grown())"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for_each, in_all = map(float, told.stdout.split())
    assert in_all > 0, "the memory of keys is counted"
    assert for_each < 10, (
        f"{for_each:.0f} bytes stay for each job, {in_all:.0f} for all at the limit"
    )


def grown() -> tuple[float, int]:
    """What stays of a job beyond the limit of the caches, and for all within it, in bytes."""
    known = kinds(SIZES)
    sharding, slices = Sharding(known, SIZES), known["slice"]

    def pass_through(first: int, count: int) -> None:
        for at in range(first, first + count):
            for form in KEYS_OF_A_JOB:
                key = Key(form.format(f"{at:032}"))
                shard = sharding.shard_of(key)
                assert kind_of(key) in known and sharding.is_at(key, shard)
            slices.follows(Key(KEYS_OF_A_JOB[1].format(f"{at:032}")))

    pass_through(0, KEYS_KEPT_MAX)  # each cache is full
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        # Those that are pushed out were made before: what takes their place is counted, up to the
        # limit, and nothing beyond it.
        pass_through(KEYS_KEPT_MAX, KEYS_KEPT_MAX)
        full, _ = tracemalloc.get_traced_memory()
        pass_through(2 * KEYS_KEPT_MAX, KEYS_KEPT_MAX)
        later, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (later - full) / KEYS_KEPT_MAX, full - before
