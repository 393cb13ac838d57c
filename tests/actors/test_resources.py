"""Amounts: exact sums, comparisons with an epsilon, bad numbers.

Expected values are written in millionths.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.actors.resources import UNIT, BadAmount, Resources, amount, millionths


def cpu(number: float) -> Resources:
    return Resources(millionths(number, "cpu"))


@pytest.mark.parametrize(
    ("need", "available", "fits"),
    [(1.0008, 1.0, True), (1.001, 1.0, False), (1.0, 1.0, True), (0.0, -0.0009, False)],
)
def test_a_comparison_allows_the_epsilon(need: float, available: float, fits: bool) -> None:
    have = cpu(available) if available >= 0 else Resources() - cpu(-available)
    assert cpu(need).within(have) is fits


def test_sums_never_snap() -> None:
    assert (cpu(1.0) - cpu(0.9995)).cpu == 500, "the original says 0 here; we keep what is there"


def test_fifty_tenths_cancel_exactly() -> None:
    used = Resources()
    for _ in range(50):
        used = used + cpu(0.1)
    assert used == cpu(5.0) == cpu(0.1).times(50)
    for _ in range(50):
        used = used - cpu(0.1)
    assert used == Resources()


@pytest.mark.parametrize("number", [-1.0, math.nan, math.inf, -math.inf, 1e13])
def test_a_bad_amount_is_named(number: float) -> None:
    with pytest.raises(BadAmount, match="cpu"):
        millionths(number, "cpu")


def test_by_how_much_it_is_short() -> None:
    need, available = Resources(2 * UNIT, 10, 0, UNIT), Resources(UNIT, 10, 0, 0)
    assert need.short_of(available) == {"cpu": UNIT, "gpu": UNIT}


AMOUNTS = st.integers(0, 5000)


@given(st.builds(Resources, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS),
       st.builds(Resources, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS))  # fmt: skip
def test_as_many_fit_as_are_within(need: Resources, available: Resources) -> None:
    count = need.fits(available)
    if any(need.amounts()):
        assert count == 0 or need.times(count).within(available)
        assert not need.times(count + 1).within(available)


@given(st.integers(0, 10**15))
def test_an_amount_comes_back(number: int) -> None:
    assert millionths(amount(number), "x") == number
