"""The gRPC server as a mechanism: calls on a pool of threads, long-lived calls on an event loop.

Turns servicers' methods into handlers. A plain method blocks, so it runs on a thread of the pool,
with what is parsed and written of its messages. A coroutine waits on the loop and holds no thread
meanwhile, however long: waits and server streams are made of those. A servicer may name methods in
`at_once` that encode an answer on the loop, without waiting, or return None: then the plain method
is called. It must not know a service.

Why `grpc.aio`, of which all gateways of a process share one loop (`script/bench streams`, 1,000
open streams, two busy cores): 9 threads and 40 to 60 us of CPU an event. A sync server needs 1,009
threads and 140 to 270 us. A dispatcher over a sync server needs 73 threads and 50 to 90 us, but
through an experimental hook of gRPC whose writes block: one slow reader would stop all streams, and
a unary call cannot wait without its thread. The price is 0.1 to 0.25 ms of CPU for each plain call,
for the way to the pool and back.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NoReturn

import grpc
import structlog
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from peloton.gateway.details import cut
from peloton.gateway.guard import guarded_method
from peloton.gateway.principals import principal_of
from peloton.runtime.core.principal import Principal

THREADS_MAX = 64
CALLS_MAX = 1024
"""Concurrent calls that need a thread; further calls get RESOURCE_EXHAUSTED."""
LONG_CALLS_MAX = 8192
"""Concurrent calls that wait or stream."""
WRITE_S_MAX = 10.0
"""A client that reads no message for so long is disconnected."""
START_S_MAX = 30.0

CallCode = grpc.StatusCode
log = structlog.get_logger("gateway")


class CallEnded(Exception):
    """A call ends with a status."""

    def __init__(self, code: Any, details: str, *, trailing: Any = ()) -> None:
        super().__init__(details)
        self.code, self.details, self.trailing = code, cut(details), trailing


class CallContext:
    """The context of a call for methods on the pool: the used part of gRPC's interface."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._code: Any = None
        self._details = ""
        self._trailing: Any = ()

    def abort(self, code: Any, details: str) -> NoReturn:
        """End the call; raises."""
        self._code, self._details = code, details
        raise CallEnded(code, details, trailing=self._trailing)

    def abort_with_status(self, status: Any) -> NoReturn:
        """End the call with a rich status; raises."""
        self._trailing = status.trailing_metadata
        self.abort(status.code, status.details)

    def code(self) -> Any:
        """The status the call was ended with; None as long as it was not."""
        return self._code

    def details(self) -> str:
        """The text of that status."""
        return self._details

    def invocation_metadata(self) -> Any:
        """What the client sent with the call."""
        return self._context.invocation_metadata()

    def time_remaining(self) -> float | None:
        """Seconds until the client's deadline; None where it has none."""
        left_s: float | None = self._context.time_remaining()
        return left_s

    def peer(self) -> str:
        """The client's address."""
        return str(self._context.peer())

    def peer_identities(self) -> Any:
        """Names of the client's certificate, if it was checked."""
        return self._context.peer_identities()


class LongCall(CallContext):
    """What a coroutine sees of its call."""

    def __init__(self, context: Any, server: Server, *, name: str) -> None:
        super().__init__(context)
        self.name = name
        self._server = server

    @property
    def principal(self) -> Principal:
        """Who calls."""
        return principal_of(self)

    async def run(self, work: Callable[..., Any], *args: Any) -> Any:
        """Call something that blocks on a thread of the pool; its last argument is a context."""
        return await self._server.run(work, *args, CallContext(self._context))

    async def share(self, work: Callable[..., Any], *args: Any) -> Any:
        """As `run`, for more calls than this one, which may end first."""
        return await self._server.run(work, *args, CallContext(_NOBODY))

    async def write(self, message: Any) -> None:
        """Send a message of a stream; a client that does not read is cut off."""
        data = message.SerializeToString()
        writing = asyncio.ensure_future(self._context.write(data))
        # Whoever waits for it may be cancelled, and then nobody reads its result.
        writing.add_done_callback(_unobserved)
        done, _ = await asyncio.wait((writing,), timeout=WRITE_S_MAX)
        if done:
            writing.result()
            return
        who, peer = self.principal.text, self.peer()
        log.warning("a slow reader was cut off", call=self.name, who=who, peer=peer)
        text = (
            f"slow reader {who} ({peer}): it took no message for {WRITE_S_MAX:g} s; "
            "begin again with the last resume token"
        )
        self.abort(CallCode.RESOURCE_EXHAUSTED, text)


