"""Runs the rules about names over the package, and shows that each can fail.

The only exceptions are the names that every kind of actor has.
"""

from __future__ import annotations

import pytest

from tests.house import names
from tests.house.tree import Module, hold, read


def test_a_class_is_defined_once() -> None:
    hold(names.repeated_types(read("peloton")))


def test_what_is_imported_by_its_bare_name_means_one_thing() -> None:
    hold(names.ambiguous_imports(read("peloton")))


def test_a_name_is_imported_from_where_it_is_defined() -> None:
    hold(names.second_homes([*read("peloton"), *read("tests")]))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("from peloton.a import Plan as Plan", "hands on Plan: import it from the module"),
        ("from peloton.b import Plan", "imports Plan from peloton.b, which only imports it"),
        ("from peloton.a import Plan\nfrom peloton.b import Other\nfrom peloton import b", ""),
        ("from peloton.package import Plan", ""),
    ],
)
def test_a_second_home_of_a_name_is_noticed(source: str, said: str) -> None:
    modules = [
        Module("peloton/a.py", "class Plan: ..."),
        Module("peloton/b.py", "from peloton.a import Plan\nclass Other(Plan): ..."),
        Module("peloton/package/__init__.py", "from peloton.a import Plan as Plan"),
        Module("peloton/c.py", source),
    ]
    found = [*names.second_homes(modules)]
    assert len(found) == bool(said)
    assert all(line.startswith(f"peloton/c.py:1: {said}") for line in found)


def test_a_second_class_of_one_name_is_noticed() -> None:
    modules = [Module("peloton/a.py", "class Plan: ..."), Module("peloton/b.py", "Plan = int")]
    (line,) = names.repeated_types(modules)
    assert line == "Plan is defined in peloton/a.py, peloton/b.py: rename all but one"


def test_bare_imports_of_two_namesakes_are_noticed() -> None:
    modules = [
        Module("peloton/a.py", "def load(): ..."),
        Module("peloton/b.py", "def load(): ..."),
        Module("peloton/c.py", "from peloton.a import load"),
        Module("peloton/d.py", "from peloton.b import load"),
    ]
    (line,) = names.ambiguous_imports(modules)
    assert line.startswith("load is defined in peloton/a.py, peloton/b.py: rename one")


def test_namesakes_that_keep_to_their_modules_are_allowed() -> None:
    modules = [
        Module("peloton/a.py", "LIMIT = 1\ndef create(): ..."),
        Module("peloton/b.py", "LIMIT = 2\ndef create(): ..."),
        Module("peloton/c.py", "from peloton import a, b"),
    ]
    assert [*names.ambiguous_imports(modules)] == []
