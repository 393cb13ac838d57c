"""A gRPC server as its C core offers it: one thread takes the events of all calls.

Turns events of the core's completion queue into calls that can be read, written and ended, from
any thread. HTTP/2, flow control, deadlines and compression stay with the core. It must not know
a service, nor block: whatever a callback does delays all other calls.

gRPC's own two servers for Python stand on the same interface (`grpc._cython.cygrpc`), which is not
documented. What they add costs more than most calls of ours: an empty call takes 0.15 ms of CPU
here, and 0.4 ms in `grpc.aio`, which hands each of its five events over to another thread
(`script/bench api`). `tests/gateway/server/test_completions.py` says what is relied on.

    received: new call     ReceiveClose is started, and the callback of the server gets the call
    received: message      `read`: one at a time; None where there is no further one. What is in
                           flight over all calls is limited (`intake.py`)
    done: message sent     `write`: one at a time, so a slow reader holds up only its own call
    done: status sent      `end`: the first one counts
    received: close        the last: the call has ended for the client, perhaps before we ended it
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, cast

import grpc
from grpc._cython import cygrpc

from peloton.gateway.access.authentication import NOBODY
from peloton.gateway.access.guard import Guard
from peloton.gateway.server.intake import Intake
from peloton.runtime.vocabulary import Key

FAR_S = 1e9
"""A deadline further away is none."""
NO_FLAGS = 0
OK, RESOURCE_EXHAUSTED = 0, 8
LOOK_LATE_S_MAX = 0.2
"""How long events may put off the look for reads that find no room."""


class EndNote(Protocol):
    """Is told how a call ends."""

    def __call__(self, code: int, details: str, message: bytes | None) -> object:
        """With this status, and the answer of a unary call; quick, on any thread."""


class CoreCall:
    """One call, from its arrival to its end. Callbacks run on the thread of the events."""

    def __init__(self, event: Any, ended: Callable[[CoreCall], None], *, intake: Intake) -> None:
        self.method: str = event.call_details.method.decode(errors="replace")
        self.metadata = event.invocation_metadata
        self.principal = NOBODY
        """Who makes it; known before it is served."""
        self.deadline_s: float = event.call_details.deadline
        self.cancelled = False
        """Whether nobody waits for it any more; never becomes False again."""
        self.on_cancel: Callable[[], object] | None = None
        self.waits_for: Future[Any] | None = None
        """The answer that a thread waits for; set on that thread. It is cancelled with the call."""
        self.end_note: EndNote | None = None
        """Told once how the call ends, before its status leaves."""
        self.trailing: Any = ()
        """Sent with an answer."""
        self.hidden = False
        """Whether its object must look as if it did not exist."""
        self.at_pool = ""
        """The path of the pool that it is about, once it is known that the caller may see it."""
        self.found: Key | None = None
        """Which of several objects of one name it is about, once that was asked."""
        self.said: Callable[[str], str] = str
        """What the text of its status says to this caller."""
        self._call = event.call
        self._ended = ended
        self.intake = intake
        """Counts what is received; another one may be set before the first `read`."""
        self._unread: Callable[[bytes | None], None] | None = None  # told if a read never starts
        self._uses = 1  # of what was received: by the core, and by each `keep`
        self._lock = threading.Lock()
        self._due = 1  # batches that the core has not completed; the first is that of the close
        self._over = False  # no batch may be started any more
        self._begun = False  # whether the initial metadata were sent
        self._call.start_server_batch(
            (cygrpc.ReceiveCloseOnServerOperation(NO_FLAGS),), self._closed
        )

    def peer(self) -> str:
        """The client's address."""
        return str(self._call.peer().decode(errors="replace"))

    def peer_identities(self) -> Any:
        """Names of the client's certificate, if it was checked."""
        return cygrpc.peer_identities(self._call)

    def time_remaining(self) -> float | None:
        """Seconds until the client's deadline; None where it has none."""
        left_s = self.deadline_s - time.time()
        return max(left_s, 0.0) if left_s < FAR_S else None

    def read(self, then: Callable[[bytes | None], None]) -> None:
        """Receive the next message of the client; None where no further one comes.

        A message for which there is no room ends the call instead. So does an exception of `then`.
        It starts when there is room for it. A read that is begun on another thread than that of
        the events is found slow only after the next event.
        """

        def received(event: Any) -> None:
            data: bytes | None = event.batch_operations[0].message()
            with Guard(self.end, self.method):
                size = len(data or b"")
                why = self.intake.arrived(self, size, who=self.principal, now_s=time.monotonic())
                if not why:
                    then(data)
                else:
                    self.end(RESOURCE_EXHAUSTED, why)
            self._completed()

        def start() -> bool:
            if self._start((cygrpc.ReceiveMessageOperation(NO_FLAGS),), received):
                return True
            with Guard(self.end, self.method):
                then(None)
            return False

        self._unread = then
        self.intake.begin(self, start, who=self.principal, now_s=time.monotonic())

    def keep(self) -> None:
        """What was received is used until `let_go`, even if the call ends before."""
        with self._lock:
            self._uses += 1

    def let_go(self) -> None:
        """The end of a `keep`."""
        with self._lock:
            self._uses -= 1
            last = not self._uses
        if last:
            self.intake.release(self, time.monotonic())

    def write(self, data: bytes, then: Callable[[bool], object]) -> None:
        """Send a message of a stream; then whether it is on its way."""

        def sent(event: Any) -> None:
            self._completed()
            with Guard(self.end, self.method):
                then(bool(event.success))

        if not self._start((cygrpc.SendMessageOperation(data, NO_FLAGS),), sent, sends=True):
            then(False)

    def end(
        self, code: int = OK, details: str = "", *, message: bytes | None = None, trailing: Any = ()
    ) -> None:
        """End the call with a status, and before that with the answer of a unary call."""
        with self._lock:
            note, self.end_note = self.end_note, None
        if note is not None:
            note(code, details, message)
        body = () if message is None else (cygrpc.SendMessageOperation(message, NO_FLAGS),)
        if message is not None:
            trailing = trailing or self.trailing
        status = cygrpc.SendStatusFromServerOperation(
            trailing or None, code, details.encode(errors="replace"), NO_FLAGS
        )
        self._start((*body, status), lambda event: self._completed(), sends=True, last=True)

    def cancel(self, code: int, details: str) -> None:
        """End the call now, whatever the client has not read yet; also after `end`."""
        with self._lock:
            if self._due:
                self._call.cancel(code, details)

    # ---- inside ----

    def _start(
        self,
        operations: tuple[Any, ...],
        done: Callable[[Any], None],
        *,
        sends: bool = False,
        last: bool = False,
    ) -> bool:
        """Pass a batch to the core, unless the call is over: its queue may be gone by then."""
        with self._lock:
            if self._over:
                return False
            if sends and not self._begun:
                self._begun = True
                operations = (cygrpc.SendInitialMetadataOperation(None, NO_FLAGS), *operations)
            self._over = last
            self._due += 1
            self._call.start_server_batch(operations, done)
            return True

    def _closed(self, event: Any) -> None:
        if event.batch_operations[0].cancelled():
            self.cancelled = True
        with self._lock:
            self._over = True
        waits_for, on_cancel, self.on_cancel = self.waits_for, self.on_cancel, None
        if self.cancelled and waits_for is not None:
            waits_for.cancel()
        if self.cancelled and on_cancel is not None:
            with Guard(self.end, self.method):
                on_cancel()
        if self.intake.leave(self) and self._unread is not None:
            with Guard(self.end, self.method):
                self._unread(None)
        self._unread = None
        self._completed()

    def _completed(self) -> None:
        with self._lock:
            self._due -= 1
            done = not self._due
        if done:
            self.let_go()
            self._ended(self)


