"""Every goal table of the actors, found by its name: what is called a table is a state machine.

For the test that they are total, and for script/goals, which draws them.
"""

from __future__ import annotations

import enum
import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any

from peloton import actors

GoalTable = Mapping[Any, Mapping[enum.Enum, Any]]
ENDING = "TABLE"


def goal_tables() -> dict[str, GoalTable]:
    """Each by the folder of its kind; one that is called `RUN_TABLE` has "run" behind that."""
    found: dict[str, GoalTable] = {}
    for place in pkgutil.walk_packages(actors.__path__, f"{actors.__name__}."):
        module = importlib.import_module(place.name)
        folder = place.name.removeprefix(f"{actors.__name__}.").rpartition(".")[0]
        for name in getattr(module, "__annotations__", {}):
            if name.endswith(ENDING) and not name.startswith("_"):
                inner = name.removesuffix(ENDING).rstrip("_").lower()
                title = folder.replace(".", "/") + (f", {inner}" if inner else "")
                assert title not in found, f"{place.name}.{name}: another table is {title} as well"
                found[title] = getattr(module, name)
    return found


def states_and_goals(table: GoalTable) -> tuple[type[enum.Enum], list[type[enum.Enum]]]:
    """The types of its rows and of its columns."""
    rows, columns = [*table][-1], [*[*table.values()][-1]]
    return type(rows), [*dict.fromkeys(map(type, columns))]
