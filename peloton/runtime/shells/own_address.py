"""Whether our own advertised address leads to us: one stream to ourselves, when there is doubt.

Turns a dial of our own address into why it does not reach us, or nothing. A certificate that has
expired and a wrong address are found so by the daemon that has them, before others tell it. It must
not decide what follows, nor keep a stream: once our greeting has arrived here both ends are closed.
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
    """What only this daemon sends, to itself."""
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
        """From now on this is who and where we are; empty while that is unknown."""
        if (me, address) != (self._me, self._address):
            self.stop()
            self._me, self._address = me, address
            self.trouble = ""
            self._next_s = now if address else None

    def doubt(self, now: float) -> None:
        """Some peer is out of touch: check again, if that was not done just now."""
        if self._next_s is None and self._address:
            self._next_s = now + AGAIN_S

    def look(self, now: float) -> None:
        """Do what is due."""
        if self._next_s is None or self._next_s > now:
            return
        if self._stream is not None:
            self._failed(NO_ANSWER, now)
            return
        stream = self._stream = self._exchange.dial(self._address)
        self._exchange.send(stream, own_greeting(self._me))
        self._next_s = now + ANSWER_S_MAX

    def due_s(self) -> float | None:
        """When `look` has something to do."""
        return self._next_s

    def greets(self, hello: Hello | None) -> bool:
        """Whether this is our own greeting, which arrived."""
        if hello is None or not self._me or (hello.member, hello.to) != (self._me, self._me):
            return False
        self.trouble = ""
        self.stop()
        return True

    def closed(self, stream: int, text: str, now: float) -> bool:
        """Whether this was the stream to ourselves."""
        if stream != self._stream:
            return False
        self._stream = None
        self._failed(text, now)
        return True

    def stop(self) -> None:
        """No stream is left, and nothing is due."""
        if self._stream is not None:
            self._exchange.close(self._stream)
        self._stream = self._next_s = None

    def _failed(self, text: str, now: float) -> None:
        self.stop()
        self.trouble = text or NO_ANSWER
        self._next_s = now + AGAIN_S
