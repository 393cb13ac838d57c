"""Access control in a server: the interface that every call of a method, and every answer, passes.

`gates.py` makes the gates of methods, and `names_in_texts.py` the gate of answers.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeAlias

from peloton.gateway.server.calls import CallContext
from peloton.gateway.server.served_calls import ServedCall

Begin: TypeAlias = Callable[[ServedCall], None]
LongMethod: TypeAlias = Callable[[Any, Any], Coroutine[Any, Any, Any]]
"""Takes a request and a `LongCall`."""


class MethodGate(Protocol):
    """The gate of one method, before the method sees the call.

    Both checks end calls that may not go on.
    """

    def begin(self, call: ServedCall) -> None:
        """Begin a call."""

    def refused(self, call: ServedCall) -> None:
        """End a call at once because its caller is not admitted."""

    def at_once(self, request: Any, context: CallContext) -> bool:
        """Return whether the call may go on now; False if `check` has to wait for something."""

    def check(self, request: Any, context: CallContext) -> None:
        """Check the call on a thread that may wait."""


class AnswerGate(Protocol):
    """The gate of every answer: it returns the bytes to send in its place."""

    def encoded(self, answer: Any, context: CallContext) -> bytes:
        """Return the bytes for the answer of a method, on a thread that may wait."""

    def at_once(self, data: bytes, context: CallContext, *, kind: Any) -> bytes:
        """Return the bytes for an encoded answer of this kind, on a thread that must not wait."""

    def concerns(self, data: bytes) -> bool:
        """Return whether a message of a stream has to pass `message`."""

    def message(self, data: bytes, context: CallContext, *, kind: Any) -> bytes:
        """Return the bytes for a message of a stream, on a thread that may wait."""

    def status(self, text: str, context: CallContext) -> str:
        """Return the text of a status, on any thread."""


class OpenAnswers:
    """The answers of a server without access control."""

    def encoded(self, answer: Any, context: CallContext) -> bytes:
        """Return the answer unchanged."""
        return bytes(answer.SerializeToString())

    def at_once(self, data: bytes, context: CallContext, *, kind: Any) -> bytes:
        """Return the answer unchanged."""
        return data

    def concerns(self, data: bytes) -> bool:
        """Return False, as no message has to pass."""
        return False

    message = at_once

    def status(self, text: str, context: CallContext) -> str:
        """Return the text unchanged."""
        return text


GateOf: TypeAlias = Callable[[str], MethodGate | None]


def no_gate(method: str) -> None:
    """Return no gate, for a server without access control."""


def gated(gate: MethodGate | None, begin: Begin) -> Begin:
    """Return the beginning of a call, preceded by that of its gate."""
    if gate is None:
        return begin

    def begin_gated(call: ServedCall) -> None:
        gate.begin(call)
        begin(call)

    return begin_gated


def checked(method: LongMethod, gate: MethodGate | None) -> LongMethod:
    """Return the method behind its gate."""
    if gate is None:
        return method

    async def check_first(request: Any, call: Any) -> Any:
        if not gate.at_once(request, call):
            await call.run(gate.check, request)
        return await method(request, call)

    return check_first
