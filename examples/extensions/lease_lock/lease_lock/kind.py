"""A lock with a lease: one holder at a time, a fencing token, and an end without a release.

`lock/NAME` exists from its first holder on, and for good: the token must never fall. Each holder
gets a higher token than all before; a resource that it guards refuses what comes with a lower one.
"""

from __future__ import annotations

from msgspec.structs import replace

from peloton.sdk.kit import (
    ActorFact,
    ActorKind,
    ActorMessage,
    ActorReply,
    ActorState,
    At,
    Decision,
    refusal,
)

TTL_S_MIN, TTL_S_MAX = 1.0, 86_400.0
HELD, NOT_HELD, INVALID = "HELD", "NOT_HELD", "INVALID"


class Lock(ActorState, frozen=True):
    """Who has the lock; empty: nobody. `renewals` counts those of the present lease."""

    holder: str = ""
    token: int = 0
    ttl_s: float = 0.0
    renewals: int = 0


class Acquire(ActorMessage, frozen=True):
    """Take the lock, or begin the own lease again. `holder` names one taker, not one machine."""

    holder: str
    ttl_s: float


class Renew(ActorMessage, frozen=True):
    """Begin the lease of this token again."""

    token: int


class Release(ActorMessage, frozen=True):
    """Give the lock up."""

    token: int


class Lease(ActorReply, frozen=True):
    """The lock is held under this token, for so long from when it was journaled."""

    token: int
    ttl_s: float


class Released(ActorReply, frozen=True):
    """The lock is not held under that token any more."""


class Taken(ActorFact, frozen=True):
    """A new holder has the lock."""

    holder: str
    ttl_s: float


class Renewed(ActorFact, frozen=True):
    """The lease begins again."""

    ttl_s: float


class Freed(ActorFact, frozen=True):
    """Nobody has the lock."""


LOCK = ActorKind("lock", state=Lock)


@LOCK.decides(Acquire, reply=Lease)
def acquire(lock: Lock, message: Acquire, at: At) -> Decision:
    """Give the lock to who asks first."""
    if not message.holder:
        return refusal(INVALID, "a lock needs a holder", field="holder")
    if not TTL_S_MIN <= message.ttl_s <= TTL_S_MAX:
        text = f"{message.ttl_s:g} is not between {TTL_S_MIN:g} and {TTL_S_MAX:g} s"
        return refusal(INVALID, text, field="ttl_s")
    if lock.holder == message.holder:
        return _renewed(lock, message.ttl_s)
    if lock.holder:
        return refusal(HELD, f"{lock.holder} has it, token {lock.token}", again=True)
    lease = Lease(lock.token + 1, message.ttl_s)
    return Decision((Taken(message.holder, message.ttl_s),), reply=lease, because="it was free")


@LOCK.decides(Renew, reply=Lease)
def renew(lock: Lock, message: Renew, at: At) -> Decision:
    """Begin the lease again for its holder alone."""
    if not lock.holder or message.token != lock.token:
        return refusal(NOT_HELD, f"token {message.token} does not hold it")
    return _renewed(lock, lock.ttl_s)


@LOCK.decides(Release, reply=Released)
def release(lock: Lock, message: Release, at: At) -> Decision:
    """Free the lock for its holder; of an older token that is so already."""
    if not lock.holder or message.token != lock.token:
        return Decision(reply=Released(), because="it is not held under that token")
    return Decision((Freed(),), reply=Released(), because="released")


def _renewed(lock: Lock, ttl_s: float) -> Decision:
    return Decision((Renewed(ttl_s),), reply=Lease(lock.token, ttl_s), because="renewed")


@LOCK.folds(Taken)
def taken(lock: Lock, fact: Taken) -> Lock:
    return Lock(holder=fact.holder, token=lock.token + 1, ttl_s=fact.ttl_s)


@LOCK.folds(Renewed)
def renewed(lock: Lock, fact: Renewed) -> Lock:
    return replace(lock, ttl_s=fact.ttl_s, renewals=lock.renewals + 1)


@LOCK.folds(Freed)
def freed(lock: Lock, fact: Freed) -> Lock:
    return Lock(token=lock.token)


@LOCK.deadline
def lease(lock: Lock) -> tuple[str, float] | None:
    """The end of the lease; each renewal is another deadline."""
    return (f"lease:{lock.token}.{lock.renewals}", lock.ttl_s) if lock.holder else None


@LOCK.due("lease")
def expire(lock: Lock, at: At) -> Decision:
    """Free the lock, as its holder is silent."""
    return Decision((Freed(),), because=f"{lock.holder} did not renew it in {lock.ttl_s:g} s")
