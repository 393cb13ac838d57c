"""The placer as an ephemeral service, which the runtime's shells drive.

Turns envelopes into calls of a pure placer and its sends into envelopes. Nothing has to survive a
restart: a placer queries the inventories for all it needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from peloton.placement.messages import LaunchesStopped
from peloton.placement.placer import Placer, PlacerSettings
from peloton.placement.strategies import STRATEGIES, Strategy
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.vocabulary import Key, key
from peloton.settings.daemon import DaemonSettings


class PlacerService:
    """A placer as an ephemeral service; after a reset it queries the inventories again."""

    own_thread = False

    def __init__(
        self,
        inventories: list[Key],
        *,
        scarce_gpu: bool = False,
        strategies: Mapping[str, Strategy] = STRATEGIES,
    ) -> None:
        self._inventories, self._scarce_gpu = inventories, scarce_gpu
        self._strategies = strategies
        self._key, self._part, self._parts = key("placer", 0), 0, 1
        self._stopped = ""  # of which a new placer has to be told
        self.reset()

    def reset(self) -> None:
        """Replace the placer by a new one; also called after it raised."""
        settings = PlacerSettings(part=self._part, parts=self._parts, scarce_gpu=self._scarce_gpu)
        self._placer = Placer(
            self._key, settings, inventories=self._inventories, strategies=self._strategies
        )
        self._placer.stop_launches(self._stopped)

    def rename(self, member: str, *, number: int, count: int) -> None:
        """Start with a new placer: messages to the old key are lost.

        If only the number of placers changed, it is kept, and takes another part of the hosts.
        """
        self._part, self._parts = number, count
        if self._key == key("placer", member):
            self._placer.index.take_part(number, count)
        else:
            self._key = key("placer", member)
            self.reset()

    @property
    def placer(self) -> Placer:
        """The present placer, for tests, which read its view."""
        return self._placer

    @property
    def wake_at(self) -> float | None:
        """When the placer has to repeat a query for a summary that it missed."""
        return self._placer.wake_at

    def hurry(self) -> None:
        """Repeat queries: inventories may be reachable again."""
        self._placer.hurry()

    def receive(self, envelopes: list[Envelope], now: float) -> Iterable[Envelope]:
        """Take wishes and summaries; return proposals."""
        for envelope in envelopes:
            if isinstance(envelope.message, LaunchesStopped):
                self._stopped = envelope.message.text
        mail = [(envelope.sender, envelope.message) for envelope in envelopes]
        return [
            Envelope(send.to, send.message, sender=self._placer.key)
            for send in self._placer.receive(mail, now)
        ]


def placer_service(
    settings: DaemonSettings, inventories: list[Key], *, strategies: Mapping[str, Strategy]
) -> PlacerService:
    """Return the placer of a daemon."""
    scarce = "GPU" in settings.limits.scarce_resource_types
    return PlacerService(inventories, scarce_gpu=scarce, strategies=strategies)
