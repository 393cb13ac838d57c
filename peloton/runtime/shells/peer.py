"""The peer shell: sends mail to other daemons and receives theirs; one per daemon.

Packs envelopes for remote routes into batches on links, unpacks the frames of streams into
envelopes for local routes, and turns calls into numbers that come back with an answer. It never
blocks, and leaves no call without an answer: if a peer vanishes, refuses or does not answer, the
call is answered `Unavailable`.

    send(ref, Peers(view, {member: address}))          the members, from the membership
    send(ref, Outbound(peer, view, route, envelopes))  mail for a remote route
    router.deliver(Inbound(...)) -> bool               mail of a peer; False: not a local route
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from peloton.runtime.core.entities.encoding import UNREADABLE, encode
from peloton.runtime.core.links.packing import (
    AskReply,
    MailBatch,
    Packing,
    UnreadableMessage,
    WrongRoute,
    read_batch,
)
from peloton.runtime.core.links.parcels import (
    BATCH_BYTES_MAX,
    Link,
    LinkLimits,
    Received,
)
from peloton.runtime.core.links.wire import read_hello
from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.ports import Exchange
from peloton.runtime.shells.daemon_context import BATCH_BYTES
from peloton.runtime.shells.peer_contacts import PeerContacts
from peloton.runtime.shells.peer_messages import (
    FrameArrived,
    Inbound,
    Outbound,
    Peers,
    PeerStreamListener,
    PendingAsks,
    RemoteAnswer,
    RemoteReplyAddress,
    Router,
    StreamAccepted,
    StreamClosed,
)
from peloton.runtime.shells.shell import Driver, Shell
from peloton.runtime.shells.shell_messages import resolve
from peloton.runtime.vocabulary import Key, Unavailable

COMPANY_S = 0.002
"""So long after a frame a link's mail waits for more to share the next one: a frame alone costs
twenty times what one among many does. Mail of a link that was quiet leaves at once."""
HANDSHAKE_S_MAX = 5.0
"""An accepted stream without a greeting for so long is closed."""


class PeerShell(Shell):
    """The shell of all links of one daemon. `me` is its member id, unique per life."""

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
        self._streams: dict[int, Link] = {}
        self._unidentified: dict[int, float] = {}  # accepted streams without a greeting yet
        self.contacts = PeerContacts(exchange)
        self._gather_until_s: dict[str, float] = {}  # links whose mail waits for company
        self._asks = PendingAsks()
        self._link_births = itertools.count(1)
        exchange.listen(PeerStreamListener(self.ref))

    # ---- messages ----

    def handle(self, message: Any) -> None:
        """Process one message; at the end of a grant all links send, so that parcels are full."""
        if isinstance(message, Outbound):
            self._outbound(message)
        elif isinstance(message, FrameArrived):
            self._frame_arrived(message.stream, message.data)
        elif isinstance(message, RemoteAnswer):
            self._send_answer(message)
        elif isinstance(message, Peers):
            self._update_peers(message)
        elif isinstance(message, StreamAccepted):
            self._unidentified[message.stream] = self.now
        elif isinstance(message, StreamClosed):
            self._stream_closed(message.stream, message.text)
        if self.actor_inbox.at_end():
            self._service_links()

    def failed(self, error: BaseException) -> None:
        """Reset all links, whose state may be wrong; peers notice by the new birth number."""
        text = f"{type(error).__name__}: {error}"
        for stream in (*self._streams, *self._unidentified):
            self._exchange.close(stream)
        self._streams, self._unidentified = {}, {}
        self.contacts.own.stop()
        self._asks.give_up_all(f"the links of this daemon were reset: {text}")
        self.links = {peer: self._link(peer) for peer in self.contacts.addresses}
        self._router.links_reset(text)
        self.wake_soon()

    # ---- out ----

    def _outbound(self, mail: Outbound) -> None:
        link = self.links.get(mail.peer)
        batch: list[bytes] = []
        asks: list[int] = []
        size = 0
        for envelope in mail.envelopes:
            number = 0
            if envelope.reply_to is not None:
                if link is None or mail.peer in self.contacts.down:
                    gone = f"{self.contacts.named(mail.peer)} is no member any more"
                    resolve(envelope.reply_to, Unavailable(self.contacts.down.get(mail.peer, gone)))
                    continue
                number = self._asks.open(
                    envelope.reply_to, envelope.to, peer=mail.peer, now=self.now
                )
            if link is None:
                self.counts["nowhere"] += 1
                continue
            body = self._pack(envelope, number)
            if body is None:
                self._asks.take(number, mail.peer)
                continue
            if batch and size + len(body) > self.batch_bytes:
                self.counts["split"] += 1
                self._send_batch(mail, batch, asks=asks)
                batch, asks, size = [], [], 0
            batch.append(body)
            size += len(body)
            if number:
                asks.append(number)
        if batch:
            self._send_batch(mail, batch, asks=asks)

    def _pack(self, envelope: Envelope, number: int) -> bytes | None:
        try:
            return self._packing.pack(envelope, number)
        except Exception as error:  # a value that cannot be encoded must not reset the links
            self._unpackable(f"to {envelope.to}: {type(error).__name__}: {error}")
            if number:
                resolve(envelope.reply_to, Unavailable(f"the message cannot be encoded: {error}"))
            return None

    def _unpackable(self, text: str) -> None:
        self.counts["unpackable"] += 1
        self._router.report_problem("packing", text)

    def _send_batch(self, mail: Outbound, batch: list[bytes], *, asks: list[int]) -> None:
        envelopes = [msgspec.Raw(body) for body in batch]
        body = encode(MailBatch(mail.route, mail.sender, mail.epoch, envelopes))
        if not self.links[mail.peer].send(body, mail.view, asks=asks):
            text = f"the send queue to {self.contacts.named(mail.peer)} is full"
            self._asks.give_up(asks, peer=mail.peer, text=text)

    def _send_answer(self, answer: RemoteAnswer) -> None:
        link = self.links.get(answer.peer)
        if link is None:
            return
        try:
            packed = self._packing.pack_answer(answer.asked, answer.value)
        except Exception as error:
            self._unpackable(f"from {answer.asked}: {type(error).__name__}: {error}")
            self._refuse(link, answer.number, text=f"the answer cannot be encoded: {error}")
            return
        body = encode(AskReply(answer.number, msgspec.Raw(packed)))
        if len(body) > BATCH_BYTES_MAX:
            text = f"the answer has {len(body)} bytes, the limit is {BATCH_BYTES_MAX}"
            self._refuse(link, answer.number, text=text)
        else:
            link.send(body, self._view)  # if the queue is full, the caller's deadline passes

    def _refuse(self, link: Link, number: int, *, text: str) -> None:
        answer = self._packing.pack_answer(Key(""), Unavailable(text))
        link.send(encode(AskReply(number, msgspec.Raw(answer))), self._view)

    # ---- in ----

    def _frame_arrived(self, stream: int, data: bytes) -> None:
        link = self._streams.get(stream)
        if link is not None:
            received = link.received(data, self.now)
            if received.trouble:
                self._close(link, received.trouble)
            self._receive(link, received)
        elif self._unidentified.pop(stream, None) is not None:
            self._identify(stream, data)

    def _identify(self, stream: int, data: bytes) -> None:
        """Read the first frame of an accepted stream: a greeting, which names the peer."""
        hello = read_hello(data)
        if self.contacts.own.greets(hello):
            self._exchange.close(stream)
            return
        link = self.links.get(hello.member) if hello is not None else None
        if hello is None or link is None:
            # Perhaps the view of the peer is newer than ours; it dials again.
            self.counts["strangers"] += 1
            self._exchange.close(stream)
            return
        older = link.stream
        answer, trouble = link.greeted_by(stream, hello, now=self.now)
        if trouble and link.stream != stream:
            self.counts["refused"] += 1
            self._exchange.close(stream)
            return
        if older is not None:
            self._streams.pop(older, None)
            self._exchange.close(older)
        self._streams[stream] = link
        if trouble:
            self._close(link, trouble)
        else:
            self._exchange.send(stream, answer)

    def _receive(self, link: Link, received: Received) -> None:
        for raw in received.batches:
            try:
                batch = read_batch(raw)
            except UNREADABLE:
                self.counts["unreadable"] += 1
                continue
            if isinstance(batch, MailBatch):
                self._receive_mail(link, batch, view=received.view)
            elif isinstance(batch, AskReply):
                self._receive_reply(link, batch)
            else:
                text = f"{batch.route} is not at {self.contacts.named(link.peer)}"
                self._asks.give_up(batch.asks, peer=link.peer, text=text)
                self._router.misdirected(link.peer, batch.route, view=batch.view)

    def _receive_mail(self, link: Link, batch: MailBatch, *, view: int) -> None:
        envelopes, asks = [], []
        for raw in batch.envelopes:
            try:
                envelope = self._packing.unpack(raw)
            except UNREADABLE:
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
                address = RemoteReplyAddress(self.ref, link.peer, number=number, asked=envelope.to)
                envelope = replace(envelope, reply_to=address)
            envelopes.append(envelope)
        if not envelopes:
            return
        mail = Inbound(link.peer, view, batch.route, envelopes, batch.sender, batch.epoch)
        if not self._router.deliver(mail):
            link.send(encode(WrongRoute(batch.route, self._view, asks)), self._view)

    def _receive_reply(self, link: Link, reply: AskReply) -> None:
        pending = self._asks.take(reply.reply_to, link.peer)
        if pending is not None:
            resolve(pending.future, self._packing.unpack_answer(pending.asked, reply.answer))

    # ---- peers and streams ----

    def _update_peers(self, peers: Peers) -> None:
        if peers.me and peers.me != self.me:
            self._rename(peers.me)
        if peers.view < self._view:
            return
        self._view = peers.view
        addresses = {peer: at for peer, at in peers.members.items() if peer != self.me}
        for peer in [peer for peer in self.links if peer not in addresses]:
            link = self.links.pop(peer)
            self._close(link, "it has left")
            self._asks.give_up_all(f"{self.contacts.named(peer)} has left", peer)
            self.contacts.clear(peer)
        for peer, address in addresses.items():
            if peer not in self.links:
                self.links[peer] = self._link(peer)
            elif self.contacts.addresses.get(peer) != address:
                self._close(self.links[peer], "it has another address")
        self.contacts.update(peers, addresses, me=self.me, now=self.now)

    def _rename(self, me: str) -> None:
        """Begin a new session: to all others the former member has left and this is a new one."""
        for peer in [*self.links]:
            self._close(self.links.pop(peer), "a new session begins")
        self.contacts.restart(self.now)
        self._asks.give_up_all("this daemon begins a new session")
        self.me, self._view = me, 0

    def _link(self, peer: str) -> Link:
        return Link(self.me, peer, birth=next(self._link_births), limits=self.limits)

    def _close(self, link: Link, why: str) -> None:
        if link.stream is not None:
            self._streams.pop(link.stream, None)
            self._exchange.close(link.stream)
            link.closed(self.now)
            self.contacts.closed(link, why, self.now)

    def _stream_closed(self, stream: int, text: str) -> None:
        if self.contacts.own.closed(stream, text, self.now):
            return
        self._unidentified.pop(stream, None)
        link = self._streams.pop(stream, None)
        if link is not None:
            link.closed(self.now)
            self.contacts.closed(link, text if link.dials else "", self.now)

    def _service_links(self) -> None:
        """Close streams that hang, dial where it is due, send what waits, and set the wake-up."""
        now = self.now
        unidentified = self._unidentified.items()
        for stream in [at for at, since_s in unidentified if since_s + HANDSHAKE_S_MAX <= now]:
            del self._unidentified[stream]
            self._exchange.close(stream)
        for link in self.links.values():
            self._service_link(link, now)
        gathering = self._gather_until_s.items()
        self._gather_until_s = {peer: until_s for peer, until_s in gathering if until_s > now}
        self._asks.give_up_late(now)
        self.contacts.report(now)
        wake_s = min((at for at in self._wake_times() if at is not None), default=None)
        if wake_s is not None:
            self.wake(wake_s)

    def _service_link(self, link: Link, now: float) -> None:
        late = link.overdue(now)
        if late:
            self._close(link, late)
        if link.lost:
            peer = self.contacts.named(link.peer)
            text = f"{peer} lost the state of its link: the call may or may not have arrived"
            self._asks.give_up(link.lost, peer=link.peer, text=text)
            link.lost = []
        dial_s = link.dial_s()
        if dial_s is not None and dial_s <= now:
            stream = self._exchange.dial(self.contacts.addresses[link.peer])
            self._streams[stream] = link
            self._exchange.send(stream, link.dialled(stream, now))
        if self._gather_until_s.get(link.peer, now) <= now:
            for frame in link.frames(now):
                assert link.stream is not None
                self._exchange.send(link.stream, frame)
                self._gather_until_s[link.peer] = now + COMPANY_S
        why = self.contacts.look(link, now)
        if why:
            self._asks.give_up_all(why, link.peer)
        elif link.down_since_s is None and self.contacts.clear(link.peer):
            self._router.peer_reachable()

    def _wake_times(self) -> Iterator[float | None]:
        for link in self.links.values():
            yield link.dial_s()
            yield link.stall_s()
            if link.peer not in self._gather_until_s:
                yield link.ping_s()
                yield link.ack_s()
        yield from (since_s + HANDSHAKE_S_MAX for since_s in self._unidentified.values())
        yield from self._gather_until_s.values()
        yield self._asks.due_s()
        yield from self.contacts.due_s(self.links)
