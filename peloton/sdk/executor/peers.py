"""Connections between a client and its workers: messages of bytes, once both know one token.

Neither side unpickles anything before the other has shown that it knows the token (the HMAC
challenge of `multiprocessing.connection`, both ways). Each side answers under a key of its role, so
that what one worker answers is of no use towards another. What is sent is not encrypted.
"""

from __future__ import annotations

import hmac
import pickle
import secrets
import socket
import struct
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path
from typing import Any

from peloton.sdk.errors import Conflict

TOKEN_BYTES = 32
HANDSHAKE_S = 20
"""For each step of it: who says nothing for so long is let go."""
PROBES = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
"""A peer whose machine is silent for 10 s, and then 4 times 5 s, is gone, where the platform has
this. No TCP_USER_TIMEOUT: that ends a connection, too, whose peer lives and does not read for a
while, as in a long call that holds the interpreter's lock."""
PROTOCOL = 5
BROKEN = (EOFError, OSError)
"""What a read or a write raises when the other side is gone."""


def new_token() -> bytes:
    return secrets.token_hex(TOKEN_BYTES).encode()


def read_token(path: Path) -> bytes:
    """Return the token of a file. Raises Conflict for one that is cut short, OSError."""
    token = path.read_bytes().strip()
    if len(token) != 2 * TOKEN_BYTES:
        text = f"{path} is no token: it has {len(token)} bytes, not {2 * TOKEN_BYTES}"
        raise Conflict(f"{text}; without its folder the executor begins anew")
    return token


def serving(address: tuple[str, int]) -> socket.socket:
    """Return a socket that listens. Raises OSError."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    return socket.create_server(address, family=family, backlog=1024)


def way_to(address: str) -> str:
    """Return the address of this machine on the way to HOST:PORT. Raises OSError."""
    host, _, port = address.rpartition(":")
    found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)
    family, kind, _, _, place = found[0]
    with socket.socket(family, kind) as probe:
        probe.connect(place)  # sends nothing
        return str(probe.getsockname()[0])


def welcomed(opened: socket.socket, token: bytes) -> Connection:
    """Return the connection of a worker that has shown the token, and has been shown it.

    Raises AuthenticationError, OSError, EOFError; the socket is closed then.
    """
    return _secured(opened, token, first=True)


def dialled(address: tuple[str, int], token: bytes) -> Connection:
    """Return a connection to a client that has shown the token. Raises as `welcomed` does."""
    return _secured(socket.create_connection(address, HANDSHAKE_S), token, first=False)


def _secured(opened: socket.socket, token: bytes, *, first: bool) -> Connection:
    opened.setblocking(True)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _notice_silence(opened)
    _limit_reads(opened, HANDSHAKE_S)
    # A connection reads and writes the descriptor alone, so this one stays to end the limit.
    connection = Connection(opened.dup().detach())
    try:
        steps = (deliver_challenge, answer_challenge)[:: 1 if first else -1]
        for step, role in zip(steps, ("worker", "client"), strict=True):
            step(connection, _key_of(role, token))
        _limit_reads(opened, 0)
    except (*BROKEN, AuthenticationError, AssertionError):
        connection.close()
        raise
    finally:
        opened.close()
    return connection


def _notice_silence(opened: socket.socket) -> None:
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in PROBES.items():
        if hasattr(socket, name):
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _key_of(role: str, token: bytes) -> bytes:
    """Return the key under which the side of this role answers."""
    return hmac.digest(token, role.encode(), "sha256")


def _limit_reads(opened: socket.socket, limit_s: int) -> None:
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", limit_s, 0))


def send(connection: Connection, *message: Any) -> None:
    """Send a message: its kind, and what belongs to that. Raises OSError."""
    connection.send_bytes(pickle.dumps(message, PROTOCOL))


def receive(connection: Connection) -> tuple[Any, ...]:
    """Return the next message of a peer that has shown the token. Raises EOFError, OSError."""
    found: tuple[Any, ...] = pickle.loads(connection.recv_bytes())
    return found
