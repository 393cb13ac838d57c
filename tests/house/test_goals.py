"""The goal tables of the README are those of the code."""

from __future__ import annotations

import subprocess
from pathlib import Path


def test_the_readme_shows_the_tables_as_they_are(root: Path) -> None:
    drawn = subprocess.run([root / "script" / "goals"], capture_output=True, text=True, check=True)
    assert drawn.stdout.strip() in (root / "README.md").read_text(), "run script/goals --write"
