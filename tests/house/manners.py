"""Rules about failing, testing and naming: who may catch all, no mocks, no sleeping, units.

A rule here speaks of imports, calls and names only.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.house.tree import Module, imports, under

# Where a failure of any kind is somebody's business. Elsewhere it is a broken belief and travels.
MAY_CATCH_ALL = (
    "peloton/runtime/shells/",
    "peloton/runtime/core/turning/supervision.py",
    "peloton/sdk/executor/outcome.py",  # runs functions of users: what they raise is theirs
    "peloton/assembly/turn_watch.py",  # runs functions of extensions
    "peloton/testing/outcomes.py",  # a function of a test is a run, and ends as that
    "peloton/gateway/access/guard.py",  # supervises calls: a bug must not reach a client as it is
)
ALL_FAILURES = ("Exception", "BaseException", "builtins.Exception")
# Cleaning up is no catching: the failure travels on, or this copy of the process ends with it.
ENDS = ("os._exit", "os.abort")
MOCKS = ("unittest.mock", "mock", "pytest_mock", "flexmock", "mockito", "freezegun", "time_machine")
# A test that plants a fault to see whether it is found says so in its name, and may.
PATCHES = ("setattr", "setitem", "delattr", "delitem")
PATCHERS = ("monkeypatch", "mocker")
MAY_SLEEP = ("tests/shells/", "tests/e2e/", "tests/backends/", "tests/outlived.py")
# Nouns that have a unit. A name that ends in one of them leaves the reader to guess it.
MEASURES = (
    "timeout delay interval period grace backoff ttl duration elapsed latency lifetime "
    "memory disk cooldown"
).split()
# A vector of amounts has one unit for all, and then its docstring says which.
VECTOR_UNIT = re.compile(r"\b(millionths|MB)\b")
BOUND = re.compile(r"_(max|min|default|limit)$", re.I)


def catch_all(module: Module) -> Iterator[str]:
    if module.path.startswith(MAY_CATCH_ALL):
        return
    for node in module.walk():
        if isinstance(node, ast.Try) and not ends_here(node.finalbody):
            for handler in node.handlers:
                if catches_all(handler) and not travels(handler):
                    words = "catches every failure: name those that are expected (only shells may)"
                    yield module.at(handler, words)
        suppresses = isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress")
        if suppresses and any(ast.unparse(arg) in ALL_FAILURES for arg in node.args):
            yield module.at(node, "suppresses every failure: name those that are expected")


def catches_all(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(ast.unparse(one) in ALL_FAILURES for one in caught)


def travels(handler: ast.ExceptHandler) -> bool:
    return isinstance(handler.body[-1], ast.Raise) or ends_here(handler.body)


def ends_here(steps: list[ast.stmt]) -> bool:
    """Whether the process does not outlive these steps."""
    calls = (step.value for step in steps if isinstance(step, ast.Expr))
    return any(isinstance(c, ast.Call) and ast.unparse(c.func) in ENDS for c in calls)


def mocks(module: Module) -> Iterator[str]:
    if not any(word in module.source for word in (*MOCKS, *PATCHERS)):  # parsing takes longer
        return
    for node, name in imports(module):
        if under(name, *MOCKS):
            yield module.at(node, f"imports {name}: write a fake that passes the port's contract")
    for function, _ in module.functions():
        for node in ast.walk(function):
            if patches(node) and "planted" not in function.name:
                words = f"patches the code under test ({ast.unparse(node)})"
                yield module.at(node, f"{words}: give it what differs as an argument or a limit")


def patches(node: ast.AST) -> bool:
    """Whether a test bends the code under test; to shrink a limit (`X_MAX`) is no bending."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    if ast.unparse(node.func.value) not in PATCHERS:
        return False
    names = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    return node.func.attr in PATCHES and not any(name.isupper() for name in names)


def sleeping(module: Module) -> Iterator[str]:
    if module.path.startswith(MAY_SLEEP) or "sleep" not in module.source:
        return
    for node in module.walk():
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name == "sleep" or name.endswith(".sleep"):
                yield module.at(node, f"sleeps ({name}): drive a clock, or wait for a condition")


def number(annotation: ast.expr | None) -> bool:
    return bool(annotation) and bool(re.search(r"\b(int|float)\b", ast.unparse(annotation)))


def unitless(name: str) -> bool:
    words = BOUND.sub("", name).lower().split("_")
    return words[-1] in MEASURES


def named_numbers(module: Module) -> Iterator[tuple[ast.AST, str]]:
    """Fields, parameters and constants that hold a number."""
    for node in module.walk():
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=a) if number(a):
                yield node, name
            case ast.arg(arg=name, annotation=a) if number(a):
                yield node, name
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int() | float())):
                yield node, name


def vector_fields(node: ast.AST) -> list[ast.AnnAssign]:
    """The fields of a class that holds cpu and memory and says in which unit."""
    if not isinstance(node, ast.ClassDef) or not VECTOR_UNIT.search(ast.get_docstring(node) or ""):
        return []
    fields = [item for item in node.body if isinstance(item, ast.AnnAssign)]
    names = {ast.unparse(field.target) for field in fields}
    return fields if {"cpu", "memory"} <= names else []


def units(module: Module) -> Iterator[str]:
    vectors = {field for node in module.walk() for field in vector_fields(node)}
    for node, name in named_numbers(module):
        if unitless(name) and node not in vectors:
            words = f"{name} has no unit: call it {name}_s, {name}_ms, {name}_mb, ..."
            yield module.at(node, words)
