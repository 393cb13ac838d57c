"""What makes a call of the cluster a method of both clients: it is written once, and awaits.

The methods of `Calls` are coroutines. On an `AsyncClient` they are what was written. A `Client` has
a wire that never suspends, so `run` takes a coroutine from its beginning to its end at once: no
event loop is needed. Inside of a method `self` always awaits.

    class PoolCalls(Calls[M]):
        @call
        async def lookup(self, path: str) -> str: ...

    Client().pools.lookup("/a")             # a str
    await AsyncClient().pools.lookup("/a")  # as well
"""

from __future__ import annotations

import copy
import functools
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

if TYPE_CHECKING:
    from peloton.sdk.wire import Wire

P = ParamSpec("P")
R = TypeVar("R")


class CallMode:
    """How calls are made; for types only."""


class Blocking(CallMode):
    """Calls return their results, and streams are generators."""


class Awaited(CallMode):
    """Calls return coroutines, and streams are async generators."""


M = TypeVar("M", bound=CallMode)


class Calls(Generic[M]):
    """Calls about one subject, over a wire."""

    _awaited: Calls[Awaited] | None = None
    """The same calls as coroutines; None if these are."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire


def make_block(calls: Calls[Any]) -> None:
    """Let these calls return their results, and so the calls that are their attributes."""
    calls._awaited = copy.copy(calls)
    for name, value in vars(calls._awaited).items():
        if isinstance(value, Calls):
            part = copy.copy(value)
            make_block(part)
            setattr(calls, name, part)


def run(awaitable: Awaitable[R]) -> R:
    """Return the result of what never suspends."""
    steps = awaitable.__await__()
    try:
        next(steps)
    except StopIteration as ended:
        result: R = ended.value
        return result
    steps.close()
    raise RuntimeError("a call of a blocking client awaits what only an event loop can do")


def iterate(stream: AsyncGenerator[R, None]) -> Generator[R, None, None]:
    """Yield what an async generator yields that never suspends."""
    try:
        while True:
            try:
                found = run(stream.__anext__())
            except StopAsyncIteration:
                return
            yield found
    finally:
        run(stream.aclose())


class _Method:
    """A function of `Calls`: as it was written, or made to block."""

    blocking: Callable[[Any], Any]

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        functools.update_wrapper(self, function)  # type: ignore[arg-type]

    def bound(self, calls: Calls[Any] | None) -> Any:
        if calls is None:
            return self
        if calls._awaited is None:
            return self.function.__get__(calls)
        awaited = self.function.__get__(calls._awaited)

        @functools.wraps(awaited)
        def blocking(*args: Any, **kwargs: Any) -> Any:
            return self.blocking(awaited(*args, **kwargs))

        return blocking


class call(_Method, Generic[P, R]):
    """A call with one answer."""

    blocking = staticmethod(run)

    def __init__(self, function: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> None:
        super().__init__(function)

    @overload
    def __get__(self, calls: Calls[Blocking], owner: object = None) -> Callable[P, R]: ...
    @overload
    def __get__(
        self, calls: object, owner: object = None
    ) -> Callable[P, Coroutine[Any, Any, R]]: ...
    def __get__(self, calls: Any, owner: object = None) -> Any:
        return self.bound(calls)


class stream(_Method, Generic[P, R]):
    """A call with many answers; to close the generator ends it."""

    blocking = staticmethod(iterate)

    def __init__(self, function: Callable[Concatenate[Any, P], AsyncGenerator[R, None]]) -> None:
        super().__init__(function)

    @overload
    def __get__(
        self, calls: Calls[Blocking], owner: object = None
    ) -> Callable[P, Generator[R, None, None]]: ...
    @overload
    def __get__(
        self, calls: object, owner: object = None
    ) -> Callable[P, AsyncGenerator[R, None]]: ...
    def __get__(self, calls: Any, owner: object = None) -> Any:
        return self.bound(calls)
