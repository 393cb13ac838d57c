"""What went on at agents when they left, by name, in case that they come back.

The master tells what has changed of a task, and nothing of one that has run all the time: an agent
that was away for less than the master gives it has its tasks still, though its host may have given
them up. Must not know how they are.
"""

from __future__ import annotations

NAMES_MAX = 50_000
"""So many are kept; of more those of the agents that left first are dropped, and are found when all
tasks are asked for."""


class FormerRuns:
    """Names of runs, by the id of their agent."""

    def __init__(self) -> None:
        self._names: dict[str, list[str]] = {}
        self._count = 0

    @property
    def agents(self) -> list[str]:
        """Agents of which some are kept, those that left first at first."""
        return [*self._names]

    def keep(self, agent_id: str, run: str) -> None:
        """This one goes on there, as far as we know."""
        while self._count >= NAMES_MAX:
            self.take(next(iter(self._names)))
        self._names.setdefault(agent_id, []).append(run)
        self._count += 1

    def take(self, agent_id: str) -> list[str]:
        """Those of an agent, which are not kept any more."""
        taken = self._names.pop(agent_id, [])
        self._count -= len(taken)
        return taken
