"""The switch that lets the shards of this daemon pursue goals or rest.

Its methods may be called from any thread, and wait for nobody: a shard obeys before the mail that
comes after. `core/turning/pursuits.py` says what a rest means.
"""

from __future__ import annotations

from peloton.runtime.core.shard import Shard
from peloton.runtime.shells.routing import RoutingTable
from peloton.runtime.shells.shell_messages import GoalsRest, send


class Goals:
    """The goals of one daemon's shards; pursued, unless somebody says otherwise."""

    def __init__(self, routes: RoutingTable) -> None:
        self._routes = routes
        self._now = GoalsRest(False)

    def rest(self) -> None:
        """Stop pursuing goals here."""
        self._tell(GoalsRest(True))

    def go_on(self) -> None:
        self._tell(GoalsRest(False))

    def obeyed_by(self, core: Shard) -> None:
        """Apply the switch to a shard that opens; its last owner may have left turns out."""
        core.rest(self._now.resting)

    def _tell(self, order: GoalsRest) -> None:
        if order == self._now:
            return  # each shard has heard it, and everybody in it would pursue its goal once more
        self._now = order  # first: who opens meanwhile reads it, or is told
        for ref in [*self._routes.shards.values()]:
            send(ref, order)
