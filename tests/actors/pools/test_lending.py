"""The metering of lending: integrals over time, hours that are closed and kept, and what is lost.

Admissions and preemptions are made by hand.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.actors.resources import UNIT, Resources
from peloton.actors.respool import messages as m
from peloton.actors.respool.kind import kind as pool_kind
from peloton.actors.respool.lending import HOUR_S, NOTED_MAX, LendingMeters
from peloton.actors.respool.messages import ROOT, PoolConfig, PoolHour
from peloton.actors.respool.state import HOURS_KEPT_MAX, Pool
from peloton.runtime.core.turning.turn import take_turn
from peloton.runtime.vocabulary import At, Key
from tests.actors.pools.test_reclaiming import AFTER_S, A, B, size_of, two_pools

KIND = pool_kind()

START = 10 * HOUR_S


def cpus(of: Resources) -> float:
    return of.cpu / UNIT


class Uses:
    """Pools of a fixed reservation, each below the root."""

    def __init__(self) -> None:
        self.lending = LendingMeters()
        self.use: dict[Key, Resources] = {}
        self.reserved = size_of(4)

    def set(self, pool: Key, cpu: float, at: float) -> None:
        self.use[pool] = size_of(cpu)
        self.use[ROOT] = sum((self.use[each] for each in self.use if each != ROOT), Resources())
        self.lending.touch(pool)
        self.note(at)

    def note(self, at: float) -> None:
        self.lending.note(at, look=self.look, up=lambda pool: [pool, ROOT])

    def look(self, pool: Key) -> tuple[Resources, Resources]:
        return self.use.get(pool, Resources()), self.reserved

    def open(self, pool: Key, at: float) -> tuple[float, float, float]:
        hour = self.lending.open_hour(pool, at)
        assert hour is not None
        return cpus(hour.used), cpus(hour.borrowed), cpus(hour.unused)


def test_use_is_counted_for_as_long_as_it_lasts() -> None:
    town = Uses()
    town.set(A, 6, START)
    town.set(A, 1, START + 0.5 * HOUR_S)
    assert town.open(A, START + 0.75 * HOUR_S) == (3.25, 1.0, 0.75)
    assert town.open(ROOT, START + 0.75 * HOUR_S) == (3.25, 1.0, 0.75)
    assert not town.lending.closed


def test_an_hour_is_closed_by_the_first_change_after_it() -> None:
    town = Uses()
    town.set(A, 2, START)
    town.set(A, 3, START + 2.5 * HOUR_S)
    assert town.lending.closed.keys() == {A, ROOT}
    (hour,) = town.lending.closed[A]
    assert (hour.began, hour.ended) == (START, START + 2.5 * HOUR_S)
    assert (cpus(hour.used), cpus(hour.unused)) == (5.0, 5.0)
    assert town.open(A, START + 3 * HOUR_S) == (1.5, 0.0, 0.5)


def test_a_clock_that_goes_back_counts_for_nothing() -> None:
    town = Uses()
    town.set(A, 2, START)
    town.set(A, 2, START - 50.0)
    assert town.open(A, START + HOUR_S) == (2.0, 0.0, 2.0)


def test_one_note_dates_so_many_and_the_next_the_others() -> None:
    town = Uses()
    for number in range(NOTED_MAX + 1):
        town.use[Key(f"respool/p{number}")] = size_of(1)
        town.lending.touch(Key(f"respool/p{number}"))
    town.note(START)
    assert town.lending.is_behind
    town.note(START)
    assert not town.lending.is_behind
    assert town.open(Key(f"respool/p{NOTED_MAX}"), START + HOUR_S)[0] == 1.0


@given(
    st.lists(
        st.tuples(st.sampled_from([A, B]), st.integers(0, 9), st.integers(0, 2 * HOUR_S)),
        max_size=20,
    )
)
def test_the_integrals_are_those_of_the_definition(steps: list[tuple[Key, int, int]]) -> None:
    town, now = Uses(), float(START)
    exact: dict[Key, float] = {A: 0.0, B: 0.0}
    use: dict[Key, int] = {}
    kept: dict[Key, float] = {A: 0.0, B: 0.0}
    for pool, cpu, lasts in steps:
        town.set(pool, cpu, now)
        use[pool] = cpu
        for closed in {A, B} & town.lending.closed.keys():
            (closed_hour,) = town.lending.closed[closed]
            kept[closed] += cpus(closed_hour.used)
            town.lending.kept(closed, closed_hour.ended)
        now += lasts
        for each, amount in use.items():
            exact[each] += amount * lasts / HOUR_S
    for pool in use:
        hour = town.lending.open_hour(pool, now)
        assert hour is not None
        assert kept[pool] + cpus(hour.used) == pytest.approx(exact[pool], abs=1e-4)


def keep(pool: Pool, hour: PoolHour) -> Pool:
    at = At(now=0.0, key=A, sender=ROOT)
    return take_turn(KIND, pool, message=m.KeepHour(hour), at=at).state


def test_an_hour_is_told_until_its_pool_has_kept_it() -> None:
    """A turn that tells it may fail, and is then as if it had not been taken."""
    world, lent, _ = two_pools()
    tree = world.tree
    tree.note(START)
    gone = tree.lots[lent]
    tree.put(lent, old=gone, new=None)

    def told() -> list[tuple[Key, PoolHour]]:
        at = At(now=START + 2 * HOUR_S, key=ROOT, index=tree)
        sends = take_turn(KIND, tree.pools[ROOT], message=m.OpenRoot(), at=at).sends
        found = [(send.to, send.message) for send in sends if isinstance(send.message, m.KeepHour)]
        return [(pool, message.hour) for pool, message in found]

    lost, again = told(), told()
    assert lost == again and {pool for pool, _ in again} == {A, ROOT}
    for pool, hour in again:
        tree.put(pool, old=tree.pools[pool], new=keep(tree.pools[pool], hour))
        assert tree.pools[pool].hours == (hour,)
    assert told() == []


def hour_from(began: float) -> PoolHour:
    some = size_of(1)
    return PoolHour(began, began + HOUR_S, some, some, some, Resources(), 0)


def test_a_pool_keeps_the_last_hours_once_each() -> None:
    pool = Pool(PoolConfig("a", ROOT, Resources(), Resources()))
    for number in range(HOURS_KEPT_MAX + 5):
        pool = keep(pool, hour_from(number * HOUR_S))
        pool = keep(pool, hour_from(number * HOUR_S))
    assert [hour.began for hour in pool.hours] == [
        number * HOUR_S for number in range(5, HOURS_KEPT_MAX + 5)
    ]


def test_what_is_given_back_is_counted_for_who_gave_it() -> None:
    world, _, _ = two_pools()
    world.tree.note(world.now)
    world.serve()
    assert world.serve(AFTER_S) == [("lent", 4)]
    world.tree.note(world.now)
    for pool in (A, ROOT):
        hour = world.tree.lending.open_hour(pool, world.now)
        assert hour is not None and (cpus(hour.given), hour.tasks) == (4.0, 4)
    other = world.tree.lending.open_hour(B, world.now)
    assert other is not None and other.tasks == 0
