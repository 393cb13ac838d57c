"""What an operator sends to a backend whose hosts are configured: machines come and go.

Must not say what a host is told of it.
"""

from __future__ import annotations

from peloton.actors.resources import Resources
from peloton.placement.messages import Label
from peloton.runtime.vocabulary import Key, Message

PORTS_DEFAULT = (31000, 32000)
"""First, and one past the last, of the ports that a host picks from."""


class AddHost(Message, frozen=True, gc=False, array_like=True):
    """Operator to a backend with configured hosts: add this machine. Refused in a fleet."""

    host: Key
    capacity: Resources
    labels: tuple[Label, ...] = ()
    ports: tuple[int, int] = PORTS_DEFAULT


class RemoveHost(Message, frozen=True, gc=False, array_like=True):
    """Operator to a backend with configured hosts: remove this machine. Refused in a fleet."""

    host: Key
    text: str = ""
