"""The stream of a master as text, whatever bytes tasks and executors have put into it.

Mesos passes on what they say as it is. JSON is UTF-8, and pymesos ends at the first byte that is
not; each such byte becomes a question mark here, so that the lengths of records stay true. Must not
know what a record is.
"""

from __future__ import annotations

import codecs
from typing import Any

_SAME_LENGTH = "peloton.same_length"


def _marks(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "?" * (error.end - error.start), error.end


codecs.register_error(_SAME_LENGTH, _marks)


class ReadableBody:
    """A parser of HTTP whose body is UTF-8; what is not whole yet comes with the next piece."""

    def __init__(self, parser: Any) -> None:
        self._parser = parser
        self._text = codecs.getincrementaldecoder("utf-8")(_SAME_LENGTH)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    def recv_body(self) -> bytes:
        """What has come since it was asked last."""
        return self._text.decode(self._parser.recv_body()).encode()
