"""A link: batches of mail to one peer and from it, in order, each at most once, over streams.

Turns batches into numbered parcels, and frames of a stream into batches. A stream may lose, repeat
and reorder frames, and break at any moment; the next one continues after the last parcel received.
The shell of a link owns the stream, and closes it when `received` returns trouble.

    one interleaving that would break the order, and what prevents it
    1. parcels 1 and 2 are sent on stream A, which hangs; 1 has arrived
    2. the dialler gives A up, opens B, and learns there that 1 has arrived: it sends 2 again on B
    3. 2 arrives on B and is delivered; A recovers and delivers 2 once more
    The second 2 is dropped by its number; and since a stream is never read again once a newer one
    has begun, nothing that is still in A can overtake what B has brought.

Of a pair, the daemon with the lower member id dials. Each side greets with what it remembers:

- `birth` counts the instances of this link within its daemon. A peer with a new birth has lost its
  state: its view did not hold us for a while, or its shell was restarted. What the old instance did
  not acknowledge may have arrived there, and could not be told from a repeat; so it is dropped,
  and whoever owes a send repeats it.
- `first` is the lowest number that can still come. What is before it was dropped for good.
- `received` is the last number received from the link whose birth is `received_birth`.

The window is credit that the receiver grants in its greeting: that much may be unacknowledged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from peloton.pauses import Pauses
from peloton.runtime.core.entities.encoding import UNREADABLE, encode
from peloton.runtime.core.links.wire import FRAMES, STREAM_FORMAT, Acknowledged, Hello, Parcel

BATCH_BYTES_MAX = 16 * 1024 * 1024
"""A larger batch is refused at the sender; no stream could carry it."""
STREAM_FRAME_BYTES_MAX = BATCH_BYTES_MAX + 1024
"""What a stream must be able to carry as one frame."""
LINK_BYTES_MAX = 32 * 1024 * 1024
"""What may wait here for one peer, sent or not; batches beyond it are dropped and counted."""
PARCEL_BYTES = 256 * 1024
"""A parcel takes batches up to this; one batch that is larger goes alone."""
WINDOW_PARCELS, WINDOW_BYTES = 64, 8 * 1024 * 1024
"""The credit that we grant to a peer."""
STALL_S_MAX = 5.0
"""A stream without progress for so long, though parcels are unacknowledged, is given up."""
SLOWEST_BYTES_PER_S = 1024 * 1024
"""Time added to `STALL_S_MAX` for bytes in transit: a parcel is acknowledged only when whole."""
PING_S = 3.0
"""Interval of empty parcels on an idle stream. Only the dialler sends them, as only it can dial
again: its end of a dead stream may look alive for ever, while the other side waits for a dial."""
ACK_S = 0.02
"""An acknowledgement waits so long for a parcel to carry it: one frame alone costs as much as
twenty together. When half of the sender's window is used, it is sent at once."""
ACK_PARCELS_MAX, RETRY = 16, Pauses(0.1, 5.0)
SILENT = "what was sent is not acknowledged"


class LinkLimits(msgspec.Struct, frozen=True, gc=False):
    """The limits of a link; tests make them small."""

    link_bytes_max: int = LINK_BYTES_MAX
    window_parcels: int = WINDOW_PARCELS
    window_bytes: int = WINDOW_BYTES
    parcel_bytes: int = PARCEL_BYTES
    ack_s: float = ACK_S


class Received(NamedTuple):
    """The content of a frame: batches, in order, or why the stream must be closed."""

    batches: list[msgspec.Raw] = []
    view: int = 0
    trouble: str = ""


NOTHING_RECEIVED = Received()


class _Sealed(NamedTuple):
    """A numbered parcel that is not acknowledged yet."""

    number: int
    body: bytes
    batches: int
    asks: list[int]


