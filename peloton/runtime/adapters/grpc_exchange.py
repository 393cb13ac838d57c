"""Streams between daemons over gRPC, with mutual TLS by choice: an `Exchange`.

Turns a dial into one call that both sides speak on until one of them ends it, and frames into the
messages of that call. It must not read a frame, dial again by itself, or listen beyond loopback
without TLS: whoever reaches this port may order machines about.

    exchange = GrpcExchange("10.0.0.7:5399", tls=Tls(ca, certificate, key))
    exchange.listen(ears)
    exchange.address                what peers dial, with the port that was got
    exchange.stop()

Every dial has a connection of its own, so that an old stream that hangs holds up no new one, and
gRPC's own pauses between two tries stay out of the way of those of whoever dials. A call is never
tried again beneath us either: its first frames could then arrive twice, on two streams.

A peer that is cut off says nothing, and nor does its kernel. Both sides ping, and give the
connection up when no pong comes within `2 * keepalive_s`.
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
from peloton.runtime.adapters.grpc_exchange_stream import MESSAGE_BYTES_MAX, Stream
from peloton.runtime.ports import StreamListener

KEEPALIVE_S = 5.0
STREAMS_MAX = 256
"""Streams from others at once; each has a thread. What comes beyond is refused."""
STOP_S_MAX = 2.0
_SERVICE = exchange_pb2.DESCRIPTOR.services_by_name["Exchange"].full_name
_CALL = "Carry"


class CannotListen(Exception):
    """Why there can be no exchange at this address; for a person."""


class Tls(NamedTuple):
    """Files in PEM: both sides of a stream show a certificate, and accept those of this `ca`.

    `server_name`: what a peer's certificate says instead of the address it was dialled at, where
    all daemons share one name; empty: the address must be in the certificate.
    """

    ca: Path
    certificate: Path
    key: Path
    server_name: str = ""


class _Pems(NamedTuple):
    """What the files hold."""

    ca: bytes
    certificate: bytes
    key: bytes


class GrpcExchange:
    """All streams of one daemon."""

    def __init__(
        self, listen: str, *, tls: Tls | None = None, keepalive_s: float = KEEPALIVE_S
    ) -> None:
        if tls is None:
            _only_loopback(listen)
        self._tls = tls
        self._pems = _read(tls) if tls is not None else None
        self._options = _options(keepalive_s)
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
        """As the port says."""
        self._listener = listener
        self._server.start()

    def dial(self, address: str) -> int:
        """As the port says: a thread does what could wait."""
        stream = self._begin()
        thread = threading.Thread(
            target=self._speak, args=(stream, address), name=f"dial-{address}", daemon=True
        )
        self._dials[stream.number] = thread
        thread.start()
        return stream.number

    def send(self, stream: int, data: bytes) -> None:
        """As the port says."""
        found = self._streams.get(stream)
        if found is not None:
            found.send(data)

    def close(self, stream: int) -> None:
        """As the port says."""
        found = self._streams.pop(stream, None)
        if found is not None:
            found.close()

    def stop(self) -> None:
        """End all streams and listen no more; the ears hear nothing of it."""
        for number in [*self._streams]:
            self.close(number)
        self._server.stop(grace=None).wait(STOP_S_MAX)
        for thread in [*self._dials.values()]:
            thread.join(STOP_S_MAX)

    # ---- threads ----

    def _carry(self, requests: Iterator[Any], context: Any) -> Iterator[Any]:
        """Somebody dialled: on this thread we speak, on another we listen."""
        stream = self._begin()
        stream.stands(context.cancel)
        stream.accepted()
        reader = threading.Thread(
            target=self._hear, args=(stream, requests), name=f"heard-{stream.number}", daemon=True
        )
        reader.start()
        yield from stream.messages(Frames)

    def _speak(self, stream: Stream, address: str) -> None:
        """We dial: here we listen, and gRPC has a thread that sends."""
        channel = self._channel(address)
        try:
            carry = channel.stream_stream(
                f"/{_SERVICE}/{_CALL}",
                request_serializer=Frames.SerializeToString,
                response_deserializer=Frames.FromString,
            )
            call = carry(stream.messages(Frames))
            stream.stands(call.cancel)
            self._hear(stream, call)
        finally:
            channel.close()
            self._dials.pop(stream.number, None)

    def _hear(self, stream: Stream, messages: Iterator[Any]) -> None:
        text = "broken here"
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
        assert self._listener is not None, "listen comes first"
        stream = Stream(next(self._numbers), self._listener)
        self._streams[stream.number] = stream
        return stream

    # ---- addresses and credentials ----

    def _bind(self, listen: str) -> int:
        try:
            if self._pems is None:
                return int(self._server.add_insecure_port(listen))
            credentials = grpc.ssl_server_credentials(
                [(self._pems.key, self._pems.certificate)],
                root_certificates=self._pems.ca,
                require_client_auth=True,
            )
            return int(self._server.add_secure_port(listen, credentials))
        except RuntimeError as error:
            files = " (is it busy, or do certificate and key not fit?)" if self._pems else ""
            raise CannotListen(f"{listen}: {error}{files}") from error

    def _channel(self, address: str) -> Any:
        if self._pems is None:
            return grpc.insecure_channel(address, self._options)
        credentials = grpc.ssl_channel_credentials(
            self._pems.ca, self._pems.key, self._pems.certificate
        )
        options: list[tuple[str, Any]] = [*self._options]
        if self._tls is not None and self._tls.server_name:
            options.append(("grpc.ssl_target_name_override", self._tls.server_name))
        return grpc.secure_channel(address, credentials, options)


def _options(keepalive_s: float) -> list[tuple[str, int]]:
    keepalive_ms = int(keepalive_s * 1000)
    return [
        ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
        ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
        ("grpc.keepalive_time_ms", keepalive_ms),
        ("grpc.keepalive_timeout_ms", keepalive_ms),
        # Without this a ping has a minute, whatever the line above says.
        ("grpc.http2.ping_timeout_ms", keepalive_ms),
        # So long may a connection take to stand: here alone it is no pause between two tries.
        ("grpc.min_reconnect_backoff_ms", 2 * keepalive_ms),
        # By default a server takes pings on a quiet stream for an attack, and hangs up.
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.http2.max_pings_without_data", 0),
        # Two servers on one port would share its peers, each with a part of them.
        ("grpc.so_reuseport", 0),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
        # A proxy is for the way out to the world, not to a daemon next door.
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
            f"{host} is not a loopback address. Whoever reaches this port may order machines "
            "about; other addresses are refused without TLS"
        )


def _read(tls: Tls) -> _Pems:
    def pem(path: Path, *, label: bytes, name: str) -> bytes:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise CannotListen(f"tls.{name}: {path}: {error.strerror}") from error
        if b"-----BEGIN" not in data or label not in data:
            raise CannotListen(f"tls.{name}: {path} holds no {label.decode()} in PEM")
        return data

    return _Pems(
        pem(tls.ca, label=b"CERTIFICATE", name="ca"),
        pem(tls.certificate, label=b"CERTIFICATE", name="certificate"),
        pem(tls.key, label=b"PRIVATE KEY", name="key"),
    )


def _why(error: grpc.RpcError) -> str:
    """What gRPC says of the end; on the accepting side it says nothing but that it came."""
    if isinstance(error, grpc.Call):
        code = error.code()
        return f"{code.name if code is not None else 'UNKNOWN'}: {error.details()}"
    return "the other side is gone"
