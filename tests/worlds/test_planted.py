"""Storms find what is planted: each classic fault, by the seed that is known to show it.

`script/planted` prints the table. What a seed does not show any more is searched for in others.
"""

from __future__ import annotations

import pytest

from tests.worlds.planted import PLANTED, search

SLOW = {
    "nothing is sent again", "deadlines are lost", "lost wishes are not repeated",
    "an end nobody knows is not acknowledged", "a kill is not answered",
    "a lost host keeps its runs",
}  # fmt: skip


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in PLANTED]
)
def test_a_planted_fault_is_found(name: str) -> None:
    assert search(PLANTED[name]) is not None
