"""Why an answer could not be read on: one member for each way to be wrong.

It must not grow members that `http.py` never sets.
"""

from __future__ import annotations

import enum


class Errno(enum.Enum):
    """The text of a member is its name: pymesos puts it into the failure that it raises."""

    OK = "nothing is wrong"
    BAD_STATUS_LINE = "the first line is no status line of HTTP/1.0 or 1.1"
    BAD_HEADER = "a line among the headers has no name"
    TOO_LONG = "a line, or all headers together, are longer than an answer may have"
    BAD_LENGTH = "Content-Length is no number, or several, or stands beside Transfer-Encoding"
    BAD_TRANSFER_ENCODING = "Transfer-Encoding is not just chunked"
    BAD_CHUNK_SIZE = "a chunk does not begin with its size in hexadecimal digits"
    BAD_CHUNK_END = "a chunk is not followed by a line end: it is longer than it said"
    AFTER_THE_END = "bytes follow the end of the answer"

    def __str__(self) -> str:
        return self.name
