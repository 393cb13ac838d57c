"""The benchmark of the executor, tiny: each way of mapping has its line. No time is judged."""

from __future__ import annotations

import re

import pytest

from bench import executor

pytest.importorskip("cloudpickle", reason="the extra `executor` is not installed")
NAMES = (
    "peloton map", "peloton, chunksize=100", "peloton submit", "ProcessPoolExecutor map",
    "the same, chunksize=100",
)  # fmt: skip


@pytest.mark.slow
def test_each_way_has_its_line_and_a_wrong_result_ends_the_run() -> None:
    asked = executor.options("--calls 20 --rounds 1 --without dask ray".split())
    lines = [*executor.run(asked)]
    for name in NAMES:
        (line,) = [one for one in lines if one.startswith(f"{name} ")]
        assert re.search(r"[\d,]+ calls/s .* cpu [\d.]+ ms a call; peloton map / it", line)
    with pytest.raises(SystemExit, match="is not what was asked for"):
        executor.rate("wrong", lambda count: [0] * count, count=2)
