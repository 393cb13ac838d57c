"""Calls as the server brings them that gRPC documents (`grpc.server`).

It is used if the core has changed under `completions.py`. A call costs more than three times as
much here, and two threads while it lasts, so fewer are served at once. What all calls have in
common stays on one thread of events, which must not block. Only names that gRPC documents are used.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

import grpc

from peloton.gateway.server.served_calls import FAR_S, CallServer, ServedCall

CALLS_MAX = 1000
"""Calls at once, whatever waits or streams included."""
REFUSED_MAX = 50
"""More than these that may be told so."""
CODES = {code.value[0]: code for code in grpc.StatusCode}

Done = Callable[[bool], None]


class PublicCall(ServedCall):
    """One call of gRPC's server.

    What is to be sent goes to its thread, which `sent` holds.
    """

    def __init__(
        self,
        requests: Iterator[bytes],
        context: grpc.ServicerContext,
        *,
        method: str,
        server: PublicServer,
    ) -> None:
        left_s = context.time_remaining()
        super().__init__(
            method,
            context.invocation_metadata(),
            deadline_s=time.time() + (2 * FAR_S if left_s is None else left_s),
            ended=server._ended,
            intake=server._intake,
        )
        self._requests, self._context, self._server = requests, context, server
        self._outbox: SimpleQueue[tuple[bytes | None, Done] | None] = SimpleQueue()

    def peer(self) -> str:
        return str(self._context.peer())

    def peer_identities(self) -> Any:
        """Return names of the client's certificate, if it was checked."""
        return self._context.peer_identities()

    def sent(self) -> Iterator[bytes]:
        """Yield what is to be sent, to the end of the call; gRPC sends the status after it."""
        while (item := self._outbox.get()) is not None:
            data, done = item
            well = False
            try:
                if data is not None:
                    yield data
                well = True
            finally:  # gRPC drops this where it cannot send
                self._server.post(partial(done, well))

    def left(self) -> None:
        """End the call, which is over for gRPC. On the thread of the events."""
        self._closed(not self._over)
        with contextlib.suppress(Empty):  # nothing comes behind what is there
            while True:
                _, done = self._outbox.get_nowait() or (None, _ignored)
                done(False)
        self._outbox.put(None)

    def _receive(self, done: Callable[[bytes | None], None]) -> None:
        self._server.threads.submit(self._next, done)

    def _next(self, done: Callable[[bytes | None], None]) -> None:
        try:
            data = next(self._requests, None)
        except grpc.RpcError:  # the client is gone
            data = None
        self._server.post(partial(done, data))

    def _send(self, data: bytes, done: Done) -> None:
        self._outbox.put((data, done))

    def _finish(self, code: int, details: str, *, message: bytes | None, trailing: Any) -> None:
        self._context.set_code(CODES.get(code, grpc.StatusCode.UNKNOWN))
        self._context.set_details(details)
        self._context.set_trailing_metadata(tuple(trailing or ()))
        self._outbox.put((message, lambda well: self._completed()))
        self._outbox.put(None)

    def _cancel(self, code: int, details: str) -> None:
        self._context.cancel()


class PublicServer(CallServer):
    """One server of gRPC."""

    def __init__(self, *arguments: Any, calls_max: int, **named: Any) -> None:
        most = min(calls_max, CALLS_MAX)
        super().__init__(*arguments, calls_max=most, **named)
        self._events: SimpleQueue[Callable[[], object]] = SimpleQueue()
        self.threads = ThreadPoolExecutor(2 * (most + REFUSED_MAX), "gateway-calls")
        self._server = grpc.server(
            self.threads,
            [_AllMethods(self._begun)],
            options=self._options,
            maximum_concurrent_rpcs=most + REFUSED_MAX,
        )

    def post(self, event: Callable[[], object]) -> None:
        """Call this on the thread of the events."""
        self._events.put(event)

    def listen(self, address: str, credentials: grpc.ServerCredentials | None = None) -> int:
        """Listen at an address and return the port.

        Raises RuntimeError when the address cannot be had.
        """
        if credentials is None:
            return int(self._server.add_insecure_port(address))
        return int(self._server.add_secure_port(address, credentials))

    def _begun(
        self, requests: Iterator[bytes], context: grpc.ServicerContext, *, method: str
    ) -> Iterator[bytes]:
        call = PublicCall(requests, context, method=method, server=self)
        self.post(partial(self._serve, call))
        left = partial(self.post, call.left)
        if not context.add_callback(left):
            left()
        return call.sent()

    def _open(self) -> None:
        self._server.start()

    def _took_event(self, within_s: float | None) -> bool:
        try:
            event = self._events.get(timeout=within_s)
        except Empty:
            return False
        event()
        return True

    def _shut_down(self) -> None:
        over = self._server.stop(FAR_S)

        def wait() -> None:
            over.wait()
            self.post(self._was_shut)

        threading.Thread(target=wait, name="gateway-stop", daemon=True).start()

    def _cancel_calls(self) -> None:
        self._server.stop(0)

    def _destroy(self) -> None:
        self.threads.shutdown(wait=False)


class _AllMethods(grpc.GenericRpcHandler):  # type: ignore[misc]
    """A handler for which each call is a stream of bytes in both directions, whatever its
    method."""

    def __init__(self, begun: Callable[..., Iterator[bytes]]) -> None:
        self._begun = begun

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        return grpc.stream_stream_rpc_method_handler(partial(self._begun, method=details.method))


def _ignored(well: bool) -> None:
    """Do nothing, as no call waits for the result."""
