"""A toy kind in three versions: a till, which adds up what it is paid, and the coins in it.

Of each version there are both kinds, as the program of that version would register them: forms of
states, facts, messages, answers and columns change from one to the next, and each version knows
the way from the one before and back to it. It must not know how these steps are run.

  version 1   a till counts cents; a coin is heads up or not, and its column says who laid it
  version 2   amounts say their currency; a coin counts its turns
  version 3   a till has a sum for each currency; the column has the name's initial in front

Schemas of version 2 are written from feature level 1 on, those of version 3 from level 2 on.
"""

from __future__ import annotations

from typing import Any

import immutables
from msgspec.structs import replace

from peloton.runtime.vocabulary import (
    SETTLED,
    Bits,
    CrowdKind,
    Decision,
    Fact,
    Kind,
    Message,
    Query,
    Send,
    Value,
    key,
)
from tests.toy.daemon import rest

NOTHING = Decision()


class Till1(Value, frozen=True, gc=False, array_like=True):
    cents: int = 0
    closed: bool = False


class Till2(Value, frozen=True, gc=False, array_like=True):
    currency: str = "eur"
    cents: int = 0
    closed: bool = False


class Till3(Value, frozen=True, gc=False, array_like=True):
    closed: bool = False
    sums: immutables.Map[str, int] = immutables.Map()


class Pay1(Message, frozen=True, gc=False, array_like=True):
    """13 is not taken: it raises."""

    cents: int


class Pay2(Message, frozen=True, gc=False, array_like=True):
    currency: str
    cents: int


class Paid1(Fact, frozen=True, gc=False, array_like=True):
    cents: int


class Paid2(Fact, frozen=True, gc=False, array_like=True):
    currency: str
    cents: int


class Sum1(Value, frozen=True, gc=False, array_like=True):
    cents: int


class Sum2(Value, frozen=True, gc=False, array_like=True):
    text: str


class Close(Message, frozen=True, gc=False, array_like=True):
    pass


class Closed(Fact, frozen=True, gc=False, array_like=True):
    pass


class Ask(Query, frozen=True, gc=False, array_like=True):
    pass


class Coin1(Value, frozen=True, gc=False, array_like=True):
    heads: bool = False


class Coin2(Value, frozen=True, gc=False, array_like=True):
    turns: int = 0
    heads: bool = False


class Lay(Message, frozen=True, gc=False, array_like=True):
    by: str


class Laid(Fact, frozen=True, gc=False, array_like=True):
    by: str


class Turn(Message, frozen=True, gc=False, array_like=True):
    pass


class Turned(Fact, frozen=True, gc=False, array_like=True):
    pass


def initialled(name: str) -> str:
    return f"{name[:1]}. {name}"


def closed(till: Any, message: Close, at: Any) -> Decision:
    return Decision(facts=() if till.closed else (Closed(),), reply=True)


def taken(cents: int) -> int:
    if cents == 13:
        raise ValueError("13 is not taken")
    return cents


def _pay1(till: Till1 | None, message: Pay1, at: Any) -> Decision:
    total = (till or Till1()).cents + taken(message.cents)
    lay = Send(key("coin", rest(at.key)), Lay(at.who), Bits.of(total % 8))
    return Decision(facts=(Paid1(message.cents),), sends=(lay,), reply=Sum1(total))


def _pay2(till: Till2 | None, message: Pay2, at: Any) -> Decision:
    total = (till or Till2()).cents + taken(message.cents)
    reply = Sum2(f"{total} {message.currency}")
    return Decision(facts=(Paid2(message.currency, message.cents),), reply=reply)


def _pay3(till: Till3 | None, message: Pay2, at: Any) -> Decision:
    total = (till or Till3()).sums.get(message.currency, 0) + message.cents
    reply = Sum2(f"{total} {message.currency}")
    return Decision(facts=(Paid2(message.currency, message.cents),), reply=reply)


def _paid3(till: Till3 | None, fact: Paid2) -> Till3:
    till = till or Till3()
    total = till.sums.get(fact.currency, 0) + fact.cents
    return replace(till, sums=till.sums.set(fact.currency, total), closed=False)


def _till(state: type, pay: type, *, decide: Any, evolve: Any, **more: Any) -> Kind:
    return Kind(
        name="till",
        group="house",
        state=state,
        decide={pay: decide, Close: closed},
        absent={
            pay: lambda message, at: decide(None, message, at),
            Close: lambda message, at: Decision(reply=False),
        },
        pursue=lambda till, at: SETTLED,
        evolve={**evolve, Closed: lambda till, fact: replace(till, closed=True)},
        messages={1: pay, 2: Close},
        partition=rest,
        ended=lambda till, index: till.closed,
        inspect={Ask: lambda till, query, at: till},
        follows=lambda name: key("coin", rest(name)),
        lookup=frozenset({pay, Close}),
        **more,
    )


