"""Decisions of a backend that exists once: it forwards orders, and numbers subscriptions.

The link is told of a subscription only once its number is journaled: an owner that was overtaken
cannot begin one, so it cannot end that of the next owner. Orders are not journaled; one that
reaches the link of an overtaken owner goes nowhere, because the engine has ended its subscription.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peloton.actors.engine import facts as f
from peloton.actors.engine import messages as m
from peloton.actors.engine.state import OutsideBackend
from peloton.actors.host.messages import BACKEND_MESSAGES
from peloton.runtime.vocabulary import At, Decision, Send


def open_first(message: m.OpenBackend, at: At) -> Decision:
    """Begin to exist, and tell the link of this daemon at once."""
    link = m.link_of(at.key)
    here = Send(link, m.BackendHere())
    return Decision(facts=(f.BackendOpened(link, at.now),), sends=(here,), reply=m.BackendOpen())


def open_again(backend: OutsideBackend, message: m.OpenBackend, at: At) -> Decision:
    """Answer that the backend exists: another daemon has started, or this one again."""
    return Decision(sends=owed(backend), reply=m.BackendOpen(), because="it exists")


def asked(backend: OutsideBackend, message: m.AskSubscription, at: At) -> Decision:
    """Begin the next subscription, for the link of this daemon, whichever link asked."""
    number = backend.number + 1
    return Decision(
        facts=(f.SubscriptionBegun(number, at.now),),
        sends=(Send(backend.link, m.Subscribe(number)),),
        because="a link has no subscription",
    )


def passed_on(backend: OutsideBackend, message: Any, at: At) -> Decision:
    """Forward an order of a host, or of an operator, to the link of this daemon."""
    return Decision(sends=(Send(backend.link, message),), because="for the link")


def owed(backend: OutsideBackend) -> tuple[Send, ...]:
    """Return the message that tells the link its owner is here.

    It is repeated, because a link that was started anew does not know it.
    """
    return (Send(backend.link, m.BackendHere()),)


DECIDE: Mapping[type, Callable[[Any, Any, At], Decision]] = {
    **dict.fromkeys(BACKEND_MESSAGES.values(), passed_on),
    m.OpenBackend: open_again,
    m.AskSubscription: asked,
}
ABSENT: Mapping[type, Callable[[Any, At], Decision]] = {m.OpenBackend: open_first}
