"""A gRPC channel that calls as the user of the daemon does, for tests with stubs of their own.

It takes the way of the SDK: what the daemon has written about its address.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any

import grpc

from peloton.sdk.credentials import Credentials, Routes

CHANNEL = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
_Details = namedtuple("_Details", "method timeout metadata credentials wait_for_ready compression")


class WithMetadata(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):  # type: ignore[misc]
    """Adds metadata to every call."""

    def __init__(self, metadata: Sequence[tuple[str, str]]) -> None:
        self._metadata = metadata

    def intercept_unary_unary(self, then: Callable[..., Any], details: Any, sent: Any) -> Any:
        return then(self._with(details), sent)

    def intercept_unary_stream(self, then: Callable[..., Any], details: Any, sent: Any) -> Any:
        return then(self._with(details), sent)

    def _with(self, details: Any) -> Any:
        metadata = [*(details.metadata or ()), *self._metadata]
        return _Details(
            details.method, details.timeout, metadata, details.credentials,
            details.wait_for_ready, details.compression,
        )  # fmt: skip


def channel_to(address: object) -> grpc.Channel:
    """A channel to the daemon of our user at this address."""
    route = Routes(Credentials()).to(str(address))
    channel = grpc.insecure_channel(route.target, options=CHANNEL)
    return grpc.intercept_channel(channel, WithMetadata(route.metadata))
