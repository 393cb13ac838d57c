"""Reads one answer of an HTTP server, cut anywhere into parts.

What has been read is handed out and forgotten, and no byte is looked at twice, so the cost grows
with the bytes alone, however they are cut. It must not guess: what could be read in two ways is an
error, and nothing is read behind one.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from peloton.backends.mesos.http_parser.errors import Errno

LINE_BYTES_MAX = 65_536
HEADERS_BYTES_MAX = 262_144

_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: .*)?")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})[ \t]*(?:;.*)?")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_SWITCHING, _NO_CONTENT, _NOT_MODIFIED = 101, 204, 304


class _Wrong(Exception):
    def __init__(self, errno: Errno) -> None:
        super().__init__(errno.value)
        self.errno = errno


class HttpParser:
    """The answer to one request that is no HEAD."""

    def __init__(self) -> None:
        self._errno = Errno.OK
        self._read: Callable[[bytes, int], int] = self._read_line
        self._take_line: Callable[[bytes], None] = self._status_line
        self._line = bytearray()
        self._header_bytes = 0
        self._status = 0
        self._fields: list[tuple[bytes, list[bytes]]] = []
        self._headers: dict[str, str] = {}
        self._headers_complete = self._complete = self._chunked = False
        self._left = 0  # bytes of this chunk, or of the body, that have not come yet
        self._body = bytearray()

    # ---- what pymesos calls ----

    def execute(self, data: bytes, length: int) -> int:
        """Read the first `length` bytes; how many of them, fewer if a line or byte is wrong."""
        data, at = data[:length], 0
        try:
            while self._errno is Errno.OK and at < len(data):
                at = self._read(data, at)
        except _Wrong as wrong:
            self._errno = wrong.errno
        return at

    def get_errno(self) -> Errno:
        """Why `execute` read less than it was given."""
        return self._errno

    def is_headers_complete(self) -> bool:
        """Whether status and headers are known; those of 100 Continue do not count."""
        return self._headers_complete

    def get_status_code(self) -> int:
        """The status; 0 while it is not known."""
        return self._status

    def get_headers(self) -> dict[str, str]:
        """The headers by the names they came with; several of one name are joined by commas."""
        return dict(self._headers)

    def is_chunked(self) -> bool:
        """Whether the body comes in chunks."""
        return self._chunked

    def is_partial_body(self) -> bool:
        """Whether there is something of the body to receive."""
        return bool(self._body)

    def recv_body(self) -> bytes:
        """What has come of the body since the last time."""
        body, self._body = bytes(self._body), bytearray()
        return body

    def is_message_complete(self) -> bool:
        """Whether all has come; without a length only the end of the connection says so."""
        return self._complete

    # ---- lines ----

    def _read_line(self, data: bytes, at: int) -> int:
        end = data.find(b"\n", at)
        part = data[at:] if end < 0 else data[at : end + 1]
        if len(self._line) + len(part) > LINE_BYTES_MAX:
            raise _Wrong(Errno.TOO_LONG)
        self._line += part
        if end >= 0:
            line = bytes(self._line[:-1]).removesuffix(b"\r")
            self._line.clear()
            self._take_line(line)
        return at + len(part)

    def _status_line(self, line: bytes) -> None:
        status = _STATUS.fullmatch(line)
        if status is None:
            raise _Wrong(Errno.BAD_STATUS_LINE)
        self._status = int(status[1])
        self._take_line = self._header_line

    def _header_line(self, line: bytes) -> None:
        self._header_bytes += len(line)
        if self._header_bytes > HEADERS_BYTES_MAX:
            raise _Wrong(Errno.TOO_LONG)
        if not line:
            self._end_of_headers()
        elif line[:1] in b" \t":  # folded: it goes on with the line before
            if not self._fields:
                raise _Wrong(Errno.BAD_HEADER)
            self._fields[-1][1].append(line.strip())
        else:
            name, colon, value = line.partition(b":")
            if not colon or not _NAME.fullmatch(name):
                raise _Wrong(Errno.BAD_HEADER)
            self._fields.append((name, [value.strip()]))

    def _end_of_headers(self) -> None:
        fields, self._fields, self._header_bytes = self._fields, [], 0
        if self._status < 200 and self._status != _SWITCHING:  # the answer proper comes after it
            self._status, self._take_line = 0, self._status_line
            return
        values: dict[str, list[str]] = {}
        for name, parts in fields:
            text = b" ".join(part for part in parts if part).decode("latin-1")
            values.setdefault(name.decode("ascii"), []).append(text)
        self._headers = {name: ", ".join(texts) for name, texts in values.items()}
        self._find_the_body()
        self._headers_complete = True

    # ---- the body ----

    def _find_the_body(self) -> None:
        encoding, length = self._of("transfer-encoding"), self._of("content-length")
        if self._status in (_SWITCHING, _NO_CONTENT, _NOT_MODIFIED):
            self._end()
        elif encoding:
            if [word.lower() for word in encoding] != ["chunked"]:
                raise _Wrong(Errno.BAD_TRANSFER_ENCODING)
            if length:
                raise _Wrong(Errno.BAD_LENGTH)
            self._chunked = True
            self._take_line = self._chunk_line
        elif length:
            if len({*length}) > 1 or not _LENGTH.fullmatch(length[0].encode("latin-1")):
                raise _Wrong(Errno.BAD_LENGTH)
            self._left = int(length[0])
            self._read = self._read_counted
            if not self._left:
                self._end()
        else:
            self._read = self._read_the_rest

    def _of(self, name: str) -> list[str]:
        """The values of a header, whatever its case and however often it came."""
        texts = [text for key, text in self._headers.items() if key.lower() == name]
        return [word.strip() for text in texts for word in text.split(",")]

    def _chunk_line(self, line: bytes) -> None:
        size = _SIZE.fullmatch(line)
        if size is None:
            raise _Wrong(Errno.BAD_CHUNK_SIZE)
        self._left = int(size[1], 16)
        if self._left:
            self._read = self._read_counted
        else:
            self._take_line = self._trailer_line

    def _trailer_line(self, line: bytes) -> None:
        """What stands behind the last chunk is nobody's business; an empty line ends it."""
        self._header_bytes += len(line)
        if self._header_bytes > HEADERS_BYTES_MAX:
            raise _Wrong(Errno.TOO_LONG)
        if not line:
            self._end()

    def _read_counted(self, data: bytes, at: int) -> int:
        part = data[at : at + self._left]
        self._body += part
        self._left -= len(part)
        if not self._left:
            if self._chunked:
                self._read = self._read_chunk_end
            else:
                self._end()
        return at + len(part)

    def _read_chunk_end(self, data: bytes, at: int) -> int:
        """A line end and nothing else; noticed at the first byte that is another."""
        byte = data[at : at + 1]
        if byte == b"\n":
            self._line.clear()
            self._read, self._take_line = self._read_line, self._chunk_line
        elif byte == b"\r" and not self._line:
            self._line += byte
        else:
            raise _Wrong(Errno.BAD_CHUNK_END)
        return at + 1

    def _read_the_rest(self, data: bytes, at: int) -> int:
        self._body += data[at:]
        return len(data)

    def _end(self) -> None:
        self._complete = True
        self._read = self._read_nothing

    def _read_nothing(self, data: bytes, at: int) -> int:
        raise _Wrong(Errno.AFTER_THE_END)
