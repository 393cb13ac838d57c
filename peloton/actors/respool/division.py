"""How the entitlement of a pool to one kind of resource is divided among its children.

What the children claim and what there is determine one level, and the level the share of any child.
First each child gets what it needs of its reservation (all of it if that is static), then unmet
needs are filled by share, then what no child needs is offered by share up to the limits. If there
is less than the reservations ask for, they are filled by reservation.

A changed claim and a level cost about the square root of the number of children, whatever they have
below them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import NamedTuple

from peloton.actors.respool.filling import SCALE_BITS, WeightedFill
from peloton.actors.respool.messages import FillStage
from peloton.runtime.vocabulary import Key


class DivisionLevel(NamedTuple):
    """The stage, and how far in it, in 2**-64 per unit of weight."""

    stage: FillStage
    level: int


class KindTerms(NamedTuple):
    """What a config says about one kind, in millionths; `share` in millionths of one share."""

    reservation: int = 0
    limit: int = 0
    share: int = 0
    static: bool = False


class KindClaim(NamedTuple):
    """What a child needs of one kind, up to its limit, and under which terms."""

    need: int
    terms: KindTerms

    @property
    def reserved(self) -> int:
        """Return what the child gets before any other gets more than its reservation."""
        terms = self.terms
        return terms.reservation if terms.static else min(self.need, terms.reservation)

    @property
    def beyond(self) -> int:
        """Return what the child needs beyond its reservation."""
        return max(0, self.need - self.terms.reservation)


NO_CLAIM = KindClaim(0, KindTerms())


class DivisionSteps(NamedTuple):
    """How one child came to what it is entitled to, of one kind, in millionths.

    Of `divided` it gets something for its reservation, then for what it needs beyond that, then of
    what no child needs. `reserved` and `beyond` are what all children together ask for in the first
    two; `shares` is the sum of their shares.
    """

    divided: int
    need: int
    stage: FillStage
    by_reservation: int
    by_need: int
    offered: int
    reserved: int
    beyond: int
    shares: int

    @property
    def entitled(self) -> int:
        """Return the resulting entitlement."""
        return self.by_reservation + self.by_need + self.offered


class Waiters:
    """Children that wait until the division reaches a level."""

    __slots__ = ("_levels", "order")

    def __init__(self) -> None:
        self._levels: dict[Key, DivisionLevel] = {}
        self.order: list[tuple[DivisionLevel, Key]] = []  # the lowest first

    def put(self, child: Key, level: DivisionLevel | None) -> bool:
        """Let a child wait for a level, or for none; return whether that changes anything."""
        was = self._levels.get(child)
        if was == level:
            return False
        if was is not None:
            del self.order[bisect_left(self.order, (was, child))]
            del self._levels[child]
        if level is not None:
            self._levels[child] = level
            insort(self.order, (level, child))
        return True

    def up_to(self, level: DivisionLevel) -> Iterator[Key]:
        """Yield the children that wait for this level or a lower one."""
        for its_level, child in self.order:
            if its_level > level:
                return
            yield child


class Division:
    """One kind of one pool, divided among its children."""

    __slots__ = ("_beyond", "_claims", "_known", "_reserved", "_shares", "need", "waiters")

    def __init__(self) -> None:
        self.need = 0  # of all children
        self.waiters = Waiters()
        self._claims: dict[Key, KindClaim] = {}
        self._reserved = WeightedFill()
        self._beyond = WeightedFill()
        self._shares = 0
        self._known: tuple[int, DivisionLevel] | None = None  # the last level, and for how much

    def put(self, child: Key, claim: KindClaim | None) -> None:
        """Set the claim of a child; None: it is a child no more."""
        was, now = self._claims.get(child, NO_CLAIM), claim or NO_CLAIM
        if claim is None:
            self._claims.pop(child, None)
        else:
            self._claims[child] = claim
        if was == now:
            return
        self.need += now.need - was.need
        terms, same = now.terms, now.terms is was.terms
        reservation = terms.reservation
        if not same:
            self._shares += terms.share - was.terms.share
        # Most changes of a need stay on one side of the reservation.
        if not same or was.need < reservation or now.need < reservation:
            self._reserved.put(child, amount=now.reserved, weight=reservation)
        if not same or was.need > reservation or now.need > reservation:
            self._beyond.put(child, amount=now.beyond, weight=terms.share)
        self._known = None

    def level(self, entitled: int) -> DivisionLevel:
        """Return how far an entitlement goes."""
        if self._known is not None and self._known[0] == entitled:
            return self._known[1]
        found = self._level(entitled)
        self._known = entitled, found
        return found

    def received(self, child: Key, at: DivisionLevel) -> int:
        """Return what a child is entitled to at a level."""
        stage, level = at
        need, (reservation, limit, share, static) = self._claims.get(child, NO_CLAIM)
        reserved = reservation if static or need > reservation else need
        if stage is FillStage.RESERVED:
            return min(reserved, reservation * level >> SCALE_BITS)
        beyond = need - reservation if share and need > reservation else 0
        if stage is FillStage.SHARED:
            return reserved + min(beyond, share * level >> SCALE_BITS)
        met = reserved + beyond
        return max(met, min(limit, met + (share * level >> SCALE_BITS)))

    def steps(self, child: Key, entitled: int) -> DivisionSteps:
        """Return how a child comes to what it receives, for people."""
        at = self.level(entitled)
        claim, received = self._claims.get(child, NO_CLAIM), self.received(child, at)
        first = received if at.stage is FillStage.RESERVED else claim.reserved
        most = self._beyond.received(child, None)
        second = min(received - first, most)
        return DivisionSteps(
            entitled,
            claim.need,
            at.stage,
            first,
            second,
            received - first - second,
            self._reserved.amount,
            self._beyond.amount,
            self._shares,
        )

    def level_for(self, child: Key, wanted: int) -> DivisionLevel | None:
        """Return the lowest level at which a child gets `wanted`; None if no level gives it as
        much."""
        claim = self._claims.get(child, NO_CLAIM)
        if wanted <= 0:
            return DivisionLevel(FillStage.RESERVED, 0)
        if wanted <= claim.reserved:
            found = self._reserved.level_of(child, wanted)
            return DivisionLevel(FillStage.RESERVED, found) if found is not None else None
        rest = wanted - claim.reserved
        found = self._beyond.level_of(child, rest)
        if found is not None:
            return DivisionLevel(FillStage.SHARED, found)
        rest -= self._beyond.received(child, None)
        if wanted > claim.terms.limit or not claim.terms.share:
            return None
        return DivisionLevel(FillStage.OFFERED, -(-(rest << SCALE_BITS) // claim.terms.share))

    def wanted(self, at: DivisionLevel) -> int:
        """Return the least entitlement that reaches a level."""
        if at.stage is FillStage.RESERVED:
            return self._reserved.poured(at.level)
        if at.stage is FillStage.SHARED:
            return self._reserved.amount + self._beyond.poured(at.level)
        offered = -(-self._shares * at.level >> SCALE_BITS)
        return self._reserved.amount + self._beyond.amount + offered

    def _level(self, entitled: int) -> DivisionLevel:
        found = self._reserved.level(entitled)
        if found is not None:
            return DivisionLevel(FillStage.RESERVED, found)
        entitled -= self._reserved.amount
        found = self._beyond.level(entitled)
        if found is not None:
            return DivisionLevel(FillStage.SHARED, found)
        rest = entitled - self._beyond.amount
        each = (rest << SCALE_BITS) // self._shares if self._shares else 0
        return DivisionLevel(FillStage.OFFERED, each)
