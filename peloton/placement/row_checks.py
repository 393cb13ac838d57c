"""Checks of single hosts for one shape, for look-ups that meet few hosts.

`RowChecks` returns how many members a host takes one after another, as far as labels, tasks and
ports decide; other resources are not checked. `reasons.py` makes the same checks for all hosts at
once. The checks are valid until the index changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from peloton.placement.conditions import (
    HOSTNAME,
    MATCH,
    UNKNOWN,
    TruthOf,
    changes_for_others,
    leaf_of,
    one_after_another,
    opens_exclusive,
    opens_pools,
    truth_of,
)
from peloton.placement.index import Flags, HostIndex
from peloton.placement.messages import Constraint, Label, Shape, port_label
from peloton.placement.needs import PORTS
from peloton.placement.reasons import HostChecks
from peloton.runtime.vocabulary import key


class RowChecks:
    """The checks of one shape; rows that have just refused it are `excluded`.

    `opens`: whether exclusive hosts are open to the shape, and hosts of each pool. `scope`: a label
    that all hosts must have or the constraint is not met.
    """

    def __init__(
        self,
        index: HostIndex,
        checks: HostChecks,
        *,
        shape: Shape,
        excluded: Collection[int] = (),
        scope: Label | None = None,
    ) -> None:
        self._index, self._checks, self._shape = index, checks, shape
        self._excluded = excluded
        self._rows = None if scope is None else index.host_labels.rows(scope)
        self._rejects_gpu = checks.rejects_gpu(shape)
        self.opens = opens_exclusive(shape.constraint), opens_pools(shape.constraint)
        self._plain = not (shape.constraint or shape.ports or shape.fixed_ports or shape.apart)
        self._truth: TruthOf | None = None
        self._own_count = False  # whether members change the truth for those that follow
        if shape.constraint is not None:
            own = self._own = shape.all_labels
            self._own_count = bool(own) and changes_for_others(shape.constraint, own)
            self._truth = truth_of(shape.constraint, self._leaf)
        tasks = index.task_labels
        self._port_rows = [tasks.rows(port_label(port)) for port in shape.fixed_ports]
        self._apart_rows = None if shape.apart is None else tasks.rows(shape.apart)

    @property
    def size(self) -> int:
        """Return how many rows are checked."""
        return self._index.size if self._rows is None else len(self._rows)

    def open(self, row: int) -> bool:
        """Return whether the host is up and admits such members at all, its labels disregarded."""
        index = self._index
        if not index.up[row] or (self._rejects_gpu and index.has_gpu[row]):
            return False
        if index.quarantines.left_out[row]:
            return False
        exclusive, pools = self.opens
        return (exclusive or not index.exclusive[row]) and (pools or not index.pooled[row])

    def room(self, row: int, most: int) -> int:
        """Return how many members, `most` at most, an open host takes one after another."""
        return 0 if row in self._excluded else self._accepts(row, most)

    def allows(self, row: int) -> bool:
        """Return whether the host takes a member, whichever hosts are excluded."""
        return self.open(row) and (self._plain or self._accepts(row, 1) > 0)

    def flags(self) -> Flags:
        """Return for each row whether its host takes a member, whichever hosts are excluded."""
        found, _ = self._checks.taking(self._shape)
        if self._shape.apart is not None:
            found = found & (self._index.task_counts(self._shape.apart) == 0)
        return found

    def _accepts(self, row: int, most: int) -> int:
        if self._shape.ports:
            most = min(most, int(self._index.free[PORTS, row]) // self._shape.ports)
        for taken in self._port_rows:
            if row in taken:
                return 0
            most = min(most, 1)
        if self._apart_rows is not None:
            # Hosts without one come first; while there are such, no other is proposed.
            if row in self._apart_rows or not self._index.knows_tasks[row]:
                return 0
            most = min(most, 1)
        truth = self._truth
        if truth is None:
            return most
        if most == 1 or not self._own_count:
            return most if truth(row, 0) >= MATCH else 0
        return one_after_another(truth, row, most=most)

    def _leaf(self, leaf: Constraint) -> TruthOf:
        counts, knows = rows_with(leaf.label, leaf.kind, index=self._index), self._index.knows_tasks
        of = leaf_of(leaf, lambda row: counts.get(row, 0), own=self._own)
        if leaf.kind == "host":
            return of
        return lambda row, before: of(row, before) if knows[row] else UNKNOWN


def rows_with(label: Label, kind: str, *, index: HostIndex) -> Mapping[int, int]:
    """Return the rows with a label of the host or of its tasks, and how often."""
    if kind == "task":
        return index.task_labels.rows(label)
    if label.key != HOSTNAME:
        return index.host_labels.rows(label)
    row = index.rows.get(key("host", label.value))
    return {} if row is None else {row: 1}
