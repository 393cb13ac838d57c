"""Rules for the pure folders: no clock, chance, identity, thread or log, and no order of a hash.

What syntax cannot show (a set that comes out of a call) is left to the simulated world, where a
replay that differs is a failure.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from tests.house.tree import Module, imports, read, under

BANNED_IMPORTS = (
    "_thread", "aiohttp", "asyncio", "calendar", "cassandra", "concurrent",
    "ctypes", "fcntl", "gc", "getpass", "gettext", "grp", "grpc", "http", "io", "kazoo", "locale",
    "logging", "mmap", "multiprocessing", "numpy.random", "os", "pathlib", "platform", "pwd",
    "pykka", "queue", "random", "resource", "sched", "secrets", "select", "selectors", "shutil",
    "signal", "site", "socket", "sqlite3", "ssl", "structlog", "subprocess", "sys", "sysconfig",
    "tempfile", "threading", "time", "urllib", "uuid", "weakref", "zoneinfo",
)  # fmt: skip
BANNED_CALLS = ("hash", "id", "open", "print", "input", "eval", "exec", "globals", "vars")
# Reached through a module that is itself allowed.
BANNED_ATTRIBUTES = ("now", "utcnow", "today")
CLOCKS = ("datetime", "date", "dt")
# Where these are given no zone, they take that of the machine.
LOCAL_TIMES = {"fromtimestamp": 1, "astimezone": 0}

UNORDERED = ("set", "frozenset", "Set", "AbstractSet", "MutableSet", "FrozenSet", "Map")
SET_METHODS = ("union", "intersection", "difference", "symmetric_difference")
VIEWS = ("items", "keys", "values")
# What comes out of these does not depend on the order of what goes in. `sum` does not belong
# here: of floats it depends on the order.
ORDER_FREE = ("sorted", "len", "min", "max", "any", "all", "set", "frozenset", "bool", "Map")
ITERATES = ("list", "tuple", "iter", "enumerate", "map", "filter", "zip", "reversed", "dict", "sum")


def banned_imports(module: Module) -> Iterator[str]:
    seen = set()
    for node, name in imports(module):
        line = (node.lineno, name.partition(".")[0])
        if module.pure and under(name, *BANNED_IMPORTS) and line not in seen:
            seen.add(line)
            words = f"imports {name} in a pure module: take what it gives as an argument"
            yield module.at(node, words)


def banned_calls(module: Module) -> Iterator[str]:
    if not module.pure:
        return
    allowed = {
        node
        for function, _ in module.functions()
        if function.name == "__hash__"  # only for looking up, which no order comes out of
        for node in ast.walk(function)
    }
    for node in module.walk():
        if not isinstance(node, ast.Call) or node in allowed:
            continue
        if isinstance(node.func, ast.Name) and node.func.id in BANNED_CALLS:
            words = f"calls {node.func.id}() in a pure module: take its result as an argument"
            yield module.at(node, words)
        if isinstance(node.func, ast.Attribute):
            said, attribute = ast.unparse(node.func), node.func.attr
            owner = ast.unparse(node.func.value).rpartition(".")[2]
            if attribute in BANNED_ATTRIBUTES and owner in CLOCKS:
                yield module.at(node, f"reads a clock ({said}): take `now`")
            if LOCAL_TIMES.get(attribute) == len([*node.args, *node.keywords]):
                yield module.at(node, f"takes the zone of the machine ({said}): name one")
        if "np.random" in ast.unparse(node.func) or "numpy.random" in ast.unparse(node.func):
            yield module.at(node, "draws a number in a pure module: take it as an argument")


def unordered_type(annotation: ast.expr | None) -> bool:
    """Whether an annotation says set or Map, be it optional, quoted or subscripted."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    if isinstance(annotation, ast.BinOp):
        return unordered_type(annotation.left) or unordered_type(annotation.right)
    if isinstance(annotation, ast.Subscript):
        return unordered_type(annotation.value)
    if isinstance(annotation, ast.Attribute):
        return annotation.attr in UNORDERED
    return isinstance(annotation, ast.Name) and annotation.id in UNORDERED


Fields = dict[str, dict[str, bool]]
"""Of each class, by name: its fields, and whether what they hold has no order."""


def fields_of(module: Module) -> Fields:
    found: Fields = {}
    for node in module.walk():
        if isinstance(node, ast.ClassDef):
            fields = found.setdefault(node.name, {})
            for item in ast.walk(node):
                if isinstance(item, ast.AnnAssign):
                    name = ast.unparse(item.target).removeprefix("self.")
                    fields[name] = unordered_type(item.annotation)
    return found


