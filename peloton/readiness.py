"""Whether all hosts of a config are up, asked of the cluster as a client could ask.

Turns the hosts that a process begins with into "all are up, and the root pool has heard of them",
which is what `ready` promises: a pool or a job that fits the machines is not refused for want of
them. It must not change anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, wait
from typing import Any

from peloton.actors.host.inventory.messages import HostView, ListHosts
from peloton.actors.host.state import HostStates
from peloton.actors.resources import Resources
from peloton.actors.respool.messages import ROOT, GetPool
from peloton.runtime.shells.region import Region
from peloton.runtime.vocabulary import Key

LOOK_S = 0.5
ANSWER_S_MAX = 60.0
"""Who does not answer within so long is left out, and asked again by whoever needs him."""


class Readiness:
    """Asks the inventories and the root pool; each question waits for its answer."""

    def __init__(
        self,
        region: Region,
        inventories: Sequence[Key],
        *,
        over: Callable[[], bool] = lambda: False,
    ) -> None:
        """`over` says that nobody will answer any more."""
        self._region = region
        self._inventories = inventories
        self._over = over

    def hosts(self) -> list[HostView]:
        """All that any inventory knows; without those of one that does not answer."""
        asks = [self._region.ask(inventory, ListHosts()) for inventory in self._inventories]
        found: list[HostView] = []
        self._wait(asks)
        for ask in asks:
            views = ask.result() if ask.done() else None
            if isinstance(views, tuple):
                found += views
        return found

    def all_up(self, wanted: Collection[Key], *, alone: bool) -> bool:
        """All wanted hosts are up, and the root pool counts all that are.

        `alone`: there are no other hosts, so it counts nothing else. In a fleet it may: a host out
        of reach keeps its room for a while, and nobody here should wait for that.
        """
        up = [view for view in self.hosts() if view.state == HostStates.UP]
        if not {view.summary.host for view in up}.issuperset(wanted):
            return False
        total = Resources()
        for view in up:
            total = total + view.summary.capacity
        asked = self._region.ask(ROOT, GetPool())
        self._wait([asked])
        pools = asked.result() if asked.done() else None
        if not isinstance(pools, tuple) or not pools:
            return False
        counted = pools[0].config.limit
        return bool(counted == total if alone else total.within(counted))

    def _wait(self, asks: Sequence[Future[Any]]) -> None:
        """Until all are answered, or none will be in time."""
        until_s = time.monotonic() + ANSWER_S_MAX
        while not self._over() and time.monotonic() < until_s:
            if not wait(asks, LOOK_S).not_done:
                return

    def down(self, wanted: Collection[Key] | None = None) -> list[str]:
        """Who is not up, and why; of these hosts only, if any are named."""
        return [
            f"{view.summary.host} is {view.state.name}: {view.because or 'not heard of yet'}"
            for view in self.hosts()
            if view.state != HostStates.UP and (wanted is None or view.summary.host in wanted)
        ]
