"""Where the cluster is: the addresses of each role, given or looked up in ZooKeeper.

A role, such as the job manager, has addresses to try, the best first.
"""

from __future__ import annotations

import ipaddress
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

API = "api"
PORT = 5397
"""The default port of the API."""
PORT_MAX = 65_535
ADDRESS = re.compile(r"(?P<host>[\w.-]+|\[[0-9A-Fa-f:.%]+\])(?::(?P<port>[0-9]{1,9}))?", re.ASCII)
SCHEMES = ("unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:")
"""Names of gRPC's own, left as they are."""


LOCAL_HOSTS = ("localhost", "127.", "::1", "[::1]")


class Addresses(Protocol):
    """The addresses of a cluster."""

    patient: bool
    """Whether an address may be the wrong one for a while, though the cluster is well."""

    def of(self, role: str) -> tuple[str, ...]:
        """Return addresses in the order to try. Raises ServiceUnavailable if none is known."""

    def service(self, role: str) -> str:
        """Return the service named in a call of this role: the role itself, or the API for all."""

    def answered(self, role: str, address: str) -> None:
        """Record that this address answered, so that the next call tries it first."""

    def refresh(self) -> None:
        """Look the addresses up again, because none answered."""


def addresses_of(text: str | Sequence[str]) -> tuple[str, ...]:
    """Return `a:1,b:2` as two addresses."""
    parts = text.split(",") if isinstance(text, str) else text
    return tuple(part.strip() for part in parts if part.strip())


def are_local(addresses: Sequence[str]) -> bool:
    """Return whether all addresses are of this machine alone."""
    return all(address.startswith(LOCAL_HOSTS) for address in addresses)


def with_port(address: str, default: int) -> str:
    """Return `host` as `host:5397`. Raises ValueError if it is not an address.

    Without a port gRPC would call port 443.
    """
    if address.startswith(SCHEMES):
        return address
    try:
        if ipaddress.ip_address(address).version == 6:
            return f"[{address}]:{default}"
    except ValueError:
        pass
    found = ADDRESS.fullmatch(address)
    if found is None:
        raise ValueError(f"{address!r} is not HOST:PORT")
    port = default if found["port"] is None else int(found["port"])
    if not 1 <= port <= PORT_MAX:
        raise ValueError(f"{address}: port {port} is not between 1 and {PORT_MAX}")
    return f"{found['host']}:{port}"


class Written:
    """Given addresses; a role without any of its own uses those of the API."""

    patient = False

    def __init__(self, api: str | Sequence[str], roles: Mapping[str, str]) -> None:
        self._found = {role: _ported(text) for role, text in roles.items()}
        self._found[API] = _ported(api)
        empty = [role for role, found in self._found.items() if not found]
        if empty:
            raise ValueError(f"no address for {empty[0]}")

    def of(self, role: str) -> tuple[str, ...]:
        return self._found[self.service(role)]

    def service(self, role: str) -> str:
        return role if role in self._found else API

    def answered(self, role: str, address: str) -> None:
        name = self.service(role)
        known = self._found[name]
        if known[0] != address:
            # One assignment, so that calls on other threads see the old order or the new one.
            self._found[name] = (address, *(one for one in known if one != address))

    def refresh(self) -> None:
        """Do nothing, as given addresses cannot be looked up again."""


def _ported(text: str | Sequence[str]) -> tuple[str, ...]:
    return tuple(with_port(one, PORT) for one in addresses_of(text))


class ZooKeeperAddresses:
    """The leaders that ZooKeeper names; `find` is called when first needed and when none answers.

    Peloton's own calls are answered by every leader: they go to all of them in turn.
    """

    patient = True

    def __init__(
        self, find: Callable[[], Mapping[str, str]], *, roles: Mapping[str, str] | None = None
    ) -> None:
        self._find = find
        self._written = {role: _ported(text) for role, text in (roles or {}).items()}
        self._found: dict[str, tuple[str, ...]] | None = None
        self._lock = threading.Lock()

    def of(self, role: str) -> tuple[str, ...]:
        written = self._written.get(role)
        if written:
            return written
        with self._lock:
            if self._found is None:
                leaders = {name: (address,) for name, address in self._find().items()}
                everybody = dict.fromkeys(one for found in leaders.values() for one in found)
                self._found = leaders | {API: tuple(everybody)}
            return self._found.get(role) or self._found[API]

    def service(self, role: str) -> str:
        return role

    def answered(self, role: str, address: str) -> None:
        """Do nothing: ZooKeeper names the leader, whichever address answered last."""

    def refresh(self) -> None:
        with self._lock:
            self._found = None
