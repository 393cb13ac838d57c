"""Who made a call, and how that is known: the text that journals and stories keep of it.

Turns a principal into one line of text and back. It must not decide what anybody may do, and its
text never changes its meaning, because journals hold it (as `who` of an entry and of some facts):

    HOW:NAME@PEER/CALLER        unverified:ann@10.0.0.7/peloton-python, tls:ops.example.org@10.0.0.7

HOW is `tls` (the name stands in a certificate that was checked), `unverified` (the client said so)
or `none` (the client gave no name). Empty parts are left out with their separator; separators
within a part are percent-encoded. Text of another form is a name alone, as journals of earlier
versions have it, and unverified.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import quote, unquote

TLS, UNVERIFIED, NONE = "tls", "unverified", "none"
PART_LENGTH_MAX = 128
"""What a client says of itself is kept with every entry it causes."""
_SAFE = " !#$&'()*+,;=[]~"


class Principal(NamedTuple):
    """Who made a call. `peer` is the address it came from, `caller` the program that it names."""

    name: str
    how: str
    peer: str = ""
    caller: str = ""

    @property
    def text(self) -> str:
        """As it is kept; `parse` is the inverse."""
        peer = f"@{_quoted(self.peer, ':')}" if self.peer else ""
        caller = f"/{_quoted(self.caller)}" if self.caller else ""
        return f"{self.how}:{_quoted(self.name)}{peer}{caller}"

    @property
    def shown(self) -> str:
        """For people; empty where the client said nothing of itself."""
        if self.how == TLS:
            return f"{self.name} (verified by TLS)"
        said = self.name or self.caller
        return f"{said} (unverified)" if said else ""


def parse(text: str) -> Principal:
    """A principal from what was kept; of an empty text nothing is known."""
    how, colon, rest = text.partition(":")
    if not colon or how not in (TLS, UNVERIFIED, NONE):
        return Principal(text, UNVERIFIED if text else NONE)
    front, _, caller = rest.partition("/")
    name, _, peer = front.partition("@")
    return Principal(unquote(name), how, unquote(peer), unquote(caller))


def _quoted(part: str, safe: str = "") -> str:
    return quote(part[:PART_LENGTH_MAX], safe=_SAFE + safe)
