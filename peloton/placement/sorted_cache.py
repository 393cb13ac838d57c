"""The kept orders of an index: one for each strategy and set of hosts that is in use.

Every order is told which rows changed; an order of the hosts with one label only of the rows that
have it. The caller names the hosts of an order, so this module needs neither strategies nor
constraints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from peloton.actors.resources import EPSILON
from peloton.placement.labels import Ints, LabelTable
from peloton.placement.messages import Label
from peloton.placement.sorted_rows import SortedRows, SortKey

KEPT_MAX = 16
"""Orders of hosts with any labels kept at once; each is updated on every change."""

SCOPED_MAX = 64
"""Orders of hosts with one label kept at once; each is updated on changes of those."""

SortName = tuple[int, object, Label | None]
"""Ascending (1) or descending (-1), what identifies the set of hosts, and a label of all of them
if few others have it."""


NONE_SORTED: Mapping[SortName, SortedRows] = {}


class FreeRows(Protocol):
    """The arrays that keys are made from, by row; the index replaces both when it grows."""

    free: Ints
    group: Ints
    host_labels: LabelTable


class SortedRowsCache:
    """The kept orders by name; those used least recently are dropped."""

    def __init__(self, source: FreeRows, mend_rows: int | None = None) -> None:
        self._source = source
        self._mend_rows = mend_rows
        self._orders: dict[SortName, SortedRows] = {}  # least recently used first
        self._scoped: dict[SortName, SortedRows] = {}  # likewise
        self._by_label: dict[Label, dict[SortName, SortedRows]] = {}  # the same by their labels

    def of(self, name: SortName) -> SortedRows:
        """Return the order of this name, which may have to be built.

        Orders that are not built yet are evicted first: a stream of constraints that are each used
        once (such as one host name each) must not evict those in use.
        """
        sign, _, label = name
        orders, most = (self._scoped, SCOPED_MAX) if label else (self._orders, KEPT_MAX)
        order = orders.pop(name, None)
        if order is None:
            if len(orders) >= most:
                idle = (name for name, order in orders.items() if not order.built)
                self._evict(orders, next(idle, next(iter(orders))))
            order = SortedRows(sign, self, mend_rows=self._mend_rows, scoped=label is not None)
            if label is not None:
                self._by_label.setdefault(label, {})[name] = order
        orders[name] = order
        return order

    def built(self, name: SortName) -> SortedRows | None:
        """Return the order of this name if it is built already."""
        order = (self._scoped if name[2] else self._orders).get(name)
        return self.of(name) if order is not None and order.built else None

    def _evict(self, orders: dict[SortName, SortedRows], name: SortName) -> None:
        del orders[name]
        label = name[2]
        if label is not None:
            del self._by_label[label][name]
            if not self._by_label[label]:
                del self._by_label[label]

    def touch(self, rows: Sequence[int]) -> None:
        """Mark rows as changed."""
        for order in self._orders.values():
            order.touch(rows)
        if self._by_label:
            for row in rows:
                for label in self._source.host_labels.at(row):
                    for order in self._by_label.get(label, NONE_SORTED).values():
                        order.touch((row,))

    def of_row(self, row: int, sign: int) -> SortKey:
        """Return the key of one row."""
        cpu, memory, disk, gpu, *_ = self._source.free[:, row].tolist()
        group = int(self._source.group[row])
        if -EPSILON < gpu < 0:
            gpu = 0  # within the epsilon of none; what is less fits no member, and must not seem to
        return group, sign * gpu, sign * cpu, sign * memory, sign * disk, row

    def columns(self, rows: Ints, sign: int) -> tuple[Ints, ...]:
        """Return the keys of many rows, as arrays.

        The row itself, which comes last in a key, is left out.
        """
        cpu, memory, disk, gpu, *_ = self._source.free[:, rows]
        gpu[(gpu > -EPSILON) & (gpu < 0)] = 0
        return self._source.group[rows], sign * gpu, sign * cpu, sign * memory, sign * disk
