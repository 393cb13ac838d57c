"""The offers that are held, by agent, and since when.

An offer is kept a moment, as the next run may want it, and then declined: nobody else gets an offer
that is held.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

HOLD_S = 1.0
"""How long an offer is held that no run waits for."""


class OfferBook:
    """Offers by agent id."""

    def __init__(self) -> None:
        self._offers: dict[str, dict[str, Mapping[str, Any]]] = {}
        self._since: dict[str, float] = {}  # by offer, in the order in which they came
        self._agents: dict[str, str] = {}  # by offer

    def add(self, offer: Mapping[str, Any], now: float) -> None:
        """Add an offer of the master."""
        name, agent = offer["id"]["value"], offer["agent_id"]["value"]
        self.rescinded(name)  # a repeat
        self._offers.setdefault(agent, {})[name] = offer
        self._since[name] = now
        self._agents[name] = agent

    def rescinded(self, name: str) -> None:
        """Remove an offer that the master has taken back; launches on it meanwhile are refused."""
        agent = self._agents.pop(name, None)
        if agent is not None:
            del self._offers[agent][name]
            del self._since[name]
            if not self._offers[agent]:
                del self._offers[agent]

    def of(self, agent: str) -> list[Mapping[str, Any]]:
        return [*self._offers.get(agent, {}).values()]

    def use(self, agent: str) -> list[str]:
        """Remove all offers of an agent, which are answered now; return their names."""
        names = [*self._offers.get(agent, {})]
        for name in names:
            self.rescinded(name)
        return names

    def clear(self) -> None:
        """Remove all: offers made before a subscription are void."""
        self._offers, self._since, self._agents = {}, {}, {}

    @property
    def wake_at(self) -> float | None:
        """When the oldest offer is to be declined."""
        oldest = next(iter(self._since.values()), None)
        return None if oldest is None else oldest + HOLD_S

    def due(self, now: float) -> Iterator[str]:
        """Remove and yield the offers held for too long."""
        while (wake_at := self.wake_at) is not None and wake_at <= now:
            name = next(iter(self._since))
            self.rescinded(name)
            yield name
