"""An AsyncClient for tests that block: the same tests show what holds of both clients."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

from peloton.sdk.aio import AsyncClient
from peloton.sdk.calls import Calls


class Face:
    """Calls whose coroutines and streams run on the event loop of a thread."""

    def __init__(self, calls: Calls[Any], loop: asyncio.AbstractEventLoop) -> None:
        self._face = calls, loop

    def __getattr__(self, name: str) -> Any:
        calls, loop = self._face
        found = getattr(calls, name)
        if isinstance(found, Calls):
            return Face(found, loop)
        return driven(found, loop) if callable(found) else found


def driven(function: Callable[..., Any], loop: asyncio.AbstractEventLoop) -> Callable[..., Any]:
    def blocking(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        if inspect.isasyncgen(found):
            return each(found, loop)
        if inspect.iscoroutine(found):
            return asyncio.run_coroutine_threadsafe(found, loop).result()
        return found

    return blocking


def each(stream: AsyncGenerator[Any, None], loop: asyncio.AbstractEventLoop) -> Generator[Any]:
    async def step() -> Any:
        return await anext(stream)

    try:
        while True:
            try:
                found = asyncio.run_coroutine_threadsafe(step(), loop).result()
            except StopAsyncIteration:
                return
            yield found
    finally:
        asyncio.run_coroutine_threadsafe(stream.aclose(), loop).result()  # type: ignore[arg-type]


class DrivenClient(Face):
    """Made and used as a Client."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        loop = asyncio.new_event_loop()
        super().__init__(AsyncClient(*args, **kwargs), loop)
        self._thread = threading.Thread(target=loop.run_forever)
        self._thread.start()

    def __enter__(self) -> DrivenClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        calls, loop = self._face

        async def close() -> None:
            await calls.close()
            if others := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(others)  # calls under way, which end by it

        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(close(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            loop.close()
