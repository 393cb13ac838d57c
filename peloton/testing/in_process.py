"""Calls of a client to a server in its own process: the servicers without sockets and threads.

Turns a call of a stub into one of the gateway's `Server`, and waits for its answer in virtual time.
Requests and answers are bytes, as on a socket, so nobody shares a message with the other side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NoReturn, cast

import grpc

from peloton.gateway.server.served_calls import CallServer, ServedCall
from peloton.sdk.client import Client
from peloton.sdk.credentials import CallRoute, Credentials, Routes
from peloton.sdk.transports import BlockingTransport
from peloton.testing.virtual_time import VirtualTime

CODES = {code.value[0]: code for code in grpc.StatusCode}
NOBODY = "failed to connect to all addresses: no daemon is running"
LOST = "the connection is lost: the daemon has ended"


class InProcessCall(ServedCall):
    """One call, as the server sees it, and what the client has got of it."""

    def __init__(
        self, server: InProcessServer, method: str, *, request: bytes, metadata: Any, until: float
    ) -> None:
        super().__init__(
            method, metadata, deadline_s=until, ended=server._ended, intake=server._intake
        )
        self._server, self._request = server, [request]
        self.messages: list[bytes] = []
        self.status: tuple[int, str, Any] | None = None
        """Code, details and trailing metadata, once it is over."""

    def peer(self) -> str:
        return "in-process"

    def peer_identities(self) -> Any:
        """Return None: there is no certificate."""

    def time_remaining(self) -> float:
        """Return the virtual seconds until the client's deadline."""
        return max(self.deadline_s - self._server.time.now(), 0.0)

    def result_of(self, future: Future[Any], wait_s: float) -> Any:
        """Let the world step until the result is there. Raises TimeoutError."""
        return self._server.time.result_of(future, wait_s)

    def leave(self, code: grpc.StatusCode, details: str) -> None:
        """End the call for its client, whatever the server still does."""
        if self.status is None:
            self.status = (code.value[0], details, ())
            self._server.post(lambda: self._closed(True))

    def _receive(self, done: Callable[[bytes | None], None]) -> None:
        data = self._request.pop() if self._request else None
        self._server.post(lambda: done(data))

    def _send(self, data: bytes, done: Callable[[bool], None]) -> None:
        self.messages.append(data)
        self._server.post(lambda: done(True))

    def _finish(self, code: int, details: str, *, message: bytes | None, trailing: Any) -> None:
        def finished() -> None:
            self._completed()
            self._closed(False)

        if message is not None:
            self.messages.append(message)
        self.status = self.status or (code, details, tuple(trailing or ()))
        self._server.post(finished)

    def _cancel(self, code: int, details: str) -> None:
        self.leave(CODES[code], details)


