"""The benchmark of restarts, tiny: every task runs on afterwards. No time is judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import restart

ROOT = Path(restart.__file__).parent.parent


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_every_task_is_recovered_and_the_turns_are_compared() -> None:
    words = ["--tasks", "40", "--size", "20", "--hosts", "4", "--beside", str(ROOT)]
    lines = [*restart.run(restart.options(words))]
    for name in ("here", "beside"):
        told = [line for line in lines if line.startswith(name)]
        assert sum("recovered" in line and "ready" in line for line in told) == 1
        assert sum(line.endswith("tasks 40") for line in told) == 1
    assert sum(line.startswith("# here / beside") for line in lines) == 6
