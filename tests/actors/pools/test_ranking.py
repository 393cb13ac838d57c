"""Ranks with weights, against a sorted list of all of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from peloton.actors.respool.ranking import Ranking

ranks = st.tuples(st.integers(0, 3), st.integers(0, 20))


@given(st.lists(st.tuples(st.booleans(), ranks, st.integers(0, 9)), max_size=80), ranks)
def test_it_is_a_sorted_list(
    changes: list[tuple[bool, tuple[int, int], int]], other: tuple[int, int]
) -> None:
    found: Ranking[tuple[int, int]] = Ranking(3)
    known: dict[tuple[int, int], int] = {}
    for drop, rank, weight in changes:
        if drop and rank in known:
            found.drop(rank)
            del known[rank]
        else:
            found.put(rank, weight)
            known[rank] = weight
        order = sorted(known)
        assert found.first() == (order[0] if order else None)
        assert len(found) == len(known)
        for each in (*order, other):
            assert found.after(each) == next((one for one in order if one > each), None)
            assert found.before(each) == sum(known[one] for one in order if one < each)
        assert all(found.weight(each) == known[each] for each in order)
