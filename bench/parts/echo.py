"""A gRPC server that only echoes, a process of its own: the calibration of `bench/api.py`.

Served by `grpc.aio`, one loop, without protobuf and without threads: what most servers of gRPC in
Python would take at the least. The first four bytes of a request are the size of its answer. It
ends when its input ends.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import grpc

METHOD = "/bench.Bench/Echo"


class Echo(grpc.GenericRpcHandler):  # type: ignore[misc]
    """The one call."""

    def __init__(self) -> None:
        self._handler = grpc.unary_unary_rpc_method_handler(self._answer)

    def service(self, details: Any) -> Any:
        """As the port says."""
        return self._handler if details.method == METHOD else None

    async def _answer(self, request: bytes, context: Any) -> bytes:
        return bytes(int.from_bytes(request[:4], "big"))


async def serve() -> None:
    """Print the address, and serve until the input ends."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Echo(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"ready: grpc 127.0.0.1:{port}", flush=True)
    ended, loop = asyncio.Event(), asyncio.get_running_loop()

    def wait() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=wait, daemon=True).start()
    await ended.wait()
    await server.stop(0)


if __name__ == "__main__":
    asyncio.run(serve())
