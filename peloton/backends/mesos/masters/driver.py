"""The connection to a Mesos master: pymesos, with what it leaves out.

pymesos reads the stream of events, follows the master (a fixed address, a redirect, or the master
that ZooKeeper names) and sends calls. What is not as we need it is changed here, from outside:

- Its import takes SIGINT for the whole process: the handler before is put back.
- An error while it reads ends its thread and interrupts the main thread; here it ends the stream,
  and `ended` is called with the reason.
- It subscribes again without a pause: a driver is over with its stream. Only a master that sends us
  to another before we are subscribed is left for that one, and not for ever.
- It knows no TLS: with a context its sockets are wrapped in one, and its connections for calls are
  ours.
- It ends at bytes that are no text, which a task may have said.
- It drops calls silently while it is not connected, and its kill and reconcile name no agent:
  `call` sends a whole call, and raises.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import signal
import socket
import ssl
import sys
import threading
import types
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from peloton.backends.mesos.http_parser import stand_in
from peloton.backends.mesos.masters.calls import CallFailed as CallFailed
from peloton.backends.mesos.masters.calls import CallRefused, of_framework
from peloton.backends.mesos.masters.operator_api import (
    Credential,
    HttpDoor,
    NoAnswer,
    NotThere,
    OperatorApi,
    connection_to,
)
from peloton.backends.mesos.masters.readable_bytes import ReadableBody
from peloton.backends.mesos.masters.tls import TlsSocket

_handler = signal.getsignal(signal.SIGINT)
stand_in()
from pymesos import MesosSchedulerDriver, process  # noqa: E402

if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, _handler)
_thread = threading.local()  # of pymesos: its last error


def _keep_error() -> None:
    """Called where pymesos has caught an error of its thread, in place of an interruption."""
    _thread.error = sys.exc_info()[1]


process.thread = types.SimpleNamespace(interrupt_main=_keep_error)
for _name in ("pymesos.process", "pymesos.scheduler"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)  # its errors are told by `ended`

_PlainConnection = process.Connection


class _Connection(_PlainConnection):  # type: ignore[misc,valid-type]
    """The stream of pymesos, whatever bytes are in it."""

    _parser: Any

    def __init__(self, addr: str, callback: Any) -> None:
        super().__init__(addr, callback)
        self._parser = ReadableBody(self._parser)


class _TlsConnection(_Connection):
    """The stream of pymesos, in TLS."""

    def __init__(self, addr: str, callback: MesosDriver) -> None:
        super().__init__(addr, callback)
        self._sock: TlsSocket = callback.wrapped(self._sock, addr)

    def want_write(self) -> bool:
        return super().want_write() and not self._sock.waits_to_read

    def read(self) -> bool:
        """All that has come: what is left in a record no selector shows."""
        while super().read():
            if not self._sock.pending:
                return True
        return False


def _connection(addr: str, callback: Any) -> Any:
    """Called where pymesos begins a stream."""
    wrapped = isinstance(callback, MesosDriver) and callback.tls is not None
    return (_TlsConnection if wrapped else _Connection)(addr, callback)


process.Connection = _connection

_REFUSED = re.compile(r"""Failed to send request (4\d\d): b['"](.*)['"]\n""")
"""What pymesos raises of an answer that is a refusal: the code, and the text as bytes are shown."""
_ANSWERED = re.compile(r"""Failed with HTTP (\d+): (?:b['"])?(.*?)['"]?\Z""", re.DOTALL)
"""What pymesos raises of a stream that did not begin: the code, and the text in the same way."""
HTTP_TIMEOUT_S = 10.0
"""How long a call may take, and a connection to begin."""
TEXT_MAX = 500
"""Letters of the master's words."""
REDIRECTS_MAX = 3
"""How many masters in a row may send one subscription to another: two may take each other for the
one that leads."""


def why_of(error: BaseException, master: str | None) -> str:
    """Why a stream is over that ended with this error, for whoever has to mend the settings."""
    if isinstance(error, socket.gaierror):
        return f"the host name of the master {master} is not known ({error.strerror})"
    answered = _ANSWERED.match(str(error))
    if answered is not None:
        said = answered[2][:TEXT_MAX].strip()
        body = f": {said}" if said and not said.startswith("<") else ""
        return f"{master} does not answer as a Mesos master: HTTP {answered[1]}{body}"
    return f"{type(error).__name__}: {error}"


def _said(error: Exception) -> str:
    """What the master said; pymesos adds the call, in which are the variables of tasks."""
    return str(error).partition("\n")[0][:TEXT_MAX]


