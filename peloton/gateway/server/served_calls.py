"""A gRPC server as calls see it, whatever carries them: one thread takes the events of all calls.

Calls can be read, written and ended, from any thread. There are two carriers (`carrier.py`): gRPC's
core (`completions.py`), and the server that gRPC documents (`public_calls.py`). No callback may
block: it would delay all other calls.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias, cast

import grpc

from peloton.gateway.access.authentication import NOBODY
from peloton.gateway.access.guard import Guard
from peloton.gateway.server.intake import Intake
from peloton.runtime.vocabulary import Key

FAR_S = 1e9
"""A deadline further away is none."""
OK, RESOURCE_EXHAUSTED = 0, 8
LOOK_LATE_S_MAX = 0.2
"""How long events may put off the look for reads that find no room."""

EndNote: TypeAlias = Callable[[int, str, bytes | None], object]
"""Is told with which status and details a call ends, and the answer of a unary call; quick, on any
thread."""


class ServedCall(ABC):
    """One call, from its arrival to its end. Callbacks run on the thread of the events."""

    def __init__(
        self,
        method: str,
        metadata: Any,
        *,
        deadline_s: float,
        ended: Callable[[Any], None],
        intake: Intake,
    ) -> None:
        self.method = method
        self.metadata = metadata
        self.principal = NOBODY
        """Who makes it; known before it is served."""
        self.deadline_s = deadline_s
        """A time of the day."""
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
        self._ended = ended
        self.intake = intake
        """Counts what is received; another one may be set before the first `read`."""
        self._unread: Callable[[bytes | None], None] | None = None  # told if a read never starts
        self._uses = 1  # of what was received: by the carrier, and by each `keep`
        self._lock = threading.Lock()
        self._due = 1  # what the carrier has not completed; the first is the close
        self._over = False  # nothing may be started any more

    @abstractmethod
    def peer(self) -> str:
        """Return the client's address."""

    @abstractmethod
    def peer_identities(self) -> Any:
        """Return names of the client's certificate, if it was checked."""

    def time_remaining(self) -> float | None:
        """Return the seconds until the client's deadline; None without one."""
        left_s = self.deadline_s - time.time()
        return max(left_s, 0.0) if left_s < FAR_S else None

    def result_of(self, future: Future[Any], wait_s: float) -> Any:
        """Wait for the result of a future, on a thread that may block. Raises TimeoutError."""
        return future.result(wait_s)

    def read(self, then: Callable[[bytes | None], None]) -> None:
        """Receive the next message of the client; None if no further one comes.

        The read starts when there is room for the message; a message for which there is none ends
        the call instead. So does an exception of `then`. A read that is begun on another thread
        than that of the events is found slow only after the next event.
        """

        def received(data: bytes | None) -> None:
            with Guard(self.end, self.method):
                size = len(data or b"")
                why = self.intake.arrived(self, size, who=self.principal, now_s=time.monotonic())
                if not why:
                    then(data)
                else:
                    self.end(RESOURCE_EXHAUSTED, why)
            self._completed()

        def start() -> bool:
            if self._start(self._receive, received):
                return True
            with Guard(self.end, self.method):
                then(None)
            return False

        self._unread = then
        self.intake.begin(self, start, who=self.principal, now_s=time.monotonic())

    def keep(self) -> None:
        """Keep what was received until `let_go`, even if the call ends before."""
        with self._lock:
            self._uses += 1

    def let_go(self) -> None:
        """End a `keep`."""
        with self._lock:
            self._uses -= 1
            last = not self._uses
        if last:
            self.intake.release(self, time.monotonic())

    def write(self, data: bytes, then: Callable[[bool], object]) -> None:
        """Send a message of a stream; then call `then` with whether it is on its way."""

        def sent(well: bool) -> None:
            self._completed()
            with Guard(self.end, self.method):
                then(well)

        if not self._start(self._send, data, sent):
            then(False)

    def end(
        self, code: int = OK, details: str = "", *, message: bytes | None = None, trailing: Any = ()
    ) -> None:
        """End the call with a status, and before that with the answer of a unary call."""
        with self._lock:
            note, self.end_note = self.end_note, None
        if note is not None:
            note(code, details, message)
        if message is not None:
            trailing = trailing or self.trailing
        with self._lock:
            if not self._over:
                self._over = True
                self._due += 1
                self._finish(code, details, message=message, trailing=trailing)

    def cancel(self, code: int, details: str) -> None:
        """End the call now, whatever the client has not read yet; also after `end`."""
        with self._lock:
            if self._due:
                self._cancel(code, details)

    # ---- what a carrier does, begun under the lock; `done` is called on the thread of events ----

    @abstractmethod
    def _receive(self, done: Callable[[bytes | None], None]) -> None:
        """Begin to receive a message."""

    @abstractmethod
    def _send(self, data: bytes, done: Callable[[bool], None]) -> None:
        """Begin to send a message."""

    @abstractmethod
    def _finish(self, code: int, details: str, *, message: bytes | None, trailing: Any) -> None:
        """Begin to send the status, after what was to be sent; then call `_completed`."""

    @abstractmethod
    def _cancel(self, code: int, details: str) -> None:
        """End the call before anything else is sent."""

    # ---- inside ----

    def _start(self, begin: Callable[..., None], *arguments: Any) -> bool:
        """Let the carrier begin something, unless the call is over, when it may be gone."""
        with self._lock:
            if self._over:
                return False
            self._due += 1
            begin(*arguments)
            return True

    def _closed(self, cancelled: bool) -> None:
        """Record the last event of a carrier: the call is over for the client, perhaps before we
        ended it."""
        if cancelled:
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


