"""What a backend that exists once journals. A fact must not say anything of a run."""

from __future__ import annotations

from peloton.runtime.vocabulary import Fact, Key


class BackendOpened(Fact, frozen=True, gc=False, array_like=True):
    """It exists, and its orders go to this link."""

    link: Key
    at: float


class SubscriptionBegun(Fact, frozen=True, gc=False, array_like=True):
    """The link of the owner's daemon may subscribe; the one before may have ended or not."""

    number: int
    at: float


FACTS: dict[int, type] = {1: BackendOpened, 2: SubscriptionBegun}
