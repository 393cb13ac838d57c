"""Tests may run in several workers: each collects the same ones, under the same names.

What is given to `parametrize` is read, not run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.house.tree import Module, complaints, hold, judge, read

DRAWN = ("uuid1", "uuid4", "random", "time", "getpid", "token_hex", "mkdtemp", "set", "frozenset")


def drawn(module: Module) -> Iterator[str]:
    """Values of `parametrize` that may differ from process to process, or come in another order."""
    for node in module.walk() if "parametrize" in module.source else ():
        if not (isinstance(node, ast.Call) and _name(node.func) == "parametrize"):
            continue
        for inner in [deep for given in node.args for deep in _unsorted(given)]:
            called = isinstance(inner, ast.Call) and _name(inner.func) in DRAWN
            if called or isinstance(inner, ast.Set | ast.SetComp):
                yield module.at(inner, "differs from worker to worker: write it down, or sort it")


def _unsorted(node: ast.AST) -> Iterator[ast.AST]:
    """All below it, except what is put in order."""
    if isinstance(node, ast.Call) and _name(node.func) == "sorted":
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _unsorted(child)


def _name(function: ast.expr) -> str:
    return getattr(function, "attr", getattr(function, "id", ""))


def test_every_worker_collects_the_same_tests() -> None:
    hold(complaints(drawn, read("tests")))


def test_a_drawn_value_is_noticed() -> None:
    source = '@pytest.mark.parametrize("id", ["x", str(uuid.uuid4())])\ndef test(id): ...\n'
    (line,) = judge(drawn, source)
    assert line.startswith("peloton/actors/task/decide.py:1: differs from worker to worker")
    assert judge(drawn, '@pytest.mark.parametrize("id", {"a", "b"})\ndef test(id): ...\n')
    assert not judge(drawn, '@pytest.mark.parametrize("id", sorted({"a"}))\ndef test(id): ...\n')
    assert not judge(drawn, '@pytest.mark.parametrize("id", ["a", ("b", 1)])\ndef test(id): ...\n')
