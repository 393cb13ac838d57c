"""Resource vectors: cpu, memory, disk, gpu and slack as integer millionths.

Slack is cpu that others were given and do not use. Revocable tasks run on it, and on nothing else:
what they ask for as cpu is slack, a kind of its own, so that every sum over kinds counts it right.

Slack and cpu are apart: a task that needs no slack fits even if there is less than none of it, and
a task on slack if there is less than no cpu. There must not be less than none of the other kinds.

The floats of clients are converted into integers, whose sums are exact, and back. Comparisons, and
they alone, allow an epsilon of 900 millionths (the original's 0.0009); sums are never rounded.
"""

from __future__ import annotations

import math
from typing import ClassVar

from peloton.runtime.vocabulary import Value

UNIT = 1_000_000
EPSILON = 900
CPU, SLACK = 0, 4
AMOUNT_MAX = 1e12
"""Largest amount a client may name; above it a float no longer tells millionths apart."""


class BadAmount(ValueError):
    """A number that is not a valid amount: negative, not finite, or above `AMOUNT_MAX`."""


class Resources(Value, frozen=True, gc=False, array_like=True):
    """An amount of each kind, in millionths of a cpu, MB, MB, gpu and cpu."""

    KINDS: ClassVar[tuple[str, ...]] = ("cpu", "memory", "disk", "gpu", "slack")

    cpu: int = 0
    memory: int = 0
    disk: int = 0
    gpu: int = 0
    slack: int = 0

    def __add__(self, other: Resources) -> Resources:
        return Resources(
            self.cpu + other.cpu,
            self.memory + other.memory,
            self.disk + other.disk,
            self.gpu + other.gpu,
            self.slack + other.slack,
        )

    def __sub__(self, other: Resources) -> Resources:
        return Resources(
            self.cpu - other.cpu,
            self.memory - other.memory,
            self.disk - other.disk,
            self.gpu - other.gpu,
            self.slack - other.slack,
        )

    def times(self, count: int) -> Resources:
        """Return this amount `count` times."""
        return Resources(
            self.cpu * count,
            self.memory * count,
            self.disk * count,
            self.gpu * count,
            self.slack * count,
        )

    def percent(self, percent: float) -> Resources:
        """Return that share of this amount, rounded down."""
        return Resources(*(int(each * percent / 100) for each in self.amounts()))

    def within(self, available: Resources) -> bool:
        """Return whether this fits into `available`, kind by kind, with the epsilon."""
        return (
            (self.cpu - available.cpu < EPSILON or (not self.cpu and self.slack > 0))
            and self.memory - available.memory < EPSILON
            and self.disk - available.disk < EPSILON
            and self.gpu - available.gpu < EPSILON
            and (self.slack - available.slack < EPSILON or not self.slack)
        )

    def fits(self, available: Resources) -> int:
        """Return how many times this fits into `available`; `COUNT_MAX` if it needs nothing."""
        most, apart = COUNT_MAX, self._apart
        pairs = zip(self.amounts(), available.amounts(), strict=True)
        for kind, (need, have) in enumerate(pairs):
            if need > 0:
                most = min(most, max(0, (have + EPSILON - 1) // need))
            elif have <= -EPSILON and kind != apart:
                most = 0
        return most

    def short_of(self, available: Resources) -> dict[str, int]:
        """Return by how much this exceeds `available`, in millionths, for the kinds in which it
        does."""
        pairs = zip(self.amounts(), available.amounts(), strict=True)
        return {
            self.KINDS[kind]: need - have
            for kind, (need, have) in enumerate(pairs)
            if need - have >= EPSILON and kind != self._apart
        }

    @property
    def _apart(self) -> int:
        """Return the index of slack or cpu, if this needs none of it and it is not compared; or
        -1."""
        return SLACK if not self.slack else CPU if not self.cpu else -1

    def with_slack(self, slack: int) -> Resources:
        """Return the amounts with this slack."""
        return Resources(self.cpu, self.memory, self.disk, self.gpu, slack)

    def revocable(self) -> Resources:
        """Return the amounts with slack instead of cpu."""
        return Resources(0, self.memory, self.disk, self.gpu, self.cpu + self.slack)

    def amounts(self) -> tuple[int, int, int, int, int]:
        """Return the amounts in the order of `KINDS`."""
        return self.cpu, self.memory, self.disk, self.gpu, self.slack


COUNT_MAX = 1_000_000_000


def millionths(amount: float, field: str) -> int:
    """Return a client's amount as an integer; raises BadAmount naming the field."""
    if not math.isfinite(amount):
        raise BadAmount(f"{field}: {amount} is not a finite number")
    if amount < 0:
        raise BadAmount(f"{field}: {amount} is negative")
    if amount > AMOUNT_MAX:
        raise BadAmount(f"{field}: {amount} is more than {AMOUNT_MAX:g}")
    return round(amount * UNIT)


def amount(millionths_: int) -> float:
    """Return millionths as the number clients see."""
    return millionths_ / UNIT
