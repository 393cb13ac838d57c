"""Goal table of a backend that exists once: that one link is subscribed.

The table is total. It takes no step by itself: a link asks, because only it knows its connection.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from peloton.actors.engine.state import OutsideBackend
from peloton.runtime.vocabulary import SETTLED, At, Decision, Rest


class OutsideGoals(enum.StrEnum):
    """What should be."""

    SUBSCRIBED = "subscribed"


class OutsideStates(enum.StrEnum):
    """What is."""

    OPEN = "open"  # no subscription has ever begun
    BEGUN = "begun"


TABLE: Mapping[OutsideStates, Mapping[OutsideGoals, Rest]] = {
    OutsideStates.OPEN: {OutsideGoals.SUBSCRIBED: SETTLED},
    OutsideStates.BEGUN: {OutsideGoals.SUBSCRIBED: SETTLED},
}


def pursue(backend: OutsideBackend, at: At) -> Decision | Rest:
    """The next step towards the goal."""
    state = OutsideStates.BEGUN if backend.number else OutsideStates.OPEN
    return TABLE[state][OutsideGoals.SUBSCRIBED]
