"""How a host decides messages of tasks. Here, and nowhere else, resources are granted.

Turns (host, message) into ledger facts, answers to tasks, and orders for the backend, which leave
only after the facts are safe. A run that was refused or has ended must not leave the ledger until
its task has seen it; else a late repeat of its launch would start it. Reports of the backend are
decided in `reports`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peloton.actors.host import facts as f
from peloton.actors.host import messages as m
from peloton.actors.host.configuring import (
    appear,
    configure,
    from_backend,
    host_appeared,
    new_host_appeared,
)
from peloton.actors.host.ledger import (
    LedgerRun,
    RunEvent,
    RunPhase,
    RunStep,
    bits,
    pick_ports,
    pods,
    step,
)
from peloton.actors.host.reports import (
    backend_down,
    backend_up,
    host_gone,
    host_left,
    recheck_backend,
    runs_ended,
    runs_listed,
    runs_started,
    unreachable,
)
from peloton.actors.host.state import Host, HostStates, folded
from peloton.actors.task import messages as t
from peloton.runtime.vocabulary import SENDER, At, Bits, Decision, Due, Fact, Key, Message, Send


def launch(host: Host, message: m.Launch, at: At) -> Decision:
    """Launch runs: known ones are answered from the ledger, new ones take what is free."""
    assert at.members is not None and at.sender is not None
    sends: list[Send] = []
    new = []
    for member, pod in pods(at.sender, at.members, run=message.run):
        run = host.runs.get(pod)
        do = step(run, RunEvent.LAUNCH)
        if do == RunStep.GRANT:
            new.append(member)
        elif run is not None and do == RunStep.ANSWER:
            sends.append(run_reply(run))
    fresh = Bits.of(*new)
    if not fresh:
        return Decision(sends=tuple(sends))
    facts, more, because = _grant(host, message, at=at, members=fresh)
    return Decision(facts=facts, sends=(*sends, *more), because=because)


def _grant(
    host: Host, message: m.Launch, *, at: At, members: Bits
) -> tuple[tuple[Fact, ...], tuple[Send, ...], str]:
    assert at.sender is not None and message.spec is not None
    spec, reason = message.spec, ""
    count = spec.resources.fits(host.free)
    if host.state != HostStates.UP:
        count, reason = 0, f"host is {host.state.name.lower()}"
    elif count < len(members):
        short = ", ".join(spec.resources.short_of(host.free - spec.resources.times(count)))
        reason = f"insufficient resources on the host: {short}"
    granted = members.lowest(count) if count else Bits()
    ports: tuple[tuple[int, ...], ...] = ()
    if granted and spec.ports:
        granted, ports = _with_ports(host, spec, members=granted)
        reason = reason or "no free port on the host"
    facts: tuple[Fact, ...] = ()
    sends: tuple[Send, ...] = ()
    if granted:
        facts = (f.RunsAccepted(at.sender, granted, message.run, spec, at.now, ports),)
        starts = _starts(at.sender, granted, run=message.run, spec=spec, ports=ports)
        order = Send(host.backend, m.StartRuns(at.key, at.epoch, starts, host.keeper))
        sends = (Send(SENDER, t.Accepted(message.run), granted), order)
    refused = members - granted
    if refused:
        facts = (*facts, f.RunsRefused(at.sender, refused, message.run, reason))
        # The summary is as of the end of this turn, so what was granted in it is not free.
        refusal = t.RunRefused(message.run, reason, folded(host, facts).summary(at.key))
        sends = (*sends, Send(SENDER, refusal, refused))
    return facts, sends, reason if refused else ""


def _with_ports(
    host: Host, spec: m.RunSpec, *, members: Bits
) -> tuple[Bits, tuple[tuple[int, ...], ...]]:
    taken = {port for run in host.runs.values() for port in run.ports}
    granted, ports = [], []
    for member in members:
        picked = pick_ports(spec.ports, taken, span=host.ports)
        if picked:
            granted.append(member)
            ports.append(picked)
    return Bits.of(*granted), tuple(ports)


def _starts(
    crowd: Key, members: Bits, *, run: int, spec: m.RunSpec, ports: tuple[tuple[int, ...], ...]
) -> tuple[m.StartRun, ...]:
    return tuple(
        m.StartRun(pod, spec, ports[at] if ports else ())
        for at, (_, pod) in enumerate(pods(crowd, members, run=run))
    )


def kill(host: Host, message: m.KillRun, at: At) -> Decision:
    """End runs, whatever their phase; a run that is not in the ledger is answered `RunGone`."""
    assert at.members is not None and at.sender is not None
    unknown, sends, orders, stops = [], [], [], []
    for member, pod in pods(at.sender, at.members, run=message.run):
        run = host.runs.get(pod)
        do = step(run, RunEvent.KILL)
        if do == RunStep.ANSWER_GONE:
            unknown.append(member)
        elif run is not None and do == RunStep.ANSWER:
            sends.append(run_reply(run))
        elif do in (RunStep.KILL, RunStep.KILL_AGAIN):
            stops.append(pod)
            if do == RunStep.KILL:
                orders.append(pod)
    if unknown:
        sends.append(Send(SENDER, t.RunGone(message.run), Bits.of(*unknown)))
    if stops:
        order = m.StopRuns(at.key, at.epoch, tuple(stops), message.grace_s)
        sends.append(Send(host.backend, order))
    facts = (f.KillOrdered(tuple(orders)),) if orders else ()
    return Decision(facts=facts, sends=tuple(sends))


def seen(host: Host, message: m.RunSeen, at: At) -> Decision:
    """The tasks have journaled the end or refusal of these runs, which are then forgotten."""
    assert at.members is not None and at.sender is not None
    finished = []
    for _, pod in pods(at.sender, at.members, run=message.run):
        run = host.runs.get(pod)
        if run is not None and step(run, RunEvent.SEEN) == RunStep.FORGET:
            finished.append(run)
    if len(finished) > 1:
        return Decision(facts=(f.SetForgotten(at.sender, bits(finished), message.run),))
    return Decision(facts=(f.RunsForgotten((finished[0].pod,)),)) if finished else Decision()


def run_reply(run: LedgerRun) -> Send:
    """The answer to a task about a run in the ledger."""
    return Send(run.crowd, phase_message(run), bits([run]))


def phase_message(run: LedgerRun) -> Message:
    """The message that reports a run's phase."""
    if run.phase == RunPhase.ENDED:
        assert run.outcome is not None
        return t.Ended(run.run, run.outcome, run.ended_at)
    if run.phase == RunPhase.REFUSED:
        return t.RunRefused(run.run, run.reason)
    return t.Started(run.run) if run.phase == RunPhase.STARTED else t.Accepted(run.run)


