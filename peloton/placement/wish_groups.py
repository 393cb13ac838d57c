"""Groups wishes of one call that are decided as one: wishes of one shape without differences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from peloton.placement.index import HostIndex
from peloton.placement.kept_wishes import KeptWishes
from peloton.placement.messages import Wish
from peloton.placement.shapes import KnownShape, KnownShapes
from peloton.runtime.vocabulary import Bits


class AskedWish(NamedTuple):
    """One wish of a call, and its members: those that are kept already, and the new ones."""

    wish: Wish
    renewed: Bits
    fresh: Bits  # the others, which are to be placed now


class WishGroup(NamedTuple):
    """Wishes that are decided as one, the rows that have just refused them, and those that are
    used last."""

    known: KnownShape
    wishes: list[AskedWish]
    excluded: list[int]
    avoided: list[int]


def decided_as_one(
    wishes: Sequence[Wish], index: HostIndex, *, shapes: KnownShapes, kept: KeptWishes, now: float
) -> list[WishGroup]:
    """Return wishes in groups that are decided as one, in the order in which the first of each
    came.

    Refusals of all wishes are applied first, so that no member is sent to a host that has just
    refused another for lack of resources.
    """
    refused = [index.receive_refusals(wish.refused) if wish.refused else [] for wish in wishes]
    alike: dict[int, WishGroup] = {}
    groups: list[WishGroup] = []
    for wish, excluded in zip(wishes, refused, strict=True):
        known = shapes.of(wish.shape)
        avoided = [index.rows[host] for host in wish.avoid if host in index.rows]
        apart = bool(excluded or avoided) or known.strategy is None or not known.strategy.shares
        group = None if apart else alike.get(known.number)
        if group is None:
            group = WishGroup(known, [], excluded, avoided)
            groups.append(group)
            if not apart:
                alike[known.number] = group
        renewed = kept.renew(wish, known, now=now)
        fresh = wish.members - renewed if renewed else wish.members
        group.wishes.append(AskedWish(wish, renewed, fresh))
    return groups
