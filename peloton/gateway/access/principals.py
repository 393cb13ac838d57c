"""The principal of a call, as found when the call began, and the names that clients claim.

`SharedQuota` limits how much each caller may take of what all share. `authentication.py` proves
principals. A name that is only in metadata is marked unverified.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, Generic, TypeVar
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
Each = TypeVar("Each", bound=Hashable)


def claimed(metadata: Mapping[str, Any], host: str) -> Principal:
    """Return the principal that a client at this host claims to be; nothing of it is proven."""
    name = next((str(metadata[key]) for key in NAMES if metadata.get(key)), "")
    caller = str(metadata.get(CALLER, ""))[:CALLER_LENGTH_MAX]
    return Principal(name, UNVERIFIED if name else NONE, host, caller)


class SharedQuota:
    """SharedQuota that all callers share, such as those of open streams, or bytes.

    One caller may take as many as are left for all others: alone half of them, and beside others
    less, so that the next caller finds some. The methods are called on one thread, or under one
    lock; `notes` on any.
    """

    def __init__(self, what: str) -> None:
        """Take the name of the places, such as "streams"."""
        self.what = what
        """SharedQuota taken are told as so many of these."""
        self.taken = 0
        self._most = 0
        self._shares: Counter[str] = Counter()

    def take(
        self, who: Principal, administers: Callable[[], bool], *, most: int, count: int = 1
    ) -> str:
        """Take `count` of `most` places; return why that is refused, or "" if it was done."""
        self._most, name, kept = most, shared_by(who), most // RESERVED_PART
        own, left = self._shares[name], most - self.taken
        # Asked for only where it matters: a right has to be looked up.
        if left - kept < own + count <= left and not administers():
            left -= kept
        if left < count:
            asked = "" if count == 1 else f": {name} has {own}, and asks for {count}"
            return f"{self.taken} of {most} {self.what} are taken already, over all callers{asked}"
        if own + count > left:
            asked = "as many as are left for all others" if count == 1 else f"and asks for {count}"
            return f"{name} has {own} of {most} {self.what}, {asked}"
        self._shares[name] = own + count
        self.taken += count
        return ""

    def leave(self, who: Principal, count: int = 1) -> None:
        """Give places back."""
        name = shared_by(who)
        self.taken -= count
        self._shares[name] -= count
        if not self._shares[name]:
            del self._shares[name]

    def note(self) -> str:
        """Return which callers are at the limit, and with how many places; "" if none is."""
        # A copy, made at once: others take and leave meanwhile.
        left, shares = self._most - self.taken, Counter(dict(self._shares)).most_common(NAMED_MAX)
        least = max(left - self._most // RESERVED_PART, self._most // RESERVED_PART, 1)
        most = [f"{name} has {own}" for name, own in shares if own >= least]
        if self.taken and (most or left <= 0):
            return f"of {self._most} {self.what} {left} are left: {', '.join(most) or 'all shared'}"
        return ""


class CallersInTurn(Generic[Each]):
    """What waits, by caller: one item of each caller in turn, however many one of them has.

    The methods are called under one lock.
    """

    def __init__(self, *, newest: bool = False) -> None:
        """Take whether the newest item of a caller comes first, instead of the oldest."""
        self._newest = newest
        self._of: dict[str, dict[Each, None]] = {}  # the caller whose turn is next first

    def __bool__(self) -> bool:
        return bool(self._of)

    def add(self, who: Principal, each: Each) -> None:
        """Add an item of this caller."""
        self._of.setdefault(shared_by(who), {})[each] = None

    def remove(self, who: Principal, each: Each) -> None:
        """Remove an item of this caller."""
        name = shared_by(who)
        del self._of[name][each]
        if not self._of[name]:
            del self._of[name]

    def next(self) -> Each:
        """Remove and return the next item; its caller's next turn comes after all others'."""
        name = next(iter(self._of))
        waiting = self._of.pop(name)
        each = waiting.popitem()[0] if self._newest else next(iter(waiting))
        waiting.pop(each, None)
        if waiting:
            self._of[name] = waiting
        return each

    def oldest_of_most(self) -> Iterator[Each]:
        """Return the items of the caller that has most, the oldest first, without a change."""
        return iter(max(self._of.values(), key=len, default={}))


def shared_by(who: Principal) -> str:
    """Return the name that limits are counted by.

    Callers of one name are one; those who prove nothing are one by their address.
    """
    return who.owner if who.authenticated else f"somebody at {who.peer or 'this machine'}"


def host_of(peer: str) -> str:
    """Return the host of a peer, without the scheme and the port, which differs with every
    connection."""
    scheme, _, address = unquote(peer).partition(":")
    if scheme not in ("ipv4", "ipv6"):
        return scheme if scheme == "unix" else ""
    return address.rpartition(":")[0].strip("[]")
