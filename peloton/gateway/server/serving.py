"""The gRPC server as a mechanism: calls on a pool of threads, long-lived calls on an event loop.

Servicers' methods become handlers of calls (`completions.py`). A plain method blocks, so it runs on
a thread of the pool, together with parsing and encoding its messages. A coroutine waits on the loop
and holds no thread meanwhile, however long: waits and server streams are made of those.

Hand-overs between threads are what a call costs most, next to gRPC itself. So a servicer may name
methods in `at_once`, which take small requests on the thread of the events and must not wait: they
return the encoded answer, or a `Later` for an answer that is under way, or None: then the plain
method is called, with its way to the pool.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import structlog
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from peloton.gateway.access import authentication as authn
from peloton.gateway.access.authentication import SECRETS, UNIX, Authentication, without_secrets
from peloton.gateway.access.guard import CallCode, CallEnded, Guard
from peloton.gateway.access.principals import SharedQuota, claimed, host_of
from peloton.gateway.server.calls import CallContext, Later
from peloton.gateway.server.execution import REAL, Execution
from peloton.gateway.server.gate import (
    AnswerGate,
    Begin,
    GateOf,
    MethodGate,
    OpenAnswers,
    checked,
    gated,
    no_gate,
)
from peloton.gateway.server.inner_calls import InnerAnswer, InnerCall, InnerRequest
from peloton.gateway.server.intake import Intake
from peloton.gateway.server.later_answers import LaterAnswers
from peloton.gateway.server.long_calls import LongCall
from peloton.gateway.server.receiving import answer_next, parsed, take_one
from peloton.gateway.server.served_calls import ServedCall

THREADS_MAX = 64
CALLS_MAX = 1024
"""Concurrent calls that need a thread; further calls get RESOURCE_EXHAUSTED."""
LONG_CALLS_MAX = 20_000
"""Concurrent calls that wait or stream."""
AT_ONCE_BYTES_MAX = 16 * 1024
"""A larger request is not parsed on the thread that all calls share."""
LONG_CALL_BYTES_MAX = 1024 * 1024
"""A call that waits or streams keeps its request as long as it lasts."""
END_S_MAX = 0.3
"""How long the last statuses of a stop may take to leave."""
STOPPING = "this daemon is stopping: retry, or call another one"
CUT_OFF = STOPPING + "; a change may have happened"

log = structlog.get_logger("gateway")


class Server:
    """One gRPC server, from construction to `stop`; called from any thread but the loop's."""

    def __init__(
        self,
        options: Sequence[tuple[str, Any]],
        intake: Intake,
        *,
        authentication: Authentication,
        gates: GateOf = no_gate,
        execution: Execution = REAL,
    ) -> None:
        """Take the options and gates, and what the calls run on.

        `gates` returns the gate of each method by its full name, and raises if it has no row.
        """
        self._authentication, self._gates = authentication, gates
        self.answers: AnswerGate = OpenAnswers()
        """The gate that all answers pass; another one is set before anything is served."""
        self._execution = execution
        self._pool = execution.threads(THREADS_MAX)
        self.calls = SharedQuota("calls that wait")
        """Those that need a thread of the pool, or wait for a `Later`."""
        self.places: Sequence[SharedQuota] = (self.calls, intake.shares)
        """All that its callers share a limited number of."""
        self.administers: Callable[[CallContext], bool] = lambda context: True
        """Whether a caller may have the places that are kept for administrators."""
        self._lock = threading.Lock()
        self._later = LaterAnswers(self.calls, self._lock, execution=execution)
        self._long: dict[asyncio.Task[None], None] = {}
        self._stopping = False
        self.locked: Callable[[str], str] = lambda method: ""
        """Why no call of this name is answered now; "" where each is."""
        self._begins: dict[str, Begin] = {}
        self._named: dict[str, str] = {}  # the full name of a method by its path
        self._gates_at: dict[str, MethodGate | None] = {}
        self._refusals: Mapping[str, str] = {}
        most = LONG_CALLS_MAX + 2 * CALLS_MAX
        intake.administers = lambda call: self.administers(CallContext(call))
        self._intake, self._open_intake = intake, intake.for_open_calls()
        self._core = execution.carrier(
            options, self._begin, calls_max=most, intake=intake, open_intake=self._open_intake
        )

    def add(self, service: ServiceDescriptor, servicer: Any, *, names: Sequence[str]) -> None:
        """Serve the methods that the servicer has, under these names of the service."""
        for method in service.methods:
            if hasattr(servicer, method.name):
                gate = self._gates(method.full_name)
                begin = self._handler(servicer, method, gate=gate)
                for path in (f"/{name}/{method.name}" for name in names):
                    self._begins[path], self._gates_at[path] = begin, gate
                    self._named[path] = method.full_name

    def add_each(self, path: str, answer: Callable[[bytes], bytes]) -> None:
        """Serve a call that answers each message of a stream with one, without waiting."""
        self._gates(path[1:].replace("/", "."))
        self._begins[path] = lambda call: answer_next(call, answer, name=path)

    def refuse(self, texts: Mapping[str, str]) -> None:
        """Refuse calls of these paths that nothing serves, each with its text."""
        self._refusals = texts

    def listen(self, addresses: Sequence[str]) -> list[int]:
        """Listen at the addresses and return the ports; addresses that are on no network are not
        encrypted.

        Raises RuntimeError when an address cannot be had.
        """
        secret = self._authentication.port_credentials
        return [
            self._core.listen(address, None if address.startswith(UNIX) else secret())
            for address in addresses
        ]

    def start(self, *, broken: Callable[[str], object] | None = None) -> None:
        """Begin to serve; `broken` is called with a text if it cannot go on."""
        self._core.on_broken = broken
        self._core.start()

    def refuse_new(self) -> None:
        """Refuse new calls of all clients as UNAVAILABLE, until `stop` does the rest."""
        self._stopping = True

    def stop(self, grace_s: float | None = None) -> Stopping:
        """Stop: refuse new calls, end long ones, give others `grace_s`; all end UNAVAILABLE."""
        stop = self._stop(grace_s)
        return Stopping(asyncio.run_coroutine_threadsafe(stop, self._execution.loop()))

    def call(self, request: InnerRequest) -> Future[InnerAnswer]:
        """Make a call from inside of this process; the future never raises."""
        call = InnerCall(request, intake=self._intake, loop=self._execution.loop())

        def begin() -> None:
            with Guard(call.end, request.path):
                if self._stopping:
                    raise CallEnded(CallCode.UNAVAILABLE, STOPPING)
                self._admitted(call)

        self._execution.loop().call_soon_threadsafe(begin)
        return call.answer

    async def run(self, work: Callable[..., Any], *args: Any) -> Any:
        """Call something that blocks, on a thread of the pool."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *args)

    # ---- inside ----

    async def _stop(self, grace_s: float | None) -> None:
        self._stopping = True
        self._core.stop()
        for task in [*self._long]:
            task.cancel()
        stopped = asyncio.wrap_future(self._core.stopped)
        await asyncio.wait((stopped,), timeout=grace_s or 0.0)
        self._core.end_all(CallCode.UNAVAILABLE.value[0], CUT_OFF)
        await asyncio.wait((stopped,), timeout=END_S_MAX)
        self._core.cancel_all()  # those whose clients do not read
        await stopped
        self._pool.shutdown(wait=False)

    def _begin(self, call: ServedCall) -> None:
        sent = {name: text for name, text in call.metadata}  # noqa: C416 - half the time of dict()
        if not SECRETS.isdisjoint(sent):  # from here on nobody else sees them
            call.metadata = without_secrets(call.metadata)
        if self._stopping:
            call.end(CallCode.UNAVAILABLE.value[0], STOPPING)
            return
        known = self._authentication
        identities = call.peer_identities() if known.has_tls else None
        try:
            call.principal = known.admit(call.method, sent, peer=call.peer(), identities=identities)
        except CallEnded:
            gate = self._gates_at.get(call.method)
            if gate is not None:
                call.principal = claimed(sent, host_of(call.peer()))
                gate.refused(call)
            raise
        self._admitted(call)

    def _admitted(self, call: ServedCall) -> None:
        call.said = partial(self.answers.status, context=CallContext(call))
        locked = self.locked(self._named.get(call.method, ""))
        if locked:
            self._refuse_locked(call, locked)
            return
        if call.method in authn.OPEN_PATHS:  # who proves nothing takes no room of others
            call.intake = self._open_intake
        begin = self._begins.get(call.method)
        if begin is not None:
            begin(call)
            return
        text = self._refusals.get(call.method, "Method not found!")
        call.end(CallCode.UNIMPLEMENTED.value[0], text)

    def _refuse_locked(self, call: ServedCall, text: str) -> None:
        gate = self._gates_at.get(call.method)
        if gate is not None:
            gate.refused(call)
        call.end(CallCode.INTERNAL.value[0], text)

    def _handler(self, servicer: Any, rpc: MethodDescriptor, *, gate: MethodGate | None) -> Begin:
        method, name = getattr(servicer, rpc.name), rpc.full_name
        sent, answered = GetMessageClass(rpc.input_type), GetMessageClass(rpc.output_type)
        if inspect.iscoroutinefunction(method):
            long = self._long_call(checked(method, gate), sent, answered=answered, name=name)
            return gated(gate, long)
        at_once = getattr(servicer, "at_once", {}).get(rpc.name)
        quick = getattr(servicer, at_once) if at_once is not None else None

        def first(data: bytes, call: ServedCall) -> bytes | Later | None:
            if quick is None or len(data) > AT_ONCE_BYTES_MAX:
                return None
            request, context = parsed(sent, data), CallContext(call)
            if gate is not None and not gate.at_once(request, context):
                return None
            found: bytes | Later | None = quick(request, context)
            if isinstance(found, Later):
                encode = found.encode
                return found._replace(
                    encode=lambda got: self.answers.at_once(encode(got), context, kind=answered)
                )
            return None if found is None else self.answers.at_once(found, context, kind=answered)

        def work(received: list[bytes], call: CallContext) -> bytes:
            # From here on only what was parsed is kept, not the bytes as well.
            request = parsed(sent, received.pop())
            if gate is not None:
                gate.check(request, call)
            return self.answers.encoded(method(request, call), call)

        return gated(gate, self._short_call(work, first, name=name))

    # ---- calls that end soon ----

    def _short_call(
        self,
        work: Callable[[list[bytes], CallContext], bytes],
        first: Callable[[bytes, ServedCall], bytes | Later | None],
        *,
        name: str,
    ) -> Begin:
        def take(call: ServedCall, data: bytes) -> None:
            quick = first(data, call)
            if isinstance(quick, bytes):
                call.end(message=quick)
                return
            with self._lock:
                asked = partial(self.administers, CallContext(call))
                why = self.calls.take(call.principal, asked, most=CALLS_MAX)
            if why:
                raise CallEnded(CallCode.RESOURCE_EXHAUSTED, why)
            if quick is not None:
                self._later.answer(call, quick, name=name)
            else:
                call.keep()
                self._pool.submit(answer, call, [data])

        def answer(call: ServedCall, received: list[bytes]) -> None:
            with Guard(call.end, name):
                if not call.cancelled:
                    call.end(message=work(received, CallContext(call)))
            with self._lock:
                self.calls.leave(call.principal)
            call.let_go()

        return lambda call: take_one(call, take, name=name)

    # ---- calls that wait on the loop ----

    def _long_call(
        self,
        method: Callable[[Any, LongCall], Coroutine[Any, Any, Any]],
        sent: Any,
        *,
        answered: Any,
        name: str,
    ) -> Begin:
        async def answer(call: ServedCall, data: bytes) -> None:
            with Guard(call.end, name):
                long = LongCall(call, run=self.run, name=name, answers=self.answers, kind=answered)
                found = await method(parsed(sent, data), long)
                call.end(message=None if found is None else await long.shown(found))

        def begin(call: ServedCall, data: bytes) -> None:
            if len(self._long) >= LONG_CALLS_MAX:
                text = f"{LONG_CALLS_MAX} calls wait or stream already"
                call.end(CallCode.RESOURCE_EXHAUSTED.value[0], text)
            else:
                self._begin_long(call, answer(call, data))

        def take(call: ServedCall, data: bytes) -> None:
            if len(data) > LONG_CALL_BYTES_MAX:
                text = f"a request of {len(data)} bytes: {name} takes {LONG_CALL_BYTES_MAX}"
                raise CallEnded(CallCode.RESOURCE_EXHAUSTED, text)
            self._execution.loop().call_soon_threadsafe(begin, call, data)

        return lambda call: take_one(call, take, name=name)

    def _begin_long(self, call: ServedCall, work: Coroutine[Any, Any, None]) -> None:
        loop = asyncio.get_running_loop()
        task = loop.create_task(work)
        self._long[task] = None

        def ended(task: asyncio.Task[None]) -> None:
            del self._long[task]
            if task.cancelled():  # by the client, which needs no answer, or by the stop
                call.end(CallCode.UNAVAILABLE.value[0], STOPPING)

        task.add_done_callback(ended)
        call.on_cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        # The client may have left before it was set.
        if call.cancelled or self._stopping:
            task.cancel()


class Stopping:
    """A server that stops."""

    def __init__(self, done: Future[Any]) -> None:
        self._done = done

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return whether the server has stopped within that time."""
        try:
            self._done.result(timeout_s)
        except TimeoutError:
            return False
        return True
