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

from peloton.actors.job.slice.rollout_messages import LEVEL_ADDING
from peloton.gateway.cluster_client import Code, Context, end
from peloton.gateway.principals import principal_of
from peloton.gateway.texts import derived
from peloton.runtime.core.replies import KEEP_S, SCOPE

REQUEST_KEY = "peloton-request-key"
REQUEST_KEY_LENGTH_MAX = 256
LEVEL_CALLERS = LEVEL_ADDING
"""Feature level from which a key is its client's: daemons of earlier versions know keys alone, and
would not find what was asked under another one."""
DRAWN_S = 600.0
"""How long a repeat may come of a request that was answered below that level, under a key that its
client has drawn for this one call. A key that somebody has chosen is used as long as
it is remembered."""

RequestId = tuple[str, bytes]


def request_of(sent: Any, context: Context, *, level: int) -> RequestId | None:
    """The key, with its client from `LEVEL_CALLERS` on, and the body's digest; None without a key.

    `level`: the feature level in force.
    """
    key = str(dict(context.invocation_metadata() or ()).get(REQUEST_KEY, ""))
    if not key:
        return None
    if len(key) > REQUEST_KEY_LENGTH_MAX:
        text = f"{len(key)} characters, the limit is {REQUEST_KEY_LENGTH_MAX}"
        end(context, Code.INVALID_ARGUMENT, text=text, field=REQUEST_KEY)
    scope = _scope(context) if level >= LEVEL_CALLERS else ""
    return key + scope, hashlib.sha256(sent.SerializeToString(deterministic=True)).digest()


def _scope(context: Context) -> str:
    """Whose key it is; clients that prove nothing cannot be told apart."""
    who = principal_of(context)
    return SCOPE + (who.name if who.authenticated else "")


def made_id(request: RequestId, kind: str) -> str:
    """The id of what a request creates: the same key of the same client always gives the same."""
    return derived(request[0].removesuffix(SCOPE), kind)


class OtherForm:
    """The keys of daemons that are on the other side of `LEVEL_CALLERS`: repeats may come of them.

    What such a request created has another id, so a creation has to look there first. Daemons
    read within seconds of each other that the level was raised.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since_s: float | None = None  # when a key was first made with its client

    def of(self, request: RequestId | None, context: Context) -> RequestId | None:
        """The request as the others know it; None where that need not be looked for."""
        if request is None:
            return None
        chosen, scoped, who = request[0].partition(SCOPE)
        if not scoped:
            other = chosen + _scope(context)
            return None if other.endswith(SCOPE) else (other, request[1])
        now_s = self._clock()
        self._since_s = now_s if self._since_s is None else self._since_s
        kept_s = DRAWN_S if _is_drawn(chosen) else KEEP_S
        late = now_s - self._since_s >= kept_s
        return None if late or not who else (chosen, request[1])


OTHER_FORM = OtherForm()


def _is_drawn(key: str) -> bool:
    try:
        return uuid.UUID(key).version == 4
    except ValueError:
        return False
