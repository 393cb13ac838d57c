"""A subscription of a daemon at the master, whose words take time both ways."""

from __future__ import annotations

from collections.abc import Callable

from tests.backends.mesos.words import Json
from tests.servers.mesos_model.times import Times, Wire

STREAM_S = 0.8


class Stream:
    """One subscription."""

    def __init__(self, times: Times, heard: Callable[[Json], None]) -> None:
        self.open = True
        self.calls = Wire(times, delay_s=STREAM_S)
        self.events = Wire(times, delay_s=STREAM_S)
        self._heard = heard

    def tell(self, event: Json) -> None:
        """The daemon hears this."""
        self.events.send(lambda: self._heard(event))

    def end(self) -> None:
        """What is under way is lost, both ways."""
        self.open = False
        self.calls.cut()
        self.events.cut()
