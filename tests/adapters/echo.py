"""A process that sends every frame back; for tests that kill or freeze it.

It says its address on its first line, and dials the one it is given, if any. It ends when its input
does.
"""

from __future__ import annotations

import sys

from peloton.runtime.adapters.grpc_exchange import GrpcExchange


class Echo:
    """Ears that answer."""

    def __init__(self, exchange: GrpcExchange) -> None:
        self._exchange = exchange

    def accepted(self, stream: int) -> None:
        """Let it speak."""

    def arrived(self, stream: int, data: bytes) -> None:
        self._exchange.send(stream, data)

    def closed(self, stream: int, text: str) -> None:
        """There will be others."""


if __name__ == "__main__":
    exchange = GrpcExchange("127.0.0.1:0")
    exchange.listen(Echo(exchange))
    print(exchange.address, flush=True)
    for address in sys.argv[1:]:
        exchange.dial(address)
    sys.stdin.read()
    exchange.stop()
