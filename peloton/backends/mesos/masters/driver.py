"""The connection to a Mesos master: pymesos, with what it leaves out.

pymesos provides the messages of a subscription, its state, and the detector that follows the leader
in ZooKeeper. Only its public names are used. Its own thread, sockets and calls are not: an error on
its thread interrupts the main thread, it subscribes again without a pause, it knows no TLS, it
drops calls silently while it is not connected, and its kill and reconcile name no agent. So the
stream and the calls stand here, on our client of HTTP:

- A driver is over with its stream, and `ended` is called with the reason. Only a master that sends
  us to another before we are subscribed is left for that one, and not for ever.
- `call` sends a whole call, and raises.
- Bytes that are no text, which a task may have written, are marked, and the event is read.
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import ssl
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from queue import SimpleQueue
from typing import Any

from peloton.backends.mesos.masters.calls import CallFailed, CallRefused, of_framework
from peloton.backends.mesos.masters.elections import door_of
from peloton.backends.mesos.masters.failures import told_failure
from peloton.backends.mesos.masters.operator_api import (
    PATH,
    Credential,
    Elsewhere,
    HttpDoor,
    NoAnswer,
    NotThere,
    OperatorApi,
)
from peloton.http_client import AnswerHead, BrokenAnswer, HttpConnection
from peloton.runtime.core.turning.supervision import Failure, attempt

# pymesos reads streams with http-parser, a C extension that does not build on Python 3.11 and
# newer. It reads none here, so the name is enough. Its import also takes SIGINT for the process.
_handler = signal.getsignal(signal.SIGINT)
_parser: Any = types.ModuleType("http_parser.http")
_parser.HttpParser = None
sys.modules |= {"http_parser": types.ModuleType("http_parser"), _parser.__name__: _parser}
from pymesos import MesosSchedulerDriver  # noqa: E402
from pymesos.detector import MasterDetector  # noqa: E402

if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, _handler)

SCHEDULER = "/api/v1/scheduler"
HTTP_TIMEOUT_S = 10.0
"""How long a master may be silent to a call, and where a stream begins."""
SILENT_S_MAX = 86_400.0
"""How long a stream may be silent; who listens to heartbeats ends it sooner."""
ANSWER_BYTES_MAX = 1024 * 1024 * 1024
"""Of what the master says of all its agents and tasks."""
TEXT_MAX = 500
"""Letters of the master's words."""
REDIRECTS_MAX = 3
"""How many masters in a row may send one subscription to another: two may take each other for the
one that leads."""


def why_of(error: OSError | BrokenAnswer, master: str | None) -> str:
    """Return why a stream ended with this error, for a person who has to mend the settings."""
    if isinstance(error, socket.gaierror):
        return f"the host name of the master {master} is not known ({error.strerror})"
    said = told_failure(error) if isinstance(error, OSError) else str(error)
    return f"no connection to the master at {master}: {said}"


def why_refused(answer: AnswerHead, body: bytes, *, master: str | None) -> str:
    """Return why a stream did not begin, for a person who has to mend the settings."""
    said = _text(body)
    words = f": {said}" if said and not said.startswith("<") else ""
    return f"{master} does not answer as a Mesos master: HTTP {answer.status}{words}"


def _text(body: bytes) -> str:
    return body[: 4 * TEXT_MAX].decode(errors="replace")[:TEXT_MAX].strip()


