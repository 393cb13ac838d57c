"""Who makes a call: the principal that was found when it began, and the names that clients claim.

It must not prove or refuse anything: `authentication.py` does. A name that is only in metadata is
marked unverified.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import unquote

from peloton.runtime.core.principal import NONE, UNVERIFIED, Principal

NAMES = "username", "peloton-user"
"""Metadata that names a person: of the original's basic authentication, and of our own clients."""
CALLER = "rpc-caller"
CALLER_LENGTH_MAX = 128
"""The rest of a longer name of a program is dropped."""


class Caller(Protocol):
    """The part of a call's context that identifies the client."""

    @property
    def principal(self) -> Principal:
        """As it was found when the call began."""


def principal_of(context: Caller) -> Principal:
    """Who calls, and how that is known."""
    return context.principal


def claimed(metadata: Mapping[str, Any], host: str) -> Principal:
    """Who a client at this host says it is; nothing of it is proven."""
    name = next((str(metadata[key]) for key in NAMES if metadata.get(key)), "")
    caller = str(metadata.get(CALLER, ""))[:CALLER_LENGTH_MAX]
    return Principal(name, UNVERIFIED if name else NONE, host, caller)


def host_of(peer: str) -> str:
    """Without the scheme and the port, which is another one for every connection."""
    scheme, _, address = unquote(peer).partition(":")
    if scheme not in ("ipv4", "ipv6"):
        return scheme if scheme == "unix" else ""
    return address.rpartition(":")[0].strip("[]")
