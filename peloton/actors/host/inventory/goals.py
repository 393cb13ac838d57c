"""Goal table of an inventory: it should be open, and is.

The table is total. It must not take steps: whatever an inventory sends is a report.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

from peloton.actors.host.inventory.state import Inventory
from peloton.runtime.vocabulary import SETTLED, At, Decision, Rest


class InventoryGoals(enum.StrEnum):
    """What should be."""

    OPEN = "open"


class InventoryStates(enum.StrEnum):
    """What is."""

    OPEN = "open"


TABLE: Mapping[InventoryStates, Mapping[InventoryGoals, Rest]] = {
    InventoryStates.OPEN: {InventoryGoals.OPEN: SETTLED}
}


def pursue(inventory: Inventory, at: At) -> Decision | Rest:
    """The next step towards the goal."""
    return TABLE[InventoryStates.OPEN][InventoryGoals.OPEN]
