"""Finds modules that import each other in a circle.

import-linter checks the floors. A circle can hide inside one floor, where two files are then one
thing, or one of them asks for too much. Imports for type checkers count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from graphlib import CycleError, TopologicalSorter

from tests.house.tree import Module


def imports(module: Module, known: frozenset[str]) -> Iterator[str]:
    """The modules of the package that a module imports, wherever in it."""
    package = _name(module).split(".")
    if not module.path.endswith("__init__.py"):
        package = package[:-1]
    for node in module.walk():
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *filter(None, [node.module])])
            for alias in node.names:
                whole = f"{source}.{alias.name}"
                if whole in known or source in known:
                    yield whole if whole in known else source


def circle(modules: Iterable[Module]) -> list[str]:
    """The modules of one circle, in order; none where there is no circle."""
    by_name = {_name(module): module for module in modules}
    known = frozenset(by_name)
    graph = {name: set(imports(module, known)) - {name} for name, module in by_name.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def _name(module: Module) -> str:
    return module.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
