"""What a coroutine sees of its call: one that waits or streams on the event loop, without a thread.

Messages are sent one by one; a client that does not read them is cut off.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import structlog

from peloton.gateway.access.guard import CallCode
from peloton.gateway.server.calls import CallContext
from peloton.gateway.server.gate import AnswerGate
from peloton.gateway.server.served_calls import ServedCall

WRITE_S_MAX = 10.0
"""A client that reads no message for so long gets a status; after as long again, a reset."""

log = structlog.get_logger("gateway")


class _Loop:
    """The one event loop of a process, on a thread of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def get(self) -> asyncio.AbstractEventLoop:
        """Return the loop, started when first needed."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                run = self._loop.run_forever
                threading.Thread(target=run, name="gateway-loop", daemon=True).start()
            return self._loop


LOOP = _Loop()


class LongCall(CallContext):
    """What a coroutine sees of its call."""

    def __init__(
        self,
        call: ServedCall,
        *,
        run: Callable[..., Awaitable[Any]],
        name: str,
        answers: AnswerGate,
        kind: Any,
    ) -> None:
        """`run`: what calls work that blocks on a thread of the pool; `answers`: what its
        messages, which are of this kind, pass."""
        super().__init__(call)
        self.name, self._answers, self._kind = name, answers, kind
        self._core = call
        self._run = run

    async def run(self, work: Callable[..., Any], *args: Any) -> Any:
        """Call something that blocks on a thread of the pool; its last argument is a context."""
        return await self._run(work, *args, CallContext(self._core))

    async def share(self, work: Callable[..., Any], *args: Any) -> Any:
        """Call something that blocks, for more calls than this one, which may end first."""
        return await self._run(work, *args, CallContext(wait=self._core.result_of))

    async def shown(self, message: Any) -> bytes:
        """Return a message as the caller may see it."""
        data = bytes(message.SerializeToString())
        if not self._answers.concerns(data):
            return data
        return bytes(await self.run(partial(self._answers.message, kind=self._kind), data))

    async def write(self, message: Any) -> None:
        """Send a message of a stream; a client that does not read is cut off."""
        loop = asyncio.get_running_loop()
        sent: asyncio.Future[bool] = loop.create_future()

        def note(well: bool) -> None:
            if not sent.done():  # whoever waits for it may have been cancelled
                sent.set_result(well)

        data = await self.shown(message)
        self._core.write(data, lambda well: loop.call_soon_threadsafe(note, well))
        done, _ = await asyncio.wait((sent,), timeout=WRITE_S_MAX)
        if done:
            if not sent.result():
                raise asyncio.CancelledError  # the client is gone, which we are told as well
            return
        who, peer = self.principal.text, self.peer()
        log.warning("a slow reader was cut off", call=self.name, who=who, peer=peer)
        text = (
            f"slow reader {who} ({peer}): it took no message for {WRITE_S_MAX:g} s; "
            "begin again with the last resume token"
        )
        code = CallCode.RESOURCE_EXHAUSTED
        # The status of `abort` waits behind the message that the client does not take.
        loop.call_later(WRITE_S_MAX, self._core.cancel, code.value[0], text)
        self.abort(code, text)
