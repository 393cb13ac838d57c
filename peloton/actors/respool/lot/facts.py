"""What a lot writes down. Numbers are for good: journals hold them.

A fact must not say more than its fold needs, nor ever change its meaning.
"""

from __future__ import annotations

from peloton.actors.respool.lot.messages import LotShape
from peloton.runtime.vocabulary import Bits, Fact, Key


class LotOpened(Fact, frozen=True, gc=False, array_like=True):
    """A lot exists for these tasks; its place in the order dates from now."""

    shape: LotShape
    crowd: Key
    at: float


class LotEnqueued(Fact, frozen=True, gc=False, array_like=True):
    """Members stand in the queue under this ask, and under no lower one."""

    members: Bits
    ticket: int
    at: float


class LotAdmitted(Fact, frozen=True, gc=False, array_like=True):
    """The pool admitted members."""

    members: Bits


class LotReleased(Fact, frozen=True, gc=False, array_like=True):
    """Members neither wait nor hold room under this ask or a lower one."""

    members: Bits
    ticket: int


FACTS: dict[int, type] = {1: LotOpened, 2: LotEnqueued, 3: LotAdmitted, 4: LotReleased}
