"""The benchmarks of the front door, tiny: real daemons, every task checked. No time is judged."""

from __future__ import annotations

import pytest

from bench import processes


@pytest.mark.slow
@pytest.mark.timeout(300)  # daemons begin, on a machine that may be busy
def test_processes_have_a_line_for_each_array_and_for_single_jobs() -> None:
    words = ["--slots", "1x2", "--tasks", "8", "--rounds", "1", "--jobs", "2"]
    lines = [*processes.run(processes.options(words))]
    assert sum(line.startswith("8 x true on 1 x 2: ") for line in lines) == 1
    assert sum(line.startswith("# 8 x true on 1 x 2: ") for line in lines) == 2
    for backend in ("real", "simulated"):
        assert sum(line.startswith(f"one job at a time, {backend}: p50") for line in lines) == 1
    assert sum("empty call" in line for line in lines) == 2  # before and after
