"""How a wire sends and waits. `aio` has the transport that does so on an event loop."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Protocol, TypeVar

import grpc

from peloton.sdk.credentials import Credentials, Routes

R = TypeVar("R")
MetadataPairs = list[tuple[str, str]]


class Transport(Protocol):
    """How a wire sends and waits: on the thread of its caller, or on an event loop."""

    grpc: Any
    """The module that makes its channels: `grpc` or `grpc.aio`."""
    blocks: bool
    """Whether its coroutines never suspend."""

    async def unary(
        self, rpc: Any, request: Any, *, timeout_s: float, metadata: MetadataPairs
    ) -> tuple[Any, Any]:
        """Return the answer and the trailing metadata. Raises RpcError."""

    def stream(
        self, rpc: Any, request: Any, *, metadata: MetadataPairs
    ) -> AsyncGenerator[Any, None]:
        """Yield the messages of a stream. Raises RpcError. To close it cancels the call."""

    def routes(self, credentials: Credentials) -> Routes:
        """Return the routes to addresses, with these credentials."""

    def now(self) -> float:
        """Return the time by which it waits, in seconds."""

    async def sleep(self, seconds: float) -> None: ...

    async def apart(self, function: Callable[..., R], *args: Any) -> R:
        """Return the result of a function that may take long, while other calls go on."""

    async def close(self, channels: Sequence[Any]) -> None: ...


class NetworkTransport:
    """What the transports over a network share."""

    def routes(self, credentials: Credentials) -> Routes:
        return Routes(credentials)

    def now(self) -> float:
        return time.monotonic()


class BlockingTransport(NetworkTransport):
    """Blocks the thread of the caller: its coroutines never suspend."""

    grpc: Any = grpc
    blocks = True

    async def unary(
        self, rpc: Any, request: Any, *, timeout_s: float, metadata: MetadataPairs
    ) -> tuple[Any, Any]:
        answer, ended = rpc.with_call(request, timeout=timeout_s, metadata=metadata)
        return answer, ended.trailing_metadata()

    async def stream(
        self, rpc: Any, request: Any, *, metadata: MetadataPairs
    ) -> AsyncGenerator[Any, None]:
        call = rpc(request, metadata=metadata)
        try:
            for message in call:
                yield message
        finally:
            call.cancel()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def apart(self, function: Callable[..., R], *args: Any) -> R:
        return function(*args)

    async def close(self, channels: Sequence[Any]) -> None:
        for channel in channels:
            channel.close()
