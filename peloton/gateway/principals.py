"""Who makes a call: the principal that was found when it began, and the names that clients claim.

And what of a limited number of places each may take, so that nobody takes them from all others. It
must not prove anything: `authentication.py` does. A name that is only in metadata is marked
unverified.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from urllib.parse import unquote

from peloton.runtime.core.principal import NONE, UNVERIFIED, Principal

NAMES = "username", "peloton-user"
"""Metadata that names a person: of the original's basic authentication, and of our own clients."""
CALLER = "rpc-caller"
CALLER_LENGTH_MAX = 128
"""The rest of a longer name of a program is dropped."""
RESERVED_PART = 20
"""One of so many places is for administrators only."""
NAMED_MAX = 3


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


class Places:
    """Places that all callers share, such as those of open streams.

    One caller may take as many as are left for all others: alone half of them, and beside others
    less, so that whoever comes next finds some. Its methods are called on one thread, or under one
    lock; `notes` on any.
    """

    def __init__(self, what: str) -> None:
        """`what`: such as "streams"."""
        self.what = what
        self.taken = 0
        self._most = 0
        self._held: Counter[str] = Counter()

    def take(self, who: Principal, administers: Callable[[], bool], *, most: int) -> str:
        """Take one of so many places; why that may not be, and "" where it was done."""
        self._most, name, kept = most, _shared_by(who), most // RESERVED_PART
        own, left = self._held[name], most - self.taken
        # Asked for only where it matters: a right has to be looked up.
        if left - kept <= own < left and not administers():
            left -= kept
        if left <= 0:
            return f"{most} {self.what} are open already, over all callers"
        if own >= left:
            return f"{name} has {own} of {most} {self.what}, as many as are left for all others"
        self._held[name] = own + 1
        self.taken += 1
        return ""

    def leave(self, who: Principal) -> None:
        """Give one back."""
        name = _shared_by(who)
        self.taken -= 1
        self._held[name] -= 1
        if not self._held[name]:
            del self._held[name]

    def note(self) -> str:
        """Who is at the limit, and with how many; "" where nobody is."""
        # A copy, made at once: others take and leave meanwhile.
        left, held = self._most - self.taken, Counter(dict(self._held)).most_common(NAMED_MAX)
        least = max(left - self._most // RESERVED_PART, self._most // RESERVED_PART, 1)
        most = [f"{name} has {own}" for name, own in held if own >= least]
        if self.taken and (most or left <= 0):
            return f"of {self._most} {self.what} {left} are left: {', '.join(most) or 'all shared'}"
        return ""


def _shared_by(who: Principal) -> str:
    """Callers of one name are one; those who prove nothing are one by their address."""
    return who.name if who.authenticated else f"somebody at {who.peer or 'this machine'}"


def host_of(peer: str) -> str:
    """Without the scheme and the port, which is another one for every connection."""
    scheme, _, address = unquote(peer).partition(":")
    if scheme not in ("ipv4", "ipv6"):
        return scheme if scheme == "unix" else ""
    return address.rpartition(":")[0].strip("[]")
