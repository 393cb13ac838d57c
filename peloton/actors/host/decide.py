"""How a host decides messages of tasks. Here, and nowhere else, resources are granted.

Decisions are ledger facts, answers to tasks, and orders for the backend, which leave only after the
facts are safe. A run that was refused or has ended must not leave the ledger until its task has
seen it; else a late repeat of its launch would start it. `reports.py` decides the reports of the
backend.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from peloton.actors.host import facts as f
from peloton.actors.host import machine_messages as mm
from peloton.actors.host import messages as m
from peloton.actors.host import volumes
from peloton.actors.host.configuring import (
    appear,
    configure,
    from_backend,
    host_appeared,
    new_host_appeared,
    no_host_for_pool,
    set_pool,
)
from peloton.actors.host.devices import devices_told
from peloton.actors.host.folds import folded
from peloton.actors.host.granting import Granted, granted
from peloton.actors.host.holds import hold_messages as hm
from peloton.actors.host.holds.foreign import kill_foreign, launch_foreign, none_there
from peloton.actors.host.holds.holding import expired, hold, hold_deadline, not_held, release
from peloton.actors.host.holds.task_holds import (
    TASK_LAUNCHED,
    ended_holds,
    hold_for_task,
    no_task_holds,
    release_task_holds,
)
from peloton.actors.host.ledger import RunEvent, RunSet, RunStep, names_of, replace, step
from peloton.actors.host.live.live_messages import ChangeSeen, LimitRun, RunsChanged
from peloton.actors.host.live.run_changes import change_seen, run_limited, runs_changed
from peloton.actors.host.maintenance import asked_to_end, complete, no_host, start
from peloton.actors.host.moving import move, move_owed, not_moved
from peloton.actors.host.orders import start_order, starts_of, stop_order
from peloton.actors.host.ports_in_use import ports_in_use
from peloton.actors.host.prepared_runs import asked_again, prepared_now
from peloton.actors.host.quarantine import QUARANTINE, quarantine_over, watching
from peloton.actors.host.reports import (
    backend_down,
    backend_up,
    host_gone,
    recheck_backend,
    runs_ended,
    runs_listed,
    runs_started,
    unreachable,
)
from peloton.actors.host.slack import slack_measured
from peloton.actors.host.stages import HostStates, Maintenance, RunPhase
from peloton.actors.host.state import Host
from peloton.actors.host.use import use_set
from peloton.actors.task import messages as t
from peloton.runtime.vocabulary import SENDER, At, Bits, Decision, Due, Fact, Key, Message, Send


def launch(host: Host, message: m.Launch, at: At) -> Decision:
    """Launch runs: known ones are answered from the ledger, new ones take what is free."""
    assert at.members is not None and at.sender is not None
    sends: list[Send] = []
    fresh, begun = at.members, list[RunSet]()
    event = RunEvent.PREPARE if message.prepare else RunEvent.LAUNCH
    for some in host.runs.of(at.sender, message.run):
        hit, do = some.members & at.members, step(some, event)
        if hit and do == RunStep.ANSWER:
            sends.append(run_reply(host, some, crowd=at.sender, members=hit))
        elif hit and do == RunStep.START_PREPARED:
            begun.append(replace(some, members=hit))
        fresh -= hit
    facts: tuple[Fact, ...] = ()
    for some in begun:
        facts = (*facts, f.PreparedStarted(at.sender, some.members, some.run, at.now))
    sends += start_order(host, starts_of(host, ((at.sender, some) for some in begun)), at)
    if not fresh:
        return Decision(facts=facts, sends=tuple(sends))
    more_facts, more, because = _grant(host, message, at=at, members=fresh)
    return Decision(facts=(*facts, *more_facts), sends=(*sends, *more), because=because)


def _grant(
    host: Host, message: m.Launch, *, at: At, members: Bits
) -> tuple[tuple[Fact, ...], tuple[Send, ...], str]:
    assert at.sender is not None and message.spec is not None
    spec = message.spec
    found = granted(host, message, members=members, at=at)
    some, reason, crowd, run = found.members, found.reason, at.sender, message.run
    facts: tuple[Fact, ...] = ()
    sends: tuple[Send, ...] = ()
    given = (f.DevicesGiven(crowd, some, run, found.devices),) if found.devices else ()
    came = (one for one in host.task_holds if one.crowd == crowd and one.member in some)
    over = ended_holds((one.task for one in came), TASK_LAUNCHED)
    if some and message.prepare:
        taken, answer = prepared_now(message, some, at=at, ports=found.ports)
        facts, sends = (taken, *given, *over), (answer,)
    elif some:
        ports = found.ports
        accepted = f.RunsAccepted(crowd, some, run, spec, at.now, ports, message.shares)
        made = volumes.volumes_given(host, spec, members=some, crowd=crowd, at=at)
        facts = (accepted, *given, *made, *over)
        starts = _starts(host, message, at=at, found=found)
        # The task hears of its run when the process has started; `Accepted` is for repeats.
        sends = start_order(host, starts, at)
    refused = members - some
    if refused:
        facts = (*facts, f.RunsRefused(at.sender, refused, message.run, reason))
        # The summary is as of the end of this turn, so what was granted in it is not free.
        summary = folded(host, facts).summary(at.key)
        there = volumes.volumes_there(host, refused, crowd=at.sender)
        refusal = t.RunRefused(message.run, reason, summary, there)
        sends = (*sends, Send(SENDER, refusal, refused))
    return facts, sends, reason if refused else ""


def _starts(host: Host, message: m.Launch, *, at: At, found: Granted) -> tuple[m.StartRun, ...]:
    spec, (members, ports, _, devices) = message.spec, found
    assert spec is not None and at.sender is not None
    none = devices_told(host, spec.resources)
    return tuple(
        m.StartRun(
            name,
            spec if spec.volume is None else volumes.as_made(host, spec, run=name),
            ports[one] if ports else (),
            devices[one] if devices else none,
        )
        for one, name in enumerate(names_of(at.sender, members.raw, run=message.run))
    )


def kill(host: Host, message: m.KillRun, at: At) -> Decision:
    """End runs, whatever their phase; a run that is not in the ledger is answered `RunGone`."""
    assert at.members is not None and at.sender is not None
    unknown, sends = at.members, []
    stops: list[str] = []
    orders: list[str] = []
    released = Bits()
    for some in host.runs.of(at.sender, message.run):
        hit, do = some.members & at.members, step(some, RunEvent.KILL)
        if not hit:
            continue
        unknown -= hit
        names = names_of(at.sender, hit.raw, run=message.run)
        if do == RunStep.ANSWER:
            sends.append(run_reply(host, some, crowd=at.sender, members=hit))
        elif do == RunStep.RELEASE:
            released |= hit
        elif do in (RunStep.KILL, RunStep.KILL_AGAIN):
            stops += names
            orders += names if do == RunStep.KILL else []
    if unknown or released:
        sends.append(Send(SENDER, t.RunGone(message.run), unknown | released))
    sends += stop_order(host, stops, at, grace_s=message.grace_s, notice=message.notice)
    facts: tuple[Fact, ...] = (f.KillOrdered(tuple(orders)),) if orders else ()
    if released:
        facts = (f.PreparedReleased(at.sender, released, message.run), *facts)
    return Decision(facts=facts, sends=tuple(sends))


def seen(host: Host, message: m.RunSeen, at: At) -> Decision:
    """Forget runs whose tasks have journaled the end or refusal."""
    assert at.members is not None and at.sender is not None
    finished = Bits()
    for some in host.runs.of(at.sender, message.run):
        if step(some, RunEvent.SEEN) == RunStep.FORGET:
            finished |= some.members & at.members
    if len(finished) > 1:
        return Decision(facts=(f.SetForgotten(at.sender, finished, message.run),))
    names = names_of(at.sender, finished.raw, run=message.run)
    return Decision(facts=(f.RunsForgotten(tuple(names)),)) if names else Decision()


def run_reply(host: Host, some: RunSet, *, crowd: Key, members: Bits) -> Send:
    """Return the answer to tasks about `members` of a set of runs in the ledger."""
    if some.phase == RunPhase.REFUSED:
        there = volumes.volumes_there(host, members, crowd=crowd)
        return Send(crowd, t.RunRefused(some.run, some.reason, None, there), members)
    return Send(crowd, _phase_message(some), members)


def _phase_message(run: RunSet) -> Message:
    if run.phase == RunPhase.ENDED:
        assert run.outcome is not None
        return t.Ended(run.run, run.outcome, run.ended_at, run.started_at)
    if run.phase == RunPhase.STARTED:
        return t.Started(run.run, run.started_at)
    if run.phase == RunPhase.PREPARED:
        return t.Prepared(run.run)
    return t.Accepted(run.run)


def owed(host: Host) -> tuple[Send, ...]:
    """Return what is repeated until it is answered.

    These are ends and refusals, until the tasks have seen them; that runs are prepared, until their
    tasks start or cancel them; a move's request; and what slices are asked to end.
    """
    ends = (
        run_reply(host, some, crowd=crowd, members=some.members)
        for crowd, some in host.runs.sets()
        if some.phase in (RunPhase.ENDED, RunPhase.REFUSED)
    )
    drains = host.maintenance == Maintenance.DRAINING
    asked = asked_to_end(host) if drains else ()
    return (*ends, *asked_again(host), *move_owed(host), *asked)


def deadline(host: Host) -> tuple[str, float] | None:
    """Return the name of the host's deadline and its seconds, or None.

    A host that is not reachable has the time after which its machine is considered lost; any other
    one the time for which it is held, or else for which placers leave it out.
    """
    if host.state == HostStates.UNREACHABLE:
        return "unreachable", host.unreachable_timeout_s
    if host.hold is not None:
        return hold_deadline(host.hold)
    if host.quarantine is not None:
        return QUARANTINE, host.quarantine.seconds
    return None


def due(host: Host, message: Due, at: At) -> Decision:
    """Act on a deadline that has passed: of an unreachable machine, of a hold, or of a
    quarantine."""
    if host.hold is not None and message.name == hold_deadline(host.hold)[0]:
        return expired(host.hold)
    decide = quarantine_over if message.name == QUARANTINE else unreachable
    return decide(host, message, at)


def decide_with(*, quarantine_after: int) -> Mapping[type, Callable[[Any, Any, At], Decision]]:
    """Return the decision on each message, for hosts that are quarantined after so many failures of
    their own; 0: never."""
    watched = functools.partial(watching, after=quarantine_after)
    return {
        m.ConfigureHost: configure,
        m.Launch: launch,
        m.KillRun: kill,
        m.RunSeen: seen,
        m.BackendUp: from_backend(backend_up),
        m.BackendDown: from_backend(backend_down),
        m.RecheckBackend: recheck_backend,
        m.HostGone: host_gone,
        m.StartMaintenance: start,
        m.CompleteMaintenance: complete,
        m.SetHostPool: set_pool,
        m.HostAppeared: host_appeared,
        m.RunsStarted: from_backend(runs_started),
        m.RunsEnded: from_backend(watched(runs_ended)),
        m.RunsListed: from_backend(watched(runs_listed)),
        mm.SlackReported: from_backend(slack_measured),
        RunsChanged: from_backend(runs_changed),
        ChangeSeen: change_seen,
        LimitRun: run_limited,
        hm.HoldHost: hold,
        hm.ReleaseHold: release,
        hm.LaunchForeign: launch_foreign,
        hm.KillForeign: kill_foreign,
        hm.HoldForTask: hold_for_task,
        hm.ReleaseTaskHolds: release_task_holds,
        mm.MoveToPool: move,
        mm.PoolMoveRefused: not_moved,
        mm.DeleteVolume: volumes.delete,
        mm.VolumesRemoved: from_backend(volumes.removed),
        mm.UseSet: from_backend(use_set),
        mm.PortsInUse: from_backend(ports_in_use),
        Due: due,
    }


def _refuse(message: m.Launch, at: At) -> Decision:
    refusal = t.RunRefused(message.run, "no such host")
    return Decision(sends=(Send(SENDER, refusal, at.members),), because="no such host")


def _gone(message: m.KillRun, at: At) -> Decision:
    return Decision(
        sends=(Send(SENDER, t.RunGone(message.run), at.members),), because="no such host"
    )


ABSENT: Mapping[type, Callable[[Any, At], Decision]] = {
    m.ConfigureHost: appear,
    m.Launch: _refuse,
    m.KillRun: _gone,
    m.StartMaintenance: no_host,
    m.CompleteMaintenance: no_host,
    m.SetHostPool: no_host_for_pool,
    m.HostAppeared: new_host_appeared,
    hm.HoldHost: no_host,
    hm.ReleaseHold: not_held,
    hm.LaunchForeign: no_host,
    hm.KillForeign: none_there,
    hm.HoldForTask: no_host,
    hm.ReleaseTaskHolds: no_task_holds,
    mm.MoveToPool: no_host,
    mm.DeleteVolume: volumes.no_volume,
}
