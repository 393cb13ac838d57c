"""That hosts have appeared is said until each gives an order: its shard may be on its way.

Must not know why an agent is new, nor what its host does then.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from peloton.backends.mesos.agents import Agent
from peloton.backends.mesos.due_times import DueTimes

APPEAR_AGAIN_S = 2.0
"""Between two reports of a host that has not answered."""


class Announcements:
    """Those that are under way. `tell` says it once; `wanted` says whether an agent is still here,
    and `silent` whether nothing may be said for now."""

    def __init__(
        self,
        times: DueTimes,
        tell: Callable[[Agent], object],
        *,
        wanted: Callable[[Agent], bool],
        silent: Callable[[], bool],
    ) -> None:
        self._times, self._tell = times, tell
        self._wanted, self._silent = wanted, silent

    def begin(self, agent: Agent, now: float) -> None:
        """It is new, or has changed."""
        agent.confirmed = False
        self._tell(agent)
        self._later(agent, now)

    def _later(self, agent: Agent, now: float) -> None:
        agent.appear_at = now + APPEAR_AGAIN_S
        self._times.at(agent.appear_at, partial(self._again, agent))

    def _again(self, agent: Agent, now: float) -> None:
        if agent.confirmed or not self._wanted(agent) or now < agent.appear_at:
            return
        if self._silent():
            self._later(agent, now)
        else:
            self.begin(agent, now)
