"""What the agents of a Mesos master have, what of it is taken, and what is offered.

In thousandths, as Mesos counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.backends.mesos.words import Json
from tests.servers.mesos_model.times import Times

Amounts = Counter[str]


def counted(amounts: Mapping[str, float]) -> Amounts:
    """The same in thousandths."""
    return Counter({name: round(some * 1000) for name, some in amounts.items()})


def amounts_of(entries: Iterable[Json]) -> Amounts:
    """The sum of scalars."""
    found: Amounts = Counter()
    for entry in entries:
        if entry["type"] == "SCALAR":
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
    """Those that are out, of agents that have `has` each; `refused`: until when agents are not
    offered again."""

    times: Times
    has: Amounts
    refused: dict[str, float] = field(default_factory=dict)
    count: int = 0
    _out: dict[str, dict[str, Offer]] = field(default_factory=dict)
    """By agent, and by name."""
    _agents: dict[str, str] = field(default_factory=dict)

    @property
    def out(self) -> list[Offer]:
        return [offer for some in self._out.values() for offer in some.values()]

    def make(self, agent: str, used: Amounts) -> Offer | None:
        """All that is free of an agent, unless that is nothing, or was declined just now."""
        if self.refused.get(agent, 0.0) > self.times.now:
            return None
        free: Amounts = Counter(self.has)
        free.subtract(used)
        out = self._out.setdefault(agent, {})
        for offer in out.values():
            free.subtract(offer.amounts)
        if free["cpus"] < 10 or free["mem"] < 32_000:
            return None
        self.count += 1
        offer = Offer(f"O{self.count}", agent, free, self.times.now)
        out[offer.name], self._agents[offer.name] = offer, agent
        return offer

    def take(self, name: str) -> Offer | None:
        """It is answered, or void."""
        agent = self._agents.pop(name, None)
        return None if agent is None else self._out[agent].pop(name)

    def agent_of(self, name: str) -> str:
        """Whose it is; empty where it is void."""
        return self._agents.get(name, "")

    def of(self, agent: str) -> list[str]:
        return [*self._out.get(agent, ())]

    def decline(self, agent: str, refuse_s: float) -> None:
        """It is not offered again for so long."""
        self.refused[agent] = max(self.refused.get(agent, 0.0), self.times.now + refuse_s)

    def clear(self) -> None:
        """All are void, and nothing is refused."""
        self._out.clear()
        self._agents.clear()
        self.refused.clear()
