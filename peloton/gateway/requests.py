"""A client's request key, which tells a repeated command from a new one.

Turns the metadata and the body of a call into what a cell remembers. It must not interpret the
body: only its digest counts.
"""

from __future__ import annotations

import hashlib
from typing import Any

from peloton.gateway.cluster_client import Code, Context, end

REQUEST_KEY = "peloton-request-key"
REQUEST_KEY_LENGTH_MAX = 256

RequestId = tuple[str, bytes]


def request_of(sent: Any, context: Context) -> RequestId | None:
    """The key and the body's digest; None where the client gave no key."""
    key = str(dict(context.invocation_metadata() or ()).get(REQUEST_KEY, ""))
    if not key:
        return None
    if len(key) > REQUEST_KEY_LENGTH_MAX:
        text = f"{len(key)} characters, the limit is {REQUEST_KEY_LENGTH_MAX}"
        end(context, Code.INVALID_ARGUMENT, text=text, field=REQUEST_KEY)
    return key, hashlib.sha256(sent.SerializeToString(deterministic=True)).digest()
