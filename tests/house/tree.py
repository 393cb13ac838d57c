"""Reads the package's own source for the house rules: modules, their trees, what makes them pure.

Nothing is imported: a rule has to judge a module that does not even load. A rule is a function from
a module to complaints, one line each: where, what is wrong, what to do. `complaints` runs one over
many, and `hold` fails with nothing but those lines.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
# Made from proto/; nobody reads them, no rule holds there.
GENERATED = ("peloton/api/", "peloton/private/", "peloton/ops/", "peloton/exchange/")
# What the system decides, as functions of values. A name here is a folder or one module.
PURE = (
    "peloton/actors/",
    "peloton/placement/",
    "peloton/runtime/core/",
    "peloton/runtime/vocabulary.py",
    "peloton/runtime/kinds.py",
    "peloton/runtime/ports.py",
    "peloton/pauses.py",
    "peloton/sdk/kit/",
)

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module:
    """One source file, parsed when first asked."""

    def __init__(self, path: str, source: str) -> None:
        self.path = path
        self.source = source

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source, self.path)

    @property
    def pure(self) -> bool:
        return self.path.startswith(PURE)

    def at(self, node: ast.AST, words: str) -> str:
        return f"{self.path}:{getattr(node, 'lineno', 1)}: {words}"

    @cached_property
    def _nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    def walk(self) -> Iterator[ast.AST]:
        return iter(self._nodes)

    def functions(self) -> Iterator[tuple[Function, bool]]:
        """Every function, and whether it is a method with a self or cls to ignore."""
        return iter(self._functions)

    @cached_property
    def _functions(self) -> list[tuple[Function, bool]]:
        return [*self._find_functions()]

    def _find_functions(self) -> Iterator[tuple[Function, bool]]:
        for parent in self.walk():
            for child in ast.iter_child_nodes(parent):
                if isinstance(child, Function):
                    static = any(
                        isinstance(d, ast.Name) and d.id == "staticmethod"
                        for d in child.decorator_list
                    )
                    yield child, isinstance(parent, ast.ClassDef) and not static


Rule = Callable[[Module], Iterable[str]]


class Import(NamedTuple):
    """One imported module; for `from a import b` both a and a.b, as b may be either."""

    node: ast.stmt
    name: str


def imports(module: Module) -> Iterator[Import]:
    here = module.path.removesuffix(".py").split("/")
    for node in module.walk():
        if isinstance(node, ast.Import):
            yield from (Import(node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                base = ".".join([*here[: -node.level], *filter(None, [base])])
            yield Import(node, base)
            yield from (Import(node, f"{base}.{alias.name}") for alias in node.names)


def under(name: str, *packages: str) -> bool:
    """Whether a dotted name is one of the packages or lies in one."""
    return any(name == package or name.startswith(package + ".") for package in packages)


def defines(text: str, name: str) -> bool:
    """Whether a source defines a name: at its top, or as a method or a field of a class."""
    return re.search(rf"^\s*(?:(?:async )?def |class )?{name}\b", text, re.MULTILINE) is not None


@cache
def read(folder: str) -> list[Module]:
    """Every module below the folder, read and parsed once for all rules of a run."""
    found = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        scratch = any(part.startswith(".") for part in path.relative_to(ROOT).parts)
        if not name.startswith(GENERATED) and not scratch:
            found.append(Module(name, path.read_text(encoding="utf-8")))
    return found


def complaints(rule: Rule, modules: Iterable[Module]) -> list[str]:
    return [words for module in modules for words in rule(module)]


def hold(found: Iterable[str]) -> None:
    """Fail if there is a complaint, with a line for each."""
    if lines := [*found]:
        pytest.fail("\n".join(lines), pytrace=False)


def judge(rule: Rule, source: str, path: str = "peloton/actors/task/decide.py") -> list[str]:
    """What a rule says of a snippet; how each rule is shown able to fail."""
    return list(rule(Module(path, source)))
