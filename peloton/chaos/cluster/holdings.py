"""What a slice and a host hold, as the shadow ledger keeps it: by bitmaps and sums, no states."""

from __future__ import annotations

from peloton.actors.resources import Resources
from peloton.runtime.vocabulary import Key


class SliceHoldings:
    """The instances of one slice as bitmaps, and the number of each one's run."""

    def __init__(self) -> None:
        self.existing = 0
        self.intended = 0  # launched, and not ended
        self.stopping = 0
        self.runs: dict[int, int] = {}
        self.charged: dict[Key, int] = {}  # by lot
        # Since the ledger was last settled:
        self.launched = 0
        self.vanished = 0
        self.charged_some_time = 0

    @property
    def charges(self) -> int:
        """Members that any lot holds resources for."""
        found = 0
        for raw in self.charged.values():
            found |= raw
        return found


class HostHoldings:
    """One host: its capacity, and the resources that each accepted run holds."""

    def __init__(self) -> None:
        self.capacity = Resources()
        self.used = Resources()
        self.runs: dict[str, Resources] = {}
