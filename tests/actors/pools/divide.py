"""How one kind is divided among pools, computed from its definition in rational numbers.

It is what the kept levels are compared with, so it must share no code with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple


class Claim(NamedTuple):
    """What one pool claims."""

    need: int = 0
    reservation: int = 0
    limit: int = 0
    share: Fraction = Fraction(1)
    static: bool = False


def divide(entitled: Fraction, claims: Sequence[Claim]) -> list[Fraction]:
    """What each gets."""
    reserved = [
        Fraction(each.reservation if each.static else min(each.need, each.reservation))
        for each in claims
    ]
    if sum(reserved) > entitled:
        return fill(entitled, reserved, [Fraction(each.reservation) for each in claims])
    shares = [each.share for each in claims]
    beyond = [
        Fraction(max(0, each.need - each.reservation)) if each.share else Fraction(0)
        for each in claims
    ]
    more = fill(entitled - sum(reserved), beyond, shares)
    got = [each + other for each, other in zip(reserved, more, strict=True)]
    rest, total = entitled - sum(got), sum(shares)
    if rest <= 0 or not total:
        return got
    return [
        max(each, min(Fraction(claim.limit), each + rest * claim.share / total))
        for each, claim in zip(got, claims, strict=True)
    ]


def fill(
    amount: Fraction, wants: Sequence[Fraction], weights: Sequence[Fraction]
) -> list[Fraction]:
    """Rounds by weight among those that still want more, until nothing is left."""
    got = [Fraction(0) for _ in wants]
    while True:
        open_wants = [at for at, want in enumerate(wants) if got[at] < want and weights[at]]
        if not open_wants or amount <= 0:
            return got
        total = sum(weights[at] for at in open_wants)
        # The one that is met first ends the round.
        each = min([(wants[at] - got[at]) / weights[at] for at in open_wants] + [amount / total])
        for at in open_wants:
            got[at] += each * weights[at]
        amount -= each * total
