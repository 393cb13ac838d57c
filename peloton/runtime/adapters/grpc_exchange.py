"""Streams between daemons over gRPC, with optional mutual TLS: an `Exchange`.

Turns a dial into one bidirectional call that lasts until one side ends it, and frames into the
messages of that call. It must not listen beyond loopback without TLS: whoever reaches this port
controls the cluster.

    exchange = GrpcExchange("10.0.0.7:5399", tls=Tls(ca, certificate, key))
    exchange.listen(listener)
    exchange.address                what peers dial, with the actual port
    exchange.stop()

Every dial has a connection of its own, so that an old stream that hangs does not block a new one,
and gRPC's own backoff does not interfere with that of the caller. gRPC must not retry a call
either: its first frames could then arrive twice, on two streams.

A partitioned peer sends nothing, and neither does its kernel. Both sides ping, and close the
connection when no pong arrives within `2 * keepalive_s`.
"""

from __future__ import annotations

import ipaddress
import itertools
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from peloton.exchange.v1 import exchange_pb2
from peloton.exchange.v1.exchange_pb2 import Frames
from peloton.runtime.adapters.exchange_errors import reason
from peloton.runtime.adapters.grpc_certificates import ListenerPems, port_credentials
from peloton.runtime.adapters.grpc_exchange_stream import MESSAGE_BYTES_MAX, Stream
from peloton.runtime.ports import StreamListener

KEEPALIVE_S = 5.0
STREAMS_MAX = 256
"""Accepted streams at once; each has a thread. More are refused."""
STOP_S_MAX = 2.0
_SERVICE = exchange_pb2.DESCRIPTOR.services_by_name["Exchange"].full_name
_CALL = "Carry"


class CannotListen(Exception):
    """No exchange is possible at this address; the text has the reason, for people."""


class Tls(NamedTuple):
    """Files in PEM: both sides of a stream show a certificate, and accept those of this `ca`.

    `server_name`: the name in a peer's certificate, if all daemons share one, instead of the
    address that was dialled; empty: the address must be in the certificate.
    """

    ca: Path
    certificate: Path
    key: Path
    server_name: str = ""


