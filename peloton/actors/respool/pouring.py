"""Weighted filling of many groups of claims at once, in arrays of whole millionths.

Turns what there is for each group, and its claims, into what every claim receives: to the
millionth what `filling.WeightedFill` gives. Fractions only say which claims are met for sure; where
one is too close to tell, that group is decided in integers of any size. Must not know what is
divided.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from peloton.actors.respool.filling import SCALE_BITS, is_met, met_at

Longs = NDArray[np.int64]
Unsigned = NDArray[np.uint64]
MetMarks = NDArray[np.bool_]

NEAR = 1e-12
"""Fractions that differ by less than this part may be in another order in truth."""
NEAR_ZERO = 2.0**-60
"""Likewise for small ones: a level counts in 2**-64."""
WEIGHT_BITS = 47
"""A weight below 2**47 is divided 16 bits at a time; one beyond it in integers of any size."""
LOW_BITS = np.uint64((1 << 32) - 1)
HALF_BITS = np.uint64(32)


class Groups(NamedTuple):
    """Where neighbours begin that are one group, and how many they are: never none."""

    starts: Longs
    sizes: Longs

    @classmethod
    def of(cls, sizes: Longs) -> Self:
        """Groups of these sizes, one behind the other."""
        return cls(np.cumsum(sizes) - sizes, sizes)

    def sums(self, of: Longs) -> Longs:
        """Of each group."""
        found: Longs = np.add.reduceat(of, self.starts)
        return found

    def spread(self, of: NDArray[Any]) -> NDArray[Any]:
        """What each group has, for each of its members."""
        return np.repeat(of, self.sizes)


class FillLevels(NamedTuple):
    """Levels in 2**-64 per unit of weight: the whole part, and what is behind the point."""

    whole: Unsigned
    part: Unsigned

    def spread(self, groups: Groups) -> FillLevels:
        """For each member of the groups."""
        return FillLevels(groups.spread(self.whole), groups.spread(self.part))

    def times(self, weights: Longs) -> Longs:
        """What each weight receives at its level, rounded down."""
        by = weights.astype(np.uint64)
        low, high = by & LOW_BITS, by >> HALF_BITS
        part_low, part_high = self.part & LOW_BITS, self.part >> HALF_BITS
        first = high * part_low + (low * part_low >> HALF_BITS)
        second = low * part_high + (first & LOW_BITS)
        found = by * self.whole + high * part_high + (first >> HALF_BITS) + (second >> HALF_BITS)
        signed: Longs = found.astype(np.int64)
        return signed


def levels(available: Longs, weights: Longs) -> FillLevels:
    """The levels to which so much rises over so much weight, which is never none."""
    whole = available // weights
    left = (available - whole * weights).astype(np.uint64)
    narrow = weights < 1 << WEIGHT_BITS
    by = np.where(narrow, weights, 1).astype(np.uint64)
    rest, part = np.where(narrow, left, 0).astype(np.uint64), np.zeros(len(by), np.uint64)
    for _ in range(4):
        rest <<= np.uint64(16)
        digits = rest // by
        rest -= digits * by
        part = part << np.uint64(16) | digits
    for at in np.flatnonzero(~narrow).tolist():
        part[at] = (int(left[at]) << SCALE_BITS) // int(weights[at])
    return FillLevels(whole.astype(np.uint64), part)


def poured(groups: Groups, *, available: Longs, amounts: Longs, weights: Longs) -> Longs:
    """What each claim receives, where every group has less than its claims are in all.

    A claim of no amount or of no weight receives nothing, and does not count in that sum.
    """
    held = (amounts > 0) & (weights > 0)
    amounts, weights = np.where(held, amounts, 0), np.where(held, weights, 0)
    met, near = _met(groups, available=available, amounts=amounts, weights=weights)
    for at in np.flatnonzero(near).tolist():
        start = int(groups.starts[at])
        span = slice(start, start + int(groups.sizes[at]))
        rows = amounts[span].tolist(), weights[span].tolist()
        for number in _met_in_truth(*rows, available=int(available[at])):
            met[start + number] = True
    rest = available - groups.sums(np.where(met, amounts, 0))
    rises = levels(np.maximum(rest, 0), groups.sums(np.where(met, 0, weights)))
    risen = rises.spread(groups).times(np.where(met, 0, weights))
    return np.where(met, amounts, np.minimum(amounts, risen))


def _met(
    groups: Groups, *, available: Longs, amounts: Longs, weights: Longs
) -> tuple[MetMarks, MetMarks]:
    """Which claims are met for sure, and in which groups another one may be."""
    thresholds = amounts / np.maximum(weights, 1)
    met = amounts == 0
    while True:
        rest = available - groups.sums(np.where(met, amounts, 0))
        reached = groups.spread(rest / groups.sums(np.where(met, 0, weights)))
        now = met | (thresholds + NEAR_ZERO <= reached * (1 - NEAR))
        if np.array_equal(now, met):
            close = ~met & (thresholds <= reached * (1 + NEAR) + NEAR_ZERO)
            return met, np.logical_or.reduceat(close, groups.starts)
        met = now


def _met_in_truth(amounts: list[int], weights: list[int], *, available: int) -> list[int]:
    """The numbers of the claims of one group that are met, in integers."""
    held = [at for at, amount in enumerate(amounts) if amount]
    order = sorted((met_at(amounts[at], weights[at]), at) for at in held)
    rest, weight = available, sum(weights)
    found: list[int] = []
    for level, at in order:
        rest, weight = rest - amounts[at], weight - weights[at]
        if not is_met(level, rest=rest, weight=weight):
            break
        found.append(at)
    return found
