"""The check of a daemon's own advertised address: one stream to itself, when there is doubt.

Turns a dial of the own address into the reason why it does not lead here, or nothing. A daemon
finds its own expired certificate or wrong address so before others report it. Once the greeting has
arrived here both ends are closed.
"""

from __future__ import annotations

from peloton.runtime.core.entities.encoding import encode
from peloton.runtime.core.links.wire import STREAM_FORMAT, Hello
from peloton.runtime.ports import Exchange

ANSWER_S_MAX = 5.0
AGAIN_S = 10.0
"""Between two checks while there is doubt: this one failed, or a peer is out of touch."""
NO_ANSWER = "nothing of what was sent there arrived here"


def own_greeting(me: str) -> bytes:
    """Return the greeting that this daemon sends to itself."""
    return encode(Hello(STREAM_FORMAT, me, me, 0, 0, 0, 0, 0, 0, 0))


class OwnAddress:
    """The check, and its last result."""

    def __init__(self, exchange: Exchange) -> None:
        self.trouble = ""
        self._exchange = exchange
        self._me = self._address = ""
        self._stream: int | None = None
        self._next_s: float | None = None

    def is_ours(self, me: str, address: str, now: float) -> None:
        """Set the member id and address to check; empty while they are unknown."""
        if (me, address) != (self._me, self._address):
            self.stop()
            self._me, self._address = me, address
            self.trouble = ""
            self._next_s = now if address else None

    def doubt(self, now: float) -> None:
        """Check again, if that was not done just now: some peer is out of touch."""
        if self._next_s is None and self._address:
            self._next_s = now + AGAIN_S

    def look(self, now: float) -> None:
        """Dial or give up, whichever is due."""
        if self._next_s is None or self._next_s > now:
            return
        if self._stream is not None:
            self._failed(NO_ANSWER, now)
            return
        stream = self._stream = self._exchange.dial(self._address)
        self._exchange.send(stream, own_greeting(self._me))
        self._next_s = now + ANSWER_S_MAX

    def due_s(self) -> float | None:
        """Return when `look` has something to do."""
        return self._next_s

    def greets(self, hello: Hello | None) -> bool:
        """Return whether this is our own greeting, which arrived."""
        if hello is None or not self._me or (hello.member, hello.to) != (self._me, self._me):
            return False
        self.trouble = ""
        self.stop()
        return True

    def closed(self, stream: int, text: str, now: float) -> bool:
        """Return whether this was the stream to ourselves."""
        if stream != self._stream:
            return False
        self._stream = None
        self._failed(text, now)
        return True

    def stop(self) -> None:
        """End the check: no stream is left, and nothing is due."""
        if self._stream is not None:
            self._exchange.close(self._stream)
        self._stream = self._next_s = None

    def _failed(self, text: str, now: float) -> None:
        self.stop()
        self.trouble = text or NO_ANSWER
        self._next_s = now + AGAIN_S
