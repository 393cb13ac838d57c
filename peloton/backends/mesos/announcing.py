"""Announcements of hosts, repeated until the host has given an order."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from peloton.backends.due_times import DueTimes
from peloton.backends.mesos.agents import Agent

APPEAR_AGAIN_S = 2.0
"""Between two reports of a host that has not answered."""


class Announcements:
    """The announcements of one cluster.

    `tell` announces once. `away` returns why the master is away, or nothing.
    """

    def __init__(
        self,
        times: DueTimes,
        *,
        tell: Callable[[Agent], None],
        is_here: Callable[[Agent], bool],
        away: Callable[[], str],
    ) -> None:
        self._times, self._tell = times, tell
        self._is_here, self._away = is_here, away

    def announce(self, agent: Agent, now: float) -> None:
        """Announce an agent that is new, or has changed."""
        agent.confirmed = False
        self._tell(agent)
        self._later(agent, now)

    def _later(self, agent: Agent, now: float) -> None:
        agent.appear_at = now + APPEAR_AGAIN_S
        self._times.at(agent.appear_at, partial(self._again, agent))

    def _again(self, agent: Agent, now: float) -> None:
        if agent.confirmed or not self._is_here(agent) or now < agent.appear_at:
            return
        if self._away():
            self._later(agent, now)
        else:
            self.announce(agent, now)
