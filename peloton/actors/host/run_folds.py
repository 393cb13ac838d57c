"""How facts of runs change the ledger of a host, and its sums of resources, ports and labels.

Every change of the sets must change the sums too: they are never counted again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from math import inf, nextafter
from typing import Any

import immutables
import msgspec

from peloton.actors.host import facts as f
from peloton.actors.host.holds.foreign_names import is_foreign
from peloton.actors.host.ledger import RunSet, by_crowd
from peloton.actors.host.stages import RunPhase
from peloton.actors.host.state import Host, in_range
from peloton.actors.resources import Resources
from peloton.actors.task.messages import RunOutcome
from peloton.placement.messages import Label
from peloton.runtime.vocabulary import Bits, Key

replace = msgspec.structs.replace


def _accepted(host: Host, fact: f.RunsAccepted) -> Host:
    need, runs = fact.spec.resources, host.runs
    phase = RunPhase.PREPARED if fact.prepared else RunPhase.ACCEPTED
    alike = RunSet(
        members=fact.members,
        run=fact.run,
        phase=phase,
        resources=need,
        spec=fact.spec,
        since=fact.at,
        labels=fact.spec.all_labels,
        priority=fact.spec.priority,
        asks=fact.spec.asks,
    )
    if fact.ports:
        for member, ports in zip(fact.members, fact.ports, strict=True):
            runs = runs.put(fact.crowd, replace(alike, members=Bits.of(member), ports=ports))
    else:
        runs = runs.put(fact.crowd, alike)
    picked = sum(in_range(host, port) for ports in fact.ports for port in ports)
    return replace(
        host,
        runs=runs,
        used=host.used + need.times(len(fact.members)),
        version=host.version + 1,
        ports_taken=host.ports_taken + picked,
        launches=host.launches + len(fact.members),
        running=_counted(host.running, alike, by=len(fact.members)),
        foreign=host.foreign + is_foreign(fact.crowd),
    )


def _devices_given(host: Host, fact: f.DevicesGiven) -> Host:
    runs = host.runs
    for member, devices in zip(fact.members, fact.devices, strict=True):
        with_them = functools.partial(replace, devices=devices)
        runs = runs.change(fact.crowd, Bits.of(member), run=fact.run, to=with_them)
    return replace(host, runs=runs)


def _ports_given(host: Host, fact: f.PortsGiven) -> Host:
    before = list[tuple[int, ...]]()

    def given(of: RunSet) -> RunSet:
        before.append(of.ports)
        return replace(of, ports=fact.ports)

    runs = host.runs.change(fact.crowd, fact.members, run=fact.run, to=given)
    taken = host.ports_taken + sum(in_range(host, port) for port in fact.ports)
    taken -= sum(in_range(host, port) for ports in before for port in ports)
    return replace(host, runs=runs, ports_taken=taken, version=host.version + 1)


def _counted(
    running: immutables.Map[Label, int], some: RunSet, *, by: int
) -> immutables.Map[Label, int]:
    """Return the counts of labels with `by` more runs like `some`; counts of zero are left out."""
    for label in some.labels:
        count = running.get(label, 0) + by
        running = running.set(label, count) if count else running.delete(label)
    return running


def _prepared_started(host: Host, fact: f.PreparedStarted) -> Host:
    def accepted(of: RunSet) -> RunSet:
        return replace(of, phase=RunPhase.ACCEPTED, since=fact.at)

    return replace(host, runs=host.runs.change(fact.crowd, fact.members, run=fact.run, to=accepted))


def _prepared_over(host: Host, fact: f.PreparedReleased) -> Host:
    """What was prepared is free. A refusal is kept, because the task has to see it."""
    before: list[RunSet] = []

    def over(of: RunSet) -> RunSet | None:
        before.append(of)
        if not fact.reason:
            return None
        return RunSet(of.members, of.run, RunPhase.REFUSED, Resources(), reason=fact.reason)

    runs = host.runs.change(fact.crowd, fact.members, run=fact.run, to=over)
    return _without(replace(host, runs=runs), before)


def _without(host: Host, gone: list[RunSet]) -> Host:
    """Return the host without what these runs occupied."""
    used, taken, running = host.used, host.ports_taken, host.running
    for each in gone:
        used = used - each.resources.times(len(each.members))
        taken -= sum(in_range(host, port) for port in each.ports)
        running = _counted(running, each, by=-len(each.members))
    return replace(host, used=used, ports_taken=taken, running=running, version=host.version + 1)


def _refused(host: Host, fact: f.RunsRefused) -> Host:
    refused = RunSet(fact.members, fact.run, RunPhase.REFUSED, Resources(), reason=fact.reason)
    runs = host.runs.put(fact.crowd, refused)
    return replace(host, runs=runs, launches=host.launches + len(fact.members))


def _named(names: Iterable[str]) -> Iterable[tuple[Key, int, Bits]]:
    """Yield crowd, run number and members of runs in a fact that names each of them."""
    sets, strange = by_crowd(names)
    if strange:
        raise KeyError(strange[0])
    return [(crowd, run, Bits(raw)) for (crowd, run), raw in sets.items()]


def _sets(fact: Any) -> Iterable[tuple[Key, int, Bits]]:
    if isinstance(fact, f.SetStarted | f.SetForgotten):
        return [(fact.crowd, fact.run, fact.members)]
    return _named(fact.runs)


def _phase(phase: RunPhase) -> Callable[[Host, Any], Host]:
    def evolve(host: Host, fact: f.ProcessesStarted | f.SetStarted | f.KillOrdered) -> Host:
        started_at = fact.at if isinstance(fact, f.SetStarted) else None

        def next_phase(of: RunSet) -> RunSet:
            if phase != RunPhase.STARTED:
                return replace(of, phase=phase)
            spec = of.spec.once_started if of.spec is not None else None
            return replace(of, phase=phase, spec=spec, started_at=started_at)

        runs = host.runs
        for crowd, run, members in _sets(fact):
            runs = runs.change(crowd, members, run=run, to=next_phase)
        if isinstance(fact, f.KillOrdered):  # killed runs were noted before
            return replace(host, runs=runs)
        # A list that was requested in the instant of the note may be older than it.
        proof_from = max(host.proof_from, nextafter(fact.noted_at, inf))
        return replace(host, runs=runs, proof_from=proof_from)

    return evolve


RunsOver = tuple[Key, int, Bits, RunOutcome, float | None, float | None]
"""Crowd, run number, members, outcome, when if that is long ago, and when they started if so."""


def end_runs(host: Host, ends: Iterable[RunsOver]) -> Host:
    """End these runs: what they occupied is free, and their ends stay for their tasks."""
    runs, used, taken = host.runs, host.used, host.ports_taken
    running, foreign = host.running, host.foreign
    for crowd, run, members, outcome, at, started_at in ends:
        before: list[RunSet] = []
        to: Callable[[RunSet], RunSet | None]
        if is_foreign(crowd):  # no task has to see the end
            foreign, to = foreign - 1, before.append
        else:
            to = _ender(before, outcome, at=at, started_at=started_at)
        runs = runs.change(crowd, members, run=run, to=to)
        for each in before:
            used = used - each.resources.times(len(each.members))
            taken -= sum(in_range(host, port) for port in each.ports)
            running = _counted(running, each, by=-len(each.members))
    return replace(
        host,
        runs=runs,
        used=used,
        version=host.version + 1,
        ports_taken=taken,
        running=running,
        foreign=foreign,
    )


def _ender(
    before: list[RunSet], outcome: RunOutcome, *, at: float | None, started_at: float | None
) -> Callable[[RunSet], RunSet]:
    """Return a change to ENDED that keeps what the runs occupied."""

    def ended(of: RunSet) -> RunSet:
        before.append(of)
        return replace(
            of,
            phase=RunPhase.ENDED,
            outcome=outcome,
            spec=None,
            resources=Resources(),
            ports=(),
            devices=(),
            priority=0,
            asks=False,
            ended_at=at,
            labels=(),
            started_at=of.started_at if started_at is None else started_at,
        )

    return ended


def _ended(host: Host, fact: f.ProcessesEnded) -> Host:
    ends = [
        (crowd, run, members, end.outcome, end.at, end.started_at)
        for end in fact.ends
        for crowd, run, members in _named((end.run,))
    ]
    return end_runs(host, ends)


def _set_ended(host: Host, fact: f.SetEnded) -> Host:
    end = (fact.crowd, fact.run, fact.members, fact.outcome, fact.at, fact.started_at)
    return end_runs(host, [end])


def _forgotten(host: Host, fact: f.RunsForgotten | f.SetForgotten) -> Host:
    runs = host.runs
    for crowd, run, members in _sets(fact):
        runs = runs.change(crowd, members, run=run, to=lambda _: None)
    return replace(host, runs=runs)


RUN_EVOLVE: Mapping[type, Callable[[Any, Any], Host]] = {
    f.RunsAccepted: _accepted,
    f.PreparedStarted: _prepared_started,
    f.PreparedReleased: _prepared_over,
    f.DevicesGiven: _devices_given,
    f.PortsGiven: _ports_given,
    f.RunsRefused: _refused,
    f.ProcessesStarted: _phase(RunPhase.STARTED),
    f.KillOrdered: _phase(RunPhase.KILLING),
    f.ProcessesEnded: _ended,
    f.RunsForgotten: _forgotten,
    f.SetStarted: _phase(RunPhase.STARTED),
    f.SetEnded: _set_ended,
    f.SetForgotten: _forgotten,
}
