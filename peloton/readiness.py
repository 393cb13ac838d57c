"""Whether all hosts of a config are up, asked of the cluster as a client could ask.

Turns the hosts that a process begins with into "all are up, and the root pool has heard of them",
which is what `ready` promises: a pool or a job that fits the machines is not refused for want of
them. It must not change anything.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import Future
from typing import Any

from peloton.actors.host.inventory.messages import HostView, ListHosts
from peloton.actors.host.state import HostStates
from peloton.actors.resources import Resources
from peloton.actors.respool.messages import ROOT, GetPool
from peloton.runtime.shells.region import Region
from peloton.runtime.vocabulary import Key

ANSWER_S_MAX = 60.0


class Readiness:
    """Asks the inventories and the root pool; each question waits for its answer."""

    def __init__(self, region: Region, inventories: Sequence[Key]) -> None:
        self._region = region
        self._inventories = inventories

    def hosts(self) -> list[HostView]:
        """All that any inventory knows; without those of one that does not answer."""
        asks = [self._region.ask(inventory, ListHosts()) for inventory in self._inventories]
        found: list[HostView] = []
        for ask in asks:
            views = _answer(ask)
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
        pools = _answer(self._region.ask(ROOT, GetPool()))
        if not isinstance(pools, tuple) or not pools:
            return False
        counted = pools[0].config.limit
        return bool(counted == total if alone else total.within(counted))

    def down(self) -> list[str]:
        """Who is not up, and why."""
        return [
            f"{view.summary.host} is {view.state.name}: {view.because or 'not heard of yet'}"
            for view in self.hosts()
            if view.state != HostStates.UP
        ]


def _answer(ask: Future[Any]) -> Any:
    return ask.result(timeout=ANSWER_S_MAX)
