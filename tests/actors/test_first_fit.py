"""The first of numbered amounts that is small enough, against a walk over all of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from peloton.actors.respool.first_fit import FirstFit

numbers = st.integers(0, 40) | st.integers(0, 5000) | st.integers(0, 2**40)
amounts = st.integers(-3, 6)


@given(st.lists(st.tuples(st.booleans(), numbers, amounts), max_size=60), numbers, amounts)
def test_it_is_the_lowest_number_that_fits(
    changes: list[tuple[bool, int, int]], start: int, most: int
) -> None:
    found, known = FirstFit(), dict[int, int]()
    for drop, number, amount in changes:
        if drop and known:
            number = min(known, key=lambda each: abs(each - number))
            found.drop(number)
            del known[number]
        elif number not in known:
            found.put(number, amount)
            known[number] = amount
        for begin in (0, start, *known):
            fits = [each for each, size in known.items() if each >= begin and size <= most]
            assert found.first(begin, most) == min(fits, default=None)
    assert len(found) == len(known)


def test_nothing_is_kept_of_what_was_dropped() -> None:
    found = FirstFit()
    for number in range(0, 100_000, 7):
        found.put(number, number % 5)
        found.drop(number)
    assert not len(found) and not any(found._levels)
