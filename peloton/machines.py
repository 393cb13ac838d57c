"""Soft machines that the assembly wires: placement as the runtime's shells drive it.

Turns envelopes into calls of a pure placer and its sends into envelopes. It must not hold anything
that a restart would miss: a placer asks the inventories for all it needs to know.
"""

from __future__ import annotations

from collections.abc import Iterable

from peloton.placement.placer import Placer, PlacerSettings
from peloton.runtime.core.envelope import Envelope
from peloton.runtime.vocabulary import Key, key


class PlacerMachine:
    """A placer as a soft machine: whatever it held, it asks the inventories for anew."""

    own_thread = False

    def __init__(self, inventories: list[Key]) -> None:
        self._inventories = inventories
        self._key, self._part, self._parts = key("placer", 0), 0, 1
        self.reset()

    def reset(self) -> None:
        """A placer that raised is thrown away."""
        settings = PlacerSettings(part=self._part, parts=self._parts)
        self._placer = Placer(self._key, settings, inventories=self._inventories)

    def rename(self, member: str, *, number: int, count: int) -> None:
        """What was said to us under the old name finds nobody: begin anew. With more or fewer
        placers beside us, each goes on in another part of the hosts."""
        self._part, self._parts = number, count
        if self._key == key("placer", member):
            self._placer.index.take_part(number, count)
        else:
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
