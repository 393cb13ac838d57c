"""Calls of this process to its own server: the same gates, audit and limits, without a connection.

Who makes one is known, so nothing is proved; else it is a call as all others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from peloton.gateway.server.calls import LEFT
from peloton.gateway.server.intake import Intake
from peloton.gateway.server.served_calls import ServedCall
from peloton.runtime.core.principal import Principal

NO_STREAMS = "only calls with one answer can be made from inside"
_CANCELLED, _DEADLINE_EXCEEDED, _UNIMPLEMENTED = 1, 4, 12


class InnerRequest(NamedTuple):
    """A call to make: its path, the encoded request, who makes it, and how long it may take."""

    path: str
    data: bytes
    who: Principal
    within_s: float
    metadata: Sequence[tuple[str, str]] = ()


class InnerAnswer(NamedTuple):
    """How an inner call ended: the number of its gRPC status, its text, and the encoded answer."""

    code: int
    text: str
    data: bytes = b""


class InnerCall(ServedCall):
    """One call; `answer` is done once it has ended. Events come on the loop."""

    def __init__(
        self,
        request: InnerRequest,
        *,
        intake: Intake,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        within_s = request.within_s
        super().__init__(
            request.path,
            request.metadata,
            deadline_s=time.time() + within_s,
            ended=lambda call: None,
            intake=intake,
        )
        self.principal, self.answer = request.who, Future[InnerAnswer]()
        self._data: bytes | None = request.data
        self._loop, self._is_closed = loop, False
        self._late = loop.call_later(within_s, self._end_late)
        self.answer.add_done_callback(lambda done: loop.call_soon_threadsafe(self._settled))

    def peer(self) -> str:
        return "within"

    def peer_identities(self) -> Any:
        """Return None: there is no certificate."""
        return None

    # ---- on the loop ----

    def _end_late(self) -> None:
        if not self.answer.done():
            self.end(_DEADLINE_EXCEEDED, "no answer in time; a change may have happened")
            self._close(cancelled=True)

    def _settled(self) -> None:
        """Take note that the answer is there, or that nobody waits for it any more."""
        self._late.cancel()
        if self.answer.cancelled():
            self.end(_CANCELLED, LEFT)
            self._close(cancelled=True)

    def _close(self, *, cancelled: bool) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._closed(cancelled)

    def _receive(self, done: Callable[[bytes | None], None]) -> None:
        data, self._data = self._data, None
        self._loop.call_soon_threadsafe(done, data)

    def _send(self, data: bytes, done: Callable[[bool], None]) -> None:
        self._loop.call_soon_threadsafe(done, False)
        self._loop.call_soon_threadsafe(self.end, _UNIMPLEMENTED, NO_STREAMS)

    def _finish(self, code: int, details: str, *, message: bytes | None, trailing: Any) -> None:
        def finished() -> None:
            if not self.answer.done():
                self.answer.set_result(InnerAnswer(code, details, message or b""))
            self._completed()
            self._close(cancelled=False)

        self._loop.call_soon_threadsafe(finished)

    def _cancel(self, code: int, details: str) -> None:
        self._loop.call_soon_threadsafe(lambda: self._close(cancelled=True))
