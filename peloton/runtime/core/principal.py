"""The principal of a call: who made it, how that is known, and the text that journals keep of it.

Turns a principal into one line of text and back. The text never changes its meaning, because
journals hold it (as `who` of an entry and of some facts):

    HOW:NAME@PEER/CALLER        unverified:ann@10.0.0.7/peloton-python, tls:ops.example.org@10.0.0.7

HOW is `tls` (the name is in a verified certificate), `basic` (the name came with its password),
`token` or `socket` (the client showed the daemon's token, or opened its socket, and so acts for the
user who runs it), `extension` (an actor of an installed kind, which is the name), `unverified` (the
client claims the name) or `none` (it gave no name). Empty parts are left out with their separator;
separators within a part are percent-encoded. Text of another form is a name alone, and unverified.
"""

from __future__ import annotations

import re
from typing import NamedTuple

TLS, BASIC, TOKEN, SOCKET, EXTENSION = "tls", "basic", "token", "socket", "extension"
UNVERIFIED, NONE = "unverified", "none"
VERIFIED_BY = {
    TLS: "verified by TLS",
    BASIC: "verified by password",
    TOKEN: "verified by token",
    SOCKET: "verified by socket",
    EXTENSION: "an extension of the cluster",
}
"""For people, how it is known who called."""
PART_LENGTH_MAX = 128
"""Bounds a part, since clients choose the text and every entry they cause stores it."""
_ESCAPED = "%@/"
_ESCAPE = re.compile("[0-9A-F]{2}")


class Principal(NamedTuple):
    """The caller of a call. `peer` is its address, `caller` the program that it names.

    `role` is that of a user with a password; it is not journaled.
    """

    name: str
    how: str
    peer: str = ""
    caller: str = ""
    role: str = ""

    @property
    def authenticated(self) -> bool:
        """Whether the caller's identity was proved."""
        return self.how in VERIFIED_BY

    @property
    def owner(self) -> str:
        """The name under which it owns things: a kind's is no user's."""
        return f"{EXTENSION}:{self.name}" if self.how == EXTENSION else self.name

    @property
    def text(self) -> str:
        """The text to journal; `parse` is the inverse."""
        peer = f"@{_escaped(self.peer)}" if self.peer else ""
        caller = f"/{_escaped(self.caller)}" if self.caller else ""
        return f"{self.how}:{_escaped(self.name)}{peer}{caller}"

    @property
    def shown(self) -> str:
        """The text for people; empty if the client gave neither name nor program."""
        if self.how in VERIFIED_BY:
            return f"{self.name} ({VERIFIED_BY[self.how]})"
        name = self.name or self.caller
        return f"{name} (unverified)" if name else ""


def principal_of(text: str) -> Principal:
    """Parse a principal from journaled text; an empty text gives one without a name."""
    how, colon, rest = text.partition(":")
    if not colon or how not in (*VERIFIED_BY, UNVERIFIED, NONE):
        return Principal(text, UNVERIFIED if text else NONE)
    front, _, caller = rest.partition("/")
    name, _, peer = front.partition("@")
    return Principal(_plain(name), how, _plain(peer), _plain(caller))


def creator_in(text: str) -> str:
    """Return the name that a journaled principal proved; empty if it proved none.

    A name of `PART_LENGTH_MAX` characters may be only the beginning of a name.
    """
    found = principal_of(text)
    return found.owner if found.authenticated else ""


def _escaped(part: str) -> str:
    return "".join(
        f"%{ord(char):02X}" if char in _ESCAPED or char < " " else char
        for char in part[:PART_LENGTH_MAX]
    )


def _plain(part: str) -> str:
    """Reverse `_escaped`; a `%` that begins no escape stays as it is."""
    first, *rest = part.split("%")
    return first + "".join(
        chr(int(piece[:2], 16)) + piece[2:] if _ESCAPE.match(piece) else f"%{piece}"
        for piece in rest
    )
