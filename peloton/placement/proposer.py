"""Finds hosts for members of one shape, counted as taken from then on.

A few members are looked up; for many, a scan of all hosts is ranked by the strategy of the shape. A
strategy that fails is given up.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from peloton.placement.index import Fitting, HostIndex
from peloton.placement.lookups import Lookups
from peloton.placement.proposals import NOTHING, Proposed
from peloton.placement.reasons import HostChecks
from peloton.placement.shapes import KnownShape, KnownShapes
from peloton.placement.sorted_rows import few_max
from peloton.placement.strategies import StrategyFailed, choose


class HostProposals:
    """The proposals of one placer."""

    def __init__(
        self, index: HostIndex, checks: HostChecks, *, lookups: Lookups, shapes: KnownShapes
    ) -> None:
        self._index, self._checks = index, checks
        self._lookups, self._shapes = lookups, shapes

    def propose(
        self, known: KnownShape, excluded: list[int], *, count: int, now: float
    ) -> Proposed:
        """Return rows for up to `count` members, and a host for each member that has one."""
        index, need, strategy, names = self._index, known.need, known.strategy, self._index.names
        assert strategy is not None
        if not count:
            return NOTHING
        apart = need.shape.apart is not None
        if known.search is not None and count <= few_max(index.size):
            few = self._lookups.find(known, excluded, count=count)
            if few is not None:
                some, members = [row for row, _ in few], [taken for _, taken in few]
                index.propose_few(need, some, counts=members, now=now)
                hosts = [names[row] for row, taken in few for _ in range(taken)]
                return Proposed(some, hosts, [0] * len(hosts) if apart else [])
        if apart:
            return self._apart(known, excluded, count=count, now=now)
        fitting = self._checks.fit(need, excluded)
        if not len(fitting.rows):
            return NOTHING
        try:
            rows, counts = choose(index, need, fitting=fitting, strategy=strategy, count=count)
        except StrategyFailed as error:
            self._shapes.give_up(strategy, str(error))
            return NOTHING
        index.propose(need, rows, counts=counts, now=now)
        hosts = [names[row] for row in np.repeat(rows, counts).tolist()]
        return Proposed(rows.tolist(), hosts, [])

    def _apart(self, known: KnownShape, excluded: list[int], *, count: int, now: float) -> Proposed:
        """Propose one member on each host, those hosts first that have the fewest members
        already."""
        index, need = self._index, known.need
        assert known.strategy is not None and need.shape.apart is not None
        strategy = replace(known.strategy, each_max=1)
        found = Proposed([], [], [])
        while len(found.hosts) < count:
            fitting = self._checks.fit(need, excluded)
            if not len(fitting.rows):
                break
            here = index.task_counts(need.shape.apart)[fitting.rows]
            fewest = int(here.min())
            level = Fitting(fitting.rows[here == fewest], fitting.limits)
            left = count - len(found.hosts)
            try:
                rows, counts = choose(index, need, fitting=level, strategy=strategy, count=left)
            except StrategyFailed as error:
                self._shapes.give_up(known.strategy, str(error))
                break
            assert len(rows), "a host that fits takes one"
            index.propose(need, rows, counts=counts, now=now)
            found.rows.extend(rows.tolist())
            found.hosts.extend(index.names[row] for row in rows.tolist())
            found.shares.extend([fewest] * len(rows))
        return found
