"""Goal table of the lockdown: to be as its operators have ordered, which it is at once.

The table is total. It must not take steps: daemons follow what is journaled.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from peloton.actors.lockdown.state import Lockdown
from peloton.runtime.vocabulary import SETTLED, At, Decision, Rest


class LockdownGoals(enum.StrEnum):
    """What should be."""

    AS_ORDERED = "as ordered"


class LockdownStates(enum.StrEnum):
    """What is."""

    OPEN = "open"
    LOCKED = "locked"  # a component or more


TABLE: Mapping[LockdownStates, Mapping[LockdownGoals, Rest]] = {
    LockdownStates.OPEN: {LockdownGoals.AS_ORDERED: SETTLED},
    LockdownStates.LOCKED: {LockdownGoals.AS_ORDERED: SETTLED},
}


def pursue(lockdown: Lockdown, at: At) -> Decision | Rest:
    """The next step towards the goal."""
    state = LockdownStates.LOCKED if lockdown.locks else LockdownStates.OPEN
    return TABLE[state][LockdownGoals.AS_ORDERED]
