"""The state of a backend that exists once: how many subscriptions it has begun."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peloton.actors.engine import facts as f
from peloton.runtime.vocabulary import Key, Value


class OutsideBackend(Value, frozen=True, gc=False, array_like=True):
    """A backend that exists once.

    `number` is that of the last subscription, 0 before the first; `at`: since when.
    """

    link: Key
    number: int = 0
    at: float = 0.0


EVOLVE: Mapping[type, Callable[[Any, Any], OutsideBackend]] = {
    f.BackendOpened: lambda backend, fact: OutsideBackend(fact.link, at=fact.at),
    f.SubscriptionBegun: lambda backend, fact: OutsideBackend(backend.link, fact.number, fact.at),
}
