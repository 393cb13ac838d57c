"""Updates of agents that we do not know yet: a list of agents is on its way, or not asked for.

An agent sends an update again only after ten seconds or more, and meanwhile the master says less of
the same end. Must not say what an update means.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KEPT_MAX = 10_000
"""Tasks of which an update is kept; of more, they come again."""


class EarlyUpdates:
    """The last update of each task, by its agent. One without an id is asked for anew anyway."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, Mapping[str, Any]]] = {}
        self._count = 0

    def keep(self, agent_id: str, status: Mapping[str, Any]) -> None:
        """Keep this one until its agent is known."""
        if not status.get("uuid") or self._count >= KEPT_MAX:
            return
        kept = self._kept.setdefault(agent_id, {})
        name = status["task_id"]["value"]
        self._count += name not in kept
        kept[name] = status

    def take(self, agent_id: str) -> list[Mapping[str, Any]]:
        """Those of an agent, in order; they are not kept any more."""
        taken = [*self._kept.pop(agent_id, {}).values()]
        self._count -= len(taken)
        return taken

    def clear(self) -> None:
        """The connection is lost: all come again."""
        self._kept.clear()
        self._count = 0
