"""Goal table of an inventory: it should be open, and every dropped host pool without hosts.

The table is total. All that an inventory sends otherwise is a report.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

from peloton.actors.host.inventory.pools import empty
from peloton.actors.host.inventory.state import Inventory
from peloton.runtime.vocabulary import SETTLED, At, Decision, Rest


class InventoryGoals(enum.StrEnum):
    """What an inventory should be."""

    OPEN = "open"


class InventoryStates(enum.StrEnum):
    """What an inventory is."""

    OPEN = "open"
    EMPTYING = "emptying"  # hosts of a dropped pool have still to leave it


def settle(inventory: Inventory) -> Rest:
    """Return that there is nothing to do."""
    return SETTLED


TABLE: Mapping[InventoryStates, Mapping[InventoryGoals, Callable[[Inventory], Decision | Rest]]] = {
    InventoryStates.OPEN: {InventoryGoals.OPEN: settle},
    InventoryStates.EMPTYING: {InventoryGoals.OPEN: empty},
}


def pursue(inventory: Inventory, at: At) -> Decision | Rest:
    """Take the next step towards the goal."""
    state = InventoryStates.EMPTYING if inventory.dropped else InventoryStates.OPEN
    return TABLE[state][InventoryGoals.OPEN](inventory)
