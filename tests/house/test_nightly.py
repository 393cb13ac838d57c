"""The table of the nightly searches, and that a row which fails stops none after it.

The rows here are commands that end at once.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from tests import nightly
from tests.house.tree import ROOT
from tests.nightly import Row


def test_a_row_that_fails_does_not_stop_the_next(tmp_path: Path) -> None:
    rows = [
        Row("first", ("sh", "-c", "echo two lines; echo '== of it =='; exit 3")),
        Row("second, quiet", ("true",)),
    ]
    out = io.StringIO()
    assert nightly.play(rows, tmp_path / "logs", out=out) == 1
    *_, first, second, empty, last = out.getvalue().splitlines()
    assert first.split()[:3] == ["first", "FAILED", "(3)"] and first.endswith("  of it")
    assert second.split()[:3] == ["second,", "quiet", "well"]
    assert (empty, last) == ("", f"2 searches, 1 failed; logs in {tmp_path / 'logs'}")
    assert (tmp_path / "logs" / "first.log").read_text() == "two lines\n== of it ==\n"
    assert (tmp_path / "logs" / "second-quiet.log").read_text() == ""


def test_each_row_is_a_script_that_is_there() -> None:
    rows = nightly.rows(storm_minutes=3, nemesis_minutes=2)
    assert len({row.name for row in rows}) == len(rows)
    assert [row for row in rows if not os.access(ROOT / row.command[0], os.X_OK)] == []
    files = [word for row in rows for word in row.command if word.startswith("tests/")]
    assert files and [file for file in files if not (ROOT / file).exists()] == []


def test_a_selection_is_listed_and_one_of_nothing_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert nightly.main(["--list", "--only", "mutants"]) == 0
    assert capsys.readouterr().out.split() == ["mutants", "script/mutants"]
    assert nightly.main(["--only", "nosuch"]) == 2
    assert "no search has 'nosuch' in its name" in capsys.readouterr().err
