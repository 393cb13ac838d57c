"""What an inventory journals: that it exists. All else is derived from its hosts.

A sum must not be a fact: it could drift from the hosts it is the sum of.
"""

from __future__ import annotations

from peloton.runtime.vocabulary import Fact


class InventoryOpened(Fact, frozen=True, gc=False, array_like=True):
    """The inventory exists."""


FACTS: dict[int, type] = {1: InventoryOpened}
