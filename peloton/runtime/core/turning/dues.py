"""Alarms and deadlines of a shard's entities that are due.

Turns times that have come into mail. Entities whose goals rest get no deadline: they get it when
goals are pursued again, with the turns that were left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from peloton.runtime.core.turning.envelope import Envelope
from peloton.runtime.core.turning.pursuits import PURSUE
from peloton.runtime.core.turning.turns import Turns
from peloton.runtime.vocabulary import Due, Key

LOOK_S = 15.0
"""So late, at most, a moment comes after the clock on the wall was set forward past it."""


def due_mail(turns: Turns) -> Iterator[Envelope]:
    """Yield the mail that is due now; each moment brings it once."""
    population = turns.population
    for key in turns.alarms.due(turns.now):
        if key in population.cells:
            turns.recall(key)
            yield Envelope(key, PURSUE)
    for key in turns.wheel.due(turns.now):
        if not turns.pursuits.leaves_out(key):
            yield from _deadlines(turns, key)
    for key in turns.calendar.due(turns.wall):
        state = turns.population.cells.get(key)
        moment = turns.population.kind(key).moment(state) if state is not None else None
        if moment is not None and not turns.pursuits.leaves_out(key):
            yield Envelope(key, Due(moment[0]))


def next_look_s(turns: Turns) -> float | None:
    """Return when to look at the next moment, in the time of the shard.

    That may be before the moment, because the wall clock may be set meanwhile.
    """
    moment_s = turns.calendar.next_s()
    return None if moment_s is None else turns.now + min(moment_s - turns.wall, LOOK_S)


def left_out_mail(turns: Turns) -> list[Envelope]:
    """Return the mail that makes up for turns and deadlines that were left out while goals rested.

    They may have been left out here, or by an earlier owner of the shard.
    """
    pursuits = turns.pursuits
    if pursuits.resting:
        pursuits.resting = False
        for key in pursuits.all():
            turns.retime(key)
    return [*pursuits.mail(turns.at)]


def _deadlines(turns: Turns, key: Key) -> Iterator[Envelope]:
    crowd = turns.population.crowds.get(key)
    if crowd is not None:
        for name, members in crowd.due(turns.now):
            yield Envelope(key, Due(name), members)
        turns.time_crowd(crowd)
        return
    state = turns.population.cells.get(key)
    deadline = turns.population.kind(key).deadline(state) if state is not None else None
    if deadline is not None:
        yield Envelope(key, Due(deadline[0]))
