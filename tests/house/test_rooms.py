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
    ("modules", "said"),
    [
        (paths("a", MODULES_MAX), []),
        (paths("a/b", 40) + paths("a", 40), []),
        (paths("a", 41), ["a has 41 modules, 40 at most"]),
    ],
)
def test_what_is_said_of_a_folder(modules: list[str], said: list[str]) -> None:
    found = [*crowded(modules)]
    assert len(found) == len(said)
    assert all(text in line for text, line in zip(said, found, strict=True))
