"""Strategies: which of the fitting hosts come first, and how many members each takes.

A strategy is a record, so that others can be registered: columns to sort by, and the most members
of one wish that one host takes. Choosing is one operation on arrays, however many members there
are. Must not check whether a host fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from peloton.actors.resources import COUNT_MAX, EPSILON
from peloton.placement.index import Fitting, HostIndex
from peloton.placement.labels import Ints
from peloton.placement.needs import CPU, DISK, GPU, MEMORY, PORTS, Need
from peloton.runtime.vocabulary import Value

RankColumns = tuple[Ints, ...]


class Strategy(Value, frozen=True):
    """How hosts are ranked. `columns` are compared one after another, the least first.

    `sign` is that of a kept order with the same columns (see `KeptOrders`), so that a
    few members need no scan; 0 if there is none.
    """

    name: str
    columns: Callable[[HostIndex], RankColumns]
    each_max: int = COUNT_MAX
    sign: int = 0

    @property
    def shares(self) -> bool:
        """Whether wishes of one shape may be placed together with the same result."""
        return self.each_max == COUNT_MAX


def tightest(index: HostIndex) -> RankColumns:
    """Least free first, hosts without GPU before others: leaves large hosts free."""
    free = index.free
    return index.group, np.maximum(free[GPU], 0), free[CPU], free[MEMORY], free[DISK]


def emptiest(index: HostIndex) -> RankColumns:
    """Most free first, hosts without GPU before others."""
    group, *free = tightest(index)
    return group, *(-column for column in free)


PACK = Strategy("pack", tightest, sign=1)
SPREAD = Strategy("spread", emptiest, each_max=1, sign=-1)

STRATEGIES: Mapping[str, Strategy] = {strategy.name: strategy for strategy in (PACK, SPREAD)}


def foremost_rows(rows: Ints, columns: Sequence[Ints], *, count: int) -> Ints:
    """The first `count` of `rows` by `columns`, then by row; not sorted.

    Selects instead of sorting: only ties at the edge are compared by the next column.
    """
    chosen: list[Ints] = []
    for column in columns:
        if len(rows) <= count:
            break
        values = column[rows]
        edge = np.min(values)
        ties = rows[values == edge]
        if len(ties) < count:
            edge = np.partition(values, count - 1)[count - 1]
            below = rows[values < edge]
            ties = rows[values == edge]
            chosen.append(below)
            count -= len(below)
        rows = ties
    chosen.append(rows[:count])
    return np.concatenate(chosen) if len(chosen) > 1 else chosen[0]


def in_order(rows: Ints, columns: Sequence[Ints]) -> Ints:
    """`rows` sorted by `columns`, then by themselves."""
    if len(rows) < 2:
        return rows
    rows = np.sort(rows)
    keys = [column[rows] for column in columns]
    telling = [values for values in reversed(keys) if np.min(values) != np.max(values)]
    return rows[np.lexsort(telling)] if telling else rows


def fits(need: Need, free: Ints) -> Ints:
    """How many members fit into each column of `free`, counted as by `Resources.fits`."""
    most = np.full(free.shape[1], COUNT_MAX, np.int64)
    for kind, amount in enumerate(need.amounts):
        if amount > 0:
            spare = 0 if kind == PORTS else EPSILON - 1
            np.minimum(most, np.maximum((free[kind] + spare) // amount, 0), out=most)
        else:
            most[free[kind] < need.least[kind]] = 0
    return most


def choose(
    index: HostIndex, need: Need, *, fitting: Fitting, strategy: Strategy, count: int
) -> tuple[Ints, Ints]:
    """Hosts for up to `count` members out of those fitting: rows and counts, in order."""
    columns = strategy.columns(index)
    rows = in_order(foremost_rows(fitting.rows, columns, count=count), columns)
    most = np.minimum(fits(need, index.free[:, rows]), min(strategy.each_max, count))
    if fitting.limits is not None:
        most = np.minimum(most, fitting.limits[rows])
    ends = np.cumsum(most)
    used = int(np.searchsorted(ends, count)) + 1
    rows, counts = rows[:used], most[:used]
    if used <= len(ends):
        counts[-1] -= ends[used - 1] - count
    return rows, counts
