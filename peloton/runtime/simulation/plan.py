"""The plan of one storm, as data: what there is, which faults strike, who does what when.

Turns a plan into JSON and back, so that a failing storm is a file that plays again by itself. All
that a storm draws while it runs comes from the plan's seed. It must not do anything itself, nor
name a thing by more than a number: a number is taken modulo what there is at that moment, so that
a plan still means something after a part of it was left out.
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
    """One thing that somebody does at a certain time after the storm began."""

    at_s: float
    name: str
    which: int = 0
    other: int = 0
    count: int = 0
    for_s: float = 0.0


class StormPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One storm. `faults` are those that last, by name, with a strength from 0 to 1.

    `limits` are those that are tiny, by name; all others are as in production. Soft machines are
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


P = TypeVar("P", bound=StormPlan)


def changed(plan: P, **fields: Any) -> P:
    """The same plan but for these."""
    return replace(plan, **fields)


def save(plan: StormPlan, path: Path) -> None:
    """As JSON that a person can read."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(plan, order="deterministic")) + b"\n")


def load(cls: type[P], path: Path) -> P:
    """What `save` wrote. A name nobody knows is refused, or a typing error would be a calm."""
    return msgspec.json.decode(path.read_bytes(), type=cls)


def some_of(chance: random.Random, names: Sequence[str]) -> Iterator[str]:
    """A swarm: a third of all storms has one or two of these, others some, one in ten has all.

    All at once, always, would hide what needs one fault to go on undisturbed by the others.
    """
    how = chance.random()
    if how < 0.1:
        yield from names
    elif how < 0.45:
        yield from chance.sample(names, k=min(len(names), chance.randint(1, 2)))
    else:
        share = chance.uniform(0.1, 0.5)
        yield from (name for name in names if chance.random() < share)
