"""Goal table of a lot. Its goal is that all members are admitted; the tree takes the steps.

The state follows from the bitmaps. The table is total, as every kind's is.

No cell may admit: only the tree of pools knows what is available.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from peloton.actors.respool.lot.state import Lot
from peloton.runtime.vocabulary import SETTLED, WAITING, At, Decision, Rest


class LotGoals(enum.StrEnum):
    """What should be."""

    ADMITTED = "admitted"


class LotStates(enum.StrEnum):
    """What is."""

    ASKED = "asked"  # some are to give back, and its slice has not said yet which
    QUEUED = "queued"  # some member waits
    ADMITTED = "admitted"  # no member waits


TABLE: Mapping[LotStates, Mapping[LotGoals, Rest]] = {
    LotStates.ASKED: {LotGoals.ADMITTED: WAITING},
    LotStates.QUEUED: {LotGoals.ADMITTED: WAITING},
    LotStates.ADMITTED: {LotGoals.ADMITTED: SETTLED},
}


def pursue(lot: Lot, at: At) -> Decision | Rest:
    """A lot waits for its pool's tree, see `respool.admission`, or for its slice."""
    if lot.order is not None:
        state = LotStates.ASKED
    else:
        state = LotStates.QUEUED if lot.waiting else LotStates.ADMITTED
    return TABLE[state][LotGoals.ADMITTED]
