"""Runs the rules for the pure folders, and shows that each can fail.

There are no exceptions: what has to know the time is given it as an argument.
"""

from __future__ import annotations

import pytest

from tests.house import purity
from tests.house.tree import Rule, complaints, hold, judge, read

RULES: list[Rule] = [purity.banned_imports, purity.banned_calls, purity.iteration_order]
BAD: list[tuple[Rule, str]] = [
    (purity.banned_imports, "import time"),
    (purity.banned_imports, "from random import choice"),
    (purity.banned_imports, "import os.path"),
    (purity.banned_imports, "def f():\n    import uuid"),
    (purity.banned_imports, "from concurrent import futures"),
    (purity.banned_imports, "import structlog, json"),
    (purity.banned_imports, "from numpy import random"),
    (purity.banned_imports, "from zoneinfo import ZoneInfo"),
    (purity.banned_imports, "import locale"),
    (purity.banned_imports, "import platform"),
    (purity.banned_imports, "from sys import platform"),
    (purity.banned_calls, "x = hash('a')"),
    (purity.banned_calls, "def f(a): return id(a)"),
    (purity.banned_calls, "from datetime import datetime\nx = datetime.now()"),
    (purity.banned_calls, "import datetime\nx = datetime.date.today()"),
    (purity.banned_calls, "x = datetime.fromtimestamp(0.0)"),
    (purity.banned_calls, "x = date.fromtimestamp(0.0)"),
    (purity.banned_calls, "x = moment.astimezone()"),
    (purity.banned_calls, "import numpy as np\nx = np.random.rand()"),
    (purity.iteration_order, "for x in {1, 2}: f(x)"),
    (purity.iteration_order, "def f(s: set[int]) -> list[int]: return list(s)"),
    (purity.iteration_order, "def f(s: frozenset[int] | None): return [x for x in s]"),
    (
        purity.iteration_order,
        "def f(s: immutables.Map[str, int]):\n    for k, v in s.items(): g(k)",
    ),
    (purity.iteration_order, "def f(s: 'Map[str, int]'): return {k: 1 for k in s}"),
    (purity.iteration_order, "def f(a):\n    s = set(a) - {1}\n    return tuple(s)"),
    (purity.iteration_order, "class A:\n    m: Map[str, int]\ndef f(a): return [*a.m]"),
    (
        purity.iteration_order,
        "class A:\n    m: Map[str, float]\ndef f(a): return sum(a.m.values())",
    ),
    (purity.iteration_order, "def f(s: set[str]): return ','.join(s)"),
    (
        purity.iteration_order,
        "class A:\n    m: Map[str, int]\nclass B:\n    m: tuple[str, ...]\n"
        "def f(a: A): return list(a.m)",
    ),
    (purity.iteration_order, "def f(s: set[str]): return sorted(g(list(s)))"),
]
GOOD: list[tuple[Rule, str]] = [
    (purity.banned_imports, "import bisect\nfrom peloton.runtime.core import timeline"),
    (purity.banned_calls, "class A:\n    def __hash__(self): return hash(self.raw)"),
    (purity.banned_calls, "x = store.open(now)"),
    (purity.banned_calls, "x = datetime.fromtimestamp(0.0, zone).astimezone(UTC)"),
    (purity.iteration_order, "def f(s: set[int]): return sorted(s), len(s), 1 in s"),
    (purity.iteration_order, "def f(s: Map[str, int]): return sorted(s.items())"),
    (purity.iteration_order, "def f(s: set[int]):\n    for x in sorted(s): g(x)"),
    (purity.iteration_order, "def f(s: set[int]): return any(x > 1 for x in s)"),
    (purity.iteration_order, "def f(s: set[int]): return {x + 1 for x in s}"),
    (purity.iteration_order, "def f(s: set[int]): return sorted(x + 1 for x in s)"),
    (
        purity.iteration_order,
        "class A:\n    m: Map[str, int]\nclass B:\n    m: tuple[str, ...]\n"
        "def f(b: B | None): return list(b.m)",
    ),
    (purity.iteration_order, "def f(s: set[int]): return {1, *s}"),
    (purity.iteration_order, "def f(d: dict[str, int]): return list(d)"),
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_pure_folders_keep(rule: Rule) -> None:
    hold(complaints(rule, read("peloton")))


@pytest.mark.parametrize(("rule", "source"), BAD)
def test_it_is_noticed(rule: Rule, source: str) -> None:
    assert judge(rule, source)


@pytest.mark.parametrize(("rule", "source"), GOOD)
def test_it_is_allowed(rule: Rule, source: str) -> None:
    assert judge(rule, source) == []


@pytest.mark.parametrize(("rule", "source"), BAD)
def test_shells_are_free_to(rule: Rule, source: str) -> None:
    assert judge(rule, source, "peloton/runtime/shells/journal.py") == []
