"""Goal table of a name: it is to have one holder. All steps are answers to messages.

Must not decide whose it is.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from peloton.actors.job.name.state import Name
from peloton.runtime.vocabulary import SETTLED, WAITING, At, Decision, Rest


class NameGoals(enum.StrEnum):
    """What should be."""

    HELD = "held"


class HolderStates(enum.StrEnum):
    """What is."""

    RESERVED = "reserved"  # its job may not exist yet
    CLAIMED = "claimed"


TABLE: Mapping[HolderStates, Mapping[NameGoals, Rest]] = {
    HolderStates.RESERVED: {NameGoals.HELD: WAITING},
    HolderStates.CLAIMED: {NameGoals.HELD: SETTLED},
}


def pursue(name: Name, at: At) -> Decision | Rest:
    """A reserved name waits for its job."""
    state = HolderStates.CLAIMED if name.claimed else HolderStates.RESERVED
    return TABLE[state][NameGoals.HELD]
