"""Toy kinds of the group city: meters, which add up in the index of their grid.

A meter grants draws up to its capacity.
"""

from __future__ import annotations

from msgspec.structs import replace

from peloton.runtime.kinds import Kind, Reporting
from peloton.runtime.vocabulary import PARENT, SENDER, SETTLED, At, Bits, Decision, Key, Send, key
from tests.toy import messages as w
from tests.toy.daemon import rest

NOTHING = Decision()


def _draw(meter: w.Meter, message: w.Draw, at: At) -> Decision:
    assert at.members is not None
    name = f"{at.sender}:{message.run}"
    fresh = at.members - meter.drawing.get(name, Bits())
    if meter.load + len(fresh) > meter.capacity:
        return Decision(sends=(Send(SENDER, w.Denied(message.run)),), because="no room")
    facts = (w.Drew(name, fresh),) if fresh else ()
    return Decision(facts=facts, sends=(Send(SENDER, w.Granted(message.run)),))


def _undraw(meter: w.Meter, message: w.Undraw, at: At) -> Decision:
    assert at.members is not None
    name = f"{at.sender}:{message.run}"
    held = meter.drawing.get(name, Bits()) & at.members
    facts = (w.Undrew(name, held),) if held else ()
    return Decision(facts=facts, sends=(Send(SENDER, w.Undrawn(message.run)),))


def _drew(meter: w.Meter, fact: w.Drew) -> w.Meter:
    held = meter.drawing.get(fact.name, Bits())
    drawing = meter.drawing.set(fact.name, held | fact.members)
    return replace(meter, drawing=drawing, load=meter.load + len(fact.members))


def _undrew(meter: w.Meter, fact: w.Undrew) -> w.Meter:
    left = meter.drawing.get(fact.name, Bits()) - fact.members
    drawing = meter.drawing.set(fact.name, left) if left else meter.drawing.delete(fact.name)
    return replace(meter, drawing=drawing, load=meter.load - len(fact.members))


METER = Kind(
    name="meter",
    group="city",
    state=w.Meter,
    decide={
        w.Draw: _draw,
        w.Undraw: _undraw,
        w.Build: lambda meter, message, at: Decision(reply=w.Done(1)),
    },
    absent={
        w.Draw: lambda message, at: Decision(sends=(Send(SENDER, w.Denied(message.run)),)),
        w.Undraw: lambda message, at: Decision(sends=(Send(SENDER, w.Undrawn(message.run)),)),
        w.Build: lambda message, at: Decision(
            facts=(w.Built(message.capacity),), sends=(Send(PARENT, w.Found()),), reply=w.Done(1)
        ),
    },
    pursue=lambda meter, at: SETTLED,
    evolve={
        w.Built: lambda meter, fact: w.Meter(fact.capacity),
        w.Drew: _drew,
        w.Undrew: _undrew,
    },
    messages={1: w.Draw, 2: w.Undraw, 3: w.Build},
    facts={1: w.Built, 2: w.Drew, 3: w.Undrew},
    answers={1: w.Done},
    partition=lambda name: 0,
    parent=lambda name, state: key("grid", "0"),
)


class Loads:
    """The index of a grid: what its meters give, added up."""

    def __init__(self) -> None:
        self.by_meter: dict[Key, int] = {}
        self.total = 0

    def put(self, name: Key, old: w.Meter | None, new: w.Meter | None) -> None:
        self.total -= self.by_meter.pop(name, 0)
        if new is not None:
            self.by_meter[name] = new.load
            self.total += new.load

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Loads) and self.by_meter == other.by_meter

    __hash__ = None  # type: ignore[assignment]


GRID = Kind(
    name="grid",
    group="city",
    state=w.Grid,
    decide={w.Found: lambda grid, message, at: NOTHING},
    absent={w.Found: lambda message, at: Decision(facts=(w.Founded(rest(at.key)),))},
    pursue=lambda grid, at: SETTLED,
    evolve={w.Founded: lambda grid, fact: w.Grid(fact.name)},
    messages={1: w.Found},
    facts={1: w.Founded},
    partition=lambda name: 0,
    index=Loads,
    reporting=Reporting(
        make=lambda grid, at: (Send(key("note", "grid"), w.Lamps(at.position, at.index.total)),)
    ),
    inspect={w.Show: lambda grid, query, at: at.index.total},
)
