"""Strategies: which of the fitting hosts come first, and how many members each takes.

A strategy is a record, so that others can be registered (docs/placement.md): columns to sort by,
and the most members of one wish that one host takes. Choosing is one operation on arrays, however
many members there are, but for a strategy that ranks anew after each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from peloton.actors.resources import COUNT_MAX, EPSILON, Resources
from peloton.placement.index import Fitting, HostIndex
from peloton.placement.labels import Ints
from peloton.placement.messages import Shape
from peloton.placement.needs import CPU, DISK, FREE_COLUMNS, GPU, MEMORY, PORTS, Need, need_of
from peloton.runtime.vocabulary import Key, Value, key

RankColumns = tuple[Ints, ...]


class Candidates(NamedTuple):
    """Hosts as arrays, one column per host: what a strategy may rank by.

    Hosts that do not fit, and rows without a host, are among them: their rank decides nothing.
    `free` is what they have free less what is proposed there: cpu, memory, disk, gpu and slack in
    millionths, then ports (`peloton.placement.needs`). The arrays are the placer's own: a strategy
    must not write to them.
    """

    free: Ints
    capacity: Ints  # as `free`, without ports
    names: Sequence[Key]

    @property
    def size(self) -> int:
        """Return the number of columns."""
        return len(self.names)


class Strategy(Value, frozen=True):
    """How hosts are ranked. What `rank` returns is compared column by column, the least first.

    Before it come hosts without GPU, and those that fail nobody. Ties are decided by the
    row. `one_by_one`: each member gets the host that is foremost once the members before it are
    placed; else a host is filled before the next one. `sign` is that of a kept order with the same
    columns (see `SortedRowsCache`), so that a few members need no scan; 0 if there is none.
    """

    name: str
    rank: Callable[[Candidates, Need], RankColumns]
    each_max: int = COUNT_MAX
    sign: int = 0
    one_by_one: bool = False

    @property
    def shares(self) -> bool:
        """Return whether wishes of one shape may be placed together with the same result."""
        return self.each_max == COUNT_MAX


class StrategyFailed(Exception):
    """A strategy that was installed beside Peloton does not keep to the interface."""


def tightest(hosts: Candidates, need: Need) -> RankColumns:  # noqa: ARG001
    """Rank hosts with the least free first, which leaves large hosts free."""
    free = hosts.free
    return np.maximum(free[GPU], 0), free[CPU], free[MEMORY], free[DISK]


def emptiest(hosts: Candidates, need: Need) -> RankColumns:
    """Rank hosts with the most free first."""
    return tuple(-column for column in tightest(hosts, need))


def most_disk(hosts: Candidates, need: Need) -> RankColumns:  # noqa: ARG001
    """Rank hosts with the most free disk first, then memory, cpu and gpu."""
    return tuple(-hosts.free[kind] for kind in (DISK, MEMORY, CPU, GPU))


PACK = Strategy("pack", tightest, sign=1)
SPREAD = Strategy("spread", emptiest, each_max=1, sign=-1)
MIMIR = Strategy("mimir", most_disk, one_by_one=True)

STRATEGIES: Mapping[str, Strategy] = {each.name: each for each in (PACK, SPREAD, MIMIR)}
"""Those of the package. Others register theirs (docs/placement.md)."""


def guarded(strategy: Strategy, source: str) -> Strategy:
    """Wrap a strategy so that it raises `StrategyFailed` for any error or result of a wrong form.

    `source` names the strategy and its distribution for people.
    """
    rank = strategy.rank

    def checked(hosts: Candidates, need: Need) -> RankColumns:
        try:
            found = rank(hosts, need)
        except Exception as error:
            raise StrategyFailed(f"{source} raised {type(error).__name__}: {error}") from error
        if not isinstance(found, tuple) or not found:
            raise StrategyFailed(f"{source} returned no tuple of arrays")
        for column in found:
            whole = isinstance(column, np.ndarray) and column.dtype.kind in "iub"
            if not whole or column.shape != (hosts.size,):
                text = f"an array of {hosts.size} whole numbers"
                raise StrategyFailed(f"{source} returned what is not {text}")
        return found

    return Strategy(
        strategy.name, checked, each_max=strategy.each_max, one_by_one=strategy.one_by_one
    )


def try_rank(strategy: Strategy) -> None:
    """Let a strategy rank two empty hosts.

    Raises StrategyFailed if the strategy is guarded and fails.
    """
    free, capacity = np.zeros((FREE_COLUMNS, 2), np.int64), np.zeros((PORTS, 2), np.int64)
    hosts = Candidates(free, capacity, (key("host", "a"), key("host", "b")))
    strategy.rank(hosts, need_of(Shape(Resources())))


def foremost_rows(rows: Ints, columns: Sequence[Ints], *, count: int) -> Ints:
    """Return the first `count` of `rows` by `columns`, then by row; not sorted.

    Rows are selected instead of sorted: only ties at the edge are compared by the next column.
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
    """Return `rows` sorted by `columns`, then by row."""
    if len(rows) < 2:
        return rows
    rows = np.sort(rows)
    keys = [column[rows] for column in columns]
    telling = [values for values in reversed(keys) if np.min(values) != np.max(values)]
    return rows[np.lexsort(telling)] if telling else rows


def fits(need: Need, free: Ints) -> Ints:
    """Return how many members fit into each column of `free`, counted as by `Resources.fits`."""
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
    """Return hosts for up to `count` members out of those fitting: rows and counts, in order."""
    hosts = Candidates(index.free, index.capacity, index.names)
    columns = index.group, *strategy.rank(hosts, need)
    rows = in_order(foremost_rows(fitting.rows, columns, count=count), columns)
    most = np.minimum(fits(need, index.free[:, rows]), min(strategy.each_max, count))
    if fitting.limits is not None:
        most = np.minimum(most, fitting.limits[rows])
    if strategy.one_by_one and count > 1:
        return _one_by_one(index, need, room=Fitting(rows, most), strategy=strategy, count=count)
    ends = np.cumsum(most)
    used = int(np.searchsorted(ends, count)) + 1
    rows, counts = rows[:used], most[:used]
    if used <= len(ends):
        counts[-1] -= ends[used - 1] - count
    return rows, counts


def _one_by_one(
    index: HostIndex, need: Need, *, room: Fitting, strategy: Strategy, count: int
) -> tuple[Ints, Ints]:
    """Give each member to the row that is foremost by then.

    The rows are in order, so that only their first `count` can ever be used: a row without a member
    is reached after those before it.
    """
    rows, most = room
    assert most is not None
    free, taken = index.free[:, rows], np.zeros(len(rows), np.int64)
    vector, groups = need.vector[:, 0], index.group[rows].tolist()

    def key_of(at: int) -> tuple[int, ...]:
        row = int(rows[at])
        one = Candidates(
            free[:, at : at + 1], index.capacity[:, row : row + 1], (index.names[row],)
        )
        return groups[at], *(int(column[0]) for column in strategy.rank(one, need)), row, at

    heap = [key_of(at) for at in range(len(rows))]  # ascending: it is a heap
    heap.sort()
    for _ in range(count):
        if not heap:
            break
        at = heappop(heap)[-1]
        taken[at] += 1
        if taken[at] < most[at]:
            free[:, at] -= vector
            heappush(heap, key_of(at))
    used = taken > 0
    return rows[used], taken[used]