@cache
def fields_of_the_pure() -> Fields:
    found: Fields = {}
    for module in read("peloton"):
        if module.pure:
            for name, fields in fields_of(module).items():
                found.setdefault(name, {}).update(fields)
    return found


def classes_in(annotation: ast.expr | None) -> list[str]:
    """The class names an annotation is made of: `f.A | B | None` gives A and B."""
    match annotation:
        case ast.BinOp(left=left, right=right):
            return classes_in(left) + classes_in(right)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return [name]
    return []


class Orders:
    """Follows, in one module, which names and fields hold what has no order."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.classes = fields_of_the_pure() | fields_of(module)
        self.annotated: dict[str, list[str]] = {}

    def field(self, owner: ast.expr, name: str) -> bool:
        """By the owner's class where a parameter says it; else only if all classes agree."""
        told = self.annotated.get(owner.id, []) if isinstance(owner, ast.Name) else []
        owners = [self.classes[c] for c in told if c in self.classes]
        found = [f[name] for f in owners or self.classes.values() if name in f]
        return any(found) if owners else bool(found) and all(found)

    def names(self, scope: ast.AST) -> set[str]:
        """Local names of a function (or of the module) that hold something unordered."""
        known: set[str] = set()
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
            a = scope.args
            self.annotated = {}
            for arg in [*a.posonlyargs, *a.args, *a.kwonlyargs]:
                self.annotated[arg.arg] = classes_in(arg.annotation)
                if unordered_type(arg.annotation):
                    known.add(arg.arg)
        for node in own_nodes(scope):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                if unordered_type(node.annotation):
                    known.add(node.target.id)
            elif isinstance(node, ast.Assign) and self.unordered(node.value, known):
                known.update(t.id for t in node.targets if isinstance(t, ast.Name))
        return known

    def unordered(self, node: ast.expr, known: set[str]) -> bool:
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.Name(id=name):
                return name in known
            case ast.Attribute(value=owner, attr=name):
                return self.field(owner, name)
            case ast.BinOp(left=left, op=ast.BitOr() | ast.BitAnd() | ast.Sub(), right=right):
                return self.unordered(left, known) or self.unordered(right, known)
            case ast.Call(func=ast.Name(id="set" | "frozenset" | "Map")):
                return True
            case ast.Call(func=ast.Attribute(value=value, attr=name)):
                if name == "Map" or name in SET_METHODS:
                    return name == "Map" or self.unordered(value, known)
                return name in VIEWS and self.unordered(value, known)
        return False

    def complaints(self) -> Iterator[str]:
        scopes: list[ast.AST] = [self.module.tree, *(f for f, _ in self.module.functions())]
        shared = self.names(self.module.tree)
        for scope in scopes:
            known = shared | self.names(scope)
            for node, free in with_freedom(scope):
                for iterated in iterated_by(node):
                    if not free and self.unordered(iterated, known):
                        words = f"iterates {ast.unparse(iterated)}, which has no order: sort it"
                        yield self.module.at(node, words)


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope without those of functions inside it."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from own_nodes(child)


def with_freedom(scope: ast.AST, free: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """The scope's nodes, each with whether its result goes where order does not matter."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        direct = isinstance(scope, ast.Call) and child in scope.args and order_free(scope)
        makes = isinstance(child, ast.GeneratorExp | ast.ListComp | ast.Call | ast.Starred)
        into_a_set = isinstance(child, ast.SetComp) or isinstance(scope, ast.Set)
        freed = (direct and makes) or into_a_set
        yield child, freed
        yield from with_freedom(child, freed)


def order_free(call: ast.Call) -> bool:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
    return name in ORDER_FREE


def iterated_by(node: ast.AST) -> list[ast.expr]:
    """What this node goes through one by one."""
    match node:
        case ast.For(iter=iterated) | ast.Starred(value=iterated):
            return [iterated]
        case ast.GeneratorExp() | ast.ListComp() | ast.SetComp() | ast.DictComp():
            return [generator.iter for generator in node.generators]
        case ast.Call(func=ast.Name(id=name)) if name in ITERATES:
            return list(node.args)
        case ast.Call(func=ast.Attribute(attr="join" | "extend")):
            return list(node.args)
    return []


def iteration_order(module: Module) -> Iterator[str]:
    if module.pure:
        yield from Orders(module).complaints()
