"""Which limit keeps a ticket waiting, and what is missing.

Turns a tree and the shape of a lot into the rule that blocks it and a text for people. Reads the
tree by `PoolLimits`, and must not admit or change anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from peloton.actors.resources import Resources, amount
from peloton.actors.respool.entitlement import entitlement
from peloton.actors.respool.lot.messages import LotShape
from peloton.actors.respool.messages import ROOT
from peloton.runtime.vocabulary import Key

TURN, LIMIT, CAPACITY, DELETED = "turn", "limit", "capacity", "deleted"
UNITS = {"cpu": "", "memory": " MB", "disk": " MB", "gpu": ""}


class Shortage(NamedTuple):
    """The rule, a text, and whether it can `never` be admitted, whatever others release."""

    rule: str
    text: str = ""
    never: bool = False


class PoolLimits(Protocol):
    """What this module needs of the tree."""

    @property
    def pools(self) -> Mapping[Key, Any]:
        """All pools."""

    def up(self, pool: Key) -> list[Key]:
        """A pool and its ancestors."""

    def limit(self, pool: Key) -> Resources:
        """The most a pool may ever use."""

    def use(self, pool: Key) -> Resources:
        """What it and all pools below it use."""

    def controller_limit(self, pool: Key) -> Resources | None:
        """The most that controller tasks of the pool may hold, if they have a limit."""

    def controller_room(self, pool: Key) -> Resources | None:
        """What they may still take."""

    def path(self, pool: Key) -> str:
        """The path of a pool."""

    def holder(self, pool: Key, kind: int) -> tuple[str, int]:
        """The job that holds most of a resource in it and below, and how much."""


def shortage(tree: PoolLimits, shape: LotShape) -> Shortage:
    """What one more member would exceed. A limit below what it needs itself comes first."""
    pool, need = shape.pool, shape.resources
    if pool not in tree.pools:
        return Shortage(DELETED, "pool deleted")
    return (
        _of_limits(tree, pool, need=need)
        or (_of_controllers(tree, pool, need=need) if shape.controller else None)
        or _of_use(tree, pool, need=need)
        or Shortage(TURN)
    )


def _of_limits(tree: PoolLimits, pool: Key, *, need: Resources) -> Shortage | None:
    for above in tree.up(pool):
        short = need.short_of(tree.limit(above))
        if short:
            kind = next(iter(short))
            most = f"the {_name(tree, above)} is {_shown(kind, tree.limit(above))}"
            text = f"requested {_shown(kind, need)} {kind}, but {most}"
            if above == ROOT:  # hosts come, and come back: that is no proof of never
                return Shortage(CAPACITY, f"{text}: it waits for more hosts")
            return Shortage(LIMIT, f"{text}: it can never be admitted", True)
    return None


def _of_controllers(tree: PoolLimits, pool: Key, *, need: Resources) -> Shortage | None:
    most, free = tree.controller_limit(pool), tree.controller_room(pool)
    if most is None or free is None:
        return None
    name = f"limit of pool {tree.path(pool)} for controllers"
    for kind in need.short_of(most):
        text = f"requested {_shown(kind, need)} {kind}, but the {name} is {_shown(kind, most)}"
        return Shortage(LIMIT, f"{text}: it can never be admitted", True)
    for kind in need.short_of(free):
        text = f"{name} reached: {kind} requested {_shown(kind, need)}"
        return Shortage(LIMIT, f"{text}, {_shown(kind, free)} of {_shown(kind, most)} free")
    return None


def _of_use(tree: PoolLimits, pool: Key, *, need: Resources) -> Shortage | None:
    for above in tree.up(pool):
        most_now, used = entitlement(tree, above), tree.use(above)
        free = most_now - used
        short = need.short_of(free)
        if short:
            kind = next(iter(short))
            text = (
                f"{_name(tree, above)} reached: {kind} requested {_shown(kind, need)}, "
                f"{_shown(kind, free)} of {_shown(kind, most_now)} free"
            )
            text += _holder(tree, above, kind=kind)
            return Shortage(CAPACITY if above == ROOT else LIMIT, text)
    return None


def _holder(tree: PoolLimits, pool: Key, *, kind: str) -> str:
    """The job that holds most of what is missing."""
    job, held = tree.holder(pool, Resources.KINDS.index(kind))
    return f"; job {job} holds {_number(held)}{UNITS[kind]}" if held else ""


def _name(tree: PoolLimits, pool: Key) -> str:
    return "cluster capacity" if pool == ROOT else f"limit of pool {tree.path(pool)}"


def _shown(kind: str, amounts: Resources) -> str:
    return _number(max(0, amounts.amounts()[Resources.KINDS.index(kind)])) + UNITS[kind]


def _number(millionths: int) -> str:
    return f"{amount(millionths):.10g}"
