"""Facts of a backend that exists once: its link, and its subscriptions."""

from __future__ import annotations

from peloton.runtime.vocabulary import Fact, Key


class BackendOpened(Fact, frozen=True, gc=False, array_like=True):
    """The backend exists, and its orders go to this link."""

    link: Key
    at: float


class SubscriptionBegun(Fact, frozen=True, gc=False, array_like=True):
    """The link of the owner's daemon may subscribe; the subscription before may have ended or
    not."""

    number: int
    at: float


FACTS: dict[int, type] = {1: BackendOpened, 2: SubscriptionBegun}
