"""The keeper's benchmark, tiny: each run counts once, a wrong one ends it. No time is judged."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from bench import keeper

ROUNDS, TASKS = 2, 12


def test_every_width_and_keeper_has_its_lines(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ["--tasks", str(TASKS), "--rounds", str(ROUNDS), "--in-flight", "4", "1"]
    words += ["--other", str(keeper.REPOSITORY), "--folder", str(tmp_path)]
    ended = TASKS * 2 + TASKS // ROUNDS  # and a round to warm up
    assert keeper.run(keeper.options(words)) == {"this keeper": ended, "other keeper": ended}
    lines = capsys.readouterr().out.splitlines()
    assert sum("bare spawn" in line and "at a time" in line for line in lines) == 2
    for name in ("this keeper", "other keeper"):
        assert sum(line.startswith(f"  {name}: ") for line in lines) == 2
    assert sum("this keeper / other keeper" in line for line in lines) == 2


def test_a_task_that_fails_ends_the_run(tmp_path: Path) -> None:
    made = keeper.MeasuredKeeper("one", tmp_path / "keeper", program="/bin/false")
    with contextlib.closing(made), pytest.raises(SystemExit, match="an unexpected end"):
        made.run(1, in_flight=1)
