"""The peer shell: what this daemon says to the others and hears from them.

Turns envelopes for places elsewhere into letters on links, frames of streams into envelopes for
places here, and asks into numbers that come back with an answer. One per daemon. It must never
block, decide where a place is, or leave an ask without an answer: a peer that vanishes, refuses or
stays silent answers `Unavailable`.

    tell(ref, Peers(view, {member: address}))          who is there, from the membership
    tell(ref, Outbound(peer, view, place, envelopes))  to a place elsewhere
    hall.deliver(Arrived(...)) -> bool                  what came; False: that place is not here
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec

from peloton.runtime.core.codec import encode
from peloton.runtime.core.envelope import Envelope
from peloton.runtime.core.packing import (
    AskReply,
    MailBatch,
    Packing,
    UnreadableMessage,
    WrongRoute,
    read_batch,
)
from peloton.runtime.core.parcels import BATCH_BYTES_MAX, Link, LinkLimits, Received
from peloton.runtime.core.wire import read_hello
from peloton.runtime.ports import Exchange
from peloton.runtime.shells.daemon_context import BATCH_BYTES
from peloton.runtime.shells.peer_messages import (
    FrameArrived,
    Inbound,
    Outbound,
    Peers,
    PeerStreamListener,
    Router,
    StreamAccepted,
    StreamClosed,
)
from peloton.runtime.shells.pending_asks import PendingAsks, RemoteAnswer, RemoteReplyAddress
from peloton.runtime.shells.shell import Driver, Shell
from peloton.runtime.shells.shell_messages import resolve
from peloton.runtime.vocabulary import Key, Unavailable

DOWN_S_MAX = 5.0
"""A peer out of reach for so long: what it was asked is answered `Unavailable`."""
STRANGER_S_MAX = 5.0
"""A stream that does not greet by then is closed."""


class PeerShell(Shell):
    """All links of one daemon. `me` is its member id, unique per life."""

    def __init__(
        self, me: str, driver: Driver, *, exchange: Exchange, packing: Packing, router: Router
    ) -> None:
        super().__init__("peer", driver)
        self.me = me
        self.limits = LinkLimits()
        self.batch_bytes = BATCH_BYTES
        self.links: dict[str, Link] = {}
        self.counts: Counter[str] = Counter()
        self._exchange = exchange
        self._packing = packing
        self._router = router
        self._view = 0
        self._addresses: dict[str, str] = {}
        self._streams: dict[int, Link] = {}
        self._strangers: dict[int, float] = {}  # streams that came in and did not greet yet
        self._down: dict[str, None] = {}
        self._asks = PendingAsks()
        self._births = itertools.count(1)
        exchange.listen(PeerStreamListener(self.ref))

    # ---- letters ----

    def handle(self, letter: Any) -> None:
        """Every letter; at the end of a grant all links speak, so that parcels are full."""
        if isinstance(letter, Outbound):
            self._outbound(letter)
        elif isinstance(letter, FrameArrived):
            self._came(letter.stream, letter.data)
        elif isinstance(letter, RemoteAnswer):
            self._answered(letter)
        elif isinstance(letter, Peers):
            self._peers(letter)
        elif isinstance(letter, StreamAccepted):
            self._strangers[letter.stream] = self.now
        elif isinstance(letter, StreamClosed):
            self._closed(letter.stream)
        if self.actor_inbox.at_end():
            self._look()

    def failed(self, error: BaseException) -> None:
        """A broken belief: every link begins anew, and its peers learn that by its birth."""
        text = f"{type(error).__name__}: {error}"
        for stream in (*self._streams, *self._strangers):
            self._exchange.close(stream)
        self._streams, self._strangers = {}, {}
        self._asks.give_up_all(f"the links of this daemon broke: {text}")
        self.links = {peer: self._link(peer) for peer in self._addresses}
        self._router.broke(text)
        self.again()

    # ---- out ----

    def _outbound(self, letter: Outbound) -> None:
        link = self.links.get(letter.peer)
        batch: list[bytes] = []
        asks: list[int] = []
        size = 0
        for envelope in letter.envelopes:
            number = 0
            if envelope.reply_to is not None:
                if link is None or letter.peer in self._down:
                    resolve(envelope.reply_to, Unavailable(f"{letter.peer} is out of reach"))
                    continue
                number = self._asks.open(
                    envelope.reply_to, envelope.to, peer=letter.peer, now=self.now
                )
            if link is None:
                self.counts["nowhere"] += 1
                continue
            body = self._pack(envelope, number)
            if body is None:
                self._asks.take(number, letter.peer)
                continue
            if batch and size + len(body) > self.batch_bytes:
                self.counts["split"] += 1
                self._mail(letter, batch, asks=asks)
                batch, asks, size = [], [], 0
            batch.append(body)
            size += len(body)
            if number:
                asks.append(number)
        if batch:
            self._mail(letter, batch, asks=asks)

    def _pack(self, envelope: Envelope, number: int) -> bytes | None:
        try:
            return self._packing.pack(envelope, number)
        except Exception as error:  # what no bytes can hold must not end the links
            self._unpackable(f"to {envelope.to}: {type(error).__name__}: {error}")
            if number:
                resolve(envelope.reply_to, Unavailable(f"it cannot travel: {error}"))
            return None

    def _unpackable(self, text: str) -> None:
        self.counts["unpackable"] += 1
        self._router.trouble("packing", text)

    def _mail(self, letter: Outbound, batch: list[bytes], *, asks: list[int]) -> None:
        envelopes = [msgspec.Raw(body) for body in batch]
        mailed = encode(MailBatch(letter.place, letter.sender, letter.epoch, envelopes))
        if not self.links[letter.peer].send(mailed, letter.view, asks=asks):
            text = f"too much waits for {letter.peer}"
            self._asks.give_up(asks, peer=letter.peer, text=text)

    def _answered(self, letter: RemoteAnswer) -> None:
        link = self.links.get(letter.peer)
        if link is None:
            return
        try:
            answer = self._packing.pack_answer(letter.asked, letter.value)
        except Exception as error:
            self._unpackable(f"from {letter.asked}: {type(error).__name__}: {error}")
            self._refuse(link, letter.number, text=f"the answer cannot travel: {error}")
            return
        body = encode(AskReply(letter.number, msgspec.Raw(answer)))
        if len(body) > BATCH_BYTES_MAX:
            self._refuse(link, letter.number, text=f"an answer of {len(body)} bytes")
        else:
            link.send(body, self._view)  # where there is no room, the asker's own time runs out

    def _refuse(self, link: Link, number: int, *, text: str) -> None:
        answer = self._packing.pack_answer(Key(""), Unavailable(text))
        link.send(encode(AskReply(number, msgspec.Raw(answer))), self._view)

    # ---- in ----

    def _came(self, stream: int, data: bytes) -> None:
        link = self._streams.get(stream)
        if link is not None:
            received = link.received(data, self.now)
            if received.trouble:
                self._close(link)
            self._letters(link, received)
        elif self._strangers.pop(stream, None) is not None:
            self._met(stream, data)

    def _met(self, stream: int, data: bytes) -> None:
        """The first frame of a stream that came in: from whom is it?"""
        hello = read_hello(data)
        link = self.links.get(hello.member) if hello is not None else None
        if hello is None or link is None:
            # Perhaps their view is newer than ours: they dial again.
            self.counts["strangers"] += 1
            self._exchange.close(stream)
            return
        older = link.stream
        answer, trouble = link.met(stream, hello, now=self.now)
        if trouble and link.stream != stream:
            self.counts["refused"] += 1
            self._exchange.close(stream)
            return
        if older is not None:
            self._streams.pop(older, None)
            self._exchange.close(older)
        self._streams[stream] = link
        if trouble:
            self._close(link)
        else:
            self._exchange.send(stream, answer)

    def _letters(self, link: Link, received: Received) -> None:
        for raw in received.batches:
            try:
                letter = read_batch(raw)
            except msgspec.DecodeError:
                self.counts["unreadable"] += 1
                continue
            if isinstance(letter, MailBatch):
                self._mailed(link, letter, view=received.view)
            elif isinstance(letter, AskReply):
                self._replied(link, letter)
            else:
                text = f"{letter.place} is not at {link.peer}"
                self._asks.give_up(letter.asks, peer=link.peer, text=text)
                self._router.misdirected(link.peer, letter.place, view=letter.view)

    def _mailed(self, link: Link, letter: MailBatch, *, view: int) -> None:
        envelopes, asks = [], []
        for raw in letter.envelopes:
            try:
                envelope = self._packing.unpack(raw)
            except msgspec.DecodeError:
                self.counts["unreadable"] += 1
                continue
            number = envelope.reply_to or 0
            if isinstance(envelope.message, UnreadableMessage):
                self.counts["unknown"] += 1
                if number:
                    self._refuse(link, number, text=envelope.message.text)
                continue
            if number:
                asks.append(number)
                asked = RemoteReplyAddress(self.ref, link.peer, number=number, asked=envelope.to)
                envelope = envelope._replace(reply_to=asked)
            envelopes.append(envelope)
        if not envelopes:
            return
        here = Inbound(link.peer, view, letter.place, envelopes, letter.sender, letter.epoch)
        if not self._router.deliver(here):
            link.send(encode(WrongRoute(letter.place, self._view, asks)), self._view)

    def _replied(self, link: Link, letter: AskReply) -> None:
        waits = self._asks.take(letter.reply_to, link.peer)
        if waits is not None:
            resolve(waits.future, self._packing.unpack_answer(waits.asked, letter.answer))

    # ---- peers and streams ----

    def _peers(self, letter: Peers) -> None:
        if letter.me and letter.me != self.me:
            self._rename(letter.me)
        if letter.view < self._view:
            return
        self._view = letter.view
        addresses = {peer: at for peer, at in letter.members.items() if peer != self.me}
        for peer in [peer for peer in self.links if peer not in addresses]:
            link = self.links.pop(peer)
            self._close(link)
            self._asks.give_up_all(f"{peer} has left", peer)
            self._up(peer)
        for peer, address in addresses.items():
            if peer not in self.links:
                self.links[peer] = self._link(peer)
            elif self._addresses.get(peer) != address:
                self._close(self.links[peer])
        self._addresses = addresses

    def _rename(self, me: str) -> None:
        """To all others we are new, and who we were has left."""
        for peer in [*self.links]:
            self._close(self.links.pop(peer))
            self._up(peer)
        self._asks.give_up_all("this daemon begins a new session")
        self.me, self._view, self._addresses = me, 0, {}

    def _link(self, peer: str) -> Link:
        return Link(self.me, peer, birth=next(self._births), limits=self.limits)

    def _close(self, link: Link) -> None:
        if link.stream is not None:
            self._streams.pop(link.stream, None)
            self._exchange.close(link.stream)
            link.closed(self.now)

    def _closed(self, stream: int) -> None:
        self._strangers.pop(stream, None)
        link = self._streams.pop(stream, None)
        if link is not None:
            link.closed(self.now)

    def _look(self) -> None:
        """Close what hangs, dial what is due, send what there is, and ask to be woken."""
        now = self.now
        strangers = self._strangers.items()
        for stream in [at for at, since_s in strangers if since_s + STRANGER_S_MAX <= now]:
            del self._strangers[stream]
            self._exchange.close(stream)
        for link in self.links.values():
            self._tend(link, now)
        self._asks.give_up_late(now)
        wake_s = min((at for at in self._wakes() if at is not None), default=None)
        if wake_s is not None:
            self.wake(wake_s)

    def _tend(self, link: Link, now: float) -> None:
        if link.look(now):
            self._close(link)
        if link.lost:
            text = f"{link.peer} has forgotten this daemon, and perhaps the ask"
            self._asks.give_up(link.lost, peer=link.peer, text=text)
            link.lost = []
        dial_s = link.dial_s()
        if dial_s is not None and dial_s <= now:
            stream = self._exchange.dial(self._addresses[link.peer])
            self._streams[stream] = link
            self._exchange.send(stream, link.dialled(stream, now))
        for frame in link.frames(now):
            assert link.stream is not None
            self._exchange.send(link.stream, frame)
        since_s = link.down_since_s
        if since_s is None:
            if link.peer in self._down:
                self._up(link.peer)
                self._router.reached()
        elif now >= since_s + DOWN_S_MAX and link.peer not in self._down:
            self._down[link.peer] = None
            self._asks.give_up_all(f"{link.peer} is out of reach", link.peer)
            self._router.trouble(f"peer-{link.peer}", "out of reach")

    def _up(self, peer: str) -> None:
        if peer in self._down:
            del self._down[peer]
            self._router.trouble(f"peer-{peer}", "")

    def _wakes(self) -> Iterator[float | None]:
        for link in self.links.values():
            yield link.dial_s()
            yield link.stall_s()
            yield link.ping_s()
            yield link.ack_s()
            if link.down_since_s is not None and link.peer not in self._down:
                yield link.down_since_s + DOWN_S_MAX
        yield from (since_s + STRANGER_S_MAX for since_s in self._strangers.values())
        yield self._asks.due_s()