def _coin(state: type, **more: Any) -> Kind:
    turn = {
        Coin1: lambda coin, fact: Coin1(not coin.heads),
        Coin2: lambda coin, fact: Coin2(coin.turns + 1, not coin.heads),
    }[state]
    upcast_columns, downcast_columns = more.pop("columns", ({}, {}))
    write_by = more.pop("by", lambda name: name)
    return Kind(
        name="coin",
        group="house",
        state=state,
        decide={
            Lay: lambda coin, message, at: NOTHING,
            Turn: lambda coin, message, at: Decision(facts=(Turned(),)),
        },
        absent={
            Lay: lambda message, at: Decision(facts=(Laid(message.by),)),
            Turn: lambda message, at: NOTHING,
        },
        pursue=lambda coin, at: SETTLED,
        evolve={Laid: lambda coin, fact: state(), Turned: turn},
        messages={1: Lay, 2: Turn},
        facts={1: Laid, 2: Turned},
        partition=rest,
        crowd=CrowdKind(
            columns={"by": str},
            write={Laid: lambda fact, now: {"by": write_by(fact.by)}},
            parent=lambda name: key("till", rest(name)),
            upcasters=upcast_columns,
            downcasters=downcast_columns,
        ),
        **more,
    )


TILL_1 = _till(
    Till1,
    Pay1,
    decide=_pay1,
    evolve={
        Paid1: lambda till, fact: replace(
            till or Till1(), cents=(till or Till1()).cents + fact.cents, closed=False
        )
    },
    facts={1: Paid1, 2: Closed},
    answers={1: Sum1},
)
COIN_1 = _coin(Coin1)

PAY_STEPS = {1: lambda raw: ["eur", *raw]}
ANSWER_STEPS = {1: lambda raw: [f"{raw[0]} eur"]}
PAY_BACK = {2: lambda raw: raw[1:]}
ANSWER_BACK = {2: lambda raw: [int(raw[0].split()[0])]}
TILL_BACK = {
    2: lambda raw: raw[1:],
    3: lambda raw: [*(raw[1] or [["eur", 0]])[0], raw[0]],
}
SECOND = {2: 1}
THIRD = {2: 1, 3: 2}

TILL_2 = _till(
    Till2,
    Pay2,
    decide=_pay2,
    evolve={
        Paid2: lambda till, fact: Till2(fact.currency, (till or Till2()).cents + fact.cents, False)
    },
    facts={1: Paid2, 2: Closed},
    answers={1: Sum2},
    schema=2,
    schemas={Pay2: 2, Paid2: 2, Sum2: 2},
    upcasters={
        Till2: {1: lambda raw: ["eur", *raw]},
        Pay2: PAY_STEPS,
        Paid2: PAY_STEPS,
        Sum2: ANSWER_STEPS,
    },
    schemas_since=dict.fromkeys((Till2, Pay2, Paid2, Sum2), SECOND),
    downcasters={Till2: {2: TILL_BACK[2]}, Pay2: PAY_BACK, Paid2: PAY_BACK, Sum2: ANSWER_BACK},
)
COIN_BACK = {2: lambda raw: raw[1:], 3: lambda raw: raw}
COIN_2 = _coin(
    Coin2,
    schema=2,
    upcasters={Coin2: {1: lambda raw: [int(raw[0]), *raw]}},
    schemas_since={Coin2: SECOND},
    downcasters={Coin2: {2: COIN_BACK[2]}},
)

TILL_3 = _till(
    Till3,
    Pay2,
    decide=_pay3,
    evolve={Paid2: _paid3},
    facts={1: Paid2, 2: Closed},
    answers={1: Sum2},
    schema=3,
    schemas={Pay2: 2, Paid2: 2, Sum2: 2},
    upcasters={
        Till3: {
            1: lambda raw: ["eur", *raw],
            2: lambda raw: [raw[2], [[raw[0], raw[1]]] if raw[1] else []],
        },
        Pay2: PAY_STEPS,
        Paid2: PAY_STEPS,
        Sum2: ANSWER_STEPS,
    },
    schemas_since={**dict.fromkeys((Pay2, Paid2, Sum2), SECOND), Till3: THIRD},
    downcasters={Till3: TILL_BACK, Pay2: PAY_BACK, Paid2: PAY_BACK, Sum2: ANSWER_BACK},
)
COIN_3 = _coin(
    Coin2,
    schema=3,
    upcasters={Coin2: {1: lambda raw: [int(raw[0]), *raw], 2: lambda raw: raw}},
    columns=({"by": {2: initialled}}, {"by": {3: lambda name: name[3:]}}),
    by=initialled,
    schemas_since={Coin2: THIRD},
    downcasters={Coin2: COIN_BACK},
)

AGES = {
    1: {"till": TILL_1, "coin": COIN_1},
    2: {"till": TILL_2, "coin": COIN_2},
    3: {"till": TILL_3, "coin": COIN_3},
}
"""Kinds by the version of the program."""
