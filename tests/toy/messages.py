"""Messages, facts and queries of the toy kinds."""

from __future__ import annotations

import enum

import immutables

from peloton.runtime.vocabulary import (
    Bits,
    Delivery,
    Fact,
    Goal,
    Latest,
    Message,
    Query,
    Value,
)


class Power(enum.IntEnum):
    OFF = 0
    HEATING = 1
    ON = 2
    STOPPING = 3
    BROKEN = 4


# ---- states ----


class Bulb(Value, frozen=True, gc=False, array_like=True):
    want: bool = False
    version: int = 0
    power: Power = Power.OFF
    run: int = 0
    fails: int = 0


class Panel(Value, frozen=True, gc=False, array_like=True):
    size: int
    watts: tuple[int, ...]
    want: bool = False
    version: int = 1
    retired: bool = False


class Meter(Value, frozen=True, gc=False, array_like=True):
    capacity: int
    drawing: immutables.Map[str, Bits] = immutables.Map()
    load: int = 0


class Grid(Value, frozen=True, gc=False, array_like=True):
    name: str


class Note(Value, frozen=True, gc=False, array_like=True):
    total: int = 0
    closed: bool = False
    heard: int = -1
    version: int = -1


# ---- sent to a bulb ----


class Fit(Message, frozen=True, gc=False, array_like=True):
    spec: int


class BulbGoal(Goal, frozen=True, gc=False, array_like=True):
    on: bool


class Granted(Message, frozen=True, gc=False, array_like=True):
    run: int


class Denied(Message, frozen=True, gc=False, array_like=True):
    run: int


class Undrawn(Message, frozen=True, gc=False, array_like=True):
    run: int


class Wire(Message, frozen=True, gc=False, array_like=True):
    """Brings one meter for each member."""


class Trip(Message, frozen=True, gc=False, array_like=True):
    """Raises where `run` is the bulb's."""

    run: int


class Scrap(Message, frozen=True, gc=False, array_like=True):
    pass


class Fitted(Fact, frozen=True, gc=False, array_like=True):
    spec: int


class GoalSet(Fact, frozen=True, gc=False, array_like=True):
    version: int
    on: bool


class Heated(Fact, frozen=True, gc=False, array_like=True):
    run: int


class Lit(Fact, frozen=True, gc=False, array_like=True):
    pass


class Stopped(Fact, frozen=True, gc=False, array_like=True):
    pass


class Darkened(Fact, frozen=True, gc=False, array_like=True):
    pass


class Broke(Fact, frozen=True, gc=False, array_like=True):
    pass


class Cooled(Fact, frozen=True, gc=False, array_like=True):
    pass


class Wired(Fact, frozen=True, gc=False, array_like=True):
    pass


class Scrapped(Fact, frozen=True, gc=False, array_like=True):
    pass


# ---- sent to a meter ----


class Draw(Message, frozen=True, gc=False, array_like=True):
    delivery = Delivery.OWED

    run: int
    watts: int = 0


class Undraw(Message, frozen=True, gc=False, array_like=True):
    delivery = Delivery.OWED

    run: int


class Build(Message, frozen=True, gc=False, array_like=True):
    capacity: int


class Built(Fact, frozen=True, gc=False, array_like=True):
    capacity: int


class Drew(Fact, frozen=True, gc=False, array_like=True):
    name: str
    members: Bits


class Undrew(Fact, frozen=True, gc=False, array_like=True):
    name: str
    members: Bits


# ---- sent to a panel, a grid, a note ----


class Install(Message, frozen=True, gc=False, array_like=True):
    size: int
    watts: tuple[int, ...] = (60,)


class Switch(Message, frozen=True, gc=False, array_like=True):
    on: bool


class Retire(Message, frozen=True, gc=False, array_like=True):
    pass


class Installed(Fact, frozen=True, gc=False, array_like=True):
    size: int
    watts: tuple[int, ...]


class Switched(Fact, frozen=True, gc=False, array_like=True):
    version: int
    on: bool


class Retired(Fact, frozen=True, gc=False, array_like=True):
    pass


class Done(Value, frozen=True, gc=False, array_like=True):
    version: int


class Show(Query, frozen=True, gc=False, array_like=True):
    pass


class Found(Message, frozen=True, gc=False, array_like=True):
    pass


class Founded(Fact, frozen=True, gc=False, array_like=True):
    name: str


class Add(Message, frozen=True, gc=False, array_like=True):
    """13 and 15 raise when they are decided, 14 when it is folded."""

    amount: int


class Close(Message, frozen=True, gc=False, array_like=True):
    pass


class Forget(Message, frozen=True, gc=False, array_like=True):
    pass


class Lamps(Latest, frozen=True, gc=False, array_like=True):
    on: int


class Added(Fact, frozen=True, gc=False, array_like=True):
    amount: int


class Closed(Fact, frozen=True, gc=False, array_like=True):
    pass


class Forgotten(Fact, frozen=True, gc=False, array_like=True):
    pass


class Heard(Fact, frozen=True, gc=False, array_like=True):
    version: int
    on: int


class Total(Value, frozen=True, gc=False, array_like=True):
    value: int
