"""The place of access control in a server: what every call of a method, and every answer, passes.

Turns the beginning of a call, or a coroutine, into the same behind a gate. It must not know why a
gate refuses: `gates.py` makes them; nor what an answer must not say: `names_in_texts.py` does.
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
    """What a call of one method passes before the method sees it. Both checks end what may not."""

    def begin(self, call: ServedCall) -> None:
        """A call has arrived."""

    def refused(self, call: ServedCall) -> None:
        """A call ends at once because its caller is not let in."""

    def at_once(self, request: Any, context: CallContext) -> bool:
        """Whether it may go on now; False where `check` has to wait for something."""

    def check(self, request: Any, context: CallContext) -> None:
        """As `at_once`, on a thread that may wait."""


class AnswerGate(Protocol):
    """What every answer passes before it leaves: the bytes to send in its place."""

    def encoded(self, answer: Any, context: CallContext) -> bytes:
        """Those of the answer of a method, on a thread that may wait."""

    def at_once(self, data: bytes, context: CallContext, *, kind: Any) -> bytes:
        """Those of an answer of this kind that is encoded, on a thread that must not wait."""

    def concerns(self, data: bytes) -> bool:
        """Whether a message of a stream has to pass `message`."""

    def message(self, data: bytes, context: CallContext, *, kind: Any) -> bytes:
        """As `at_once`, on a thread that may wait."""

    def status(self, text: str, context: CallContext) -> str:
        """The text of a status, on any thread."""


class OpenAnswers:
    """The answers of a server without access control."""

    def encoded(self, answer: Any, context: CallContext) -> bytes:
        """As it is."""
        return bytes(answer.SerializeToString())

    def at_once(self, data: bytes, context: CallContext, *, kind: Any) -> bytes:
        """As it is."""
        return data

    def concerns(self, data: bytes) -> bool:
        """None has to."""
        return False

    message = at_once

    def status(self, text: str, context: CallContext) -> str:
        """As it is."""
        return text


GateOf: TypeAlias = Callable[[str], MethodGate | None]


def no_gate(method: str) -> None:
    """The gates of a server without access control."""


def gated(gate: MethodGate | None, begin: Begin) -> Begin:
    """The same beginning of a call, of which the gate is told first."""
    if gate is None:
        return begin

    def begin_gated(call: ServedCall) -> None:
        gate.begin(call)
        begin(call)

    return begin_gated


def checked(method: LongMethod, gate: MethodGate | None) -> LongMethod:
    """The same method, behind its gate."""
    if gate is None:
        return method

    async def check_first(request: Any, call: Any) -> Any:
        if not gate.at_once(request, call):
            await call.run(gate.check, request)
        return await method(request, call)

    return check_first
