"""A link: letters to one other daemon and from it, in order, each at most once, over streams.

Turns letters into numbered parcels and frames of a stream into letters. A stream may lose, repeat
and reorder frames, and die at any moment; the next one goes on after the last parcel that arrived.
It must not read letters, own a stream or tell the time: its shell does, and closes what `received`
says is to be closed.

    one interleaving that would break the order, and what stops it
    1. parcels 1 and 2 leave on stream A, which hangs; 1 has arrived
    2. the dialler gives A up, opens B, and learns there that 1 has arrived: 2 goes again on B
    3. 2 arrives on B and is acted upon; A comes back to life and delivers 2 once more
    2 is known by its number and dropped; and since a stream is never read again once a newer one
    has begun, nothing that A still holds can overtake what B has brought.

Of a pair, the daemon with the lower member id dials. Each side greets with what it remembers:

- `birth` numbers the lives of this very link within its daemon. A peer whose birth has changed
  has forgotten us: its view had lost us for a while, or its shell began anew. What it had not
  acknowledged may have arrived before that, and could not be told from a repeat; so it is dropped,
  and whoever owes a word says it again.
- `first` is the lowest number that can still come. What lies before it was dropped for good.
- `received` is the last number that arrived of the link whose birth is `heard_birth`.

The window is credit that the receiver grants in its greeting: so much may be under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from peloton.runtime.core.codec import encode
from peloton.runtime.core.wire import FRAMES, STREAM_FORMAT, Acknowledged, Hello, Parcel

BATCH_BYTES_MAX = 16 * 1024 * 1024
"""A letter above this is refused at the sender; no stream could carry it."""
STREAM_FRAME_BYTES_MAX = BATCH_BYTES_MAX + 1024
"""What a stream must be able to carry as one frame."""
LINK_BYTES_MAX = 32 * 1024 * 1024
"""What may wait here for one peer, under way or not; what comes beyond is dropped, and counted."""
PARCEL_BYTES = 256 * 1024
"""A parcel takes letters up to this; one letter that is larger goes alone."""
WINDOW_PARCELS, WINDOW_BYTES = 64, 8 * 1024 * 1024
"""What may be under way to us at once, as far as we are concerned."""
STALL_S_MAX = 5.0
"""A stream on which nothing moves for so long, though something should, is given up."""
SLOWEST_BYTES_PER_S = 1024 * 1024
"""What is under way may need so long more: a parcel is acknowledged when it is there as a whole."""
PING_S = 5.0
"""An idle stream carries an empty parcel so often. It is the dialler's, who alone can dial again:
its end of a dead stream may look alive for ever, while the other side waits to be dialled."""
ACK_S = 0.02
"""An acknowledgement waits so long for a parcel to carry it: a frame alone costs as much as twenty
do together. What half fills the sender's window is acknowledged at once."""
ACK_PARCELS_MAX = 16
RETRY_FIRST_S, RETRY_S_MAX = 0.1, 5.0


class LinkLimits(msgspec.Struct, frozen=True, gc=False):
    """Limits of a link; tests make them small."""

    link_bytes_max: int = LINK_BYTES_MAX
    window_parcels: int = WINDOW_PARCELS
    window_bytes: int = WINDOW_BYTES
    parcel_bytes: int = PARCEL_BYTES
    ack_s: float = ACK_S


class Received(NamedTuple):
    """What a frame brought: letters, in order, or why the stream is to be closed."""

    batches: list[msgspec.Raw] = []
    view: int = 0
    trouble: str = ""


NOTHING_RECEIVED = Received()


class _Sealed(NamedTuple):
    """A parcel that was sent at least once and is not acknowledged."""

    number: int
    body: bytes
    batches: int
    asks: list[int]