class _Nobody:
    """The context of work that is not for one call."""

    def invocation_metadata(self) -> Any:
        return ()

    def time_remaining(self) -> None:
        return None

    def peer(self) -> str:
        return ""

    def peer_identities(self) -> Any:
        return None


_NOBODY = _Nobody()


class _Loop:
    """The one event loop of a process, on a thread of its own.

    Two loops in a process would compete for the events of gRPC's one queue.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def get(self) -> asyncio.AbstractEventLoop:
        """The loop, started when first needed."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                run = self._loop.run_forever
                threading.Thread(target=run, name="gateway-loop", daemon=True).start()
            return self._loop

    def call(self, coroutine: Any) -> Future[Any]:
        """Run a coroutine there, from another thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.get())


LOOP = _Loop()


class Server:
    """One gRPC server, from construction to `stop`; called from any thread but the loop's."""

    def __init__(self, options: Sequence[tuple[str, Any]]) -> None:
        self._pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="gateway")
        self._calls = 0
        self._long: dict[asyncio.Task[Any], None] = {}
        self._stopping = False
        self.server: Any = LOOP.call(self._make(list(options))).result(START_S_MAX)

    def add(self, service: ServiceDescriptor, servicer: Any, *, names: Sequence[str]) -> None:
        """Serve the methods that the servicer has, under these names of the service."""
        at_once = getattr(servicer, "at_once", {})
        methods = {
            method.name: self._handler(
                getattr(servicer, method.name),
                method,
                at_once=getattr(servicer, at_once[method.name]) if method.name in at_once else None,
            )
            for method in service.methods
            if hasattr(servicer, method.name)
        }
        for name in names:
            self.server.add_registered_method_handlers(name, methods)

    def listen(self, addresses: Sequence[str]) -> list[int]:
        """The ports it got. Raises RuntimeError when an address cannot be had."""

        async def listen() -> list[int]:
            return [self.server.add_insecure_port(address) for address in addresses]

        return list(LOOP.call(listen()).result(START_S_MAX))

    def start(self) -> None:
        """Begin to serve."""
        LOOP.call(self.server.start()).result(START_S_MAX)

    def stop(self, grace_s: float | None = None) -> Stopping:
        """Stop: refuse new calls, end long ones with UNAVAILABLE, give others `grace_s`."""
        return Stopping(LOOP.call(self._stop(grace_s)))

    async def run(self, work: Callable[..., Any], *args: Any) -> Any:
        """Call something that blocks, on a thread of the pool."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *args)

    # ---- inside ----

    async def _make(self, options: list[tuple[str, Any]]) -> Any:
        return grpc.aio.server(
            options=options, maximum_concurrent_rpcs=LONG_CALLS_MAX + 2 * CALLS_MAX
        )

    async def _stop(self, grace_s: float | None) -> None:
        self._stopping = True
        for task in [*self._long]:
            task.cancel()
        await self.server.stop(grace_s)
        self._pool.shutdown(wait=False)

    def _handler(
        self, method: Any, described: Any, *, at_once: Callable[[Any], Any] | None = None
    ) -> grpc.RpcMethodHandler:
        sent = GetMessageClass(described.input_type)
        if inspect.iscoroutinefunction(method):
            answer = self._long_call(method, sent, name=described.full_name)
        else:
            plain = guarded_method(method, described.full_name)
            work = functools.partial(_work, method=plain, sent=sent)
            first = None
            if at_once is not None:
                first = functools.partial(_at_once, method=at_once, sent=sent)
            answer = self._short_call(work, name=described.full_name, first=first)
        if described.server_streaming and inspect.iscoroutinefunction(method):
            return grpc.unary_stream_rpc_method_handler(answer)
        return grpc.unary_unary_rpc_method_handler(answer)

    def _short_call(
        self,
        work: Callable[[bytes, Any], bytes],
        *,
        name: str,
        first: Callable[[bytes], bytes | None] | None = None,
    ) -> Any:
        async def found(data: bytes, call: CallContext) -> Any:
            quick = first(data) if first is not None else None
            return quick if quick is not None else await self.run(work, data, call)

        async def answer(data: bytes, context: Any) -> bytes:
            call = CallContext(context)
            self._calls += 1
            try:
                if self._calls > CALLS_MAX:
                    text = f"{CALLS_MAX} calls are under way already"
                    raise CallEnded(CallCode.RESOURCE_EXHAUSTED, text)
                return bytes(await _guarded(found(data, call), name))
            except CallEnded as error:
                ended = error
            finally:
                self._calls -= 1
            await context.abort(ended.code, ended.details, ended.trailing)
            raise AssertionError("abort returned")

        return answer

    def _long_call(
        self, method: Callable[[Any, LongCall], Awaitable[Any]], sent: Any, *, name: str
    ) -> Any:
        async def answer(data: bytes, context: Any) -> bytes | None:
            call = LongCall(context, self, name=name)
            try:
                if len(self._long) >= LONG_CALLS_MAX:
                    text = f"{LONG_CALLS_MAX} calls wait or stream already"
                    raise CallEnded(CallCode.RESOURCE_EXHAUSTED, text)
                work = self._cancellable(method(_parsed(sent, data), call))
                found = await _guarded(work, name)
                return None if found is None else bytes(found.SerializeToString())
            except CallEnded as error:
                ended = error
            await context.abort(ended.code, ended.details, ended.trailing)
            raise AssertionError("abort returned")

        return answer

    async def _cancellable(self, work: Awaitable[Any]) -> Any:
        """Await it. When the server stops, end the call with UNAVAILABLE."""
        task = asyncio.ensure_future(work)
        self._long[task] = None
        try:
            return await task
        except asyncio.CancelledError:
            if not (self._stopping and task.cancelled()):
                task.cancel()
                raise
        finally:
            del self._long[task]
        raise CallEnded(CallCode.UNAVAILABLE, "this daemon is stopping: retry, or call another one")


class Stopping:
    """A server that stops."""

    def __init__(self, done: Future[Any]) -> None:
        self._done = done

    def wait(self, timeout_s: float | None = None) -> bool:
        """Whether it has, within that time."""
        try:
            self._done.result(timeout_s)
        except TimeoutError:
            return False
        return True


def _work(data: bytes, call: CallContext, *, method: Callable[[Any, Any], Any], sent: Any) -> bytes:
    return bytes(method(_parsed(sent, data), call).SerializeToString())


def _at_once(data: bytes, *, method: Callable[[Any], Any], sent: Any) -> bytes | None:
    found: bytes | None = method(_parsed(sent, data))
    return found


def _parsed(sent: Any, data: bytes) -> Any:
    try:
        return sent.FromString(data)
    except DecodeError:
        raise CallEnded(
            CallCode.INTERNAL, f"the bytes are no valid {sent.DESCRIPTOR.full_name}"
        ) from None


async def _guarded(work: Awaitable[Any], name: str) -> Any:
    """What `guard.py` does for plain methods: a bug becomes a status without internals."""
    try:
        return await work
    except CallEnded:
        raise
    except Exception:
        log.exception("a call failed", method=name)
        raise CallEnded(CallCode.INTERNAL, f"{name} failed; see the daemon's log") from None


def _unobserved(done: asyncio.Future[Any]) -> None:
    """The result of a write of an ended call does not matter."""
    if not done.cancelled():
        done.exception()
