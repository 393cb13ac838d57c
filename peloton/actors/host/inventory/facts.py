"""What an inventory writes down: that it exists. All else follows its hosts."""

from __future__ import annotations

from peloton.runtime.vocabulary import Fact


class InventoryOpened(Fact, frozen=True, gc=False, array_like=True):
    """The inventory exists."""


FACTS: dict[int, type] = {1: InventoryOpened}
