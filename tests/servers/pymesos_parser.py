"""What pymesos needs of the distribution http-parser, whose C extension does not build here.

For processes in which pymesos itself reads streams; h11 does the reading. It has only what
`pymesos/process.py` calls.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import h11


class HttpParser:
    """The answer to one request."""

    def __init__(self) -> None:
        self._talk = h11.Connection(h11.CLIENT)
        self._talk.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
        self._talk.send(h11.EndOfMessage())
        self._head: Any = None
        self._body = bytearray()
        self._complete = False

    def execute(self, data: bytes, length: int) -> int:
        """Read the first `length` bytes; how many of them, or none if they are wrong."""
        self._talk.receive_data(data[:length])
        try:
            while (event := self._talk.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                self._complete = self._complete or isinstance(event, h11.EndOfMessage)
                if isinstance(event, h11.Response):
                    self._head = event
                elif isinstance(event, h11.Data):
                    self._body += event.data
        except h11.RemoteProtocolError:
            return 0
        return length

    def get_errno(self) -> int:
        """Something is wrong."""
        return 1

    def is_headers_complete(self) -> bool:
        """Whether status and headers are known."""
        return self._head is not None

    def get_status_code(self) -> int:
        """The status."""
        return int(self._head.status_code)

    def get_headers(self) -> dict[str, str]:
        """The headers."""
        return {name.decode(): value.decode() for name, value in self._head.headers}

    def is_chunked(self) -> bool:
        """Whether the body comes in chunks."""
        return "transfer-encoding" in self.get_headers()

    def is_partial_body(self) -> bool:
        """Whether there is something of the body to receive."""
        return bool(self._body)

    def recv_body(self) -> bytes:
        """What has come of the body since the last time."""
        body, self._body = bytes(self._body), bytearray()
        return body

    def is_message_complete(self) -> bool:
        """Whether all has come."""
        return self._complete


def stand_in() -> None:
    """From now on pymesos finds this."""
    module: Any = types.ModuleType("http_parser.http")
    module.HttpParser = HttpParser
    sys.modules |= {"http_parser": types.ModuleType("http_parser"), "http_parser.http": module}
