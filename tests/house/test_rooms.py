"""Runs the rule about rooms over the package and the tests, and shows that it can fail."""

from __future__ import annotations

import pytest

from tests.house.rooms import MODULES_MAX, crowded
from tests.house.tree import hold, read


def paths(folder: str, count: int) -> list[str]:
    return [f"{folder}/m{number}.py" for number in range(count)]


def test_no_folder_has_more_modules_than_it_may() -> None:
    hold(crowded(module.path for top in ("peloton", "tests") for module in read(top)))


@pytest.mark.parametrize(
    ("modules", "large", "said"),
    [
        (paths("a", MODULES_MAX), {}, []),
        (paths("a/b", 40) + paths("a", 40), {}, []),
        (paths("a", 41), {}, ["a has 41 modules, 40 at most"]),
        (paths("a", 50), {"a": 50}, []),
        (paths("a", 51), {"a": 50}, ["a has 51 modules, 50 at most"]),
        (paths("a", 49), {"a": 50}, ["lower its limit to 49 in tests/house/rooms.py"]),
        (paths("a", 40), {"a": 50}, ["remove its line"]),
        ([], {"a": 50}, ["a is gone"]),
    ],
)
def test_what_is_said_of_a_folder(
    modules: list[str], large: dict[str, int], said: list[str]
) -> None:
    found = [*crowded(modules, large)]
    assert len(found) == len(said)
    assert all(text in line for text, line in zip(said, found, strict=True))
