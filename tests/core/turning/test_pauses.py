"""Pauses double up to the longest one, however often something has failed."""

from __future__ import annotations

from peloton.pauses import Pauses


def test_each_is_twice_the_one_before_up_to_the_longest() -> None:
    pauses = Pauses(0.5, 3.0)
    assert [pauses.after(failures) for failures in range(6)] == [0.0, 0.5, 1.0, 2.0, 3.0, 3.0]
    assert pauses.after(10_000_000) == 3.0


def test_none_is_longer_than_the_longest() -> None:
    assert [Pauses(5.0, 2.0).after(failures) for failures in (0, 1, 2)] == [0.0, 2.0, 2.0]
    assert Pauses(0.0, 60.0).after(7) == 0.0
