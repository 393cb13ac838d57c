"""Storms find what is planted: here one fault for each of four checkers, by a seed that shows it.

`script/planted` plants all of them and prints the table. What a seed does not show any more is
searched for in others. Only faults that are found in a moment are planted here.
"""

from __future__ import annotations

import pytest

from tests.worlds.planted import PLANTED, search

QUICKLY_FOUND = (
    ("R1", "answered before it is written"),
    ("R4", "a frame without its condition"),
    ("R5", "indexes are not rebuilt"),
    ("R10", "sent before it is written"),
)


@pytest.mark.parametrize(("rule", "name"), QUICKLY_FOUND)
def test_a_planted_fault_is_found(rule: str, name: str) -> None:
    found = search(PLANTED[name])
    assert found is not None and f"Contradiction {rule}: " in found.text
