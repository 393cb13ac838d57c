"""Runs the rules about failing, testing and naming, and shows that each can fail.

Tests are read, not run.
"""

from __future__ import annotations

import pytest

from tests.house import manners
from tests.house.tree import Rule, complaints, hold, judge, read

OF_THE_PACKAGE: list[Rule] = [manners.catch_all, manners.mocks, manners.units]
OF_THE_TESTS: list[Rule] = [manners.mocks, manners.sleeping]
BAD: list[tuple[Rule, str]] = [
    (manners.catch_all, "try: f()\nexcept Exception: pass"),
    (manners.catch_all, "try: f()\nexcept (ValueError, Exception) as e: g(e)"),
    (manners.catch_all, "try: f()\nexcept: pass"),
    (manners.catch_all, "from contextlib import suppress\nwith suppress(Exception): f()"),
    (manners.mocks, "from unittest import mock"),
    (manners.mocks, "from unittest.mock import patch"),
    (manners.mocks, "def test_a(monkeypatch): monkeypatch.setattr(a, 'b', 1)"),
    (manners.sleeping, "import time\ntime.sleep(1)"),
    (manners.sleeping, "from time import sleep\nsleep(1)"),
    (manners.units, "def f(*, timeout: float): ..."),
    (manners.units, "class A:\n    kill_grace: float | None = None"),
    (manners.units, "START_TIMEOUT = 5"),
    (manners.units, "class A:\n    'Amounts.'\n    cpu: int\n    memory: int"),
    (manners.units, "BACKOFF_MAX = 5.0"),
]
GOOD: list[tuple[Rule, str]] = [
    (manners.catch_all, "try: f()\nexcept ValueError: pass"),
    (manners.catch_all, "try: f()\nexcept BaseException:\n    undo()\n    raise"),
    (manners.catch_all, "try: f()\nexcept BaseException:\n    os._exit(1)"),
    (manners.catch_all, "try: f()\nexcept BaseException: g()\nfinally: os._exit(1)"),
    (manners.mocks, "def test_a(monkeypatch): monkeypatch.setenv('HOME', '/tmp')"),
    (manners.mocks, "def test_a(monkeypatch): monkeypatch.setattr(a, 'FRAME_BYTES_MAX', 1)"),
    (manners.mocks, "def test_planted(monkeypatch): monkeypatch.setattr(a, 'b', 1)"),
    (manners.units, "def f(*, timeout_s: float, deadline: float, policy: Backoff): ..."),
    (manners.units, "class A:\n    'Amounts, in millionths.'\n    cpu: int\n    memory: int"),
    (manners.units, "START_TIMEOUT_S = 5\nBACKOFF_MAX_S = 9\nmemory_mb = 1"),
]


@pytest.mark.parametrize("rule", OF_THE_PACKAGE, ids=lambda rule: rule.__name__)
def test_the_package_keeps(rule: Rule) -> None:
    hold(complaints(rule, read("peloton")))


@pytest.mark.parametrize("rule", OF_THE_TESTS, ids=lambda rule: rule.__name__)
def test_the_tests_keep(rule: Rule) -> None:
    hold(complaints(rule, read("tests")))


@pytest.mark.parametrize(("rule", "source"), BAD)
def test_it_is_noticed(rule: Rule, source: str) -> None:
    assert judge(rule, source, "tests/core/test_crowd.py")


@pytest.mark.parametrize(("rule", "source"), GOOD)
def test_it_is_allowed(rule: Rule, source: str) -> None:
    assert judge(rule, source) == []


def test_shells_may_catch_all_and_their_tests_may_sleep() -> None:
    caught = "try: f()\nexcept Exception: pass"
    assert judge(manners.catch_all, caught, "peloton/runtime/shells/shard.py") == []
    assert judge(manners.sleeping, "time.sleep(1)", "tests/shells/test_root.py") == []
