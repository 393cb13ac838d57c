"""Ends calls whose work raises: with a status, and for a bug a line in the log.

The status of a bug tells nothing of internals; the status of a call that was ended on purpose
stays.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol

import grpc
import structlog

from peloton.gateway.access.details import cut
from peloton.printable import escaped

CallCode = grpc.StatusCode
log = structlog.get_logger("gateway")


class CallEnded(Exception):
    """A call ends with a status."""

    def __init__(self, code: Any, details: str, *, trailing: Any = ()) -> None:
        super().__init__(details)
        self.code, self.details, self.trailing = code, cut(escaped(details)), trailing


class EndCall(Protocol):
    """Ends a call."""

    def __call__(self, code: int, details: str, *, trailing: Any) -> object:
        """End the call with this status."""


class Guard:
    """A context for the work of one call: whatever is raised inside ends the call."""

    def __init__(self, end: EndCall, name: str) -> None:
        self._end = end
        self._name = name

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):  # also what cancels or ends a thread
            return False
        if not isinstance(error, CallEnded):
            log.error("a call failed", method=self._name, exc_info=error)
            error = CallEnded(CallCode.INTERNAL, f"{self._name} failed; see the daemon's log")
        self._end(error.code.value[0], error.details, trailing=error.trailing)
        return True
