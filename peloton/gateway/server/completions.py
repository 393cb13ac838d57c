"""Calls as gRPC's C core brings them: one thread takes the events of all.

HTTP/2, flow control, deadlines and compression stay with the core. gRPC's own two servers for
Python use the same interface (`grpc._cython.cygrpc`), which is not documented. What they add costs
more than most calls here: an empty call takes 0.15 ms of CPU here, and 0.4 ms in `grpc.aio`, which
hands each of its five events over to another thread (`script/bench api`). If the interface is not
as expected, `carrier.py` takes the documented server instead. The thread of events must not block,
as all calls wait for it.

    received: new call     ReceiveClose is started, and the callback of the server gets the call
    received: message      `read`: one at a time; None if there is no further one. What is in
                           flight over all calls is limited (`intake.py`)
    done: message sent     `write`: one at a time, so a slow reader holds up only its own call
    done: status sent      `end`: the first one counts
    received: close        the last: the call has ended for the client, perhaps before we ended it
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import grpc
from grpc._cython import cygrpc

from peloton.gateway.access.guard import Guard
from peloton.gateway.server.intake import Intake
from peloton.gateway.server.served_calls import CallServer, ServedCall

NO_FLAGS = 0
NAMES = (
    *("CompletionQueue", "Server", "peer_identities"),
    *("ReceiveCloseOnServerOperation", "ReceiveMessageOperation", "SendInitialMetadataOperation"),
    *("SendMessageOperation", "SendStatusFromServerOperation"),
)
"""What is relied on."""


def missing_names() -> list[str]:
    """Return which names of the interface are missing."""
    return [name for name in NAMES if not hasattr(cygrpc, name)]


class CoreCall(ServedCall):
    """One call of the core."""

    def __init__(self, event: Any, ended: Callable[[Any], None], *, intake: Intake) -> None:
        details = event.call_details
        super().__init__(
            details.method.decode(errors="replace"),
            event.invocation_metadata,
            deadline_s=details.deadline,
            ended=ended,
            intake=intake,
        )
        self._call = event.call
        self._begun = False  # whether the initial metadata were sent
        self._call.start_server_batch(
            (cygrpc.ReceiveCloseOnServerOperation(NO_FLAGS),),
            lambda event: self._closed(event.batch_operations[0].cancelled()),
        )

    def peer(self) -> str:
        """Return the client's address."""
        return str(self._call.peer().decode(errors="replace"))

    def peer_identities(self) -> Any:
        """Return names of the client's certificate, if it was checked."""
        return cygrpc.peer_identities(self._call)

    def _receive(self, done: Callable[[bytes | None], None]) -> None:
        self._call.start_server_batch(
            (cygrpc.ReceiveMessageOperation(NO_FLAGS),),
            lambda event: done(event.batch_operations[0].message()),
        )

    def _send(self, data: bytes, done: Callable[[bool], None]) -> None:
        message = cygrpc.SendMessageOperation(data, NO_FLAGS)
        self._start_batch((message,), lambda event: done(bool(event.success)))

    def _finish(self, code: int, details: str, *, message: bytes | None, trailing: Any) -> None:
        body = () if message is None else (cygrpc.SendMessageOperation(message, NO_FLAGS),)
        status = cygrpc.SendStatusFromServerOperation(
            trailing or None, code, details.encode(errors="replace"), NO_FLAGS
        )
        self._start_batch((*body, status), lambda event: self._completed())

    def _cancel(self, code: int, details: str) -> None:
        self._call.cancel(code, details)

    def _start_batch(self, operations: tuple[Any, ...], done: Callable[[Any], None]) -> None:
        if not self._begun:
            self._begun = True
            operations = (cygrpc.SendInitialMetadataOperation(None, NO_FLAGS), *operations)
        self._call.start_server_batch(operations, done)


class CoreServer(CallServer):
    """One server of the core."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._queue = cygrpc.CompletionQueue()
        self._server = cygrpc.Server(self._options, False)
        self._server.register_completion_queue(self._queue)
        self._asked = 0  # requests for a call that the core has not answered

    def listen(self, address: str, credentials: grpc.ServerCredentials | None = None) -> int:
        """Listen at an address and return the port.

        Raises RuntimeError when the address cannot be had.
        """
        secret = (credentials._credentials,) if credentials is not None else ()
        port = int(self._server.add_http2_port(address.encode(), *secret))
        if not port:
            raise RuntimeError(f"failed to bind to address {address}")
        return port

    def _open(self) -> None:
        self._server.start()
        if not self._stopping:
            self._ask()

    def _took_event(self, within_s: float | None) -> bool:
        # The core's deadlines are times of the day.
        event = self._queue.poll(None if within_s is None else time.time() + within_s)
        if event.tag is None:
            return False
        event.tag(event)
        return True

    def _shut_down(self) -> None:
        self._server.shutdown(self._queue, lambda event: self._was_shut())

    def _cancel_calls(self) -> None:
        self._server.cancel_all_calls()

    def _destroy(self) -> None:
        self._server.destroy()

    def _is_over(self) -> bool:
        return super()._is_over() and not self._asked

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


def _nobody(code: int, details: str, *, trailing: Any) -> None:
    """Ignore the end of an event that belongs to no call."""