def records(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the records of a stream: each stands behind its length, in a line of its own."""
    buffer = bytearray()
    for piece in pieces:
        buffer += piece
        while (line := buffer.find(b"\n")) >= 0:
            if not buffer[:line].isdigit():
                raise BrokenAnswer("a record does not begin with its length")
            end = line + 1 + int(buffer[:line])
            if len(buffer) < end:
                break
            yield bytes(buffer[line + 1 : end])
            del buffer[:end]


class MesosDriver(MesosSchedulerDriver):  # type: ignore[misc]
    """A subscription. `heard` gets each event; `ended` gets the reason of the end, once.

    Both are called on the driver's own thread. A driver is started once; after its end there is
    another.
    """

    tls: ssl.SSLContext | None = None
    """How masters prove who they are, set before the start; None: they do not."""

    def __init__(
        self,
        master: str,
        framework: Mapping[str, Any],
        *,
        heard: Callable[[Mapping[str, Any]], None],
        ended: Callable[[str], None],
        credential: Credential = Credential(),  # noqa: B008
    ) -> None:
        super().__init__(None, dict(framework), master, failover=True)
        self._heard, self._ended, self._why = heard, ended, ""
        self._credential = credential
        self._doors: SimpleQueue[HttpDoor | None] = SimpleQueue()
        self._door: HttpDoor | None = None
        self._stream: HttpConnection | None = None
        self._stopped = False
        self._calling = threading.Lock()
        self._api: OperatorApi | None = None
        self._reading = threading.Thread(target=self._read, name="mesos-stream", daemon=True)

    @property
    def master(self) -> str | None:
        """The master of the subscription, or of the one that is about to begin."""
        return str(self._door) if self._door is not None else None

    @property
    def lives(self) -> bool:
        """Whether the subscription goes on, as far as is known here."""
        return bool(self.connected) and not self._why

    def call(self, call: Mapping[str, Any]) -> None:
        """Send a call. Raises `CallFailed`."""
        answer, said = self._exchanged(of_framework(call, self.framework_id), SCHEDULER)
        if not 200 <= answer.status < 300:
            raise CallFailed(f"{call.get('type')}: {answer.status} {_text(said)}")

    def ask(self, question: Mapping[str, Any]) -> Any:
        """Ask the master as an operator does. Raises `CallRefused`, or `CallFailed`."""
        answer, said = self._exchanged(question, PATH)
        kind = question.get("type")
        if 400 <= answer.status < 500:
            text = f"the master refuses {kind}: {answer.status} {_text(said)}"
            raise CallRefused(text.strip())
        if not 200 <= answer.status < 300:
            raise CallFailed(f"{kind}: {answer.status} {_text(said)}")
        with contextlib.suppress(ValueError):
            return json.loads(said)
        return {}  # who asked finds nothing in it

    def _exchanged(self, call: Mapping[str, Any], path: str) -> tuple[AnswerHead, bytes]:
        body = json.dumps(call).encode()
        try:
            with self._calling:
                if self._api is None:
                    raise NoAnswer("not connected yet")
                return self._api.exchange("POST", path, body=body, bytes_max=ANSWER_BYTES_MAX)
        except NoAnswer as error:
            raise CallFailed(f"{call.get('type')}: {error}") from error

    # ---- its life ----

    def start(self) -> None:
        """Find the master that leads, and subscribe."""
        self._reading.start()

    def stop(self, failover: bool = True) -> None:
        """Disconnect; the tasks go on."""
        self._stopped = True
        self._doors.put(None)
        self._hang_up()

    def join(self) -> None:
        """Wait until no event follows any more."""
        self._reading.join()

    def onNewMasterDetectedMessage(self, data: bytes) -> None:  # noqa: N802
        """Take the leader from ZooKeeper. The master that was subscribed to leads no more."""
        with contextlib.suppress(ValueError, KeyError, TypeError):
            self._doors.put(door_of(json.loads(data)["address"]))
            self._hang_up()

    def onNoMasterDetectedMessage(self) -> None:  # noqa: N802
        """Take from ZooKeeper that nobody leads."""
        self._hang_up()

    def _hang_up(self) -> None:
        if self._stream is not None:
            self._stream.abort()

    # ---- the thread that reads ----

    def _read(self) -> None:
        over = attempt(self._follow)
        if isinstance(over, Failure):
            self._why = self._why or over.error
        super().stop(failover=True)  # asks ZooKeeper no more
        self.stream_id = None
        with self._calling:
            api, self._api = self._api, None
        if api is not None:
            api.close()
        self._ended(self._why or f"no connection to the master at {self.master}")

    def _follow(self) -> None:
        """Subscribe at the leader, until that is over."""
        try:
            door, redirects = self._first_door(), 0
            while door is not None and redirects <= REDIRECTS_MAX:
                door, redirects = self._subscription(door), redirects + 1
        except (OSError, BrokenAnswer) as error:
            self._why = self._why or why_of(error, self.master)

    def _first_door(self) -> HttpDoor | None:
        scheme, _, place = self.master_uri.rpartition("://")
        if not scheme:
            return HttpDoor.of(place)
        self.detector = MasterDetector(place, self)
        self.detector.start()
        return self._doors.get()

    def _subscription(self, door: HttpDoor) -> HttpDoor | None:
        """Hold a subscription until its end; return the leader if this master names another."""
        with contextlib.closing(self._api_at(door)) as subscribing:
            self._door, self._stream = door, subscribing.connection
            if self._stopped:
                return None
            stream, self.version = subscribing.connection, self._version_at(door)
            # Its head is for the sockets of pymesos.
            body = self.gen_request().partition(b"\r\n\r\n")[2]
            answer = stream.ask(subscribing.request("POST", SCHEDULER, body=body))
            if answer.status == HTTPStatus.TEMPORARY_REDIRECT:
                return Elsewhere(answer.headers.get("location", "")).door
            if answer.status not in (HTTPStatus.OK, HTTPStatus.SERVICE_UNAVAILABLE):
                said = next(stream.body(), b"")
                self._why = why_refused(answer, said, master=self.master)
            if answer.status != HTTPStatus.OK:
                return None
            api, number = self._api_at(door), answer.headers.get("mesos-stream-id", "")
            api.headers["Mesos-Stream-Id"] = number
            self._api, self.stream_id = api, number
            stream.silence_s = SILENT_S_MAX
            for record in records(stream.body()):
                self.on_event(json.loads(record.decode(errors="replace")))
        return None

    def _api_at(self, door: HttpDoor) -> OperatorApi:
        return OperatorApi(door, self._credential, tls=self.tls, timeout_s=HTTP_TIMEOUT_S)

    def _version_at(self, door: HttpDoor) -> Any:
        with contextlib.closing(self._api_at(door)) as api:
            try:
                return api.version()["version"]
            except (NoAnswer, NotThere, KeyError, TypeError):  # the stream says why
                return None

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Take an event, as it came."""
        if event.get("type") == "ERROR":
            self._why = event.get("error", {}).get("message", "the master reports an error")
        if event.get("type") == "SUBSCRIBED":
            self.framework_id = event["subscribed"]["framework_id"]["value"]
        self._heard(event)
