"""What the peer shell is told by the daemon around it and by streams, and what it tells back.

Must hold no behaviour but to pass on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from peloton.runtime.core.envelope import Envelope
from peloton.runtime.core.packing import Route
from peloton.runtime.ports import ShardId
from peloton.runtime.shells.shell_messages import Ref, send


class Peers(NamedTuple):
    """To the peer shell: the daemons of the view of this version, with their addresses.

    `me` is our own member id: with another one than before, all links begin anew.
    """

    view: int
    members: Mapping[str, str]
    me: str = ""


class Outbound(NamedTuple):
    """To the peer shell: envelopes for a place that is `peer`'s by the view of this version.

    `sender` is the shard that speaks, under `epoch`; None for what speaks for no shard.
    """

    peer: str
    view: int
    place: Route
    envelopes: list[Envelope]
    sender: ShardId | None = None
    epoch: int = 0


class Inbound(NamedTuple):
    """To the hall: a letter from `peer`, who packed it under the view of that version.

    An ask in it is an object whose `set_result` carries the answer back.
    """

    peer: str
    view: int
    place: Route
    envelopes: list[Envelope]
    sender: ShardId | None
    epoch: int


class Router(Protocol):
    """What the peer shell needs of the daemon around it; called on its thread, never waits."""

    def deliver(self, arrived: Inbound) -> bool:
        """Take a letter; False where its place is not here, and then all of it is refused."""

    def misdirected(self, peer: str, place: Route, *, view: int) -> None:
        """The peer, at that version of its view, is not where the place lives."""

    def reached(self) -> None:
        """A peer that was out of reach is there again."""

    def trouble(self, name: str, text: str) -> None:
        """What is wrong under this name; empty when nothing is any more."""

    def broke(self, text: str) -> None:
        """The shell raised, and began anew."""


# ---- what the outside tells the shell ----


class StreamAccepted(NamedTuple):
    stream: int


class FrameArrived(NamedTuple):
    stream: int
    data: bytes


class StreamClosed(NamedTuple):
    stream: int
    text: str


class PeerStreamListener:
    """Puts what happens to streams into the shell's inbox."""

    def __init__(self, ref: Ref) -> None:
        self._ref = ref

    def accepted(self, stream: int) -> None:
        send(self._ref, StreamAccepted(stream))

    def arrived(self, stream: int, data: bytes) -> None:
        send(self._ref, FrameArrived(stream, data))

    def closed(self, stream: int, text: str) -> None:
        send(self._ref, StreamClosed(stream, text))
