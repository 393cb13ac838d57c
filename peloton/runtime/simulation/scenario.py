"""The scenario of one storm as data: the size of the fleet, its faults, and the actions with times.

Turns a scenario into JSON and back, so that a failing storm is a file that can be replayed alone.
All that a storm draws while it runs comes from the scenario's seed. A target is a number, taken
modulo the targets there are at that moment, so that a scenario stays meaningful after parts of it
were removed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace


class StormAction(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """An action of a client, an operator or the machine room, `at_s` after the begin."""

    at_s: float
    name: str
    which: int = 0
    other: int = 0
    count: int = 0
    for_s: float = 0.0


class StormScenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A storm. `faults` are the lasting ones, by name, with a strength from 0 to 1.

    `limits` are those made tiny, by name; all others are as in production. Ephemeral services are
    registered up to `furnish_s_max` after their daemon has begun: its session may come first.
    """

    seed: int
    daemons: int = 3
    sizes: dict[str, int] = {}
    checkpoint_bytes_min: int = 1_000_000
    limits: dict[str, int | float] = {}
    furnish_s_max: float = 0.0
    faults: dict[str, float] = {}
    actions: tuple[StormAction, ...] = ()
    storm_s: float = 30.0


P = TypeVar("P", bound=StormScenario)


def changed(scenario: P, **fields: Any) -> P:
    """Return the same scenario with these fields replaced."""
    return replace(scenario, **fields)


def save(scenario: StormScenario, path: Path) -> None:
    """Save as JSON that a person can read."""
    path.write_bytes(
        msgspec.json.format(msgspec.json.encode(scenario, order="deterministic")) + b"\n"
    )


BAD_SCENARIO = (msgspec.MsgspecError, UnicodeDecodeError)
"""What `load_scenario` raises where a file holds no scenario."""


def load_scenario(cls: type[P], path: Path) -> P:
    """What `save` wrote. Raises one of `BAD_SCENARIO`.

    Unknown names are refused: otherwise a misspelled fault would silently be no fault at all.
    """
    return msgspec.json.decode(path.read_bytes(), type=cls)


def some_of(chance: random.Random, names: Sequence[str]) -> Iterator[str]:
    """Yield some of these names: a third of all storms has one or two, one in ten has all.

    All faults in every storm would hide bugs that show only while a single fault acts.
    """
    how = chance.random()
    if how < 0.1:
        yield from names
    elif how < 0.45:
        yield from chance.sample(names, k=min(len(names), chance.randint(1, 2)))
    else:
        share = chance.uniform(0.1, 0.5)
        yield from (name for name in names if chance.random() < share)
