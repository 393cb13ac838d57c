"""What the agents of a simulated master have, what of it is taken, and what is offered.

In thousandths, as Mesos counts. Must not know what tasks are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.backends.mesos.simulated.times import Times
from tests.backends.mesos.words import Json, scalar

Amounts = Counter[str]
HAS = {"cpus": 4000, "mem": 2_048_000, "disk": 100_000}
"""Of each agent."""


def amounts_of(entries: Iterable[Json]) -> Amounts:
    """The sum of scalars."""
    found: Amounts = Counter()
    for entry in entries:
        found[entry["name"]] += round(entry["scalar"]["value"] * 1000)
    return found


def fits(need: Amounts, into: Amounts) -> bool:
    """Whether there is so much."""
    return all(some <= into[name] for name, some in need.items())


class Offer(NamedTuple):
    """One that is out. Of one agent."""

    name: str
    agent: str
    amounts: Amounts
    since: float


@dataclass(eq=False)
class Offers:
    """Those that are out; `refused`: until when agents are not offered again."""

    times: Times
    out: dict[str, Offer] = field(default_factory=dict)
    refused: dict[str, float] = field(default_factory=dict)
    count: int = 0

    def make(self, agent: str, used: Amounts) -> Offer | None:
        """All that is free of an agent, unless that is nothing, or was declined just now."""
        if self.refused.get(agent, 0.0) > self.times.now:
            return None
        free: Amounts = Counter(HAS)
        free.subtract(used)
        for offer in self.out.values():
            if offer.agent == agent:
                free.subtract(offer.amounts)
        if free["cpus"] < 10 or free["mem"] < 32_000:
            return None
        self.count += 1
        offer = Offer(f"O{self.count}", agent, free, self.times.now)
        self.out[offer.name] = offer
        return offer

    def take(self, name: str) -> Offer | None:
        """It is answered, or void."""
        return self.out.pop(name, None)

    def of(self, agent: str) -> list[str]:
        return [name for name, offer in self.out.items() if offer.agent == agent]

    def decline(self, agent: str, refuse_s: float) -> None:
        """It is not offered again for so long."""
        self.refused[agent] = max(self.refused.get(agent, 0.0), self.times.now + refuse_s)


def offer_json(offer: Offer) -> Json:
    """As the framework is told."""
    entries = [scalar(name, some / 1000) for name, some in offer.amounts.items() if some > 0]
    return {
        "id": {"value": offer.name},
        "agent_id": {"value": offer.agent},
        "resources": entries,
    }
