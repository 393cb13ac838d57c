"""The contacts of the peer shell: with each peer, and with itself by its own address.

Turns the ups and downs of links into answers for callers, lines of health, and reports of peers out
of touch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from peloton.runtime.core.links.parcels import SILENT, STALL_S_MAX, Link
from peloton.runtime.core.reach.contacts import NOT_DIALLED, ContactReport, Contacts, named
from peloton.runtime.ports import Exchange
from peloton.runtime.shells.own_address import OwnAddress
from peloton.runtime.shells.peer_messages import Peers

SESSION_S = 6.0
"""Of the membership, unless set otherwise."""
DOWN_S_MAX = 5.0
"""Calls to a peer that is out of reach for so long are answered `Unavailable`."""


class PeerContacts:
    """The contacts of one daemon. `on_report` and `on_down` are called at changes."""

    def __init__(self, exchange: Exchange, session_s: float = SESSION_S) -> None:
        self.addresses: dict[str, str] = {}
        """Of all peers."""
        self.down: dict[str, str] = {}
        """Peers that are out of reach, and what calls to them are answered."""
        self.own = OwnAddress(exchange)
        self.on_report: Callable[[ContactReport], object] = lambda report: None
        self.on_down: Callable[[str, str], object] = lambda peer, text: None
        """Of (peer, why calls to it fail), or of ourselves; an empty text: they do not any more."""
        self._contacts = Contacts(session_s)
        self._said: Mapping[str, str] = {}
        self._reported = ContactReport()
        self._me = self._own_trouble = ""

    def named(self, peer: str) -> str:
        """Return a peer's name for people."""
        return named(peer, self.addresses.get(peer, "an unknown address"))

    def update(self, peers: Peers, addresses: dict[str, str], *, me: str, now: float) -> None:
        """Take the members of a newer view."""
        self._me, self._said, self.addresses = me, peers.said, addresses
        self.own.is_ours(me, peers.members.get(me, ""), now)
        self._contacts.keep(addresses, now)

    def restart(self, now: float) -> None:
        """Start over: all links are new, and no peer was met yet."""
        for peer in [*self.down]:
            self.clear(peer)
        self._contacts.keep({}, now)
        self.addresses, self._reported = {}, ContactReport()

    def closed(self, link: Link, why: str, now: float) -> None:
        """Record the end of a link's stream; `why`, where this side can know."""
        contact = self._contacts.of.get(link.peer)
        if contact is not None:
            silent_s = STALL_S_MAX if why == SILENT else 0.0
            contact.went_down(now, why, silent_s=silent_s)

    def look(self, link: Link, now: float) -> str:
        """Look at a link; return why all calls on their way to the peer fail now, mostly empty."""
        contact, since_s = self._contacts.of[link.peer], link.down_since_s
        if link.greeted and not contact.up:
            contact.went_up(now)
        if since_s is None or now < since_s + DOWN_S_MAX:
            return ""
        why = contact.why
        why = self._said.get(link.peer, why) if why == NOT_DIALLED else why
        text = f"{self.named(link.peer)} is out of reach: {why}"
        if self.down.get(link.peer) == text:
            return ""
        self.down[link.peer] = text
        self.on_down(link.peer, text)
        return text

    def clear(self, peer: str) -> bool:
        """Clear the failure of calls to the peer; return whether there was one."""
        if self.down.pop(peer, None) is None:
            return False
        self.on_down(peer, "")
        return True

    def report(self, now: float) -> None:
        """Report the peers out of touch, if they have changed."""
        report = self._contacts.report(now)
        if report.unreached:
            self.own.doubt(now)
        self.own.look(now)
        trouble = self.own.trouble
        if trouble:
            report = report._replace(unreached={**report.unreached, self._me: trouble})
        if report != self._reported:
            self._reported = report
            self.on_report(report)
        if trouble != self._own_trouble:
            self._own_trouble = trouble
            self.on_down(self._me, trouble)

    def due_s(self, links: Mapping[str, Link]) -> Iterator[float | None]:
        """Yield when something is to be looked at again."""
        for link in links.values():
            if link.down_since_s is not None and link.peer not in self.down:
                yield link.down_since_s + DOWN_S_MAX
        yield self.own.due_s()
        yield from self._contacts.changes_s()
