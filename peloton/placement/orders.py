"""The kept orders of an index: one for each strategy and set of hosts that is in use.

Turns free resources into the keys that orders sort by, and tells every order which rows changed.
Must not know strategies or constraints: whoever asks for an order names its hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from peloton.actors.resources import EPSILON
from peloton.placement.labels import Ints
from peloton.placement.order import KeptOrder, OrderKey

KEPT_MAX = 16
"""Orders kept at once; each is updated on every change."""

OrderName = tuple[int, object]
"""Ascending (1) or descending (-1), and what identifies the set of hosts."""


class FreeRows(Protocol):
    """What keys are made of, by row; the index replaces both arrays when it grows."""

    free: Ints
    group: Ints


class KeptOrders:
    """Orders by free resources; those used least recently are dropped."""

    def __init__(self, source: FreeRows, mend_rows: int | None = None) -> None:
        self._source = source
        self._mend_rows = mend_rows
        self._orders: dict[OrderName, KeptOrder] = {}  # least recently used first

    def of(self, name: OrderName) -> KeptOrder:
        """The order of this name, which may have to be built.

        Orders that are not built yet are evicted first: a stream of constraints that are each used
        once (such as one host name each) must not evict those in use.
        """
        order = self._orders.pop(name, None)
        if order is None:
            if len(self._orders) >= KEPT_MAX:
                idle = (name for name, order in self._orders.items() if not order.built)
                del self._orders[next(idle, next(iter(self._orders)))]
            order = KeptOrder(name[0], self, mend_rows=self._mend_rows)
        self._orders[name] = order
        return order

    def touch(self, rows: Sequence[int]) -> None:
        """These rows have changed."""
        for order in self._orders.values():
            order.touch(rows)

    def of_row(self, row: int, sign: int) -> OrderKey:
        """The key of one row."""
        cpu, memory, disk, gpu, _ = self._source.free[:, row].tolist()
        group = int(self._source.group[row])
        if -EPSILON < gpu < 0:
            gpu = 0  # within the epsilon of none; what is less fits no member, and must not seem to
        return group, sign * gpu, sign * cpu, sign * memory, sign * disk, row

    def columns(self, rows: Ints, sign: int) -> tuple[Ints, ...]:
        """The keys of many rows, as arrays; without the row, which comes last in a key."""
        cpu, memory, disk, gpu, _ = self._source.free[:, rows]
        gpu[(gpu > -EPSILON) & (gpu < 0)] = 0
        return self._source.group[rows], sign * gpu, sign * cpu, sign * memory, sign * disk
