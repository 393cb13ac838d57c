"""What went on at agents when they left, by name, until an agent of their host is there.

The master tells what has changed of a task, and nothing of one that has run all the time: an agent
that was away for less than the master gives it has its tasks still, though its host may have given
them up. And what may run at an agent that is away must not begin anew at another one of its host,
as long as nobody knows. Must not know how they are.
"""

from __future__ import annotations

from peloton.runtime.vocabulary import Key

NAMES_MAX = 50_000
"""So many are kept; of more those of the hosts that left first are dropped, and are found when all
tasks are asked for."""


class FormerRuns:
    """Runs by their host: where each was."""

    def __init__(self) -> None:
        self._agents: dict[Key, dict[str, str]] = {}
        self._count = 0

    @property
    def hosts(self) -> list[Key]:
        """Hosts of which some are kept, those that left first at first."""
        return [*self._agents]

    def keep(self, host: Key, run: str, *, agent_id: str) -> None:
        """This one goes on there, as far as we know."""
        if run not in self._agents.get(host, {}):
            if self._count >= NAMES_MAX:
                self.take(next(iter(self._agents)))
            self._count += 1
        self._agents.setdefault(host, {})[run] = agent_id

    def take(self, host: Key) -> dict[str, str]:
        """Those of a host, with their agents; they are not kept any more."""
        taken = self._agents.pop(host, {})
        self._count -= len(taken)
        return taken
