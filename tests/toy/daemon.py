"""Toy kinds of the group house: bulbs in panels.

A panel follows its crowd of bulbs. A bulb that shall be on owes a draw to its meter and waits for
the grant.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from peloton.runtime.kinds import CrowdKind, Kind, Listing, Reporting
from peloton.runtime.vocabulary import (
    SENDER,
    SETTLED,
    WAITING,
    At,
    Bits,
    Column,
    Decision,
    Due,
    Key,
    Rest,
    Send,
    key,
)
from tests.toy import messages as w
from tests.toy.messages import Power

WARM_S = 5.0
COOL_S = 3.0
NOTHING = Decision()


def panel(name: str) -> Key:
    return key("panel", name)


def bulbs(name: str) -> Key:
    return key("bulb", name)


def rest(name: Key) -> str:
    return name.partition("/")[2]


# ---- bulb ----


def _goal(bulb: w.Bulb, message: w.BulbGoal, at: At) -> Decision:
    if message.version <= bulb.version:
        return Decision(because="old goal")
    return Decision(facts=(w.GoalSet(message.version, message.on),))


def _granted(bulb: w.Bulb, message: w.Granted, at: At) -> Decision:
    if bulb.power is Power.HEATING and message.run == bulb.run:
        return Decision(facts=(w.Lit(),))
    return NOTHING


def _denied(bulb: w.Bulb, message: w.Denied, at: At) -> Decision:
    if bulb.power is Power.HEATING and message.run == bulb.run:
        return Decision(facts=(w.Broke(),), because="denied")
    return NOTHING


def _undrawn(bulb: w.Bulb, message: w.Undrawn, at: At) -> Decision:
    if bulb.power is Power.STOPPING and message.run == bulb.run:
        return Decision(facts=(w.Darkened(),))
    return NOTHING


def _due(bulb: w.Bulb, message: Due, at: At) -> Decision:
    if message.name == "warm":
        return _stop(bulb, "no grant in time")
    return Decision(facts=(w.Cooled(),), because="cool again")


def _trip(bulb: w.Bulb, message: w.Trip, at: At) -> Decision:
    if message.run == bulb.run:
        raise ValueError(f"tripped at run {bulb.run}")
    return NOTHING


def _stop(bulb: w.Bulb, because: str) -> Decision:
    sends = (Send(Column("meter"), w.Undraw(bulb.run)),)
    return Decision(facts=(w.Stopped(),), sends=sends, because=because)


def _pursue_bulb(bulb: w.Bulb, at: At) -> Decision | Rest:
    if bulb.want and bulb.power is Power.OFF:
        run = bulb.run + 1
        return Decision(facts=(w.Heated(run),), sends=(Send(Column("meter"), w.Draw(run)),))
    if not bulb.want and bulb.power in (Power.HEATING, Power.ON):
        return _stop(bulb, "switched off")
    return SETTLED if bulb.power in (Power.OFF, Power.ON) else WAITING


def _bulb_owed(bulb: w.Bulb) -> tuple[Send, ...]:
    if bulb.power is Power.HEATING:
        return (Send(Column("meter"), w.Draw(bulb.run)),)
    if bulb.power is Power.STOPPING:
        return (Send(Column("meter"), w.Undraw(bulb.run)),)
    return ()


def _bulb_deadline(bulb: w.Bulb) -> tuple[str, float] | None:
    if bulb.power is Power.HEATING:
        return "warm", WARM_S
    return ("cool", COOL_S * bulb.fails) if bulb.power is Power.BROKEN else None


BULB = Kind(
    name="bulb",
    group="house",
    state=w.Bulb,
    decide={
        w.Fit: lambda bulb, message, at: NOTHING,
        w.BulbGoal: _goal,
        w.Granted: _granted,
        w.Denied: _denied,
        w.Undrawn: _undrawn,
        w.Wire: lambda bulb, message, at: Decision(facts=(w.Wired(),)),
        w.Trip: _trip,
        w.Scrap: lambda bulb, message, at: Decision(facts=(w.Scrapped(),)),
        Due: _due,
    },
    absent={
        w.Fit: lambda message, at: Decision(facts=(w.Fitted(message.spec),)),
        w.BulbGoal: lambda message, at: NOTHING,
        w.Granted: lambda message, at: Decision(sends=(Send(SENDER, w.Undraw(message.run)),)),
        w.Denied: lambda message, at: NOTHING,
        w.Undrawn: lambda message, at: NOTHING,
        w.Wire: lambda message, at: NOTHING,
        w.Trip: lambda message, at: NOTHING,
        w.Scrap: lambda message, at: NOTHING,
    },
    pursue=_pursue_bulb,
    evolve={
        w.Fitted: lambda bulb, fact: w.Bulb(),
        w.GoalSet: lambda bulb, fact: replace(bulb, version=fact.version, want=fact.on),
        w.Heated: lambda bulb, fact: replace(bulb, power=Power.HEATING, run=fact.run),
        w.Lit: lambda bulb, fact: replace(bulb, power=Power.ON, fails=0),
        w.Stopped: lambda bulb, fact: replace(bulb, power=Power.STOPPING),
        w.Darkened: lambda bulb, fact: replace(bulb, power=Power.OFF),
        w.Broke: lambda bulb, fact: replace(bulb, power=Power.BROKEN, fails=bulb.fails + 1),
        w.Cooled: lambda bulb, fact: replace(bulb, power=Power.OFF),
        w.Wired: lambda bulb, fact: bulb,
        w.Scrapped: lambda bulb, fact: None,
    },
    messages={
        1: w.Fit,
        2: w.BulbGoal,
        3: w.Granted,
        4: w.Denied,
        5: w.Undrawn,
        6: w.Wire,
        7: w.Trip,
        8: w.Scrap,
    },  # fmt: skip
    facts={
        1: w.Fitted,
        2: w.GoalSet,
        3: w.Heated,
        4: w.Lit,
        5: w.Stopped,
        6: w.Darkened,
        7: w.Broke,
        8: w.Cooled,
        9: w.Wired,
        10: w.Scrapped,
    },  # fmt: skip
    partition=rest,
    deadline=_bulb_deadline,
    owed=_bulb_owed,
    crowd=CrowdKind(
        columns={"meter": Key, "spec": int, "lit_at": float, "last": Key},
        write={
            w.Fitted: lambda fact, now: {"spec": fact.spec, "meter": "meter/0"},
            w.Lit: lambda fact, now: {"lit_at": now},
        },
        parent=lambda name: panel(rest(name)),
        per_member={w.Wired: "meter"},
        archive={w.Darkened: lambda old, fact, *, read: {"last": read("meter")}},
        resolve={w.Draw: lambda parent, message, spec: replace(message, watts=parent.watts[spec])},
    ),
)

# ---- panel ----


def _install(message: w.Install, at: At) -> Decision:
    return Decision(facts=(w.Installed(message.size, message.watts),), reply=w.Done(1))


def _switch(state: w.Panel, message: w.Switch, at: At) -> Decision:
    version = state.version + 1
    return Decision(facts=(w.Switched(version, message.on),), reply=w.Done(version))


def _retire(state: w.Panel, message: w.Retire, at: At) -> Decision:
    if state.retired:
        return Decision(reply=w.Done(state.version))
    facts = (w.Retired(), w.Switched(state.version + 1, False))
    return Decision(facts=facts, reply=w.Done(state.version + 1))


def _pursue_panel(state: w.Panel, at: At) -> Decision | Rest:
    everyone = Bits.span(0, state.size)
    crowd = bulbs(rest(at.key))
    missing = everyone - at.index.members()
    if missing and not state.retired:
        sends = [
            Send(crowd, w.Fit(spec), _of_spec(missing, state, spec))
            for spec in range(len(state.watts))
        ]
        return Decision(sends=tuple(send for send in sends if send.members))
    behind = Bits(at.index.where(lambda bulb: bulb.version < state.version))
    if behind:
        return Decision(sends=(Send(crowd, w.BulbGoal(state.version, state.want), behind),))
    return SETTLED if at.index.where(_restless) == 0 else WAITING


def _of_spec(members: Bits, state: w.Panel, spec: int) -> Bits:
    return Bits.of(*[member for member in members if member % len(state.watts) == spec])


def _restless(bulb: w.Bulb) -> bool:
    return bulb.power is not (Power.ON if bulb.want else Power.OFF)


def _lit(crowd: Any) -> int:
    return crowd.count(lambda bulb: bulb.power).get(Power.ON, 0)


def _over(state: w.Panel, crowd: Any) -> bool:
    quiet = crowd.where(lambda b: b.version < state.version or b.power is not Power.OFF) == 0
    return state.retired and quiet


PANEL = Kind(
    name="panel",
    group="house",
    state=w.Panel,
    decide={
        w.Install: lambda state, message, at: Decision(reply=w.Done(state.version)),
        w.Switch: _switch,
        w.Retire: _retire,
    },
    absent={
        w.Install: _install,
        w.Switch: lambda message, at: Decision(reply=w.Done(0)),
        w.Retire: lambda message, at: Decision(reply=w.Done(0)),
    },
    pursue=_pursue_panel,
    evolve={
        w.Installed: lambda state, fact: w.Panel(fact.size, fact.watts),
        w.Switched: lambda state, fact: replace(state, version=fact.version, want=fact.on),
        w.Retired: lambda state, fact: replace(state, retired=True),
    },
    messages={1: w.Install, 2: w.Switch, 3: w.Retire},
    facts={1: w.Installed, 2: w.Switched, 3: w.Retired},
    answers={1: w.Done},
    partition=rest,
    ended=_over,
    follows=lambda name: bulbs(rest(name)),
    reporting=Reporting(
        make=lambda state, at: (
            Send(key("note", rest(at.key)), w.Lamps(at.position, _lit(at.index))),
        ),
        interval_s=0.5,
    ),
    inspect={w.Show: lambda state, query, at: _lit(at.index)},
    listing=Listing(summary=lambda name, state: (name, state.version)),
    lookup=frozenset({w.Install, w.Switch, w.Retire}),
)
