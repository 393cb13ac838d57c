"""What one end costs a pool in which many wait for a ration: instructions, not time.

`test_rations.py` tests which tickets are admitted.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peloton.actors.respool.first_rank import FirstRank
from tests.actors.pools.test_pool import A, admit, lot, put, tree
from tests.actors.pools.test_pool_costs import LARGE, SMALL, counted
from tests.actors.pools.test_rations import with_controllers


def cost_of_an_end(waiting: int, *, more: float) -> int:
    """Controllers wait for a ration of two cpus; each needs so much more than one before it, from
    one cpu on. Then the first ends."""
    found = tree(a=with_controllers(limit=99.0))
    for number in range(waiting):
        size = 1 + number * more
        put(found, f"c{number:05}", lot(A, 1, size=size, arrived=float(number), controller=True))
    assert admit(found)[0] == ("c00000", 1)
    while admit(found):
        pass
    with counted() as steps:
        put(found, "c00000", None)
        assert len(admit(found)) == 1
        assert admit(found) == []
    return steps.count


@pytest.mark.parametrize("more", [0.0, 0.0001], ids=["all alike", "all different"])
def test_an_end_costs_as_much_however_many_wait(more: float) -> None:
    small, large = (cost_of_an_end(count, more=more) for count in (SMALL, LARGE))
    assert large <= 1.5 * small, (small, large)


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 9)), max_size=60),
    st.integers(0, 9),
    st.integers(-1, 41),
)
def test_the_first_rank_is_that_of_a_walk(
    changes: list[tuple[int, int]], most: int, start: int
) -> None:
    ranks: FirstRank[tuple[int]] = FirstRank(block_max=4)
    known: dict[tuple[int], int] = {}
    for number, amount in changes:
        rank = (number % 40,)
        if rank in known:
            del known[rank]
            ranks.drop(rank)
        else:
            known[rank] = amount
            ranks.put(rank, amount)
        assert len(ranks) == len(known)
        fit = [each for each, its in known.items() if its <= most]
        assert ranks.first(most) == min(fit, default=None)
        later = [each for each in fit if each >= (start,)]
        assert ranks.first(most, start=(start,)) == min(later, default=None)
