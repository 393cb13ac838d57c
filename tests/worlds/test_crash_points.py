"""A process ends at a port call, for an even share of all port calls of a small history.

`script/points` tries every one of them; here each kind of call has its turn, on each side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from peloton.chaos.cluster.points import (
    PATHS,
    PORTS,
    WRITES,
    Deaths,
    Point,
    Side,
    points,
    seconds,
    share,
    short_segments,
)
from tests.worlds.deaths import survives

EVERY = 13
EVERY_POWER_CUT = 29
PARTS = 4


@pytest.fixture(scope="module")
def table() -> Iterator[list[Point]]:
    with short_segments():
        yield points()


def test_the_history_goes_down_every_path(table: list[Point]) -> None:
    counts = Counter(point.path for point in table)
    assert counts.keys() == {*PATHS.values(), *PORTS.values()}, "a path is not walked, or is new"
    for path in WRITES:
        sides = {point.side for point in table if point.path == path}
        assert sides == {*Side}, f"{path} is not struck on every side"


def test_a_share_leaves_no_kind_of_call_out(table: list[Point]) -> None:
    def kinds(some: list[Point]) -> set[tuple[str, str, Side]]:
        return {(point.path, point.call.name, point.side) for point in some}

    chosen = share(table, every=7)
    assert kinds(chosen) == kinds(table)
    assert len(chosen) < len(table) / 4


def test_two_numberings_are_the_same(table: list[Point]) -> None:
    assert points() == table


@pytest.mark.parametrize("part", range(PARTS))
def test_one_death(table: list[Point], part: int) -> None:
    for point in share(table, every=EVERY)[part::PARTS]:
        survives(Deaths(point))


def test_all_daemons_die_at_once(table: list[Point]) -> None:
    for point in share(table, every=EVERY_POWER_CUT):
        survives(Deaths(point, all_at_once=True))


def test_the_next_life_dies_too(table: list[Point]) -> None:
    tried = [deaths for deaths in seconds(table, every=61) if survives(deaths)]
    assert len(tried) > 20, "second deaths came too late to happen"
