"""A client's request key, which tells a repeated command from a new one.

The key is made of the metadata and the body of a call, and its caller: equal keys of two clients
are different. Of the body only the digest counts.
"""

from __future__ import annotations

import hashlib
from typing import Any

from peloton.gateway.cluster.cluster_client import Code, Context, end
from peloton.gateway.translate.texts import derived
from peloton.runtime.core.turning.replies import SCOPE

REQUEST_KEY = "peloton-request-key"
REQUEST_KEY_LENGTH_MAX = 256

RequestId = tuple[str, bytes]


def request_of(sent: Any, context: Context) -> RequestId | None:
    """Return the key, with its client, and the body's digest; None without a key."""
    key = str(dict(context.invocation_metadata() or ()).get(REQUEST_KEY, ""))
    if not key:
        return None
    if len(key) > REQUEST_KEY_LENGTH_MAX:
        text = f"{len(key)} characters, the limit is {REQUEST_KEY_LENGTH_MAX}"
        end(context, Code.INVALID_ARGUMENT, text=text, field=REQUEST_KEY)
    digest = hashlib.sha256(sent.SerializeToString(deterministic=True)).digest()
    return key + _scope(context), digest


def _scope(context: Context) -> str:
    """Return the owner of the key; clients that prove nothing cannot be told apart."""
    who = context.principal
    return SCOPE + (who.owner if who.authenticated else "")


def made_id(request: RequestId, kind: str) -> str:
    """Return the id of what a request creates: the same key of the same client always gives the
    same."""
    return derived(request[0].removesuffix(SCOPE), kind)
