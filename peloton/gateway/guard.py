"""What becomes of a call whose servicer raises: a status without internals, and a line in the log.

Turns an unexpected exception into INTERNAL with a short text. It must not touch a call that was
ended on purpose: `abort` raises too, after it has set the status.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import grpc
import structlog

log = structlog.get_logger("gateway")

RpcMethod = Callable[[Any, grpc.ServicerContext], Any]


def guarded_method(method: RpcMethod, name: str) -> RpcMethod:
    """The method, with its bugs kept from clients."""

    @functools.wraps(method)
    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return method(request, context)
        except Exception:
            if context.code() is not None:
                raise
            log.exception("a call failed", method=name)
            context.abort(grpc.StatusCode.INTERNAL, f"{name} failed; see the daemon's log")

    return answer
