"""Ends of runs in sets: all that are told by the same message, or stand in the same fact.

Turns the ends that a backend reports into sets, and sets into facts and messages to tasks. It must
not change the ledger: facts do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from peloton.actors.host import facts as f
from peloton.actors.host import messages as m
from peloton.actors.host.ledger import RunEvent, RunPhase, RunSet, RunStep, names_of, step
from peloton.actors.host.state import Host
from peloton.actors.task import messages as t
from peloton.runtime.vocabulary import At, Bits, Fact, Key, Send

LATE_S = 2.0
"""An end that is reported later than this carries its own time. Below it, the time at which the
task receives the end is exact enough, and many ends share one message."""
LATE_STEPS_PER_S = 10
"""Times of late ends are rounded up to this fraction of a second, so that a thousand late ends do
not become a thousand messages."""

Ends = dict[tuple[Key, t.Ended], int]
"""Members, as bits, whose end is told by the same message, by crowd and that message."""


def joined(*some: Ends) -> Ends:
    """All of these ends."""
    ends: Ends = {}
    for each in some:
        for name, raw in each.items():
            ends[name] = ends.get(name, 0) | raw
    return ends


def all_ended(runs: Iterable[tuple[Key, RunSet]], outcome: t.RunOutcome) -> Ends:
    """One outcome for all of these runs."""
    ends: Ends = {}
    for crowd, some in runs:
        name = (crowd, t.Ended(some.run, outcome))
        ends[name] = ends.get(name, 0) | some.members.raw
    return ends


def held_ends(host: Host, reported: Iterable[m.RunEnd], at: At) -> Ends:
    """The ends of runs that hold resources, as they are reported to the tasks."""
    ends: Ends = {}
    for end in reported:
        found = host.runs.find(end.run)
        if found is not None and step(found.of, RunEvent.ENDED) == RunStep.ENDED:
            name = (found.crowd, _end_for_task(found.of, end, at))
            ends[name] = ends.get(name, 0) | 1 << found.member
    return ends


def _end_for_task(some: RunSet, end: m.RunEnd, at: At) -> t.Ended:
    """The end as it is reported to the task: a run that failed after a kill order was killed."""
    outcome = end.outcome
    ended_at = _late_end(end.at, since=some.since, now=at.now)
    if some.phase != RunPhase.KILLING or outcome.end != t.End.FAILED:
        return t.Ended(some.run, outcome, ended_at)
    killed = t.RunOutcome(
        t.End.KILLED, outcome.exit_code, outcome.signal, "killed", outcome.message
    )
    return t.Ended(some.run, killed, ended_at)


def _late_end(ended_at: float | None, *, since: float, now: float) -> float | None:
    """When a run ended whose end is reported late; None for just now.

    Never before it was accepted: a clock that was set back must not make a run end before it began.
    """
    if ended_at is None or now - ended_at < LATE_S:
        return None
    rounded = math.ceil(ended_at * LATE_STEPS_PER_S) / LATE_STEPS_PER_S
    return max(since, rounded)


def ended_facts(ends: Ends) -> tuple[Fact, ...]:
    """Equal ends as one set; all single ones in one fact, by name."""
    facts: list[Fact] = []
    single: list[m.RunEnd] = []
    for (crowd, end), raw in ends.items():
        if raw & raw - 1:
            facts.append(f.SetEnded(crowd, Bits(raw), end.run, end.outcome, end.at))
        else:
            (name,) = names_of(crowd, raw, run=end.run)
            single.append(m.RunEnd(name, end.outcome, end.at))
    return (*facts, f.ProcessesEnded(tuple(single))) if single else tuple(facts)


def end_reports(ends: Ends) -> tuple[Send, ...]:
    """The messages to the tasks."""
    return tuple(Send(crowd, end, Bits(raw)) for (crowd, end), raw in ends.items())
