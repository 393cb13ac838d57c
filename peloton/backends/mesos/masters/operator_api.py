"""The operators' HTTP API of a master or an agent: one call, one answer, both JSON.

A call fails in one of three ways. An answer is read up to a number of bytes and within a time,
however slowly it is sent. Errors do not repeat a credential.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.parse
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

from peloton.backends.mesos.masters.failures import told_failure
from peloton.http_client import AnswerHead, BrokenAnswer, HttpConnection, Request

PATH, STATE, VERSION = "/api/v1", "/state", "/version"
SILENCE_S_MAX = 5.0
"""How long nothing may come."""
ANSWER_S_MAX = 20.0
"""How long a whole answer may take."""
ANSWER_BYTES_MAX = 64 * 1024 * 1024
TEXT_MAX = 200
_NOT_ALLOWED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_NOT_THERE = (HTTPStatus.NOT_FOUND, HTTPStatus.BAD_REQUEST)


class NoAnswer(Exception):
    """No answer came, or none that can be read; the text says why."""


class NotAllowed(NoAnswer):
    """The server wants another credential than ours."""


class NotThere(Exception):
    """The server has nothing of that name, or nothing that it would show."""


class Credential(NamedTuple):
    """A principal with its secret; empty if there is no principal."""

    principal: str = ""
    secret: str = ""

    def __repr__(self) -> str:
        return f"Credential({self.principal!r})"

    @property
    def headers(self) -> dict[str, str]:
        """The credential as HTTP headers."""
        if not self.principal:
            return {}
        both = base64.b64encode(f"{self.principal}:{self.secret}".encode()).decode()
        return {"Authorization": f"Basic {both}"}


class HttpDoor(NamedTuple):
    """The address of a master or an agent, and the name that its certificate must have.

    An empty name stands for the host.
    """

    host: str
    port: int
    name: str = ""

    @classmethod
    def of(cls, text: str) -> HttpDoor:
        """Parse HOST:PORT, or [HOST]:PORT."""
        host, _, port = text.rpartition(":")
        return cls(host.strip("[]"), int(port))

    @classmethod
    def of_agent(cls, listed: Mapping[str, Any]) -> HttpDoor:
        """Return the address of a listed agent, with the pid `slave(1)@HOST:PORT`."""
        door = cls.of(listed["pid"].rpartition("@")[2])
        return door._replace(name=listed["agent_info"]["hostname"])

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class OperatorApi:
    """A connection, made when it is needed and kept until `close`. For one thread."""

    def __init__(
        self,
        door: HttpDoor,
        credential: Credential,
        *,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = SILENCE_S_MAX,
    ) -> None:
        self.door = door
        self.date = ""
        """What the last answer said the time was, as HTTP has it."""
        self.headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            **credential.headers,
        }
        """Of each request."""
        self.connection = HttpConnection(
            (door.host, door.port), name=door.name or door.host, tls=tls, silence_s=timeout_s
        )

    def close(self) -> None:
        self.connection.close()

    def ask(self, call: Mapping[str, Any], *, bytes_max: int = ANSWER_BYTES_MAX) -> Any:
        """Send a call and return the answer. Raises `NotThere`, `NotAllowed`, `NoAnswer`."""
        body = json.dumps(call).encode()
        return self._answer("POST", PATH, body=body, bytes_max=bytes_max)

    def version(self) -> Any:
        """Return the server's version, which it tells everybody; raises as `ask`."""
        return self._answer("GET", VERSION, bytes_max=ANSWER_BYTES_MAX)

    def trouble(self) -> str:
        """Return why nothing answers in HTTP; empty if something does, whatever it permits."""
        try:
            self.exchange("GET", VERSION)
        except NoAnswer as error:
            return str(error)
        return ""

    def state(self, *, bytes_max: int = ANSWER_BYTES_MAX) -> Any:
        """Return an agent's state beside these calls; raises as `ask`."""
        return self._answer("GET", STATE, bytes_max=bytes_max)

    def _answer(self, method: str, path: str, *, body: bytes = b"", bytes_max: int) -> Any:
        answer, said = self.exchange(method, path, body=body, bytes_max=bytes_max)
        if answer.status != HTTPStatus.OK:
            self._raise(answer, said)
        try:
            return json.loads(said)
        except ValueError:
            raise NoAnswer(f"{self.door} answers something else than JSON") from None

    def request(self, method: str, path: str, *, body: bytes = b"") -> Request:
        """Return a request as it would be sent."""
        return Request(method, path, str(self.door), self.headers, body)

    def exchange(
        self, method: str, path: str, *, body: bytes = b"", bytes_max: int = ANSWER_BYTES_MAX
    ) -> tuple[AnswerHead, bytes]:
        """Return any answer, with its body. Raises `NoAnswer`."""
        answer, found, until = None, bytearray(), time.monotonic() + ANSWER_S_MAX
        try:
            answer = self.connection.ask(self.request(method, path, body=body), until)
            self.date = answer.headers.get("date", "")
            for piece in self.connection.body(until):
                found += piece
                if len(found) > bytes_max:
                    raise BrokenAnswer(f"more than {bytes_max} bytes")
            return answer, bytes(found)
        except TimeoutError:
            self.close()
            raise NoAnswer(f"{self.door} does not answer in time") from None
        except (OSError, BrokenAnswer, ValueError) as error:
            self.close()
            said = told_failure(error) if isinstance(error, OSError) else str(error)
            text = said if answer is None else f"its answer broke off: {said}"
            raise NoAnswer(f"{self.door}: {text or type(error).__name__}") from None

    def _raise(self, answer: AnswerHead, body: bytes) -> None:
        if answer.status == HTTPStatus.TEMPORARY_REDIRECT:
            raise Elsewhere(answer.headers.get("location", ""))
        if answer.status in _NOT_THERE:
            raise NotThere
        if answer.status in _NOT_ALLOWED:
            text = f"{self.door} does not allow it: {answer.status} {answer.reason}"
            raise NotAllowed(text)
        said = body[:TEXT_MAX].decode("utf-8", "replace").strip()
        text = f"{self.door} answers {answer.status} {answer.reason}"
        raise NoAnswer(f"{text}: {said}" if said else text)


class Elsewhere(NoAnswer):
    """A master that does not lead names the one that does."""

    def __init__(self, location: str) -> None:
        super().__init__("it does not lead")
        self.location = location

    @property
    def door(self) -> HttpDoor | None:
        """The address of the leading master."""
        try:
            found = urllib.parse.urlsplit(self.location)
            return HttpDoor(found.hostname, found.port) if found.hostname and found.port else None
        except ValueError:
            return None
