"""A process ends at a share of the port calls of a history of workflows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from peloton.chaos.cluster.points import Deaths, Point, points, share, short_segments
from peloton.chaos.cluster.rolling_points import RollingHistory
from tests.worlds.deaths import survives

EVERY = 67
EVERY_POWER_CUT = 131
PARTS = 2


@pytest.fixture(scope="module")
def table() -> Iterator[list[Point]]:
    with short_segments():
        yield points(history=RollingHistory)


@pytest.mark.parametrize("part", range(PARTS))
def test_one_death(table: list[Point], part: int) -> None:
    for point in share(table, every=EVERY)[part::PARTS]:
        survives(Deaths(point), history=RollingHistory)


def test_all_daemons_die_at_once(table: list[Point]) -> None:
    for point in share(table, every=EVERY_POWER_CUT):
        survives(Deaths(point, all_at_once=True), history=RollingHistory)