class Link:
    """The link to one peer. `me` and `peer` are member ids, unique per session of a daemon."""

    def __init__(self, me: str, peer: str, *, birth: int, limits: LinkLimits) -> None:
        self.peer = peer
        self.dials = me < peer
        self.stream: int | None = None
        self.greeted = False
        self.lost: list[int] = []  # asks that may never have arrived; the shell fails them
        self.counts = dict.fromkeys(
            ("dropped", "forgotten", "repeats", "gaps", "troubles", "streams", "split", "waits"), 0
        )
        self._me = me
        self._limits = limits
        self._birth = birth
        self._dial = 0
        self._peer_birth = 0
        self._received = 0  # number of the last parcel received
        self._unacknowledged = self._unacknowledged_bytes = 0  # received parcels
        self._ack_s = 0.0  # when to acknowledge them at the latest
        self._waiting: deque[tuple[int, bytes, Sequence[int]]] = deque()
        self._sealed: deque[_Sealed] = deque()
        self._in_flight = 0  # number of the sealed ones that were sent on this stream
        self._next = 1
        self._queued_bytes = 0  # waiting and sealed
        self._in_flight_bytes = 0
        self._window = (0, 0)
        self._progress_s = 0.0  # when anything was last received, or first sent
        self._acked_s = 0.0  # when one of ours was last acknowledged, or began to wait for that
        self._greeted_s = 0.0
        self._failures = 0
        self._retry_s = 0.0
        self.down_since_s: float | None = None  # None while greeted, or before the first check

    # ---- sending ----

    def send(self, batch: bytes, view: int, *, asks: Sequence[int] = ()) -> bool:
        """Queue a batch behind the others; return False when the bound on bytes is reached.

        `asks` are the numbers of the asks in the batch. An empty queue takes any batch up to
        `BATCH_BYTES_MAX`, else one larger than the link's bound could never be sent.
        """
        most = self._limits.link_bytes_max if self._queued_bytes else BATCH_BYTES_MAX
        if len(batch) > BATCH_BYTES_MAX or self._queued_bytes + len(batch) > most:
            self.counts["dropped"] += 1
            return False
        self._waiting.append((view, batch, asks))
        self._queued_bytes += len(batch)
        return True

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be sent or to be acknowledged."""
        return not self._waiting and not self._sealed

    def frames(self, now: float) -> list[bytes]:
        """Return the frames to send on the stream, as far as the window allows; repeats first."""
        if not self.greeted:
            return []
        out = []
        while self._in_flight < len(self._sealed) and self._has_credit():
            out.append(self._send(self._sealed[self._in_flight], now))
        while self._waiting and self._in_flight == len(self._sealed) and self._has_credit():
            self._sealed.append(self._seal())
            out.append(self._send(self._sealed[-1], now))
            self._owe_no_ack()
        self.counts["waits"] += bool(self._waiting) and not self._has_credit()
        ping_s = self.ping_s()
        if ping_s is not None and ping_s <= now:
            self._sealed.append(self._parcel([], view=0, asks=[]))
            out.append(self._send(self._sealed[-1], now))
            self._owe_no_ack()
        ack_s = self.ack_s()
        if ack_s is not None and ack_s <= now:
            self._owe_no_ack()
            out.append(encode(Acknowledged(self._received)))
        return out

    # ---- streams ----

    def dial_s(self) -> float | None:
        """Return when to dial, in seconds; None with a stream, or if the other side dials."""
        return self._retry_s if self.dials and self.stream is None else None

    def dialled(self, stream: int, now: float) -> bytes:
        """Begin with a stream that was dialled; return the frame to send on it first."""
        self._dial += 1
        self._begin(stream, now)
        return encode(self._hello())

    def greeted_by(self, stream: int, hello: Hello, *, now: float) -> tuple[bytes, str]:
        """Read the greeting of an accepted stream; return our answer, or why it is refused.

        If the stream is not refused, an older one must be closed.
        """
        trouble = self._misfit(hello)
        if not trouble and self.dials:
            trouble = "this side dials"
        if not trouble and (hello.birth, hello.dial) <= (self._peer_birth, self._dial):
            trouble = "a newer stream is known"
        if trouble:
            return b"", trouble
        self._dial = hello.dial
        self._begin(stream, now)
        trouble = self._agree(hello, now)
        return encode(self._hello()), trouble

    def received(self, data: bytes, now: float) -> Received:
        """Take a frame of the current stream."""
        try:
            frame = FRAMES.decode(data)
        except UNREADABLE as error:
            return self._trouble(f"a frame that cannot be read: {error}")
        if isinstance(frame, Hello):
            return self._greeting(frame, now)
        if not self.greeted:
            return self._trouble("a frame before the greeting")
        if isinstance(frame, Acknowledged):
            return self._acknowledged(frame.number, now)
        acknowledged = self._acknowledged(frame.acknowledged, now)
        if acknowledged.trouble:
            return acknowledged
        self._owe_ack(len(data), now)
        if frame.number <= self._received:
            self.counts["repeats"] += 1
            return NOTHING_RECEIVED
        if frame.number != self._received + 1:
            self.counts["gaps"] += 1
            return self._trouble(f"parcel {frame.number} after {self._received}")
        self._received = frame.number
        self._progress(now)
        return Received(frame.batches, frame.view)

    def closed(self, now: float) -> None:
        """Stop reading the stream, which is closed or about to be."""
        if self.greeted:
            self.down_since_s = now
            if now - self._greeted_s > RETRY.most_s:
                self._failures = 0
        self.stream, self.greeted, self._failures = None, False, self._failures + 1
        self._retry_s = now + RETRY.after(self._failures)

    def overdue(self, now: float) -> str:
        """Return why the stream must be closed by now, or ""."""
        if self.down_since_s is None and not self.greeted:
            self.down_since_s = now
        late_s = self.stall_s()
        if late_s is None or now < late_s:
            return ""
        return SILENT if self.greeted else "no greeting came back"

    def stall_s(self) -> float | None:
        """Return when the stream is given up without progress; None while none is expected."""
        if self.stream is None or (self.greeted and not self._in_flight):
            return None
        # Parcels of the peer do not count as progress here: they show that it is alive, but not
        # that ours arrived. A lost parcel would block the window as long as the peer sends.
        since_s = self._acked_s if self.greeted else self._progress_s
        return since_s + STALL_S_MAX + self._in_flight_bytes // SLOWEST_BYTES_PER_S

    def ping_s(self) -> float | None:
        """Return when `frames` has a ping to send; None while it needs none."""
        return self._progress_s + PING_S if self.dials and self.greeted and self.idle else None

    def ack_s(self) -> float | None:
        """Return when `frames` has to acknowledge; None while there is nothing to acknowledge."""
        return self._ack_s if self.greeted and self._unacknowledged else None

    # ---- inside ----

    def _owe_ack(self, size: int, now: float) -> None:
        if not self._unacknowledged:
            self._ack_s = now + self._limits.ack_s
        self._unacknowledged += 1
        self._unacknowledged_bytes += size
        limits = self._limits
        many = self._unacknowledged >= min(ACK_PARCELS_MAX, limits.window_parcels // 2)
        if many or self._unacknowledged_bytes >= limits.window_bytes // 2:
            self._ack_s = now

    def _owe_no_ack(self) -> None:
        self._unacknowledged = self._unacknowledged_bytes = 0

    def _begin(self, stream: int, now: float) -> None:
        self.stream, self.greeted = stream, False
        self._in_flight = self._in_flight_bytes = 0
        self._owe_no_ack()  # the greeting acknowledges
        self._progress_s = now
        self.counts["streams"] += 1

    def _hello(self) -> Hello:
        return Hello(
            format=STREAM_FORMAT,
            member=self._me,
            to=self.peer,
            dial=self._dial,
            birth=self._birth,
            first=self._first(),
            received_birth=self._peer_birth,
            received=self._received,
            window_parcels=self._limits.window_parcels,
            window_bytes=self._limits.window_bytes,
        )

    def _misfit(self, hello: Hello) -> str:
        if hello.format > STREAM_FORMAT:
            return f"format {hello.format} is not known here"
        if (hello.member, hello.to) != (self.peer, self._me):
            return f"{hello.member} greets {hello.to}"
        return ""

    def _greeting(self, hello: Hello, now: float) -> Received:
        """Take the answer to our greeting; for an accepted stream, `greeted_by` has read it."""
        if self.greeted:
            return self._trouble("a second greeting")
        trouble = self._misfit(hello)
        if not trouble and hello.dial != self._dial:
            trouble = "an answer to another greeting"
        trouble = trouble or self._agree(hello, now)
        return self._trouble(trouble) if trouble else NOTHING_RECEIVED

    def _agree(self, hello: Hello, now: float) -> str:
        announced = self._first()
        if hello.birth != self._peer_birth:
            if self._peer_birth:
                self._forget()
            self._peer_birth, self._received = hello.birth, hello.first - 1
            if self.dials and self._first() != announced:
                # Our greeting announced parcels that are dropped now; the next one will not.
                return "the peer was restarted"
        self._received = max(self._received, hello.first - 1)
        if hello.received_birth == self._birth:
            if hello.received >= self._next:
                return f"parcel {hello.received} was never sent"
            self._drop_until(hello.received)
        self._window = (hello.window_parcels, hello.window_bytes)
        self.greeted, self._greeted_s, self._progress_s = True, now, now
        self.down_since_s = None
        return ""

    def _first(self) -> int:
        return self._sealed[0].number if self._sealed else self._next

    def _forget(self) -> None:
        """Drop what the peer may have received before it lost its state, rather than repeat it."""
        self.counts["forgotten"] += sum(sealed.batches for sealed in self._sealed)
        self.lost += [reply_to for sealed in self._sealed for reply_to in sealed.asks]
        self._drop_until(self._next)

    def _drop_until(self, number: int) -> None:
        while self._sealed and self._sealed[0].number <= number:
            size = len(self._sealed.popleft().body)
            self._queued_bytes -= size
            if self._in_flight:
                self._in_flight -= 1
                self._in_flight_bytes -= size

    def _acknowledged(self, number: int, now: float) -> Received:
        if number >= self._next:
            return self._trouble(f"parcel {number} was never sent")
        if number >= self._first():
            self._drop_until(number)
            self._acked_s = now
            self._progress(now)
        return NOTHING_RECEIVED

    def _progress(self, now: float) -> None:
        self._progress_s = now
        self._failures = 0

    def _has_credit(self) -> bool:
        """Return whether another parcel may be sent; always if none is in flight."""
        parcels, size = self._window
        return not self._in_flight or (self._in_flight < parcels and self._in_flight_bytes < size)

    def _seal(self) -> _Sealed:
        view, batch, numbers = self._waiting.popleft()
        batches, size, asks = [msgspec.Raw(batch)], len(batch), [*numbers]
        while self._waiting:
            other, batch, numbers = self._waiting[0]
            full = size + len(batch) > self._limits.parcel_bytes
            if full or other != view:
                self.counts["split"] += full
                break
            self._waiting.popleft()
            batches.append(msgspec.Raw(batch))
            size += len(batch)
            asks += numbers
        self._queued_bytes -= size
        return self._parcel(batches, view=view, asks=asks)

    def _parcel(self, batches: list[msgspec.Raw], *, view: int, asks: list[int]) -> _Sealed:
        body = encode(Parcel(self._next, self._received, view, batches))
        sealed = _Sealed(self._next, body, len(batches), asks)
        self._next += 1
        self._queued_bytes += len(body)
        return sealed

    def _send(self, sealed: _Sealed, now: float) -> bytes:
        if not self._in_flight:
            self._progress_s = self._acked_s = now
        self._in_flight += 1
        self._in_flight_bytes += len(sealed.body)
        return sealed.body

    def _trouble(self, text: str) -> Received:
        self.counts["troubles"] += 1
        return Received(trouble=text)
