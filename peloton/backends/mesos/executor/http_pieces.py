"""Bytes that an agent sends, as answers to calls and as events of a stream.

HTTP/1.1 as an agent speaks it: an answer has a length, a stream has chunks, in which records of
JSON lie, each behind its length.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

HEAD_BYTES_MAX = 64 * 1024
OK, ACCEPTED = 200, 202
BAD_REQUEST, UNAVAILABLE = 400, 503
"""To who subscribes: no such framework, or executor; and while the agent recovers."""
_END_OF_HEAD = b"\r\n\r\n"


class BadAnswer(Exception):
    """Bytes that no agent sends: the connection is of no use any more."""


class NotRecovered(BadAnswer):
    """The agent has no stream for us before it has recovered."""


class StreamRefused(BadAnswer):
    """The agent has no stream for us, and will have none."""


class HttpAnswer(NamedTuple):
    """A whole answer; `body` is for people."""

    status: int
    body: str


class AnswerReader:
    """Answers to calls that were sent one behind the other."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[HttpAnswer]:
        """Return the answers that are complete now."""
        self._data += data
        found = []
        while (head := _take_head(self._data)) is not None:
            status, fields, size = head
            if "transfer-encoding" in fields:
                raise BadAnswer(f"status {status}: an answer without a length")
            length = _number(fields.get("content-length", "0"), 10)
            if len(self._data) < size + length:
                break
            body = bytes(self._data[size : size + length])
            del self._data[: size + length]
            found.append(HttpAnswer(status, body.decode(errors="replace")))
        return found


class EventReader:
    """The events of a stream. Raises BadAnswer if the agent refuses to begin one."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._records = bytearray()
        self.begun = False

    def feed(self, data: bytes) -> list[dict[str, Any]]:
        """Return the events that are complete now."""
        self._data += data
        if not self.begun:
            head = _take_head(self._data)
            if head is None:
                return []
            status, fields, size = head
            if status != OK or fields.get("transfer-encoding", "").lower() != "chunked":
                why = bytes(self._data[size:]).decode(errors="replace")
                kinds = {BAD_REQUEST: StreamRefused, UNAVAILABLE: NotRecovered}
                raise kinds.get(status, BadAnswer)(f"status {status}: {why[:500]}")
            del self._data[:size]
            self.begun = True
        while self._take_chunk():
            pass
        return self._take_records()

    def _take_chunk(self) -> bool:
        line = self._data.find(b"\r\n")
        if line < 0:
            return False
        size = _number(self._data[:line].split(b";")[0].decode(errors="replace"), 16)
        if size == 0:
            raise BadAnswer("the stream has ended")
        begin, end = line + 2, line + 2 + size
        if len(self._data) < end + 2:
            return False
        self._records += self._data[begin:end]
        del self._data[: end + 2]
        return True

    def _take_records(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        at = 0
        while (line := self._records.find(b"\n", at)) >= 0:
            size = _number(self._records[at:line].decode(errors="replace"), 10)
            if len(self._records) < line + 1 + size:
                break
            at = line + 1 + size
            try:
                found.append(json.loads(self._records[line + 1 : at]))
            except ValueError as trouble:
                raise BadAnswer(f"an event is no JSON: {trouble}") from trouble
        del self._records[:at]
        return found


def _take_head(data: bytearray) -> tuple[int, dict[str, str], int] | None:
    """Return status, fields and length of the head, once it is complete."""
    end = data.find(_END_OF_HEAD)
    if end < 0:
        if len(data) > HEAD_BYTES_MAX:
            raise BadAnswer("the head of an answer is too long")
        return None
    first, *lines = bytes(data[:end]).decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1."):
        raise BadAnswer(f"no answer of HTTP: {first[:100]!r}")
    pairs = (line.partition(":") for line in lines)
    fields = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return _number(words[1], 10), fields, end + len(_END_OF_HEAD)


def _number(text: str, base: int) -> int:
    """Parse a number. An error must not quote the text, which may be of a secret."""
    try:
        found = int(text, base)
    except ValueError:
        raise BadAnswer(f"no number, but {len(text)} characters") from None
    if found < 0:
        raise BadAnswer(f"a negative number of {len(text)} characters")
    return found