class GrpcExchange:
    """The Exchange of one daemon: all its streams."""

    def __init__(
        self,
        listen: str,
        *,
        tls: Tls | None = None,
        keepalive_s: float = KEEPALIVE_S,
        pong_s: float | None = None,
    ) -> None:
        """Open an exchange. `pong_s`: the time limit of a pong; None: the time between
        two pings."""
        if tls is None:
            _only_loopback(listen)
        self._tls = tls
        self._pems = _read(tls) if tls is not None else None
        self._options = _options(keepalive_s, keepalive_s if pong_s is None else pong_s)
        self._listener: StreamListener | None = None
        self._numbers = itertools.count(1)
        self._streams: dict[int, Stream] = {}
        self._dials: dict[int, threading.Thread] = {}
        self._server = grpc.server(
            ThreadPoolExecutor(STREAMS_MAX, thread_name_prefix="exchange"),
            options=self._options,
            maximum_concurrent_rpcs=STREAMS_MAX,
        )
        carry = grpc.stream_stream_rpc_method_handler(
            self._carry,
            request_deserializer=Frames.FromString,
            response_serializer=Frames.SerializeToString,
        )
        self._server.add_registered_method_handlers(_SERVICE, {_CALL: carry})
        self.address = f"{listen.rpartition(':')[0]}:{self._bind(listen)}"

    # ---- the port ----

    def listen(self, listener: StreamListener) -> None:
        self._listener = listener
        self._server.start()

    def dial(self, address: str) -> int:
        """Start a dial; a thread does the part that may block."""
        stream = self._begin()
        thread = threading.Thread(
            target=self._dial, args=(stream, address), name=f"dial-{address}", daemon=True
        )
        self._dials[stream.number] = thread
        thread.start()
        return stream.number

    def send(self, stream: int, data: bytes) -> None:
        found = self._streams.get(stream)
        if found is not None:
            found.send(data)

    def close(self, stream: int) -> None:
        found = self._streams.pop(stream, None)
        if found is not None:
            found.close()

    def replace(self, tls: Tls) -> None:
        """Read other certificates, or the same files anew. Raises CannotListen, and changes
        nothing.

        New connections use them; existing connections go on.
        """
        pems = _read(tls)
        self._tls, self._pems = tls, pems

    def stop(self) -> None:
        """End all streams and stop listening; the listener gets no events about that."""
        for number in [*self._streams]:
            self.close(number)
        self._server.stop(grace=None).wait(STOP_S_MAX)
        for thread in [*self._dials.values()]:
            thread.join(STOP_S_MAX)

    # ---- threads ----

    def _carry(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        """Carry an accepted stream: this thread sends, another one receives."""
        stream = self._begin()
        stream.established(context.cancel)
        stream.accepted()
        reader = threading.Thread(
            target=self._receive,
            args=(stream, requests),
            name=f"receive-{stream.number}",
            daemon=True,
        )
        reader.start()
        yield from stream.messages(Frames)

    def _dial(self, stream: Stream, address: str) -> None:
        """Carry a dialled stream: this thread receives, a thread of gRPC sends."""
        channel = self._channel(address)
        try:
            carry = channel.stream_stream(
                f"/{_SERVICE}/{_CALL}",
                request_serializer=Frames.SerializeToString,
                response_deserializer=Frames.FromString,
            )
            call = carry(stream.messages(Frames))
            stream.established(call.cancel)
            self._receive(stream, call)
        finally:
            channel.close()
            self._dials.pop(stream.number, None)

    def _receive(self, stream: Stream, messages: Iterator[Any]) -> None:
        text = "failed on this side"
        try:
            for message in messages:
                stream.arrived(message.frames)
            text = "ended by the other side"
        except grpc.RpcError as error:
            text = _why(error)
        finally:
            self._streams.pop(stream.number, None)
            stream.ended(text)

    def _begin(self) -> Stream:
        assert self._listener is not None, "call listen first"
        stream = Stream(next(self._numbers), self._listener)
        self._streams[stream.number] = stream
        return stream

    # ---- addresses and credentials ----

    def _bind(self, listen: str) -> int:
        try:
            if self._pems is None:
                return int(self._server.add_insecure_port(listen))
            return int(self._server.add_secure_port(listen, port_credentials(self._in_force)))
        except RuntimeError as error:
            files = " (is it busy, or do certificate and key not fit?)" if self._pems else ""
            raise CannotListen(f"{listen}: {error}{files}") from error

    def _in_force(self) -> ListenerPems:
        assert self._pems is not None, "with TLS once is with TLS for ever"
        return self._pems

    def _channel(self, address: str) -> Any:
        pems = self._pems
        if pems is None:
            return grpc.insecure_channel(address, self._options)
        credentials = grpc.ssl_channel_credentials(pems.ca, pems.key, pems.certificate)
        options: list[tuple[str, Any]] = [*self._options]
        if self._tls is not None and self._tls.server_name:
            options.append(("grpc.ssl_target_name_override", self._tls.server_name))
        return grpc.secure_channel(address, credentials, options)


def _options(keepalive_s: float, pong_s: float) -> list[tuple[str, int]]:
    keepalive_ms, pong_ms = int(keepalive_s * 1000), int(pong_s * 1000)
    return [
        ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
        ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
        ("grpc.keepalive_time_ms", keepalive_ms),
        ("grpc.keepalive_timeout_ms", pong_ms),
        # Without this a ping times out after a minute, whatever the option above is.
        ("grpc.http2.ping_timeout_ms", pong_ms),
        # The timeout for establishing a connection: nothing is retried here, so it is no pause.
        ("grpc.min_reconnect_backoff_ms", 2 * keepalive_ms),
        # By default a server treats pings on an idle stream as abuse, and closes the connection.
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.http2.max_pings_without_data", 0),
        # Otherwise two servers could share one port, each with a part of the peers.
        ("grpc.so_reuseport", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
        # A configured proxy is for outside traffic, not for daemons of the cluster.
        ("grpc.enable_http_proxy", 0),
    ]


def _only_loopback(listen: str) -> None:
    host, separator, port = listen.rpartition(":")
    host = host.strip("[]")
    if not separator or not (port.isascii() and port.isdigit()):
        raise CannotListen(f"{listen!r} is not HOST:PORT")
    try:
        inside = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        inside = False
    if not inside:
        raise CannotListen(
            f"{host} is not a loopback address. Whoever reaches this port controls the "
            "cluster; other addresses are refused without TLS"
        )


def _read(tls: Tls) -> ListenerPems:
    def pem(path: Path, *, label: bytes, name: str) -> bytes:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise CannotListen(f"tls.{name}: {path}: {error.strerror}") from error
        if b"-----BEGIN" not in data or label not in data:
            raise CannotListen(f"tls.{name}: {path} holds no {label.decode()} in PEM")
        return data

    ca = pem(tls.ca, label=b"CERTIFICATE", name="ca")
    certificate = pem(tls.certificate, label=b"CERTIFICATE", name="certificate")
    return ListenerPems(certificate, pem(tls.key, label=b"PRIVATE KEY", name="key"), ca)


def _why(error: grpc.RpcError) -> str:
    """Return the reason of the end; on the accepting side gRPC has none."""
    if isinstance(error, grpc.Call):
        code = error.code()
        return reason(code.name if code is not None else "UNKNOWN", error.details() or "")
    return "the other side is gone"
