"""Weighted filling: an amount is poured over claims, each rising by its weight until it is met.

Each claim is an amount and a weight; what there is determines a level, and the level what each
claim receives. A change and a level cost about the square root of the number of claims. All
arithmetic is of integers: the same claims give the same level in whatever order they came.
"""

from __future__ import annotations

from bisect import bisect_left, insort

SCALE_BITS = 64
"""A level counts in 2**-64 per unit of weight, so that rounding costs less than one millionth."""
BLOCK_MAX = 64


PutClaim = tuple[int, str]
"""A claim: the level that meets it, and whose it is."""


class FillBlock:
    """Neighbours in the order of the levels that meet them, with their sums."""

    __slots__ = ("amount", "claims", "weight")

    def __init__(self, claims: list[PutClaim], *, amount: int, weight: int) -> None:
        self.claims = claims
        self.amount = amount
        self.weight = weight


class WeightedFill:
    """Claims on one amount."""

    __slots__ = ("_blocks", "_claims", "_lasts", "amount", "weight")

    def __init__(self) -> None:
        self.amount = 0  # of all claims
        self.weight = 0
        self._claims: dict[str, tuple[int, int, int]] = {}  # claimant → amount, weight, `met_at`
        self._blocks: list[FillBlock] = []  # none of them empty
        self._lasts: list[PutClaim] = []  # the last claim of each

    def put(self, claimant: str, *, amount: int, weight: int) -> None:
        """Set a claim. A claim of no amount or of no weight receives nothing, and is not stored."""
        known = self._claims.get(claimant)
        if amount <= 0 or weight <= 0:
            if known is not None:
                self._remove(claimant)
        elif known is None:
            self._insert(claimant, amount=amount, weight=weight)
        elif known[:2] != (amount, weight) and not self._replace(
            claimant, amount=amount, weight=weight
        ):
            self._remove(claimant)
            self._insert(claimant, amount=amount, weight=weight)

    def level(self, available: int) -> int | None:
        """Return the level at which exactly that much is poured; None if all claims are met by
        less."""
        if available >= self.amount:
            return None
        rest, weight, known = available, self.weight, self._claims
        for block in self._blocks:
            # A claim that a level meets is met if what is left over is enough for those behind it.
            # Without a call: this is most of what a change of a pool costs.
            rest_after, weight_after = rest - block.amount, weight - block.weight
            if rest_after >= 0 and weight_after * block.claims[-1][0] <= rest_after << SCALE_BITS:
                rest, weight = rest_after, weight_after
                continue
            for level, claimant in block.claims:
                amount, its_weight, _ = known[claimant]
                rest_after, weight_after = rest - amount, weight - its_weight
                if rest_after < 0 or weight_after * level > rest_after << SCALE_BITS:
                    break
                rest, weight = rest_after, weight_after
            break
        return (max(0, rest) << SCALE_BITS) // weight

    def received(self, claimant: str, level: int | None) -> int:
        """Return what a claim receives at a level; all of it at None."""
        amount, weight, _ = self._claims.get(claimant, (0, 0, 0))
        return amount if level is None else min(amount, weight * level >> SCALE_BITS)

    def level_of(self, claimant: str, wanted: int) -> int | None:
        """Return the lowest level at which a claim receives `wanted`; None if it never does."""
        amount, weight, _ = self._claims.get(claimant, (0, 0, 0))
        return -(-(wanted << SCALE_BITS) // weight) if 0 < wanted <= amount else None

    def poured(self, level: int) -> int:
        """Return the least amount that reaches a level."""
        met, weight = 0, self.weight
        for block in self._blocks:
            if block.claims[-1][0] <= level:
                met, weight = met + block.amount, weight - block.weight
                continue
            for its_level, claimant in block.claims:
                if its_level > level:
                    break
                amount, its_weight, _ = self._claims[claimant]
                met, weight = met + amount, weight - its_weight
            break
        return met - (-weight * level >> SCALE_BITS)

    def _replace(self, claimant: str, *, amount: int, weight: int) -> bool:
        """Change a claim within its block; return False if it belongs into another one."""
        its_amount, its_weight, level = self._claims[claimant]
        old, lasts = (level, claimant), self._lasts
        level = -(-(amount << SCALE_BITS) // weight)  # `met_at`
        new = level, claimant
        at = bisect_left(lasts, old)
        if (at and new <= lasts[at - 1]) or (new > lasts[at] and at < len(lasts) - 1):
            return False
        block = self._blocks[at]
        claims = block.claims
        del claims[bisect_left(claims, old)]
        insort(claims, new)
        lasts[at] = claims[-1]
        self._claims[claimant] = amount, weight, level
        more, heavier = amount - its_amount, weight - its_weight
        self.amount += more
        self.weight += heavier
        block.amount += more
        block.weight += heavier
        return True

    def _insert(self, claimant: str, *, amount: int, weight: int) -> None:
        level = met_at(amount, weight)
        self._claims[claimant] = amount, weight, level
        self.amount += amount
        self.weight += weight
        claim = level, claimant
        if not self._blocks:
            self._blocks, self._lasts = [FillBlock([claim], amount=amount, weight=weight)], [claim]
            return
        at = min(bisect_left(self._lasts, claim), len(self._blocks) - 1)
        block = self._blocks[at]
        insort(block.claims, claim)
        block.amount += amount
        block.weight += weight
        self._lasts[at] = block.claims[-1]
        if len(block.claims) > BLOCK_MAX:
            self._split(at)

    def _remove(self, claimant: str) -> None:
        amount, weight, level = self._claims.pop(claimant)
        self.amount -= amount
        self.weight -= weight
        claim = level, claimant
        at = bisect_left(self._lasts, claim)
        block = self._blocks[at]
        del block.claims[bisect_left(block.claims, claim)]
        block.amount -= amount
        block.weight -= weight
        if block.claims:
            self._lasts[at] = block.claims[-1]
        else:
            del self._blocks[at], self._lasts[at]

    def _split(self, at: int) -> None:
        block = self._blocks[at]
        half = len(block.claims) // 2
        upper = block.claims[half:]
        pairs = [self._claims[claimant] for _, claimant in upper]
        amount, weight = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
        above = FillBlock(upper, amount=amount, weight=weight)
        block.claims = block.claims[:half]
        block.amount -= above.amount
        block.weight -= above.weight
        self._blocks.insert(at + 1, above)
        self._lasts[at : at + 1] = [block.claims[-1], upper[-1]]


def met_at(amount: int, weight: int) -> int:
    """Return the level that meets a claim."""
    return -(-(amount << SCALE_BITS) // weight)
