"""Who makes a call: the principal of a gRPC context.

Turns the certificate and the metadata of a call into a `Principal`. It must not refuse a call: a
name that is only in metadata is marked unverified, and what it may do is for `permissions.py`.
"""

from __future__ import annotations

from typing import Any, Protocol
from urllib.parse import unquote

from peloton.runtime.core.principal import NONE, TLS, UNVERIFIED, Principal

NAMES = "username", "peloton-user"
"""Metadata that names a person: of the original's basic authentication, and of our own clients."""
CALLER = "rpc-caller"


class Caller(Protocol):
    """The part of a gRPC context that identifies the client."""

    def invocation_metadata(self) -> Any:
        """Pairs of name and value."""

    def peer(self) -> str:
        """The address, for example `ipv4:10.0.0.7:41234`."""

    def peer_identities(self) -> Any:
        """Names of the client's certificate, if one was asked for and checked."""


def principal_of(context: Caller) -> Principal:
    """Who calls, and how that is known."""
    metadata = dict(context.invocation_metadata() or ())
    caller = str(metadata.get(CALLER, ""))
    peer = _host(context.peer() or "")
    identities = context.peer_identities()
    if identities:
        return Principal(bytes(next(iter(identities))).decode(errors="replace"), TLS, peer, caller)
    name = next((str(metadata[key]) for key in NAMES if metadata.get(key)), "")
    return Principal(name, UNVERIFIED if name else NONE, peer, caller)


def _host(peer: str) -> str:
    """Without the scheme and the port, which is another one for every connection."""
    scheme, _, address = unquote(peer).partition(":")
    if scheme not in ("ipv4", "ipv6"):
        return scheme if scheme == "unix" else ""
    return address.rpartition(":")[0].strip("[]")
