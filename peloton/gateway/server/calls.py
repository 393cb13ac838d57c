"""What a method of a servicer sees of its call, and what it may return besides an answer.

`serving.py` runs the calls.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any, NamedTuple, NoReturn, TypeAlias

from peloton.gateway.access.authentication import NOBODY
from peloton.gateway.access.guard import CallCode, CallEnded
from peloton.gateway.server.served_calls import EndNote, ServedCall
from peloton.runtime.core.principal import Principal
from peloton.runtime.vocabulary import Key

Wait: TypeAlias = Callable[[Future[Any], float], Any]
"""Returns the result of a future, or raises TimeoutError after so many seconds."""
LEFT = "the client left; a change may have happened"


class Later(NamedTuple):
    """An answer that is under way. No thread waits for it.

    `encode` makes the answer from the result of the future, on the thread that sets it, so it must
    be quick; `late` is called if that takes longer than `wait_s`. Both may end the call as methods
    do; `late` has to.
    """

    future: Future[Any]
    encode: Callable[[Any], bytes]
    late: Callable[[], NoReturn]
    wait_s: float


def is_hidden(context: Any) -> bool:
    """Return whether the object of a call must look as if it did not exist."""
    return bool(getattr(context, "hidden", False))


class CallContext:
    """The context of a call for methods on the pool: the used part of gRPC's interface."""

    def __init__(self, call: ServedCall | None = None, *, wait: Wait = Future.result) -> None:
        """Take the call; None for work that is not for one call, which waits by `wait`."""
        self._call = call
        self._wait: Wait = wait if call is None else call.result_of

    @property
    def hidden(self) -> bool:
        """Return whether the object of the call must look as if it did not exist."""
        return self._call is not None and self._call.hidden

    def hide(self) -> None:
        """Let the object of the call look as if it did not exist."""
        assert self._call is not None
        self._call.hidden = True

    @property
    def at_pool(self) -> str:
        """Return the path of the pool that the call is about, if the caller may see it; else ""."""
        return self._call.at_pool if self._call is not None else ""

    def is_about(self, path: str) -> None:
        """Record that the caller may see the object of the call, which is in this pool."""
        assert self._call is not None
        self._call.at_pool = path

    @property
    def found(self) -> Key | None:
        """Return which of several objects of one name the call is about; None if it was not
        asked."""
        return self._call.found if self._call is not None else None

    def is_of(self, key: Key) -> None:
        """Record which object the call is about."""
        assert self._call is not None
        self._call.found = key

    def said(self, text: str) -> str:
        """Return a text with mentions of others as the caller may see it."""
        return self._call.said(text) if self._call is not None else text

    def await_answer(self, future: Future[Any], wait_s: float) -> Any:
        """Return the answer, unless the call is over before: then it is cancelled, and the call
        ends.

        Raises TimeoutError after `wait_s`.
        """
        if self._call is None:
            return self._wait(future, wait_s)
        self._call.waits_for = future
        try:
            if self._call.cancelled:  # also before it was set
                raise CancelledError
            return self._wait(future, wait_s)
        except CancelledError:
            future.cancel()
            raise CallEnded(CallCode.CANCELLED, LEFT) from None
        finally:
            self._call.waits_for = None

    @property
    def cancelled(self) -> bool:
        """Return whether the client left, or its deadline has passed, so that no answer is
        awaited."""
        return self._call is not None and self._call.cancelled

    @property
    def end_note(self) -> EndNote | None:
        """Return the note that is told how the call ends."""
        return self._call.end_note if self._call is not None else None

    def set_trailing_metadata(self, trailing: Any) -> None:
        """Set what is sent with the status of a call that ends well."""
        if self._call is not None:
            self._call.trailing = trailing

    def abort(self, code: Any, details: str) -> NoReturn:
        """End the call; raises."""
        raise CallEnded(code, details)

    def abort_with_status(self, status: Any) -> NoReturn:
        """End the call with a rich status; raises."""
        raise CallEnded(status.code, status.details, trailing=status.trailing_metadata)

    @property
    def principal(self) -> Principal:
        return self._call.principal if self._call is not None else NOBODY

    def invocation_metadata(self) -> Any:
        """Return what the client sent with the call, without secrets."""
        return self._call.metadata if self._call is not None else ()

    def time_remaining(self) -> float | None:
        """Return the seconds until the client's deadline; None without one."""
        return self._call.time_remaining() if self._call is not None else None

    def peer(self) -> str:
        """Return the client's address."""
        return self._call.peer() if self._call is not None else ""
