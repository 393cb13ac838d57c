"""A process ends at a port call of a small history: one of each kind, and others at random.

`script/points` tries every one of them; a failure here names the point, and `script/points --only`
shows all that is wrong after it.
"""

from __future__ import annotations

import random
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count

import pytest

from peloton.chaos.cluster.points import (
    PATHS,
    PORTS,
    SECOND_MAX,
    WRITES,
    Deaths,
    Point,
    ScriptedHistory,
    Side,
    play,
    points,
    seconds,
    share,
    short_segments,
)
from peloton.chaos.cluster.rolling_points import RollingHistory
from peloton.chaos.seeds import in_time

HISTORIES: tuple[type[ScriptedHistory], ...] = (ScriptedHistory, RollingHistory)
SHARE_OF_TIME = 1 / 5
"""Of what storms have: a death takes a tenth of a storm, and there are two thousand of them."""
Tables = dict[type[ScriptedHistory], list[Point]]


@pytest.fixture(scope="module")
def tables() -> Iterator[Tables]:
    with short_segments():
        yield {history: points(history=history) for history in HISTORIES}


@pytest.fixture(scope="module")
def table(tables: Tables) -> list[Point]:
    return tables[ScriptedHistory]


def survives(deaths: Deaths, *, history: type[ScriptedHistory] = ScriptedHistory) -> bool:
    """Whether the deaths came to pass; only second ones may come too late to."""
    wrong = play(deaths, history=history)
    assert not wrong, f"{history.__name__}, {deaths}: " + "; ".join(wrong)
    if not deaths.again:
        assert not deaths.missed, f"{deaths} never came"
    return not deaths.missed


def of_each_side(table: Iterable[Point], paths: Iterable[str]) -> list[Point]:
    """The first point of each of these paths on each side."""
    found: dict[tuple[str, Side], Point] = {}
    for point in table:
        if point.path in paths:
            found.setdefault((point.path, point.side), point)
    return [*found.values()]


def test_the_history_goes_down_every_path(table: list[Point]) -> None:
    counts = Counter(point.path for point in table)
    assert counts.keys() == {*PATHS.values(), *PORTS.values()}, "a path is not walked, or is new"
    for path in WRITES:
        sides = {point.side for point in table if point.path == path}
        assert sides == {*Side}, f"{path} is not struck on every side"


@pytest.mark.parametrize("every", [7, 10_000])
def test_a_share_leaves_no_kind_of_call_out(table: list[Point], every: int) -> None:
    def kinds(some: list[Point]) -> set[tuple[str, str, Side]]:
        return {(point.path, point.call.name, point.side) for point in some}

    chosen = share(table, every=every)
    assert kinds(chosen) == kinds(table)
    assert len(chosen) < len(table) / 4


def test_two_numberings_are_the_same(table: list[Point]) -> None:
    assert points() == table


@pytest.mark.parametrize("history", HISTORIES)
def test_one_death_on_each_path(tables: Tables, history: type[ScriptedHistory]) -> None:
    for point in of_each_side(tables[history], {*PATHS.values(), *PORTS.values()}):
        survives(Deaths(point), history=history)


@pytest.mark.slow
def test_one_death_at_each_kind_of_call(table: list[Point]) -> None:
    for point in share(table, every=len(table)):
        survives(Deaths(point))


def test_all_daemons_die_at_once(table: list[Point]) -> None:
    for point in of_each_side(table, WRITES):
        survives(Deaths(point, all_at_once=True))


def test_the_next_life_dies_too(table: list[Point]) -> None:
    tried = [deaths for deaths in [*seconds(table, every=61)][::6] if survives(deaths)]
    assert len(tried) > 5, "second deaths came too late to happen"


@pytest.mark.parametrize("history", HISTORIES)
def test_deaths_at_random_moments(
    tables: Tables, storm_seconds: float, history: type[ScriptedHistory]
) -> None:
    chance = random.Random(secrets.randbits(64))
    for _ in in_time(storm_seconds * SHARE_OF_TIME, count()):
        again = chance.choice((0, 0, chance.randrange(1, SECOND_MAX)))
        # No sweep tries both together, so neither does chance.
        all_at_once = not again and chance.random() < 0.25
        point = chance.choice(tables[history])
        survives(Deaths(point, again=again, all_at_once=all_at_once), history=history)
