"""Chooses the carrier of calls: gRPC's core, or, if that has changed, gRPC's own server.

What `completions.py` relies on is not documented and may change with any version of grpcio, so it
is tried with one call before it serves others.
"""

from __future__ import annotations

import functools
from typing import Any

import grpc

from peloton.gateway.server.intake import Intake
from peloton.gateway.server.public_calls import PublicServer
from peloton.gateway.server.served_calls import CallServer, ServedCall
from peloton.runtime.core.health import NotReadyReason
from peloton.runtime.core.turning.supervision import Failure, attempt

TRIAL_S = 10.0
"""How long a call to oneself may take."""
TEXT_MAX = 200
SLOWER = (
    "calls are served by gRPC's documented server, which is slower: its core is not as expected"
)
_SAID, _NAMED = b"as expected", ("named", "so")


@functools.cache
def core_trouble() -> str:
    """Return why the core does not serve in this process; "" if it does."""
    found = attempt(_looked_at)
    why = found.error if isinstance(found, Failure) else found
    return f"grpcio {grpc.__version__}: {' '.join(why.split())[:TEXT_MAX]}" if why else ""


def _looked_at() -> str:
    from peloton.gateway.server.completions import CoreServer, missing_names

    missing = ", ".join(missing_names())
    return f"there is no {missing}" if missing else trouble_of(CoreServer)


def carrier_notes() -> tuple[NotReadyReason, ...]:
    """Return what health says of the carrier."""
    why = core_trouble()
    return (NotReadyReason("grpc", f"{SLOWER} ({why})"),) if why else ()


def call_server(*arguments: Any, **named: Any) -> CallServer:
    """Return a server of the better carrier; the arguments are those of `CallServer`."""
    if core_trouble():
        return PublicServer(*arguments, **named)
    from peloton.gateway.server.completions import CoreServer

    return CoreServer(*arguments, **named)


def trouble_of(kind: type[CallServer]) -> str:
    """Return what is wrong with a call from here to here, exceptions included; "" if nothing."""

    def begin(call: ServedCall) -> None:
        well = _NAMED in call.metadata and call.time_remaining() and call.peer()
        call.peer_identities()

        def written(sent: bool) -> None:
            call.end(0 if sent and well else 13, "what came with it is not as it was sent")

        call.read(lambda data: call.write(data or b"", written))

    intake = Intake(message_bytes_max=1000, bytes_max=1000)
    server = kind((), begin, calls_max=2, intake=intake)
    port = server.listen("127.0.0.1:0")
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            server.on_broken = lambda text: channel.close()
            server.start()
            call = channel.stream_stream("/peloton.Trial/Call")
            found = [*call(iter((_SAID,)), timeout=TRIAL_S, metadata=(_NAMED,))]
    finally:
        server.stop()
    server.stopped.result(TRIAL_S)
    return "" if found == [_SAID] else f"a call was answered {found}"
