"""A toy kind of the group house: a note, which counts, gets reports, and is evicted when closed."""

from __future__ import annotations

from msgspec.structs import replace

from peloton.runtime.kinds import Kind, Listing
from peloton.runtime.vocabulary import OWN_STATE, SETTLED, At, Decision
from tests.toy import messages as w
from tests.toy.daemon import rest

NOTHING = Decision()


def _add(note: w.Note, message: w.Add, at: At) -> Decision:
    if message.amount in (13, 15):
        raise ValueError(f"{message.amount} is not added")
    total = note.total + message.amount
    return Decision(facts=(w.Added(message.amount),), reply=w.Total(total))


def _added(note: w.Note | None, fact: w.Added) -> w.Note:
    if fact.amount == 14:
        raise ValueError("14 does not fold")
    note = note or w.Note()
    return replace(note, total=note.total + fact.amount, closed=False)


def _lamps(note: w.Note, message: w.Lamps, at: At) -> Decision:
    if message.version <= note.version:
        return NOTHING
    return Decision(facts=(w.Heard(message.version, message.on),))


NOTE = Kind(
    name="note",
    group="house",
    state=w.Note,
    decide={
        w.Add: _add,
        w.Close: lambda note, message, at: Decision(
            facts=() if note.closed else (w.Closed(),), reply=w.Total(note.total)
        ),
        w.Forget: lambda note, message, at: Decision(facts=(w.Forgotten(),), reply=w.Total(0)),
        w.Lamps: _lamps,
    },
    absent={
        w.Add: lambda message, at: _add(w.Note(), message, at),
        w.Close: lambda message, at: Decision(reply=w.Total(-1)),
        w.Forget: lambda message, at: Decision(reply=w.Total(-1)),
        w.Lamps: lambda message, at: _lamps(w.Note(), message, at),
    },
    pursue=lambda note, at: SETTLED,
    evolve={
        w.Added: _added,
        w.Closed: lambda note, fact: replace(note, closed=True),
        w.Forgotten: lambda note, fact: None,
        w.Heard: lambda note, fact: replace(note or w.Note(), version=fact.version, heard=fact.on),
    },
    messages={1: w.Add, 2: w.Close, 3: w.Lamps, 4: w.Forget},
    facts={1: w.Added, 2: w.Closed, 3: w.Heard, 4: w.Forgotten},
    answers={1: w.Total},
    partition=rest,
    ended=lambda note, index: note.closed,
    inspect={w.Show: lambda note, query, at: w.Total(note.total)},
    depends=lambda query: OWN_STATE,
    listing=Listing(summary=lambda name, state: (name, state.total)),
    lookup=frozenset({w.Add, w.Close, w.Forget}),
)
