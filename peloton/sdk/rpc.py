"""Which call is sent, and whether it may be sent again: a change may be under a request key.

The server remembers its first answer to a key for a day, and gives it to each repeat.
"""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple

from peloton.sdk import errors


class RpcName(NamedTuple):
    """One call: its role, the generated stub it is in, and its name there."""

    role: str
    stub: Any
    name: str


class How(NamedTuple):
    """Whether a call may be repeated if there is no answer, and under which key."""

    repeat: bool
    key: str = ""


READ = How(repeat=True)
ONCE = How(repeat=False)


def keyed(key: str | None) -> How:
    """Return how to send a change that is safe to repeat: the server remembers its answer to
    this key."""
    if key and not is_header_text(key):
        raise errors.BadSpec("must be printable ASCII characters", field="request_key")
    return How(repeat=True, key=key or str(uuid.uuid4()))


def is_header_text(text: object) -> bool:
    """Return whether gRPC can send the text as metadata."""
    return isinstance(text, str) and text.isascii() and text.isprintable()
