"""Keys that were looked up once: each cache keeps the last ones, whatever has been before."""

from __future__ import annotations

import tracemalloc

from peloton.assembly.kinds import kinds
from peloton.runtime.core.sharding import Sharding
from peloton.runtime.vocabulary import KEYS_KEPT_MAX, Key, kind_of

SIZES = {"jobmgr": 4, "resmgr": 1, "hostmgr": 2}
KEYS_OF_A_JOB = "job/{}", "slice/{}/0", "task/{}/0", "lot/{}/0"


def test_jobs_that_have_left_leave_no_keys() -> None:
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
    grown = (later - full) / KEYS_KEPT_MAX
    assert grown < 10, f"{grown:.0f} bytes stay for each job, {full - before} for all at the limit"
