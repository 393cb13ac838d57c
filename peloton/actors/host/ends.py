"""Starts and ends of runs in sets: all that are told by the same message, or by the same fact.

Turns the starts and ends that a backend reports into sets, and sets into facts and messages to
tasks. It must not change the ledger: facts do. The time of a start or an end is the backend's. The
backend gives those that it reports together few different times, because each is a message of its
own.
"""

from __future__ import annotations

from collections.abc import Iterable

from peloton.actors.host import facts as f
from peloton.actors.host import messages as m
from peloton.actors.host.ledger import RunEvent, RunPhase, RunSet, RunStep, names_of, step
from peloton.actors.host.state import Host
from peloton.actors.task import messages as t
from peloton.runtime.vocabulary import Bits, Fact, Key, Send

Starts = dict[tuple[Key, t.Started], int]
"""Members, as bits, whose start is told by the same message, by crowd and that message."""
Ends = dict[tuple[Key, t.Ended], int]
"""Members, as bits, whose end is told by the same message, by crowd and that message."""


def joined(*some: Ends) -> Ends:
    """All of these ends."""
    ends: Ends = {}
    for each in some:
        for name, raw in each.items():
            ends[name] = ends.get(name, 0) | raw
    return ends


def add_started(starts: Starts, found: tuple[Key, RunSet], *, raw: int, at: float | None) -> None:
    """These members of a set of the ledger have started at this time.

    A clock that was set back must not make a run start before it was accepted.
    """
    crowd, some = found
    if at is not None and at < some.since:
        at = some.since
    name = (crowd, t.Started(some.run, at))
    starts[name] = starts.get(name, 0) | raw


def starts_before_ends(host: Host, reported: Iterable[m.RunEnd]) -> Starts:
    """The starts of runs that ended before their host learned that they had started."""
    starts: Starts = {}
    for end in reported:
        found = host.runs.find(end.run) if end.started_at is not None else None
        if found is not None and found.of.phase == RunPhase.ACCEPTED:
            raw = 1 << found.member
            add_started(starts, (found.crowd, found.of), raw=raw, at=end.started_at)
    return starts


def started_facts(starts: Starts) -> tuple[Fact, ...]:
    """Equal starts as one set; all single ones in one fact, by name."""
    facts: list[Fact] = []
    single: list[str] = []
    for (crowd, start), raw in starts.items():
        if raw & raw - 1:
            facts.append(f.SetStarted(crowd, Bits(raw), start.run))
        else:
            single += names_of(crowd, raw, run=start.run)
    return (*facts, f.ProcessesStarted(tuple(single))) if single else tuple(facts)


def start_reports(starts: Starts) -> tuple[Send, ...]:
    """The messages to the tasks."""
    return tuple(Send(crowd, start, Bits(raw)) for (crowd, start), raw in starts.items())


def all_ended(runs: Iterable[tuple[Key, RunSet]], outcome: t.RunOutcome) -> Ends:
    """One outcome for all of these runs."""
    ends: Ends = {}
    for crowd, some in runs:
        name = (crowd, t.Ended(some.run, outcome))
        ends[name] = ends.get(name, 0) | some.members.raw
    return ends


def held_ends(host: Host, reported: Iterable[m.RunEnd]) -> Ends:
    """The ends of runs that hold resources, as they are reported to the tasks."""
    ends: Ends = {}
    for end in reported:
        found = host.runs.find(end.run)
        if found is not None and step(found.of, RunEvent.ENDED) == RunStep.ENDED:
            name = (found.crowd, _end_for_task(found.of, end))
            ends[name] = ends.get(name, 0) | 1 << found.member
    return ends


def _end_for_task(some: RunSet, end: m.RunEnd) -> t.Ended:
    """The end as it is reported to the task: a run that failed after a kill order was killed.

    A clock that was set back must not make a run end before it was accepted.
    """
    outcome, ended_at = end.outcome, end.at
    if ended_at is not None and ended_at < some.since:
        ended_at = some.since
    if some.phase != RunPhase.KILLING or outcome.end != t.End.FAILED:
        return t.Ended(some.run, outcome, ended_at)
    killed = t.RunOutcome(
        t.End.KILLED, outcome.exit_code, outcome.signal, "killed", outcome.message
    )
    return t.Ended(some.run, killed, ended_at)


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
