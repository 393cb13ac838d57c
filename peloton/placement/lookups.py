"""Look-ups of hosts for a few members, without a scan of all hosts.

A look-up returns the rows that a scan would choose. It uses an order of all hosts by free
resources, of which the first that meets the conditions is taken; the rows that carry a label which
the conditions require; and, where the first hosts seldom meet conditions that come again and again,
an order of the hosts that do. Where a scan might choose otherwise, or would be faster, the look-up
returns None.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from peloton.actors.resources import Resources
from peloton.placement.conditions import HOSTNAME
from peloton.placement.index import HostIndex
from peloton.placement.messages import Constraint, Label, Shape
from peloton.placement.needs import ORDERED
from peloton.placement.reasons import HostChecks
from peloton.placement.row_checks import RowChecks, rows_with
from peloton.placement.shapes import KnownShape, hosts_name
from peloton.placement.sorted_cache import SortName
from peloton.placement.sorted_rows import Search, SortedRows
from peloton.placement.strategies import foremost_rows, in_order

RowsTaken = list[tuple[int, int]]
"""Rows, and how many members go to each."""

COMPARED_FIRST_MAX = 16
"""So many rows with a required label are compared before any order is read."""

ROWS_PER_COMPARED = 8
"""Rows of an array scan that takes as long as to compare one row with a required label."""

NOTED_REFUSALS = 8
"""Rows that are passed by before an order of others is thought of."""

KEPT_CHECKS_MAX = 256
"""Checks that are kept; all are dropped when there are more."""

ANY_HOST = [hosts_name(Shape(Resources(gpu=gpu))) for gpu in (0, 1)]
"""What identifies the hosts that are open to all, for members without GPU and with it."""


class _Required(NamedTuple):
    """The label that hosts must have; of several, the one that the fewest have."""

    kind: str
    label: Label
    rows: Mapping[int, int]


class _LookUp(NamedTuple):
    """The arguments of one look-up."""

    known: KnownShape
    search: Search
    sign: int
    members: int
    rows: RowChecks
    required: _Required | None
    scope: Label | None  # a required label of hosts, if few have it

    @property
    def own(self) -> SortName:
        """Return the name of the order of the hosts that take such members."""
        return self.sign, self.known.hosts, self.scope


class Lookups:
    """Look-ups in one index."""

    def __init__(self, index: HostIndex, checks: HostChecks) -> None:
        self._index, self._checks = index, checks
        self._kept: dict[int, RowChecks] = {}  # by the number of the shape
        self._generation = -1
        self._any_host = [
            RowChecks(index, checks, shape=Shape(Resources(gpu=gpu))) for gpu in (0, 1)
        ]

    def find(self, known: KnownShape, excluded: Sequence[int], *, count: int) -> RowsTaken | None:
        """Return hosts for `count` members, or for fewer if no others fit.

        None means that a scan is needed.
        """
        search, strategy = known.search, known.strategy
        if search is None or strategy is None:
            return None
        shape, index = known.need.shape, self._index
        if known.plain and not excluded:
            order = self._all_hosts(shape, strategy.sign)
            return None if order is None else order.take(search, count, groups=index.groups)
        own = None if known.plain else index.sorted_rows.built((strategy.sign, known.hosts, None))
        if own is not None:
            rows = self._checks_of(known, excluded)
            if own.ready(rows):
                return own.take(search, count, groups=index.groups, room=rows.room)
        required = self._required(known)
        narrow = required is not None and len(required.rows) <= index.size // ROWS_PER_COMPARED
        scope = None
        if required is not None and narrow and required.kind == "host":
            scope = required.label if required.label.key != HOSTNAME else None
        rows = self._checks_of(known, excluded, scope=scope)
        asked = _LookUp(known, search, strategy.sign, count, rows, required, scope)
        if required is not None and len(required.rows) <= COMPARED_FIRST_MAX:
            return self._compare(asked, self._few_sorted(asked, required.rows))
        found = self._in_sorted(asked)
        if found is None and required is not None and narrow:
            return self._compare(asked, self._many_sorted(asked, required))
        return found

    def _checks_of(
        self, known: KnownShape, excluded: Sequence[int], *, scope: Label | None = None
    ) -> RowChecks:
        """Return the checks of a shape, cached while the labels of hosts do not change if they
        depend on these alone."""
        shape, index = known.need.shape, self._index
        if known.of_tasks or excluded or scope is not None:
            return RowChecks(index, self._checks, shape=shape, excluded=excluded, scope=scope)
        if self._generation != index.generation or len(self._kept) >= KEPT_CHECKS_MAX:
            self._generation = index.generation
            self._kept.clear()
        rows = self._kept.get(known.number)
        if rows is None:
            rows = self._kept[known.number] = RowChecks(index, self._checks, shape=shape)
        return rows

    def _in_sorted(self, asked: _LookUp) -> RowsTaken | None:
        """Search the order of the hosts that take such members, if it is kept; else the order of
        all hosts, or of those with the required label."""
        orders, plain = self._index.sorted_rows, asked.known.plain
        own = None if plain else orders.built(asked.own)
        if own is not None and own.ready(asked.rows):
            return self._take(asked, own)
        if asked.scope is not None:
            order = self._with_label(asked, asked.scope)
        elif any(asked.rows.opens):
            order = None
        else:
            order = self._all_hosts(asked.known.need.shape, asked.sign)
        if order is not None:
            found = self._take(asked, order)
            if found is not None:
                if order.refused > NOTED_REFUSALS and not plain:
                    orders.of(asked.own).missed(order.refused)
                return found
        if plain or own is not None:
            return None
        own = orders.of(asked.own)
        return self._take(asked, own) if own.ready(asked.rows) else None

    def _all_hosts(self, shape: Shape, sign: int) -> SortedRows | None:
        """Return the order of all hosts that are open to all, if it is up to date."""
        has_gpu = shape.resources.gpu > 0
        order = self._index.sorted_rows.of((sign, ANY_HOST[has_gpu], None))
        return order if order.ready(self._any_host[has_gpu]) else None

    def _with_label(self, asked: _LookUp, scope: Label) -> SortedRows | None:
        """Return the order of the hosts with a required label, if it is up to date."""
        has_it = Constraint("label", "host", scope, "greater", 0)
        shape = Shape(asked.known.need.shape.resources, constraint=has_it)
        those = RowChecks(self._index, self._checks, shape=shape, scope=scope)
        hosts = hosts_name(shape)
        if hosts == asked.known.hosts or those.opens != asked.rows.opens:
            return None
        order = self._index.sorted_rows.of((asked.sign, hosts, scope))
        return order if order.ready(those) else None

    def _take(self, asked: _LookUp, order: SortedRows) -> RowsTaken | None:
        groups, room = self._index.groups, asked.rows.room
        return order.take(asked.search, asked.members, groups=groups, room=room)

    def _required(self, known: KnownShape) -> _Required | None:
        found = None
        for kind, label in known.required:
            rows = rows_with(label, kind, index=self._index)
            if found is None or len(rows) < len(found.rows):
                found = _Required(kind, label, rows)
        return found

    def _compare(self, asked: _LookUp, some: Iterable[int]) -> RowsTaken | None:
        """Give members to the first of `some` rows, which are all that may take them."""
        search, rows, count = asked.search, asked.rows, asked.members
        taken: RowsTaken = []
        for row in some:
            if not rows.open(row):
                continue
            cpu, memory, disk, gpu, *_ = self._index.free[:, row].tolist()
            here = rows.room(row, search.fits((cpu, memory, disk, gpu), count))
            if here:
                taken.append((row, here))
                count -= here
                if not count:
                    return taken
        # Of members kept apart the others go to hosts that have one already.
        return taken if asked.known.need.shape.apart is None else None

    def _few_sorted(self, asked: _LookUp, some: Iterable[int]) -> list[int]:
        """Return those of these rows that have enough free, in the order of the strategy."""
        free, least, orders = self._index.free, asked.search.least, self._index.sorted_rows
        enough = [row for row in some if all(map(operator.ge, free[:ORDERED, row].tolist(), least))]
        if len(enough) < 2:
            return enough
        return [key[-1] for key in sorted(orders.of_row(row, asked.sign) for row in enough)]

    def _many_sorted(self, asked: _LookUp, required: _Required) -> Iterator[int]:
        """Yield rows that have enough free, in the order of the strategy.

        All are sorted only if the first are not enough.
        """
        index = self._index
        table = index.task_labels if required.kind == "task" else index.host_labels
        rows = table.sorted_rows(required.label)
        least = np.array(asked.search.least, np.int64)[:, None]
        rows = rows[(index.free[:ORDERED, rows] >= least).all(axis=0)]
        columns = index.sorted_rows.columns(rows, asked.sign)
        places, first = np.arange(len(rows)), asked.members + COMPARED_FIRST_MAX
        found = in_order(foremost_rows(places, columns, count=first), columns)
        yield from rows[found].tolist()
        if len(rows) > first:
            yield from rows[in_order(places, columns)].tolist()[first:]
