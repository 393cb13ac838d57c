"""The client for asyncio: the calls of `client.Client`, as coroutines.

    async with AsyncClient("127.0.0.1:5397") as peloton:
        answer = await peloton.jobs.create("/research", spec)
        ended = await peloton.ops.wait(answer.jobId.value)
        async for piece in peloton.tasks.logs(answer.jobId.value, 0): ...

Any number of calls may be under way at once. A call that is cancelled may have had its effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
from grpc import aio

from peloton.sdk.calls import Awaited
from peloton.sdk.client import ClusterCalls
from peloton.sdk.transports import MetadataPairs, NetworkTransport

R = TypeVar("R")


class AsyncTransport(NetworkTransport):
    """Sends and waits on the event loop that runs."""

    grpc: Any = aio
    blocks = False

    async def unary(
        self, rpc: Any, request: Any, *, timeout_s: float, metadata: MetadataPairs
    ) -> tuple[Any, Any]:
        call = rpc(request, timeout=timeout_s, metadata=metadata)
        try:
            return await call, await call.trailing_metadata()
        except asyncio.CancelledError:
            raise _closed_or_cancelled() from None

    async def stream(
        self, rpc: Any, request: Any, *, metadata: MetadataPairs
    ) -> AsyncGenerator[Any, None]:
        call = rpc(request, metadata=metadata)
        try:
            async for message in call:
                yield message
        except asyncio.CancelledError:
            raise _closed_or_cancelled() from None
        finally:
            call.cancel()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def apart(self, function: Callable[..., R], *args: Any) -> R:
        return await asyncio.to_thread(function, *args)

    async def close(self, channels: Sequence[Any]) -> None:
        for channel in channels:
            await channel.close()


class ChannelClosed(grpc.RpcError):  # type: ignore[misc]
    """What a call ends with whose channel is closed, as without an event loop."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.CANCELLED

    def details(self) -> str:
        return "the client is closed"

    def trailing_metadata(self) -> None: ...


def _closed_or_cancelled() -> BaseException:
    """Return what a cancelled call raises: a channel that is closed cancels its calls, too."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        return asyncio.CancelledError()
    return ChannelClosed()


class AsyncClient(ClusterCalls[Awaited]):
    """A client whose calls are coroutines, for one event loop."""

    _transport = AsyncTransport()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