class CoreServer:
    """One server, from construction to `stopped`."""

    def __init__(
        self,
        options: Sequence[tuple[str, Any]],
        begin: Callable[[CoreCall], None],
        *,
        calls_max: int,
        intake: Intake,
        open_intake: Intake | None = None,
    ) -> None:
        """`begin` is called with each new call, on the thread of the events.

        `open_intake` is another one that it may set for calls of callers who prove nothing.
        """
        self.stopped: Future[None] = Future()
        """Done when it has stopped and no call is left."""
        self.on_broken: Callable[[str], object] | None = None
        """Called if the thread of the events ends with an exception: no call is served then."""
        self._intake = intake
        self._intakes = [intake] if open_intake is None else [intake, open_intake]
        self._begin = begin
        self._calls_max = calls_max
        self._queue = cygrpc.CompletionQueue()
        self._server = cygrpc.Server(tuple(options), False)
        self._server.register_completion_queue(self._queue)
        self._calls: dict[CoreCall, None] = {}
        self._lock = threading.Lock()
        self._started = self._stopping = self._shut = False
        self._asked = 0  # requests for a call that the core has not answered
        self._thread = threading.Thread(target=self._run, name="gateway-events", daemon=True)

    @property
    def open_calls(self) -> int:
        """How many calls have not ended."""
        return len(self._calls)

    def listen(self, address: str, credentials: grpc.ServerCredentials | None = None) -> int:
        """The port it got. Raises RuntimeError when the address cannot be had."""
        secret = (credentials._credentials,) if credentials is not None else ()
        port = int(self._server.add_http2_port(address.encode(), *secret))
        if not port:
            raise RuntimeError(f"failed to bind to address {address}")
        return port

    def start(self) -> None:
        """Begin to take calls."""
        self._server.start()
        self._started = True
        self._ask()
        self._thread.start()

    def stop(self) -> None:
        """Take no further call; those under way go on."""
        with self._lock:
            if self._stopping:
                return
            self._stopping = True
            if not self._started:  # the core cannot end what has not begun
                self._server.start()
                self._thread.start()
            self._server.shutdown(self._queue, self._was_shut)

    def cancel_all(self) -> None:
        """Cancel what is under way; only after `stop`."""
        with self._lock:
            if not self.stopped.done():
                self._server.cancel_all_calls()

    def end_all(self, code: int, details: str) -> None:
        """End what is under way with a status; only after `stop`."""
        for call in [*self._calls]:
            call.end(code, details)

    # ---- the thread of the events ----

    def _run(self) -> None:
        # What was raised for one call has ended that call. Here the server itself is broken.
        with Guard(self._broke, "the thread of the events"):
            while not self._is_over():
                self._take_event()
            with self._lock:
                self._server.destroy()
                self.stopped.set_result(None)

    def _broke(self, code: int, details: str, *, trailing: Any) -> None:
        self.stopped.set_result(None)
        if self.on_broken is not None:
            self.on_broken(f"no call is served any more: {details}")

    def _take_event(self) -> None:
        look_s = None
        for intake in self._intakes:
            intake_s = intake.next_look_s()
            if intake_s is not None and (look_s is None or intake_s < look_s):
                look_s = intake_s
        if look_s is None:
            event = self._queue.poll(None)
        else:
            # The core's deadlines are times of the day.
            event = self._queue.poll(time.time() + max(look_s - time.monotonic(), 0.0))
        if event.tag is not None:
            event.tag(event)
        if look_s is None:
            return
        # What has arrived while this thread was busy stands in the queue, and is taken first.
        now_s = time.monotonic()
        if now_s >= look_s + (LOOK_LATE_S_MAX if event.tag is not None else 0.0):
            for intake in self._intakes:
                for refused in intake.refused(now_s):
                    cast(CoreCall, refused.call).end(RESOURCE_EXHAUSTED, refused.text)

    def _is_over(self) -> bool:
        return self._shut and not self._calls and not self._asked

    def _ask(self) -> None:
        with self._lock:  # the core raises when it is asked during a stop
            if not self._stopping:
                self._server.request_call(self._queue, self._queue, self._arrived)
                self._asked += 1

    def _arrived(self, event: Any) -> None:
        self._asked -= 1
        self._ask()
        if not event.success:
            return
        with Guard(_nobody, "the beginning of a call"):  # the core ends a call that nobody keeps
            self._serve(CoreCall(event, self._ended, intake=self._intake))

    def _serve(self, call: CoreCall) -> None:
        self._calls[call] = None
        if len(self._calls) > self._calls_max:
            call.end(RESOURCE_EXHAUSTED, f"{self._calls_max} calls are under way already")
        else:
            with Guard(call.end, call.method):  # else its client would wait for ever
                self._begin(call)

    def _ended(self, call: CoreCall) -> None:
        del self._calls[call]

    def _was_shut(self, event: Any) -> None:
        self._shut = True


def _nobody(code: int, details: str, *, trailing: Any) -> None:
    """The end of what is no call's."""
