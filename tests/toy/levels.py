"""A toy kind in two versions, of which the later has a fact that the earlier does not know.

A counter gets `Count`. Version 2 may say how many in one fact, where version 1 says one fact for
each; what it writes depends on the feature level.
"""

from __future__ import annotations

from msgspec.structs import replace

from peloton.runtime.kinds import Kind
from peloton.runtime.vocabulary import SETTLED, At, Decision, Fact, Message, Query, Value
from tests.toy.daemon import rest

MANY_LEVEL = 1


class Counter(Value, frozen=True, gc=False, array_like=True):
    total: int = 0


class Count(Message, frozen=True, gc=False, array_like=True):
    times: int


class Blindly(Message, frozen=True, gc=False, array_like=True):
    """As Count, but the decision ignores the level: a mistake in a kind."""

    times: int


class Counted(Fact, frozen=True, gc=False, array_like=True):
    pass


class CountedMany(Fact, frozen=True, gc=False, array_like=True):
    times: int


class Total(Value, frozen=True, gc=False, array_like=True):
    total: int


class Ask(Query, frozen=True, gc=False, array_like=True):
    pass


def _count(counter: Counter | None, message: Count, at: At) -> Decision:
    total = (counter or Counter()).total + message.times
    if at.level >= MANY_LEVEL:
        return Decision(facts=(CountedMany(message.times),), reply=Total(total))
    return _one_by_one(counter, message, at)


def _one_by_one(counter: Counter | None, message: Count, at: At) -> Decision:
    total = (counter or Counter()).total + message.times
    return Decision(facts=(Counted(),) * message.times, reply=Total(total))


def _blindly(counter: Counter | None, message: Blindly, at: At) -> Decision:
    return Decision(facts=(CountedMany(message.times),), reply=Total(message.times))


def _plus(counter: Counter | None, times: int) -> Counter:
    counter = counter or Counter()
    return replace(counter, total=counter.total + times)


V1 = Kind(
    name="counter",
    group="house",
    state=Counter,
    decide={Count: _count},
    absent={Count: lambda message, at: _count(None, message, at)},
    pursue=lambda counter, at: SETTLED,
    evolve={Counted: lambda counter, fact: _plus(counter, 1)},
    messages={1: Count},
    facts={1: Counted},
    answers={1: Total},
    partition=rest,
    inspect={Ask: lambda counter, query, at: Total(counter.total)},
    queries={501: Ask},
)
V2 = replace(
    V1,
    decide={Count: _count, Blindly: _blindly},
    absent={
        Count: lambda message, at: _count(None, message, at),
        Blindly: lambda message, at: _blindly(None, message, at),
    },
    evolve={
        Counted: lambda counter, fact: _plus(counter, 1),
        CountedMany: lambda counter, fact: _plus(counter, fact.times),
    },
    messages={1: Count, 2: Blindly},
    facts={1: Counted, 2: CountedMany},
    since={CountedMany: MANY_LEVEL},
)