class Link:
    """One peer, as one daemon sees it. `me` and `peer` are member ids, unique per life."""

    def __init__(self, me: str, peer: str, *, birth: int, limits: LinkLimits) -> None:
        self.peer = peer
        self.dials = me < peer
        self.stream: int | None = None
        self.greeted = False
        self.lost: list[int] = []  # asks that may never have arrived; the shell takes them
        self.counts = dict.fromkeys(
            ("dropped", "forgotten", "repeats", "gaps", "troubles", "streams", "split", "waits"), 0
        )
        self._me = me
        self._limits = limits
        self._birth = birth
        self._dial = 0
        self._peer_birth = 0
        self._heard = 0  # the last parcel that arrived
        self._unacknowledged = self._unacknowledged_bytes = 0  # parcels that arrived
        self._ack_s = 0.0  # when to say so at the latest
        self._waiting: deque[tuple[int, bytes, Sequence[int]]] = deque()
        self._sealed: deque[_Sealed] = deque()
        self._under_way = 0  # so many of the sealed ones were sent on this stream
        self._next = 1
        self._held_bytes = 0
        self._under_way_bytes = 0
        self._window = (0, 0)
        self._moved_s = 0.0  # when something last moved on the stream
        self._taken_s = 0.0  # when something of ours did: was acknowledged, or began to wait for it
        self._greeted_s = 0.0
        self._retry_after_s = RETRY_FIRST_S
        self._retry_s = 0.0
        self.down_since_s: float | None = None  # None while greeted, or before the first look

    # ---- what waits ----

    def send(self, batch: bytes, view: int, *, asks: Sequence[int] = ()) -> bool:
        """Queue a letter behind what was said before; False where there is no room for it.

        `asks` are the numbers of the asks in it. One letter may always wait, else one above the
        bound could never be said.
        """
        room = self._limits.link_bytes_max if self._held_bytes else BATCH_BYTES_MAX
        if len(batch) > BATCH_BYTES_MAX or self._held_bytes + len(batch) > room:
            self.counts["dropped"] += 1
            return False
        self._waiting.append((view, batch, asks))
        self._held_bytes += len(batch)
        return True

    @property
    def idle(self) -> bool:
        """Whether nothing waits, neither to be sent nor to be acknowledged."""
        return not self._waiting and not self._sealed

    def frames(self, now: float) -> list[bytes]:
        """What is to be sent on the stream, as far as the window allows; first what was lost."""
        if not self.greeted:
            return []
        out = []
        while self._under_way < len(self._sealed) and self._has_credit():
            out.append(self._send(self._sealed[self._under_way], now))
        while self._waiting and self._under_way == len(self._sealed) and self._has_credit():
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
            out.append(encode(Acknowledged(self._heard)))
        return out

    # ---- streams ----

    def dial_s(self) -> float | None:
        """When a stream is to be dialled; None if not, or not by this side."""
        return self._retry_s if self.dials and self.stream is None else None

    def dialled(self, stream: int, now: float) -> bytes:
        """A stream begins; the frame to send on it before all else."""
        self._dial += 1
        self._begin(stream, now)
        return encode(self._hello())

    def met(self, stream: int, hello: Hello, *, now: float) -> tuple[bytes, str]:
        """A greeting on a stream that came in: our answer, or why that stream is refused.

        Once it is accepted, whatever stream there was before must be closed.
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
        """A frame of the current stream."""
        try:
            frame = FRAMES.decode(data)
        except msgspec.DecodeError as error:
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
        if frame.number <= self._heard:
            self.counts["repeats"] += 1
            return NOTHING_RECEIVED
        if frame.number != self._heard + 1:
            self.counts["gaps"] += 1
            return self._trouble(f"parcel {frame.number} after {self._heard}")
        self._heard = frame.number
        self._progress(now)
        return Received(frame.batches, frame.view)

    def closed(self, now: float) -> None:
        """The stream is no more, or is about to be closed: nothing of it is read from now on."""
        if self.greeted:
            self.down_since_s = now
            if now - self._greeted_s > RETRY_S_MAX:
                self._retry_after_s = RETRY_FIRST_S
        self.stream, self.greeted = None, False
        self._retry_s = now + self._retry_after_s
        self._retry_after_s = min(2 * self._retry_after_s, RETRY_S_MAX)

    def look(self, now: float) -> str:
        """Why the stream is to be closed by now, or nothing."""
        if self.down_since_s is None and not self.greeted:
            self.down_since_s = now
        late_s = self.stall_s()
        if late_s is None or now < late_s:
            return ""
        return "nothing moves" if self.greeted else "no greeting"

    def stall_s(self) -> float | None:
        """When the stream is given up unless something moves; None where nothing has to."""
        if self.stream is None or (self.greeted and not self._under_way):
            return None
        # What the peer says shows that it is there, and nothing of what became of our parcel: one
        # that was lost would fill the window for as long as the peer has something to say.
        since_s = self._taken_s if self.greeted else self._moved_s
        return since_s + STALL_S_MAX + self._under_way_bytes // SLOWEST_BYTES_PER_S

    def ping_s(self) -> float | None:
        """When `frames` has something to send though nothing waits."""
        return self._moved_s + PING_S if self.dials and self.greeted and self.idle else None

    def ack_s(self) -> float | None:
        """When `frames` has to say what arrived; None where that was said."""
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
        self._under_way = self._under_way_bytes = 0
        self._owe_no_ack()  # the greeting says it
        self._moved_s = now
        self.counts["streams"] += 1

    def _hello(self) -> Hello:
        return Hello(
            format=STREAM_FORMAT,
            member=self._me,
            to=self.peer,
            dial=self._dial,
            birth=self._birth,
            first=self._first(),
            heard_birth=self._peer_birth,
            received=self._heard,
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
        """The answer to our own greeting; on a stream that came in, `met` has read it."""
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
            self._peer_birth, self._heard = hello.birth, hello.first - 1
            if self.dials and self._first() != announced:
                # Our greeting promised parcels that are forgotten now; the next one will not.
                return "the peer began anew"
        self._heard = max(self._heard, hello.first - 1)
        if hello.heard_birth == self._birth:
            if hello.received >= self._next:
                return f"parcel {hello.received} was never sent"
            self._drop_until(hello.received)
        self._window = (hello.window_parcels, hello.window_bytes)
        self.greeted, self._greeted_s, self._moved_s = True, now, now
        self.down_since_s = None
        return ""

    def _first(self) -> int:
        return self._sealed[0].number if self._sealed else self._next

    def _forget(self) -> None:
        """What may have arrived, at a peer that does not know it any more, never goes again."""
        self.counts["forgotten"] += sum(sealed.batches for sealed in self._sealed)
        self.lost += [reply_to for sealed in self._sealed for reply_to in sealed.asks]
        self._drop_until(self._next)

    def _drop_until(self, number: int) -> None:
        while self._sealed and self._sealed[0].number <= number:
            size = len(self._sealed.popleft().body)
            self._held_bytes -= size
            if self._under_way:
                self._under_way -= 1
                self._under_way_bytes -= size

    def _acknowledged(self, number: int, now: float) -> Received:
        if number >= self._next:
            return self._trouble(f"parcel {number} was never sent")
        if number >= self._first():
            self._drop_until(number)
            self._taken_s = now
            self._progress(now)
        return NOTHING_RECEIVED

    def _progress(self, now: float) -> None:
        self._moved_s = now
        self._retry_after_s = RETRY_FIRST_S

    def _has_credit(self) -> bool:
        """One parcel may always be under way, else a window below its size would be a stop."""
        parcels, size = self._window
        return not self._under_way or (self._under_way < parcels and self._under_way_bytes < size)

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
        self._held_bytes -= size
        return self._parcel(batches, view=view, asks=asks)

    def _parcel(self, batches: list[msgspec.Raw], *, view: int, asks: list[int]) -> _Sealed:
        body = encode(Parcel(self._next, self._heard, view, batches))
        sealed = _Sealed(self._next, body, len(batches), asks)
        self._next += 1
        self._held_bytes += len(body)
        return sealed

    def _send(self, sealed: _Sealed, now: float) -> bytes:
        if not self._under_way:
            self._moved_s = self._taken_s = now
        self._under_way += 1
        self._under_way_bytes += len(sealed.body)
        return sealed.body

    def _trouble(self, text: str) -> Received:
        self.counts["troubles"] += 1
        return Received(trouble=text)