class MesosDriver(MesosSchedulerDriver):  # type: ignore[misc]
    """One subscription. `heard` gets each event, `ended` is told once why there are no more.

    Both are called on its own thread. A driver is started once; after its end there is another.
    """

    tls: ssl.SSLContext | None = None
    """How masters prove who they are, set before the start; None: they do not."""
    _conn: Any  # for calls

    def __init__(
        self,
        master: str,
        framework: Mapping[str, Any],
        *,
        heard: Callable[[Mapping[str, Any]], None],
        ended: Callable[[str], None],
        credential: tuple[str, str] | None = None,
    ) -> None:
        principal, secret = credential or (None, None)
        super().__init__(
            None, dict(framework), master, implicit_acknowledgements=False,
            principal=principal, secret=secret, failover=True, timeout=HTTP_TIMEOUT_S,
        )  # fmt: skip
        self._heard, self._ended, self._why = heard, ended, ""
        self._redirects = 0
        self._told = False
        self._names: dict[str, str] = {}
        """The names of masters that ZooKeeper has told, by their addresses."""

    @property
    def lives(self) -> bool:
        """Whether the subscription goes on, as far as we have heard."""
        return bool(self.connected) and not self._why

    def call(self, call: Mapping[str, Any]) -> None:
        """Send one; raises `CallFailed`."""
        body = of_framework(call, self.framework_id)
        try:
            self._send(body, headers={})
        except Exception as error:
            raise CallFailed(f"{call.get('type')}: {_said(error)}") from error

    def ask(self, question: Mapping[str, Any]) -> Any:
        """Ask the master as an operator does; raises `CallRefused`, or `CallFailed`."""
        try:
            return self._send(dict(question), path="/api/v1", headers={})
        except Exception as error:
            refused = _REFUSED.match(str(error))
            if refused is not None:
                text = f"the master refuses {question.get('type')}: {refused[1]} {refused[2]}"
                raise CallRefused(text.strip()) from error
            raise CallFailed(f"{question.get('type')}: {_said(error)}") from error

    # ---- how pymesos connects ----

    def _run(self) -> None:
        """The thread; it ends without a word where a connection cannot even begin."""
        super()._run()
        self._end()

    def wrapped(self, sock: Any, addr: str) -> TlsSocket:
        """A socket that connects to a master, in TLS."""
        assert self.tls is not None
        door = self._door(addr)
        return TlsSocket(
            sock, self.tls, name=door.name or door.host, failed=partial(self._fails, addr)
        )

    def _fails(self, addr: str, text: str) -> None:
        self._why = self._why or f"the master at {addr}: {text}"

    def _door(self, addr: str) -> HttpDoor:
        return HttpDoor.of(addr)._replace(name=self._names.get(addr, ""))

    def onNewMasterDetectedMessage(self, data: bytes) -> None:  # noqa: N802
        """ZooKeeper says who leads: keep the name, and go to the address."""
        with contextlib.suppress(ValueError, KeyError, TypeError):
            found = json.loads(data)["address"]
            self._names[f"{found['ip']}:{found['port']}"] = str(found.get("hostname") or "")
        super().onNewMasterDetectedMessage(data)

    def _get_conn(self) -> Any:
        if self.connected and self._conn is None:
            self._conn = connection_to(self._door(self.master), self.tls, timeout_s=HTTP_TIMEOUT_S)
        return self._conn if self.connected else None

    def _get_version(self, master: str | None) -> Any:
        if master is None:
            return None
        door = self._door(master)
        with contextlib.closing(
            OperatorApi(door, Credential(), tls=self.tls, timeout_s=HTTP_TIMEOUT_S)
        ) as api:
            try:
                return api.version()["version"]
            except (NoAnswer, NotThere, KeyError, TypeError):  # the stream says why
                return None

    # ---- what pymesos tells ----

    def on_event(self, event: Mapping[str, Any]) -> None:
        """An event, as it came; an error of ours ends the stream, and says why."""
        if event.get("type") == "ERROR":
            self._why = event.get("error", {}).get("message", "the master reports an error")
        if event.get("type") == "SUBSCRIBED":
            self.framework_id = event["subscribed"]["framework_id"]["value"]
        try:
            self._heard(event)
        except Exception as error:
            self._why = f"{type(error).__name__}: {error}"
            raise

    def on_close(self) -> None:
        """The stream is over, or a master was not reached. pymesos would subscribe again at once,
        hundreds of times a second where the master refuses; here this driver is at its end."""
        if self._told or not self._is_sent_on():
            self._end()

    def _end(self) -> None:
        if self._told:
            return
        self._told, self._started = True, False
        self._notify()
        self._close()
        self.stream_id = None
        error = getattr(_thread, "error", None)
        why = self._why or (why_of(error, self.master) if error is not None else "")
        self._ended(why or f"no connection to the master at {self.master}")

    def _is_sent_on(self) -> bool:
        """Whether this master has named another, and that is where we go now."""
        named = self._new_master not in (None, self._master)
        if not named or self.connected or self._redirects >= REDIRECTS_MAX:
            return False
        self._redirects += 1
        return True
