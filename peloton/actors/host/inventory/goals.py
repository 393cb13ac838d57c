"""Goal table of an inventory: it should be open, and every pool that was dropped without hosts.

The table is total. But for the pools of hosts it must not take steps: whatever else an inventory
sends is a report.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping

from peloton.actors.host.inventory.pools import empty
from peloton.actors.host.inventory.state import Inventory
from peloton.runtime.vocabulary import SETTLED, At, Decision, Rest


class InventoryGoals(enum.StrEnum):
    """What should be."""

    OPEN = "open"


class InventoryStates(enum.StrEnum):
    """What is."""

    OPEN = "open"
    EMPTYING = "emptying"  # hosts of a dropped pool have still to leave it


def settle(inventory: Inventory) -> Rest:
    """There is nothing to do."""
    return SETTLED


TABLE: Mapping[InventoryStates, Mapping[InventoryGoals, Callable[[Inventory], Decision | Rest]]] = {
    InventoryStates.OPEN: {InventoryGoals.OPEN: settle},
    InventoryStates.EMPTYING: {InventoryGoals.OPEN: empty},
}


def pursue(inventory: Inventory, at: At) -> Decision | Rest:
    """The next step towards the goal."""
    state = InventoryStates.EMPTYING if inventory.dropped else InventoryStates.OPEN
    return TABLE[state][InventoryGoals.OPEN](inventory)
