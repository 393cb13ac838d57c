"""Soft machines that the assembly wires: placement as the runtime's shells drive it.

Turns envelopes into calls of a pure placer and its sends into envelopes. It must not hold anything
that a restart would miss: a placer asks the inventories for all it needs to know.
"""

from __future__ import annotations

from collections.abc import Iterable

from peloton.placement.placer import Placer
from peloton.runtime.core.envelope import Envelope
from peloton.runtime.vocabulary import Key, key


class PlacerMachine:
    """A placer as a soft machine: whatever it held, it asks the inventories for anew."""

    own_thread = False

    def __init__(self, inventories: list[Key]) -> None:
        self._inventories = inventories
        self._key = key("placer", 0)
        self.reset()

    def reset(self) -> None:
        """A placer that raised is thrown away."""
        self._placer = Placer(self._key, inventories=self._inventories)

    def rename(self, member: str) -> None:
        """What was said to us under the old name finds nobody: begin anew."""
        self._key = key("placer", member)
        self.reset()

    @property
    def wake_at(self) -> float | None:
        """When the placer wants to ask again for what it missed."""
        return self._placer.wake_at

    def receive(self, envelopes: list[Envelope], now: float) -> Iterable[Envelope]:
        """Wishes and summaries in, proposals out."""
        mail = [(envelope.sender, envelope.message) for envelope in envelopes]
        return [
            Envelope(send.to, send.message, sender=self._placer.key)
            for send in self._placer.receive(mail, now)
        ]
