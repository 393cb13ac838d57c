"""What is done later, and in which order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.backends.due_times import DueTimes


def test_nothing_is_due_at_first() -> None:
    times = DueTimes()
    times.do(1e9)
    assert times.wake_at is None


def test_what_is_added_meanwhile_comes_with_the_next_call() -> None:
    times, done = DueTimes(), list[float]()

    def again(now: float) -> None:
        done.append(now)
        times.at(now, again)

    times.at(1.0, again)
    times.do(2.0)
    times.do(3.0)
    assert done == [2.0, 3.0] and times.wake_at == 3.0


def test_what_raises_is_done_with_and_takes_nothing_else_away() -> None:
    times, done = DueTimes(), list[str]()

    def bad(now: float) -> None:
        times.at(now, lambda _: done.append("added"))
        raise ValueError

    times.at(1.0, lambda _: done.append("before"))
    times.at(1.0, bad)
    times.at(2.0, lambda _: done.append("behind"))
    with pytest.raises(ValueError):
        times.do(2.0)
    assert done == ["before"] and times.wake_at == 2.0
    times.do(2.0)
    assert done == ["before", "behind", "added"] and times.wake_at is None


@given(st.lists(st.integers(0, 5)), st.integers(0, 5))
def test_all_that_is_due_is_done_by_time_and_then_by_order(whens: list[int], now: int) -> None:
    times, done = DueTimes(), list[tuple[int, int]]()
    for place, when in enumerate(whens):
        times.at(when, lambda _, what=(when, place): done.append(what))
    times.do(now)
    every = sorted((when, place) for place, when in enumerate(whens))
    assert done == [what for what in every if what[0] <= now]
    assert times.wake_at == min((when for when in whens if when > now), default=None)
