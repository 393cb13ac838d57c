"""Storms over the lock: `peloton chaos run --kinds lease_lock.storms`."""

from __future__ import annotations

import random

from lease_lock.kind import LOCK, Acquire, Freed, Lease, Release, Renew, Taken
from peloton.chaos.kinds import KindHistory, KindStorms, StormCommand
from peloton.sdk.kit import ActorMessage, key

NAMES, HOLDERS = ("a", "b"), ("ann", "bob", "cy")


def command(chance: random.Random) -> StormCommand:
    """Draw what a client does next; tokens are mostly of the first holders."""
    messages: tuple[ActorMessage, ...] = (
        Acquire(chance.choice(HOLDERS), chance.choice((1.0, 5.0, 20.0))),
        Acquire(chance.choice(HOLDERS), chance.choice((1.0, 5.0, 20.0))),
        Renew(chance.randint(1, 5)),
        Release(chance.randint(1, 5)),
    )
    return StormCommand(key("lock", chance.choice(NAMES)), chance.choice(messages))


def one_holder_at_a_time(history: KindHistory) -> None:
    """Nobody takes a lock that was not freed."""
    for at, last in enumerate(history.facts):
        if last in history.news and isinstance(last.fact, Taken):
            before = [one.fact for one in history.facts[:at] if one.key == last.key]
            taken = [fact for fact in before if isinstance(fact, Taken | Freed)]
            assert not taken or isinstance(taken[-1], Freed), f"two holders: {last.key}"


def tokens_are_told_once(history: KindHistory) -> None:
    """Of two leases of a lock under one token both are of one holder."""
    holders: dict[tuple[str, int], str] = {}
    for told in history.told:
        if isinstance(told.reply, Lease) and isinstance(told.message, Acquire):
            of = holders.setdefault((told.key, told.reply.token), told.message.holder)
            assert of == told.message.holder, f"one token twice: {told.key} {told.reply.token}"


def leases_end(history: KindHistory) -> None:
    """Once it is calm no lock is held for ever by who is silent."""
    for name, lock in history.of_kind("lock").items():
        assert not lock.holder, f"a lease without end: {name} is held by {lock.holder}"


STORMS = KindStorms(
    [LOCK],
    command=command,
    always=[one_holder_at_a_time, tokens_are_told_once],
    at_end=[leases_end],
)
