"""Checks whether all hosts of a config are up, with queries that any client could send.

`ready` promises that all hosts of the process are up and that the root pool counts them: a pool or
a job that fits them is not refused for missing capacity.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, wait
from typing import Any

from peloton.actors.host.inventory.messages import HostView, ListHosts
from peloton.actors.host.stages import HostStates, Maintenance
from peloton.actors.resources import Resources
from peloton.actors.respool.messages import ROOT, GetPool
from peloton.runtime.shells.region import Region
from peloton.runtime.vocabulary import Key

POLL_S = 0.5
ANSWER_S_MAX = 60.0
"""An inventory that does not answer within this time is left out."""


class Readiness:
    """Queries the inventories and the root pool; each method waits for the answers."""

    def __init__(
        self,
        region: Region,
        inventories: Sequence[Key],
        *,
        over: Callable[[], bool] = lambda: False,
    ) -> None:
        """Set up. `over`: returns whether the process is stopping, so that no answer will come."""
        self._region = region
        self._inventories = inventories
        self._over = over

    def hosts(self) -> list[HostView]:
        """Return the hosts of all inventories that answer."""
        answers = [self._region.ask(inventory, ListHosts()) for inventory in self._inventories]
        found: list[HostView] = []
        self._wait(answers)
        for answer in answers:
            views = answer.result() if answer.done() else None
            if isinstance(views, tuple):
                found += views
        return found

    def all_up(self, wanted: Collection[Key], *, alone: bool) -> bool:
        """Return whether all wanted hosts are up, and the root pool counts all that are.

        Hosts in maintenance are excepted: the root counts them once that is completed. `alone`:
        there are no other hosts, so the root must count exactly these. In a fleet it may count
        more: an unreachable host keeps its capacity for a while.
        """
        up = [view for view in self.hosts() if view.state == HostStates.UP]
        if not {view.summary.host for view in up}.issuperset(wanted):
            return False
        total = Resources()
        for view in up:
            if view.maintenance == Maintenance.NONE:
                total = total + view.summary.capacity
        answer = self._region.ask(ROOT, GetPool())
        self._wait([answer])
        pools = answer.result() if answer.done() else None
        if not isinstance(pools, tuple) or not pools:
            return False
        counted = pools[0].config.limit
        return bool(counted == total if alone else total.within(counted))

    def _wait(self, answers: Sequence[Future[Any]]) -> None:
        """Wait until all are answered or the time is over."""
        until_s = time.monotonic() + ANSWER_S_MAX
        while not self._over() and time.monotonic() < until_s:
            if not wait(answers, POLL_S).not_done:
                return

    def down(self, wanted: Collection[Key] | None = None) -> list[str]:
        """Return the hosts that are not up, with the reason; only the wanted ones, if given."""
        return [
            f"{view.summary.host} is {view.state.name}: {view.because or 'no report yet'}"
            for view in self.hosts()
            if view.state != HostStates.UP and (wanted is None or view.summary.host in wanted)
        ]