def owed(host: Host) -> tuple[Send, ...]:
    """Ends and refusals, which are sent until the tasks have seen them."""
    finished = [
        host.runs[pod]
        for pod in sorted(host.runs)
        if host.runs[pod].phase in (RunPhase.ENDED, RunPhase.REFUSED)
    ]
    return tuple(run_reply(run) for run in finished)


DECIDE: Mapping[type, Callable[[Any, Any, At], Decision]] = {
    m.ConfigureHost: configure,
    m.Launch: launch,
    m.KillRun: kill,
    m.RunSeen: seen,
    m.BackendUp: from_backend(backend_up),
    m.BackendDown: from_backend(backend_down),
    m.RecheckBackend: recheck_backend,
    m.HostGone: host_gone,
    m.HostAppeared: host_appeared,
    m.HostLeft: from_backend(host_left),
    m.RunsStarted: from_backend(runs_started),
    m.RunsEnded: from_backend(runs_ended),
    m.RunsListed: from_backend(runs_listed),
    Due: unreachable,
}


def _refuse(message: m.Launch, at: At) -> Decision:
    refusal = t.RunRefused(message.run, "no such host")
    return Decision(sends=(Send(SENDER, refusal, at.members),), because="no such host")


def _gone(message: m.KillRun, at: At) -> Decision:
    return Decision(
        sends=(Send(SENDER, t.RunGone(message.run), at.members),), because="no such host"
    )


def _nothing(message: Any, at: At) -> Decision:
    return Decision(because="no such host")


ABSENT: Mapping[type, Callable[[Any, At], Decision]] = {
    m.ConfigureHost: appear,
    m.Launch: _refuse,
    m.KillRun: _gone,
    m.RunSeen: _nothing,
    m.BackendUp: _nothing,
    m.BackendDown: _nothing,
    m.RecheckBackend: _nothing,
    m.HostGone: _nothing,
    m.HostAppeared: new_host_appeared,
    m.HostLeft: _nothing,
    m.RunsStarted: _nothing,
    m.RunsEnded: _nothing,
    m.RunsListed: _nothing,
    Due: _nothing,
}
