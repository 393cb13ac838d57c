"""Runs the rules about size and outline over the package, and shows that each can fail.

There are no exceptions: a module that is too long is cut.
"""

from __future__ import annotations

import pytest

from tests.house import shape
from tests.house.tree import Rule, complaints, hold, judge, read

RULES: list[Rule] = [
    shape.module_length,
    shape.line_width,
    shape.function_length,
    shape.parameters,
    shape.docstring,
]
BAD: list[tuple[Rule, str]] = [
    (shape.module_length, "x = 1\n" * 401),
    (shape.line_width, "x = 1  # " + "x" * 100),
    (shape.function_length, "def f():\n" + "    x = 1\n" * 50),
    (shape.parameters, "def f(*, a, b, c, d, e, g): ..."),
    (shape.parameters, "class A:\n    def f(self, a, b, c): ..."),
    (shape.docstring, "x = 1"),
    (shape.docstring, '"""Half a"""'),
]
GOOD: list[tuple[Rule, str]] = [
    (shape.module_length, "x = 1\n" * 400),
    (shape.function_length, "def f():\n" + "    x = 1\n" * 49),
    (shape.parameters, "class A:\n    def f(self, a, b, *, c, d, e): ..."),
    (shape.parameters, "def launched(task, message, now): ..."),
    (shape.parameters, "class A:\n    def Create(self, request, context): ..."),
    (shape.parameters, "@click.command()\ndef f(a, b, c, d, e, g, h): ..."),
    (shape.docstring, '"""Adds numbers."""'),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_package_keeps(rule: Rule) -> None:
    hold(complaints(rule, read("peloton")))


@pytest.mark.parametrize(("rule", "source"), BAD)
def test_it_is_noticed(rule: Rule, source: str) -> None:
    assert judge(rule, source)


@pytest.mark.parametrize(("rule", "source"), GOOD)
def test_it_is_allowed(rule: Rule, source: str) -> None:
    assert judge(rule, source) == []


def test_there_is_a_package_to_judge() -> None:
    """Guards the guard: a wrong folder would make every rule hold."""
    assert any(module.path == "peloton/runtime/vocabulary.py" for module in read("peloton"))
    assert any(module.pure for module in read("peloton"))
