"""Which limit keeps an ask out of its pool, and by how much.

Turns (tree, pool, need) into the rule that holds it up and a line for people. It reads the tree by
the questions it names here, and must not admit or change anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from peloton.actors.resources import Resources, amount
from peloton.actors.respool.entitlement import entitlement
from peloton.actors.respool.messages import ROOT
from peloton.runtime.vocabulary import Key

TURN, LIMIT, CAPACITY, DELETED = "turn", "limit", "capacity", "deleted"
UNITS = {"cpu": "", "memory": " MB", "disk": " MB", "gpu": ""}


class Shortage(NamedTuple):
    """The rule, in words, and whether it stands for good: nobody's leaving would be enough."""

    rule: str
    text: str = ""
    never: bool = False


class PoolLimits(Protocol):
    """What is asked of the tree."""

    @property
    def pools(self) -> Mapping[Key, Any]:
        """The pools there are."""

    def up(self, pool: Key) -> list[Key]:
        """A pool and its ancestors."""

    def limit(self, pool: Key) -> Resources:
        """The most a pool may ever use."""

    def use(self, pool: Key) -> Resources:
        """What it and all below it use."""

    def path(self, pool: Key) -> str:
        """Its path."""

    def holder(self, pool: Key, kind: int) -> tuple[str, int]:
        """The job that holds most of a resource there, and how much."""


def shortage(tree: PoolLimits, pool: Key, *, need: Resources) -> Shortage:
    """What one more of `need` would break. A limit that is too small for good comes first."""
    if pool not in tree.pools:
        return Shortage(DELETED, "pool deleted")
    for above in tree.up(pool):
        short = need.short_of(tree.limit(above))
        if short:
            kind = next(iter(short))
            wants, most = _told(kind, need), _told(kind, tree.limit(above))
            has = f"the {_name(tree, above)} is {most}"
            text = f"wants {wants} {kind}, but {has} in all: it can never be admitted as it is"
            return Shortage(_rule(above), text, True)
    for above in tree.up(pool):
        most_now, used = entitlement(tree, above), tree.use(above)
        short = need.short_of(most_now - used)
        if short:
            kind, missing = next(iter(short.items()))
            text = (
                f"{_name(tree, above)} reached: {kind} wants {_told(kind, need)}, "
                f"{_told(kind, used)} of {_told(kind, most_now)} used, "
                f"{_number(missing)}{UNITS[kind]} short"
            )
            text += _holder(tree, above, kind=kind)
            return Shortage(_rule(above), text)
    return Shortage(TURN)


def _holder(tree: PoolLimits, pool: Key, *, kind: str) -> str:
    """Whom to look at: the job that holds most of what is missing."""
    job, held = tree.holder(pool, Resources.KINDS.index(kind))
    return f"; {_number(held)}{UNITS[kind]} of it held by job {job}" if held else ""


def _rule(pool: Key) -> str:
    return CAPACITY if pool == ROOT else LIMIT


def _name(tree: PoolLimits, pool: Key) -> str:
    return "cluster capacity" if pool == ROOT else f"limit of pool {tree.path(pool)}"


def _told(kind: str, amounts: Resources) -> str:
    return _number(amounts.amounts()[Resources.KINDS.index(kind)]) + UNITS[kind]


def _number(millionths: int) -> str:
    return f"{amount(millionths):.10g}"
