"""A storm over a world: a scenario's lasting faults turned on, its actions done at their times.

Turns a scenario into calls of the world, and counts what struck. There are two forms of faults: a
*lasting* one is on from the beginning to the calm, with a strength; a *momentary* one happens at
the times in the scenario. `shocks.py` has the faults of any world; other modules add rows of the
same form. What the scenario contains is not drawn again, so that parts of a scenario can be
removed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from peloton.runtime.simulation.daemon import PortCall, SimulatedDaemon
from peloton.runtime.simulation.scenario import StormAction, StormScenario
from peloton.runtime.simulation.world import World


class LastingFault(NamedTuple):
    """A fault that is on during the storm."""

    number: str  # as the fault model numbers it
    name: str
    what: str
    begin: Callable[[Storm, float], None]
    count: Callable[[Storm], int]


class MomentaryFault(NamedTuple):
    """A fault that happens at a moment, and is counted by `storm.strike`."""

    number: str
    name: str
    what: str
    do: Callable[[Storm, StormAction], None]
    times_max: int = 3
    for_s: tuple[float, float] = (1.0, 20.0)
    count_max: int = 1


Fault = LastingFault | MomentaryFault
STRENGTHS = (0.2, 0.5, 1.0)


class Deadly(NamedTuple):
    """The calls of ports at which a process may die."""

    name: str
    fits: Callable[[PortCall], bool]
    share: float


class Storm:
    """A scenario played over a world. `about` is what some faults need beside the world."""

    def __init__(
        self,
        world: World,
        scenario: StormScenario,
        *,
        faults: Mapping[str, Fault],
        about: Any = None,
    ) -> None:
        self.world = world
        self.scenario = scenario
        self.faults = faults
        self.about = about
        self.chance = random.Random(f"{scenario.seed} storm")
        self.struck: Counter[str] = Counter()
        self.log: list[tuple[float, str]] = []
        """What struck at which time, for people."""
        self.broken: list[str] = []
        """Answers that must never be given."""
        self.deadly: list[Deadly] = []
        self.actions: dict[str, Callable[[Storm, StormAction], None]] = {
            fault.name: fault.do for fault in faults.values() if isinstance(fault, MomentaryFault)
        }
        self.raging = False
        self.added = 0

    def begin(self) -> None:
        """Turn on the lasting faults, and schedule all actions."""
        self.raging = True
        for name, strength in sorted(self.scenario.faults.items()):
            fault = self.faults[name]
            assert isinstance(fault, LastingFault), f"{name} does not last"
            fault.begin(self, strength)
        if self.deadly:
            self.world.on_call = self._dies
        for action in self.scenario.actions:
            self.later(action.at_s, partial(self.actions[action.name], self, action))

    def calm(self) -> None:
        """End all faults."""
        self.raging = False
        for fault in self.faults.values():
            if isinstance(fault, LastingFault) and fault.name in self.scenario.faults:
                self.struck[fault.name] += fault.count(self)
        self.world.calm()

    # ---- for faults ----

    def strike(self, name: str, text: str = "") -> None:
        """Count and log a fault that struck."""
        self.struck[name] += 1
        self.log.append((self.world.elapsed_s, f"{name} {text}".strip()))

    def later(self, after_s: float, do: Callable[[], object]) -> None:
        """Do it after so long, unless the storm is over by then: `calm` has undone all faults."""

        def then() -> None:
            if self.raging:
                do()

        self.world.later.at(self.world.now + after_s, then)

    def daemon(self, number: int) -> SimulatedDaemon | None:
        """Return a live daemon; None if there is none."""
        living = [each for each in self.world.daemons.values() if each.alive]
        return living[number % len(living)] if living else None

    def pair(self, action: StormAction) -> tuple[SimulatedDaemon, SimulatedDaemon] | None:
        """Return two live daemons; None if there are fewer."""
        living = [each for each in self.world.daemons.values() if each.alive]
        if len(living) < 2:
            return None
        one = action.which % len(living)
        other = (one + 1 + action.other % (len(living) - 1)) % len(living)
        return living[one], living[other]

    def _dies(self, call: PortCall) -> bool:
        for deadly in self.deadly:
            if deadly.fits(call) and self.chance.random() < deadly.share:
                self.strike(deadly.name, f"{call.daemon} {call.moment.value} {call.name}")
                return True
        return False


def drawn_faults(
    chance: random.Random, faults: Iterable[Fault], *, storm_s: float
) -> tuple[dict[str, float], list[StormAction]]:
    """Return the strengths of lasting faults, and the times of the momentary ones."""
    strengths: dict[str, float] = {}
    actions: list[StormAction] = []
    for fault in faults:
        if isinstance(fault, LastingFault):
            strengths[fault.name] = chance.choice(STRENGTHS)
        else:
            actions += drawn_moments(chance, fault, storm_s=storm_s)
    return strengths, actions


def drawn_moments(
    chance: random.Random, fault: MomentaryFault, *, storm_s: float
) -> list[StormAction]:
    """Return some times for a momentary fault."""
    return [
        StormAction(
            at_s=round(chance.uniform(0.0, storm_s), 3),
            name=fault.name,
            which=chance.randrange(1000),
            other=chance.randrange(1000),
            count=chance.randint(1, fault.count_max),
            for_s=round(chance.uniform(*fault.for_s), 3),
        )
        for _ in range(chance.randint(1, fault.times_max))
    ]
