"""P15: readers delay no decision, however many wait in a pool, and however many pools there are.

Instructions are counted, not time. `READS` is what pages, streams, `why` and `respool` ask of the
pools; what needs all of them is made of a copy elsewhere (`respool/copies.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from peloton.actors.respool.lot.decide import waits
from peloton.actors.respool.lot.messages import GetLot
from peloton.actors.respool.messages import (
    ROOT,
    GetPool,
    GetPoolHistory,
    ListPools,
    ListQueue,
)
from peloton.actors.respool.queries import get_pool, list_pools, list_queue, pool_history
from peloton.actors.respool.tree import Tree
from peloton.runtime.vocabulary import At, Key
from tests.actors.pools.test_pool import A, admit, config, lot, put, tree
from tests.actors.pools.test_pool_costs import counted
from tests.actors.pools.test_rations import with_controllers

SMALL, LARGE = 300, 1500
"""More than a page, and more than is looked at of a queue to say who is before somebody."""

Read = Callable[[Tree, int, At], Any]


def _lot(name: str) -> Read:
    def read(found: Tree, last: int, at: At) -> Any:
        key = Key("lot/" + name.format(last))
        return waits(found.lots[key], GetLot(), At(now=9.0, key=key, index=found))

    return read


READS: dict[str, Read] = {
    "a pool": lambda found, last, at: get_pool(found.pools[ROOT], GetPool(A), at),
    "a pool by path": lambda found, last, at: get_pool(found.pools[ROOT], GetPool(path="/a"), at),
    "a page of pools": lambda found, last, at: list_pools(
        found.pools[ROOT], ListPools(most=5, parent=ROOT), at
    ),
    "a page of a queue": lambda found, last, at: list_queue(found.pools[ROOT], ListQueue(A, 5), at),
    "a ledger": lambda found, last, at: pool_history(found.pools[ROOT], GetPoolHistory("/a"), at),
    "the first that waits for a ration": _lot("c00002"),
    "the last that waits for a ration": _lot("c{:05}"),
    "the last of a queue": _lot("w{:05}"),
}


def crowded(count: int) -> tuple[Tree, At]:
    """So many other pools; in /a so many controllers wait for their ration, and others for room."""
    others = {f"p{number}": config(f"p{number}") for number in range(count)}
    found = tree(a=with_controllers(limit=4.0), **others)
    for number in range(count):
        put(found, f"c{number:05}", lot(A, 1, arrived=float(number), controller=True))
        put(found, f"w{number:05}", lot(A, 1, arrived=1e6 + number))
    while admit(found):
        pass
    return found, At(now=9.0, key=ROOT, index=found)


def cost_of(read: Read, count: int) -> int:
    found, at = crowded(count)
    read(found, count - 1, at)  # what is derived once is
    with counted() as steps:
        read(found, count - 1, at)
    return steps.count


@pytest.mark.parametrize("name", READS)
def test_a_reader_costs_the_same_however_many_wait(name: str) -> None:
    small, large = (cost_of(READS[name], count) for count in (SMALL, LARGE))
    assert large <= 1.5 * small, (small, large)


def test_a_walk_of_all_who_are_skipped_is_found() -> None:
    """The fault that this has found: a page of a queue was cut from all that were sorted."""

    def cut_from_all(found: Tree, last: int, at: At) -> Any:  # noqa: ARG001
        return sorted(key for key in found.queues[A].in_order())[:5]

    small, large = (cost_of(cut_from_all, count) for count in (SMALL, LARGE))
    assert large > 1.5 * small
