"""Messages of a backend that exists once: orders of hosts, and who may subscribe.

Orders go through the actor to the *link* of its own daemon, the service that has the connection.
"""

from __future__ import annotations

from typing import ClassVar

from peloton.actors.host.messages import BACKEND_MESSAGES
from peloton.runtime.vocabulary import Delivery, Key, Message, Value, key


def link_of(backend: Key) -> Key:
    """Return the key of the service that can hold the connection.

    Each daemon has one; a message reaches that of its sender.
    """
    return key("link", backend.partition("/")[2])


class OpenBackend(Message, frozen=True, gc=False, array_like=True):
    """Assembly to backend: begin to exist. Answered with `BackendOpen`."""


class AskSubscription(Message, frozen=True, gc=False, array_like=True):
    """Link to backend: may a subscription begin? The link of the owner's daemon is told."""


class Subscribe(Message, frozen=True, gc=False, array_like=True):
    """Backend to link: begin a subscription, unless you hold one.

    The number is journaled, so an owner that was overtaken cannot send this.
    """

    delivery: ClassVar[Delivery] = Delivery.DROPPABLE

    number: int


class BackendHere(Message, frozen=True, gc=False, array_like=True):
    """Backend to link, after a recovery and repeatedly: the owner of the backend is here.

    A link that holds no subscription asks for one.
    """

    delivery: ClassVar[Delivery] = Delivery.OWED


class BackendOpen(Value, frozen=True, gc=False, array_like=True):
    """Answer to `OpenBackend`: the backend exists."""


MESSAGES: dict[int, type] = {**BACKEND_MESSAGES, 101: OpenBackend, 102: AskSubscription}
ANSWERS: dict[int, type] = {501: BackendOpen}
LINK_MESSAGES: dict[int, type] = {**BACKEND_MESSAGES, 103: Subscribe, 104: BackendHere}
"""What links receive."""
