"""Updates of agents that we do not know yet: a list of agents is on its way, or not asked for.

An agent sends an update again only after ten seconds or more, and meanwhile the master's own update
of the same end has less in it. Updates of the master itself, as for the tasks of an agent that is
back, come once: a task that has been begun anew elsewhere would go on unseen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

KEPT_MAX = 10_000
"""Tasks of which an update is kept; of more the oldest are missed, and all are to be asked for: an
agent that never comes must not take the room of those that do."""


class EarlyUpdates:
    """The last update of each task, by agent; the master's own only if none has an id."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, Mapping[str, Any]]] = {}
        self._count = 0
        self._missed = False

    def keep(self, agent_id: str, status: Mapping[str, Any]) -> None:
        """Keep this update until its agent is known."""
        name = status["task_id"]["value"]
        before = self._kept.get(agent_id, {}).get(name)
        if before is None and self._count >= KEPT_MAX:
            self._drop_oldest()
        if before is None or status.get("uuid") or not before.get("uuid"):
            self._count += before is None
            self._kept.setdefault(agent_id, {})[name] = status

    def _drop_oldest(self) -> None:
        agent_id, kept = next(iter(self._kept.items()))
        del kept[next(iter(kept))]
        if not kept:
            del self._kept[agent_id]
        self._count -= 1
        self._missed = True

    def take_known(self, knows: Callable[[str], Any]) -> list[Mapping[str, Any]]:
        """Remove and return the updates of all agents that are known by now."""
        known = [agent_id for agent_id in self._kept if knows(agent_id) is not None]
        return [status for agent_id in known for status in self.take(agent_id)]

    def take(self, agent_id: str) -> list[Mapping[str, Any]]:
        """Remove and return the updates of an agent, in order."""
        taken = [*self._kept.pop(agent_id, {}).values()]
        self._count -= len(taken)
        return taken

    def take_missed(self) -> bool:
        """Return whether some updates could not be kept since the last call."""
        missed, self._missed = self._missed, False
        return missed

    def clear(self) -> None:
        """Forget all: the connection is lost, and all come again."""
        self._kept.clear()
        self._count = 0
        self._missed = False
