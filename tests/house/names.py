"""Rules about names: one public name, one meaning.

It counts where a name is defined. A class or type is defined once in the package. A function or
constant may have a namesake in another module, but not where some module imports the two by their
bare names: a reader could not tell them apart. Everybody imports a name from the module that
defines it; only the `__init__` of a package may hand on what others define.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from tests.house.tree import Module

# Each kind of actor has the same files with the same names in them: knowing one is knowing all.
OF_EVERY_KIND = frozenset(
    "ABSENT ANSWERS DECIDE EVOLVE FACTS KIND MESSAGES QUERIES TABLE"
    " decide_with deadline owed pursue recall_s report".split()
)

IMPORT_FROM_HOME = "import it from the module that defines it, wherever it is used"


def definitions(module: Module) -> Iterator[tuple[str, bool]]:
    """The public names a module defines at its top, and whether each is a class or type."""
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name, True
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, False
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    yield target.id, target.id[0].isupper() and not target.id.isupper()


def repeated_types(modules: Iterable[Module]) -> Iterator[str]:
    """Classes and types that several modules define."""
    found: dict[str, list[str]] = defaultdict(list)
    for module in modules:
        for name, is_type in definitions(module):
            if is_type and not name.startswith("_"):
                found[name].append(module.path)
    yield from _told(found, "rename all but one")


def ambiguous_imports(modules: Iterable[Module]) -> Iterator[str]:
    """Functions and constants of one name that are imported bare from several modules."""
    modules = list(modules)
    defined: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        for name, is_type in definitions(module):
            if not is_type:
                defined[name].add(module.path)
    found: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        for node in module.walk():
            if isinstance(node, ast.ImportFrom) and node.module:
                path = node.module.replace(".", "/") + ".py"
                for alias in node.names:
                    if alias.asname is None and path in defined[alias.name]:
                        found[alias.name].add(path)
    bare = {name: sorted(found[name]) for name in found if name not in OF_EVERY_KIND}
    yield from _told(bare, "rename one, or import its module and not the bare name")


def second_homes(modules: Iterable[Module]) -> Iterator[str]:
    """Names that a module hands on, or that are imported from one which only imports them."""
    modules = [module for module in modules if not module.path.endswith("/__init__.py")]
    brought = {module.path: _brought(module) for module in modules}
    for module in modules:
        for node in module.walk():
            if not isinstance(node, ast.ImportFrom) or not node.module or node.level:
                continue
            there = brought.get(node.module.replace(".", "/") + ".py", frozenset())
            for alias in node.names:
                if alias.asname == alias.name:
                    yield module.at(node, f"hands on {alias.name}: {IMPORT_FROM_HOME}")
                elif alias.name in there:
                    words = f"imports {alias.name} from {node.module}, which only imports it"
                    yield module.at(node, f"{words}: {IMPORT_FROM_HOME}")


def _brought(module: Module) -> frozenset[str]:
    """The names that a module has by importing them, and does not bind itself."""
    nodes = [*module.walk()]
    imported = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    defined = {name for name, _ in definitions(module)}
    return frozenset(imported - defined)


def _told(found: Mapping[str, list[str]], remedy: str) -> Iterator[str]:
    for name, paths in sorted(found.items()):
        if len(paths) > 1:
            yield f"{name} is defined in {', '.join(paths)}: {remedy}"
