"""The contacts of a daemon with its peers, from the ups and downs of its links.

Turns what happens to a link into whether its peer is *unreached*: out of touch for so long that the
membership would have dropped a dead one. A link counts by its balance: time down is added, time up
is subtracted, so one that comes and goes counts as what it is most of the time, and does not flap.
What follows is decided in `core/reach/standing.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

SESSION_S_MIN, LONGER_THAN_SESSION_S = 4.0, 2.0
"""A peer that died is no member any more after its session, of which servers have a least length;
nobody should act on it before."""
NOT_DIALLED = "it has not connected to this daemon"
UNREACHED_TEXT_MAX = 200


class ContactReport(NamedTuple):
    """A daemon's peers: `unreached`, with the reason, and `met` at least once."""

    unreached: Mapping[str, str] = {}
    met: frozenset[str] = frozenset()


def named(peer: str, address: str) -> str:
    """Return a daemon's name for people, with its address, which its id does not tell."""
    return f"the daemon at {address} ({peer})"


class Contact:
    """The contact with one peer, which is unreached at a balance of `limit_s`."""

    def __init__(self, now: float, *, limit_s: float) -> None:
        self.met = self.up = self.unreached = False
        self.why = NOT_DIALLED
        self.told = ""  # the reason as reported, which stays: each change is told to all daemons
        self._limit_s = limit_s
        self._down_s = 0.0  # the balance as of `_at_s`
        self._at_s = now

    def went_up(self, now: float) -> None:
        """Record that the link was greeted."""
        self._settle(now)
        self.up = self.met = True

    def went_down(self, now: float, why: str, *, silent_s: float = 0.0) -> None:
        """Record a closed link or a failed dial, before which nothing had come for `silent_s`."""
        self._settle(now)
        if self.up:
            self._down_s = min(self._down_s + silent_s, self._limit_s)
        self.up = False
        self.why = why[:UNREACHED_TEXT_MAX] or self.why

    def look(self, now: float) -> None:
        """Update whether the peer is unreached by now."""
        self._settle(now)
        if not self.up and self._down_s >= self._limit_s:
            self.unreached = True
            self.told = self.why if self.told in ("", NOT_DIALLED) else self.told
        elif self.up and self._down_s <= 0.0:
            self.unreached, self.told = False, ""

    def change_s(self) -> float | None:
        """Return when `look` may find a change by itself; None if only an event can bring one."""
        if self.up == self.unreached:
            return self._at_s + (self._down_s if self.up else self._limit_s - self._down_s)
        return None

    def _settle(self, now: float) -> None:
        passed_s = max(0.0, now - self._at_s)
        balance_s = self._down_s + (-passed_s if self.up else passed_s)
        self._down_s, self._at_s = min(max(balance_s, 0.0), self._limit_s), now


class Contacts:
    """The contacts with all peers of one daemon."""

    def __init__(self, session_s: float) -> None:
        self.of: dict[str, Contact] = {}
        self._limit_s = max(session_s, SESSION_S_MIN) + LONGER_THAN_SESSION_S

    def keep(self, peers: Mapping[str, str], now: float) -> None:
        """Set the peers."""
        for peer in [peer for peer in self.of if peer not in peers]:
            del self.of[peer]
        for peer in peers:
            if peer not in self.of:
                self.of[peer] = Contact(now, limit_s=self._limit_s)

    def report(self, now: float) -> ContactReport:
        """Return the report as of now."""
        for contact in self.of.values():
            contact.look(now)
        return ContactReport(
            {peer: one.told for peer, one in sorted(self.of.items()) if one.unreached},
            frozenset(peer for peer, one in self.of.items() if one.met),
        )

    def changes_s(self) -> Iterator[float]:
        """Yield when a report may differ although nothing happens."""
        for contact in self.of.values():
            change_s = contact.change_s()
            if change_s is not None:
                yield change_s
