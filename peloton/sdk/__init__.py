"""The Python client: `from peloton.sdk import Client`, or `AsyncClient` for asyncio.

Both are loaded when they are first named, so that a program which needs one light module does not
load gRPC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peloton.sdk.aio import AsyncClient
    from peloton.sdk.client import Client

__all__ = ["AsyncClient", "Client"]


def __getattr__(name: str) -> Any:
    if name == "Client":
        from peloton.sdk.client import Client

        return Client
    if name == "AsyncClient":
        from peloton.sdk.aio import AsyncClient

        return AsyncClient
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
