"""The goal tables of docs/goals.md are those of the code, and all of them."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

from tests.house.tree import hold, read


def test_the_page_shows_the_tables_as_they_are(root: Path) -> None:
    drawn = subprocess.run([root / "script" / "goals"], capture_output=True, text=True, check=True)
    page = (root / "docs" / "goals.md").read_text()
    assert drawn.stdout.strip() in page, (
        "docs/goals.md differs from the tables of the code: run script/goals --write"
    )


def test_every_table_of_an_actor_is_drawn(root: Path) -> None:
    """By its name: what is called a table is a state machine, and people want to see it."""
    script = (root / "script" / "goals").read_text()
    found = [
        (module.path.removeprefix("peloton/actors/").removesuffix(".py").replace("/", "."), name)
        for module in read("peloton")
        if module.path.startswith("peloton/actors/")
        for node in module.tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        for name in [node.target.id]
        if name.endswith("TABLE")
    ]
    assert len(found) >= 9
    hold(
        f"script/goals does not draw {module_name}.{name}: add it to its list"
        for module_name, name in found
        if f'("{module_name}", "{name}"' not in script
    )
