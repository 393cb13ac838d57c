"""The messages and ports of the peer shell, and its table of pending calls to other daemons.

A call to another daemon travels as a number; the answer that comes back under this number resolves
the future of the caller. No call is lost: each one is answered, given up or times out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from peloton.runtime.core.links.packing import Route
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.ports import ShardId
from peloton.runtime.shells.shell_messages import Ref, resolve, send
from peloton.runtime.vocabulary import Key, Unavailable

REMOTE_ASK_S_MAX = 30.0
"""A call to another daemon without an answer for so long is answered `Unavailable` here."""


class Peers(NamedTuple):
    """To the peer shell: the members of the view of this version, with their addresses.

    `me` is our own member id; when it changes, all links start from scratch. `said`: why there is
    no contact with a member, in its own words.
    """

    view: int
    members: Mapping[str, str]
    me: str = ""
    said: Mapping[str, str] = {}


class Outbound(NamedTuple):
    """To the peer shell: envelopes for a route that is at `peer` by the view of this version.

    `sender` is the sending shard, under `epoch`; None if the sender is no shard.
    """

    peer: str
    view: int
    route: Route
    envelopes: list[Envelope]
    sender: ShardId | None = None
    epoch: int = 0


class Inbound(NamedTuple):
    """To the router: a batch from `peer`, which packed it under the view of that version.

    The reply address of an envelope is an object whose `set_result` sends the answer back.
    """

    peer: str
    view: int
    route: Route
    envelopes: list[Envelope]
    sender: ShardId | None
    epoch: int


class Router(Protocol):
    """The peer shell's calls of its daemon, on its thread; they must not wait."""

    def deliver(self, arrived: Inbound) -> bool:
        """Accept a batch; return False if its route is not local, and all of it is refused."""

    def misdirected(self, peer: str, route: Route, *, view: int) -> None:
        """Handle a batch that the peer refused: in its view the route is not there."""

    def peer_reachable(self) -> None:
        """Repeat what may have been lost: a peer that was out of reach is reachable again."""

    def report_problem(self, name: str, text: str) -> None:
        """Report what is wrong under this name; an empty text clears it."""

    def links_reset(self, text: str) -> None:
        """Report that the shell raised, and all links were reset."""


# ---- events of streams ----


class StreamAccepted(NamedTuple):
    stream: int


class FrameArrived(NamedTuple):
    stream: int
    data: bytes


class StreamClosed(NamedTuple):
    stream: int
    text: str


class PeerStreamListener:
    """Puts the events of streams into the shell's inbox."""

    def __init__(self, ref: Ref) -> None:
        self._ref = ref

    def accepted(self, stream: int) -> None:
        send(self._ref, StreamAccepted(stream))

    def arrived(self, stream: int, data: bytes) -> None:
        send(self._ref, FrameArrived(stream, data))

    def closed(self, stream: int, text: str) -> None:
        send(self._ref, StreamClosed(stream, text))


# ---- calls to other daemons ----


class RemoteAnswer(NamedTuple):
    """To the peer shell: the answer to call `number` of `peer`, from the entity `asked`."""

    peer: str
    number: int
    asked: Key
    value: Any


class RemoteReplyAddress:
    """The reply address of a caller at another daemon; used like a future."""

    __slots__ = ("_answered", "_asked", "_number", "_peer", "_ref")

    def __init__(self, ref: Ref, peer: str, *, number: int, asked: Key) -> None:
        self._ref, self._peer, self._number, self._asked = ref, peer, number, asked
        self._answered = False

    def set_result(self, value: Any) -> None:
        """Send the answer, from any thread. Of two answers the caller takes the first."""
        if not self._answered:
            self._answered = True
            send(self._ref, RemoteAnswer(self._peer, self._number, self._asked, value))


class PendingAsk(NamedTuple):
    """A call that was sent and is not answered yet."""

    future: Any
    asked: Key
    peer: str
    until_s: float


class PendingAsks:
    """The pending calls. A number is never used again, so a late answer is dropped."""

    def __init__(self) -> None:
        self._pending: dict[int, PendingAsk] = {}  # the oldest first: it is the first to time out
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._pending)

    def open(self, future: Any, asked: Key, *, peer: str, now: float) -> int:
        """Add a call that is about to be sent; return its number."""
        number = next(self._numbers)
        self._pending[number] = PendingAsk(future, asked, peer, now + REMOTE_ASK_S_MAX)
        return number

    def take(self, number: int, peer: str) -> PendingAsk | None:
        """Remove a call and return it; None if `peer` has no pending call of this number."""
        pending = self._pending.get(number)
        if pending is None or pending.peer != peer:
            return None
        return self._pending.pop(number)

    def give_up(self, numbers: Iterable[int], *, peer: str, text: str) -> None:
        """Answer these calls `Unavailable`, with the reason; calls to other peers are skipped."""
        for number in numbers:
            pending = self.take(number, peer)
            if pending is not None:
                resolve(pending.future, Unavailable(text))

    def give_up_all(self, text: str, peer: str | None = None) -> None:
        """Answer all calls to `peer`, or to any peer if None, with `Unavailable`."""
        for number, pending in [*self._pending.items()]:
            if peer in (None, pending.peer):
                self.give_up((number,), peer=pending.peer, text=text)

    def give_up_late(self, now: float) -> None:
        """Answer the calls whose time is over with `Unavailable`."""
        while self._pending:
            number, pending = next(iter(self._pending.items()))
            if pending.until_s > now:
                return
            text = f"{pending.peer} has not answered for {REMOTE_ASK_S_MAX:.0f} s"
            self.give_up((number,), peer=pending.peer, text=text)

    def due_s(self) -> float | None:
        """Return when the first call times out; None if none is pending."""
        return next((pending.until_s for pending in self._pending.values()), None)