class InProcessServer(CallServer):
    """What brings the calls of one life of a daemon; its events are calls of the loop."""

    def __init__(self, *arguments: Any, time: VirtualTime, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.time = time

    def begin(
        self, method: str, request: bytes, *, metadata: Any, timeout_s: float | None
    ) -> InProcessCall:
        """Begin a call of a client."""
        until = float("inf") if timeout_s is None else self.time.now() + timeout_s
        call = InProcessCall(self, method, request=request, metadata=metadata, until=until)
        self._serve(call)
        return call

    def post(self, event: Callable[[], object]) -> None:
        """Call this in the next turn of the loop."""
        self.time.loop.call_soon(event)

    def die(self) -> None:
        """Lose all connections, as when the process is killed."""
        for call in [*self._calls]:
            cast(InProcessCall, call).leave(grpc.StatusCode.UNAVAILABLE, LOST)

    def listen(self, address: str, credentials: grpc.ServerCredentials | None = None) -> int:
        """Return 0: there is no port."""
        return 0

    def start(self) -> None:
        """Do nothing: calls begin when they are made."""

    def _open(self) -> None: ...

    def _took_event(self, within_s: float | None) -> bool:  # noqa: ARG002
        return False

    def _shut_down(self) -> None:
        self._was_shut()

    def _cancel_calls(self) -> None:
        self.die()

    def _destroy(self) -> None: ...


class InProcessError(grpc.RpcError):  # type: ignore[misc]
    """The status of a call that did not end well, as gRPC raises it."""

    def __init__(self, code: grpc.StatusCode, details: str, *, trailing: Any = ()) -> None:
        super().__init__(details)
        self._code, self._details, self._trailing = code, details, trailing

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details

    def trailing_metadata(self) -> Any:
        return self._trailing


class _Ended:
    """What `with_call` returns beside the answer."""

    def __init__(self, trailing: Any) -> None:
        self._trailing = trailing

    def trailing_metadata(self) -> Any:
        return self._trailing


class _Method:
    """One method of a channel, for calls with one answer or a stream of them."""

    def __init__(self, channel: InProcessChannel, path: str, *, encode: Any, decode: Any) -> None:
        self._channel, self._path = channel, path
        self._encode, self._decode = encode or bytes, decode or bytes

    def with_call(self, request: Any, **how: Any) -> tuple[Any, _Ended]:
        """Return the answer of a unary call, and how it ended. Raises InProcessError."""
        call = self._begin(request, how)
        time = self._channel.time
        if not time.await_call(lambda: call.status is not None, call.deadline_s):
            call.leave(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
        trailing = _raise_for(call)
        return self._decode(call.messages[-1]), _Ended(trailing)

    def __call__(self, request: Any, **how: Any) -> Any:
        return self.with_call(request, **how)[0]

    def stream(self, request: Any, **how: Any) -> _Stream:
        """Return the messages of a stream."""
        return _Stream(self._begin(request, how), self._channel.time, decode=self._decode)

    def _begin(self, request: Any, how: Mapping[str, Any]) -> InProcessCall:
        """Begin a call; `how` is what gRPC takes beside a request: `timeout` and `metadata`."""
        server = self._channel.server()
        if server is None:
            raise InProcessError(grpc.StatusCode.UNAVAILABLE, NOBODY)
        metadata = tuple(how.get("metadata") or ())
        data = self._encode(request)
        with self._channel.time.lock:
            return server.begin(self._path, data, metadata=metadata, timeout_s=how.get("timeout"))


class _Stream:
    """The messages of a stream, as the client reads them."""

    def __init__(self, call: InProcessCall, time: VirtualTime, *, decode: Any) -> None:
        self._call, self._time, self._decode = call, time, decode

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        call = self._call
        if not self._time.await_call(lambda: bool(call.messages or call.status), call.deadline_s):
            call.leave(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
        if call.messages:
            return self._decode(call.messages.pop(0))
        _raise_for(call)
        raise StopIteration

    def cancel(self) -> None:
        """End the call; nothing happens to one that is over."""
        self._call.leave(grpc.StatusCode.CANCELLED, "Locally cancelled")


def _raise_for(call: InProcessCall) -> Any:
    """Return the trailing metadata of a call that ended well; raise the status of another."""
    assert call.status is not None
    code, details, trailing = call.status
    if code:
        raise InProcessError(CODES[code], details, trailing=trailing)
    return trailing


class InProcessChannel(grpc.Channel):  # type: ignore[misc]
    """A channel to one address, at which `server` returns who serves there now, if anybody."""

    def __init__(self, time: VirtualTime, server: Callable[[], InProcessServer | None]) -> None:
        self.time, self.server = time, server

    def unary_unary(self, method: str, *coders: Any, **named: Any) -> Any:
        """Return a method with one answer; the coders are those of gRPC's channel, in its order."""
        return self._method(method, coders, named=named)

    def unary_stream(self, method: str, *coders: Any, **named: Any) -> Any:
        """Return a method with a stream of answers."""
        return self._method(method, coders, named=named).stream

    def stream_unary(self, *args: Any, **named: Any) -> Any:
        return _streams_requests

    def stream_stream(self, *args: Any, **named: Any) -> Any:
        return _streams_requests

    def _method(self, path: str, coders: Sequence[Any], *, named: Mapping[str, Any]) -> _Method:
        words = ("request_serializer", "response_deserializer")
        known = dict(zip(words, coders, strict=False)) | dict(named)
        return _Method(self, path, encode=known.get(words[0]), decode=known.get(words[1]))

    def subscribe(self, callback: Any, try_to_connect: bool = False) -> None:
        """Do nothing: there is no connection whose state could change."""

    def unsubscribe(self, callback: Any) -> None:
        """Do nothing, as `subscribe` did nothing."""

    def close(self) -> None:
        """Do nothing: nothing is held."""

    def __enter__(self) -> InProcessChannel:
        return self

    def __exit__(self, *raised: object) -> None: ...


def _streams_requests(*args: Any, **named: Any) -> NoReturn:
    text = "calls that stream requests are not made in process"
    raise InProcessError(grpc.StatusCode.UNIMPLEMENTED, text)


class InProcessTransport(BlockingTransport):
    """Reaches the daemons of one simulated cluster, and waits in its time."""

    def __init__(self, time: VirtualTime, serving: Callable[[str], InProcessServer | None]) -> None:
        self._time, self._serving = time, serving

    def routes(self, credentials: Credentials) -> Routes:  # noqa: ARG002
        """Return routes by which nothing is proved."""
        return InProcessRoutes(self._time, self._serving)

    def now(self) -> float:
        """Return the virtual time, in seconds."""
        return self._time.now()

    async def sleep(self, seconds: float) -> None:
        """Let the world go on for so long."""
        self._time.sleep(seconds)


class InProcessClient(Client):
    """A client of daemons in its own process, by their names."""

    def __init__(self, transport: InProcessTransport, daemons: Sequence[str]) -> None:
        self._transport = transport
        super().__init__(daemons, credentials=Credentials())


class InProcessRoutes(Routes):
    """The routes to the daemons of one simulated cluster, by their names."""

    def __init__(self, time: VirtualTime, serving: Callable[[str], InProcessServer | None]) -> None:
        super().__init__(Credentials())
        self._time, self._serving = time, serving

    def to(self, address: str) -> CallRoute:
        """Return the route to an address, which is dialled as it is."""
        return CallRoute(address)

    def is_changed(self, address: str) -> bool:  # noqa: ARG002
        """Return False: there is one route."""
        return False

    def channel(
        self, target: str, options: list[tuple[str, object]], *, module: Any
    ) -> InProcessChannel:
        """Return a channel to whoever serves at the address when a call is made."""
        return InProcessChannel(self._time, lambda: self._serving(target))