class CallServer(ABC):
    """One server, from construction to `stopped`."""

    def __init__(
        self,
        options: Sequence[tuple[str, Any]],
        begin: Callable[[ServedCall], None],
        *,
        calls_max: int,
        intake: Intake,
        open_intake: Intake | None = None,
    ) -> None:
        """Take the options; `begin` is called with each new call, on the thread of the events.

        `open_intake` is another intake that it may set for calls of callers who prove nothing.
        """
        self.stopped: Future[None] = Future()
        """Done when it has stopped and no call is left."""
        self.on_broken: Callable[[str], object] | None = None
        """Called if the thread of the events ends with an exception: no call is served then."""
        self._intake = intake
        self._intakes = [intake] if open_intake is None else [intake, open_intake]
        self._begin = begin
        self._calls_max = calls_max
        self._options = tuple(options)
        self._calls: dict[ServedCall, None] = {}
        self._lock = threading.Lock()
        self._started = self._stopping = self._shut = False
        self._thread = threading.Thread(target=self._run, name="gateway-events", daemon=True)

    @abstractmethod
    def listen(self, address: str, credentials: grpc.ServerCredentials | None = None) -> int:
        """Listen at an address and return the port.

        Raises RuntimeError when the address cannot be had.
        """

    def start(self) -> None:
        """Begin to take calls."""
        self._open()
        self._started = True
        self._thread.start()

    def stop(self) -> None:
        """Take no further call; those under way go on."""
        with self._lock:
            if self._stopping:
                return
            self._stopping = True
            if not self._started:  # what has not begun cannot be ended
                self._open()
                self._thread.start()
            self._shut_down()

    def cancel_all(self) -> None:
        """Cancel what is under way; only after `stop`."""
        with self._lock:
            if not self.stopped.done():
                self._cancel_calls()

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
                self._destroy()
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
        event = self._took_event(None if look_s is None else max(look_s - time.monotonic(), 0.0))
        if look_s is None:
            return
        # What has arrived while this thread was busy stands in the queue, and is taken first.
        now_s = time.monotonic()
        if now_s >= look_s + (LOOK_LATE_S_MAX if event else 0.0):
            for intake in self._intakes:
                for refused in intake.refused(now_s):
                    cast(ServedCall, refused.call).end(RESOURCE_EXHAUSTED, refused.text)

    def _is_over(self) -> bool:
        return self._shut and not self._calls

    def _serve(self, call: ServedCall) -> None:
        self._calls[call] = None
        if len(self._calls) > self._calls_max:
            call.end(RESOURCE_EXHAUSTED, f"{self._calls_max} calls are under way already")
        else:
            with Guard(call.end, call.method):  # else its client would wait for ever
                self._begin(call)

    def _ended(self, call: ServedCall) -> None:
        del self._calls[call]

    def _was_shut(self) -> None:
        self._shut = True

    # ---- what a carrier does ----

    @abstractmethod
    def _open(self) -> None:
        """Begin to take calls, each of which comes to `_serve` on the thread of the events."""

    @abstractmethod
    def _took_event(self, within_s: float | None) -> bool:
        """Wait for an event and handle it; return whether one came within this time."""

    @abstractmethod
    def _shut_down(self) -> None:
        """Take no further call; call `_was_shut` when there is none left. Under the lock."""

    @abstractmethod
    def _cancel_calls(self) -> None:
        """Cancel what is under way. Under the lock."""

    @abstractmethod
    def _destroy(self) -> None:
        """Free the carrier, from which nothing comes any more."""
