"""A client's request key, which tells a repeated command from a new one.

Turns the metadata and the body of a call, and who makes it, into what a cell remembers: the key of
another client is another key. It must not interpret the body: only its digest counts.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Callable
from typing import Any

from peloton.gateway.cluster_client import Code, Context, end
from peloton.gateway.principals import principal_of
from peloton.gateway.texts import derived
from peloton.runtime.core.replies import KEEP_S, SCOPE

REQUEST_KEY = "peloton-request-key"
REQUEST_KEY_LENGTH_MAX = 256
DRAWN_S = 600.0
"""How long after a start a repeat may come of a request that the version before has answered, under
a key that its client has drawn for this one call. A key that somebody has chosen is used as long as
it is remembered."""

RequestId = tuple[str, bytes]


def request_of(sent: Any, context: Context) -> RequestId | None:
    """The key with its client, and the body's digest; None where the client gave no key."""
    key = str(dict(context.invocation_metadata() or ()).get(REQUEST_KEY, ""))
    if not key:
        return None
    if len(key) > REQUEST_KEY_LENGTH_MAX:
        text = f"{len(key)} characters, the limit is {REQUEST_KEY_LENGTH_MAX}"
        end(context, Code.INVALID_ARGUMENT, text=text, field=REQUEST_KEY)
    who = principal_of(context)
    # Clients that prove nothing cannot be told apart.
    scoped = key + SCOPE + (who.name if who.authenticated else "")
    return scoped, hashlib.sha256(sent.SerializeToString(deterministic=True)).digest()


def made_id(request: RequestId, kind: str) -> str:
    """The id of what a request creates: the same key of the same client always gives the same."""
    return derived(request[0].removesuffix(SCOPE), kind)


class KeysBefore:
    """The keys of the version before, which had no clients: repeats may still come.

    What such a request created has another id, so a creation has to look there first.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """This program begins to serve now."""
        self._clock, self._begun_s = clock, clock()

    def of(self, request: RequestId | None) -> RequestId | None:
        """The request as the version before knew it; None where that need not be looked for."""
        if request is None or request[0].endswith(SCOPE):
            return None
        chosen = request[0].partition(SCOPE)[0]
        kept_s = DRAWN_S if _is_drawn(chosen) else KEEP_S
        return (chosen, request[1]) if self._clock() - self._begun_s < kept_s else None


BEFORE = KeysBefore()


def _is_drawn(key: str) -> bool:
    try:
        return uuid.UUID(key).version == 4
    except ValueError:
        return False
