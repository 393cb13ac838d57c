"""The goal tables of docs/goals.md are those of the code, and all of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.house.tree import hold


def test_the_page_shows_the_tables_as_they_are(root: Path) -> None:
    drawn = subprocess.run([root / "script" / "goals"], capture_output=True, text=True, check=True)
    page = (root / "docs" / "goals.md").read_text()
    differs = "docs/goals.md differs from the tables of the code: run script/goals --write"
    hold([] if drawn.stdout.strip() in page else [differs])
