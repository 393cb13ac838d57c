"""Starts and ends of runs in sets: all told by the same message, or in the same fact.

Reports of a backend become sets; sets become facts and messages to tasks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from peloton.actors.host import facts as f
from peloton.actors.host import messages as m
from peloton.actors.host.holds.foreign_names import is_foreign
from peloton.actors.host.ledger import RunEvent, RunSet, RunStep, by_crowd, names_of, step
from peloton.actors.host.stages import RunPhase
from peloton.actors.host.state import Host
from peloton.actors.task import messages as t
from peloton.runtime.vocabulary import At, Bits, Fact, Key, Send

_ENDED_BADLY = frozenset((t.End.FAILED, t.End.KILLED))
LATE_S = 2.0
"""A start or an end that is reported later than this carries its own time. Below it, the time at
which the task receives it is exact enough, and many of them share one message."""
LATE_STEPS_PER_S = 10
"""Late times are rounded to this fraction of a second, starts down and ends up, so that a thousand
late ones do not become a thousand messages."""

Ends = dict[tuple[Key, t.Ended], int]
"""Members, as bits, whose end is told by the same message, by crowd and that message."""

Starts = dict[tuple[Key, t.Started], int]
"""As `Ends`, for starts."""
LateStarts = Mapping[tuple[Key, int], Sequence[tuple[float, int]]]
"""When runs started whose start is reported late: times and members, by crowd and run number."""


def late_starts(names: Sequence[str], times: Sequence[float], *, now: float) -> LateStarts:
    """Return which of these runs started late, and when.

    `times` is empty if the backend does not know them.
    """
    late: dict[float, list[str]] = {}
    if times and now - min(times) >= LATE_S:
        for name, time in zip(names, times, strict=True):
            if time and now - time >= LATE_S:
                late.setdefault(_rounded_down(time), []).append(name)
    found: dict[tuple[Key, int], list[tuple[float, int]]] = {}
    for time, some in late.items():
        for run, raw in by_crowd(some)[0].items():
            found.setdefault(run, []).append((time, raw))
    return found


def _rounded_down(time: float) -> float:
    return math.floor(time * LATE_STEPS_PER_S) / LATE_STEPS_PER_S


def add_starts(starts: Starts, crowd: Key, *, of: RunSet, raw: int, late: LateStarts) -> None:
    """Add the start of the members in `raw` of a set; never before the set was accepted."""
    for time, members in late.get((crowd, of.run), ()):
        hit = raw & members
        if hit:
            name = (crowd, t.Started(of.run, max(of.since, time)))
            starts[name] = starts.get(name, 0) | hit
            raw &= ~hit
    if raw:
        name = (crowd, t.Started(of.run))
        starts[name] = starts.get(name, 0) | raw


def started_facts(starts: Starts, *, now: float) -> tuple[Fact, ...]:
    """Return the facts of starts: equal starts as one set; all single ones without a time in one
    fact, by name."""
    facts: list[Fact] = []
    single: list[str] = []
    for (crowd, start), raw in starts.items():
        if raw & raw - 1 or start.at is not None:
            facts.append(f.SetStarted(crowd, Bits(raw), start.run, start.at, now))
        else:
            single += names_of(crowd, raw, run=start.run)
    return (*facts, f.ProcessesStarted(tuple(single), now)) if single else tuple(facts)


def start_reports(starts: Starts) -> tuple[Send, ...]:
    """Return the messages to the tasks that their runs started; foreign runs have no tasks."""
    told = ((*name, raw) for name, raw in starts.items() if not is_foreign(name[0]))
    return tuple(Send(crowd, start, Bits(raw)) for crowd, start, raw in told)


def joined(*some: Ends) -> Ends:
    """Return all of these ends as one collection."""
    ends: Ends = {}
    for each in some:
        for name, raw in each.items():
            ends[name] = ends.get(name, 0) | raw
    return ends


def all_ended(runs: Iterable[tuple[Key, RunSet]], outcome: t.RunOutcome) -> Ends:
    """Return ends with one outcome for all of these runs."""
    ends: Ends = {}
    for crowd, some in runs:
        name = (crowd, t.Ended(some.run, outcome))
        ends[name] = ends.get(name, 0) | some.members.raw
    return ends


def occupying_ends(host: Host, reported: Iterable[m.RunEnd], at: At) -> Ends:
    """Return the ends of runs that occupy resources, as they are reported to the tasks."""
    ends: Ends = {}
    for end in reported:
        found = host.runs.find(end.run)
        if found is not None and step(found.of, RunEvent.ENDED) == RunStep.ENDED:
            name = (found.crowd, _end_for_task(found.of, end, at))
            ends[name] = ends.get(name, 0) | 1 << found.member
    return ends


def _end_for_task(some: RunSet, end: m.RunEnd, at: At) -> t.Ended:
    """Return the end as it is reported to the task: a run that failed after a kill order was
    killed."""
    outcome = end.outcome
    ended_at = _late_end(end.at, since=some.since, now=at.now)
    started_at = None
    if some.phase == RunPhase.ACCEPTED and end.started_at and at.now - end.started_at >= LATE_S:
        started_at = max(some.since, _rounded_down(end.started_at))
    if some.phase == RunPhase.KILLING and some.reason and outcome.end in _ENDED_BADLY:
        by, reason = "the maintenance of its host", t.HOST_MAINTENANCE
        if some.reason == t.SLACK_TAKEN:
            by, reason = "its host, which has less slack", t.SLACK_TAKEN
        text = f"ended by {by}: {outcome.message or 'killed'}"
        # Not the program's fault, nor the caller's order: the instance runs again elsewhere.
        moved = replace(outcome, end=t.End.KILLED, reason=reason, message=text, system=True)
        return t.Ended(some.run, moved, ended_at, started_at)
    if some.phase != RunPhase.KILLING or outcome.end != t.End.FAILED:
        return t.Ended(some.run, outcome, ended_at, started_at)
    killed = replace(outcome, end=t.End.KILLED, reason="killed", system=False)
    return t.Ended(some.run, killed, ended_at)


def _late_end(ended_at: float | None, *, since: float, now: float) -> float | None:
    """Return when a run ended whose end is reported late, or None for just now.

    Never before it was accepted: a clock that was set back must not make a run end before it began.
    """
    if ended_at is None or now - ended_at < LATE_S:
        return None
    rounded = math.ceil(ended_at * LATE_STEPS_PER_S) / LATE_STEPS_PER_S
    return max(since, rounded)


def ended_facts(ends: Ends) -> tuple[Fact, ...]:
    """Return the facts of ends: equal ends as one set; all single ones in one fact, by name."""
    facts: list[Fact] = []
    single: list[m.RunEnd] = []
    for (crowd, end), raw in ends.items():
        if raw & raw - 1:
            facts.append(f.SetEnded(crowd, Bits(raw), end.run, end.outcome, end.at, end.started_at))
        else:
            (name,) = names_of(crowd, raw, run=end.run)
            single.append(m.RunEnd(name, end.outcome, end.at, end.started_at))
    return (*facts, f.ProcessesEnded(tuple(single))) if single else tuple(facts)


def end_reports(ends: Ends) -> tuple[Send, ...]:
    """Return the messages to the tasks that their runs ended; foreign runs have no tasks."""
    told = ((*name, raw) for name, raw in ends.items() if not is_foreign(name[0]))
    return tuple(Send(crowd, end, Bits(raw)) for crowd, end, raw in told)
