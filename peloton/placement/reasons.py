"""Checks whether hosts fit a member, and if not, for which reason, in the original's order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from peloton.placement.conditions import (
    MATCH,
    UNKNOWN,
    opens_exclusive,
    opens_pools,
    shape_depends_on_tasks,
)
from peloton.placement.constraints import allowance, possible, truths
from peloton.placement.index import Fitting, Flags, HostIndex
from peloton.placement.labels import Ints
from peloton.placement.messages import Constraint, Shape, port_label
from peloton.placement.needs import PORTS, Need
from peloton.placement.strategies import fits

MISMATCH_STATUS = "mismatch_status"
NO_OFFER = "no_offer"
INSUFFICIENT = "insufficient_offer_resources"
SCARCE = "scarce_resources"
MISMATCH_CONSTRAINTS = "mismatch_constraints"
PORT_TAKEN = "port_taken"
UNKNOWN_TASKS = "unknown_task_labels"
HOST_LIMIT = "mismatch_max_host_limit"
QUARANTINED = "quarantined"
UNKNOWN_STRATEGY = "unknown_strategy"
LAUNCHES_STOPPED = "launches_stopped"
"""No check of hosts: the placer proposes none. Counted once."""

NEVER_TOGETHER = "a gang of "
"""So the text begins where single members would fit, and all of them together never."""

CHECK_REASONS = (
    MISMATCH_STATUS,
    NO_OFFER,
    INSUFFICIENT,
    SCARCE,
    MISMATCH_CONSTRAINTS,
    PORT_TAKEN,
    UNKNOWN_TASKS,
    HOST_LIMIT,
    QUARANTINED,
    UNKNOWN_STRATEGY,
)
"""Every reason, in the order in which they are reported. The last five are not the original's
checks: a fixed port that another task has, task labels that no inventory reports, hosts that
already have their member of a spread wish, hosts that are left out as they fail whatever runs
there, and a strategy that is not registered (counted once, not per host)."""

OPEN_SETS_MAX = 256
"""Constraints whose hosts are cached."""


def open_key(shape: Shape) -> tuple[Constraint | None, bool]:
    """Return the part of a shape that decides which hosts are open to it."""
    return shape.constraint, shape.resources.gpu > 0


class HostChecks:
    """Checks of all hosts by the index; results that do not depend on free resources are cached."""

    def __init__(self, index: HostIndex, scarce_gpu: bool = False) -> None:
        self._index = index
        self._scarce_gpu = scarce_gpu
        self._generation = -1
        self._open: dict[tuple[Constraint | None, bool], Flags] = {}

    def open_to(self, shape: Shape) -> Flags:
        """Return the hosts that would accept such a member if they had enough free, tasks
        disregarded."""
        index = self._index
        if self._generation != index.generation:
            self._open.clear()
            self._generation = index.generation
        name = open_key(shape)
        known = self._open.get(name)
        if known is None:
            known = index.up & ~index.quarantines.left_out
            known = known & ~self._scarce(shape) & ~self._closed(shape)
            if shape.constraint is not None:
                known &= possible(shape.constraint, index)
            if len(self._open) >= OPEN_SETS_MAX:
                del self._open[next(iter(self._open))]
            self._open[name] = known
        return known

    def taking(self, shape: Shape) -> tuple[Flags, Ints | None]:
        """Return the hosts that would accept such a member if they had enough free besides ports,
        and the most members that each may take, by row, where other tasks decide.

        Do not write to the arrays.
        """
        mask, limits = self.open_to(shape), None
        if shape.ports:
            mask = mask & (self._index.free[PORTS] >= shape.ports)
        if shape_depends_on_tasks(shape):
            limits = allowance(shape, self._index)
            mask = mask & (limits > 0)
        return mask, limits

    def fit(self, need: Need, excluded: list[int]) -> Fitting:
        """Return the hosts that would accept one member now, without `excluded`."""
        taking, limits = self.taking(need.shape)
        mask, free, least = taking.copy(), self._index.free, need.least
        for kind in range(PORTS):
            mask &= free[kind] >= least[kind]
        if need.nothing:
            mask &= ~self._no_offer()
        if excluded:
            mask[excluded] = False
        return Fitting(np.flatnonzero(mask), limits)

    def room(self, need: Need, rows: Ints) -> int:
        """Return the most members that these rows may take, however many others there are."""
        most = fits(need, self._index.free[:, rows])
        if shape_depends_on_tasks(need.shape):
            np.minimum(most, allowance(need.shape, self._index, rows=rows), out=most)
        return int(most.sum())

    def failed(self, need: Need, excluded: list[int], *, used: list[int]) -> dict[str, Flags]:
        """Return hosts by the first check that each fails, in the order of `CHECK_REASONS`.

        `excluded` have just refused, `used` are at their limit. Reasons without hosts are left out.
        """
        found = {reason: np.zeros(self._index.size, np.bool_) for reason in CHECK_REASONS}
        left = self._index.has_host.copy()
        for reason, fails in self._failing(need, excluded, used=used):
            found[reason] |= left & fails
            left &= ~fails
        return {reason: hosts for reason, hosts in found.items() if hosts.any()}

    def fit_if_empty(self, need: Need) -> Flags:
        """Return the hosts, up or not, that would accept such a member if they were empty.

        Conditions on tasks are disregarded: tasks end, and then the host may fit.
        """
        index = self._index
        found: Flags = index.has_host & ~self._scarce(need.shape) & ~self._closed(need.shape)
        if need.shape.constraint is not None:
            found &= possible(need.shape.constraint, index)
        least = np.array(need.lasting)[:, None]
        found &= np.all(index.capacity >= least, axis=0)
        return found

    def _failing(
        self, need: Need, excluded: list[int], *, used: list[int]
    ) -> Iterator[tuple[str, Flags]]:
        index, free = self._index, self._index.free
        refused = ~index.up
        refused[excluded] = True
        yield MISMATCH_STATUS, refused
        yield QUARANTINED, index.quarantines.left_out
        yield NO_OFFER, self._no_offer()
        yield INSUFFICIENT, np.any(free[:PORTS] < np.array(need.least[:PORTS])[:, None], axis=0)
        yield SCARCE, self._scarce(need.shape)
        yield INSUFFICIENT, free[PORTS] < need.amounts[PORTS]
        yield MISMATCH_CONSTRAINTS, self._closed(need.shape)
        truth = truths(need.shape.constraint, index)
        unknown: Flags = truth == UNKNOWN
        yield UNKNOWN_TASKS, unknown if need.shape.apart is None else unknown | ~index.knows_tasks
        yield MISMATCH_CONSTRAINTS, truth < MATCH
        for port in need.shape.fixed_ports:
            yield PORT_TAKEN, index.task_counts(port_label(port)) > 0
        taken = np.zeros(index.size, np.bool_)
        taken[used] = True
        yield HOST_LIMIT, taken

    def _no_offer(self) -> Flags:
        empty: Flags = self._index.free[:PORTS].max(axis=0, initial=0) <= 0
        return empty

    def rejects_gpu(self, shape: Shape) -> bool:
        """Return whether hosts with GPUs refuse members of this shape."""
        return self._scarce_gpu and shape.resources.gpu <= 0

    def _scarce(self, shape: Shape) -> Flags:
        if self.rejects_gpu(shape):
            return self._index.has_gpu
        return np.zeros(self._index.size, np.bool_)

    def _closed(self, shape: Shape) -> Flags:
        closed: Flags = np.zeros(self._index.size, np.bool_)
        if not opens_exclusive(shape.constraint):
            closed |= self._index.exclusive
        if not opens_pools(shape.constraint):
            closed |= self._index.pooled
        return closed
