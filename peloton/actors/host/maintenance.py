"""How a host is drained for maintenance, and comes back.

An operator sets the goal; from then on nothing is granted, and every run is ended. A run that is
ended so uses up no attempt of its task, which gets a new run elsewhere. Instances of services are
not ended here: their slices are asked to, which know whether the job can spare them now. The host
is down once all its tasks have journaled the ends of their runs, and stays down, whatever becomes
of its machine, until the operator completes the maintenance.
"""

from __future__ import annotations

from typing import Any

from peloton.actors.host import facts as f
from peloton.actors.host import messages as m
from peloton.actors.host.held_runs import refused_at_maintenance
from peloton.actors.host.hold_messages import HostHold
from peloton.actors.host.ledger import LedgerRun, RunPhase, RunSet, names_of
from peloton.actors.host.reports import STOP_GRACE_S, held_runs
from peloton.actors.host.state import Host, Maintenance
from peloton.actors.job.slice.budget_messages import AskToEnd
from peloton.actors.task.messages import HOST_MAINTENANCE, slice_of_crowd
from peloton.runtime.vocabulary import (
    SETTLED,
    WAITING,
    At,
    Bits,
    Decision,
    Key,
    Refused,
    Rest,
    Send,
)


def start(host: Host, message: m.StartMaintenance, at: At) -> Decision:
    """Grant nothing any more and end every run."""
    if host.removed:
        return no_host(message, at)
    if host.maintenance != Maintenance.NONE:
        phase = m.MaintenanceSet(int(host.maintenance))
        # The operator's order outlives the move for which the host was drained.
        facts = (f.HostMoving(""),) if host.moving else ()
        return Decision(facts=facts, reply=phase, because="in maintenance already")
    if at.level < m.LEVEL_MAINTENANCE:
        return too_early("maintenance needs", m.LEVEL_MAINTENANCE, at=at)
    stops = tuple(
        name
        for crowd, some in held_runs(host)
        if some.phase not in (RunPhase.KILLING, RunPhase.HELD) and not some.asks
        for name in names_of(crowd, some.members.raw, run=some.run)
    )
    order = m.StopRuns(at.key, at.epoch, stops, STOP_GRACE_S)
    refusals, said = refused_at_maintenance(host, HOST_MAINTENANCE)
    started = (*refusals, f.MaintenanceStarted(HOST_MAINTENANCE))
    asked = _asked(host)
    return Decision(
        facts=started if host.hold is None else (_hold_ended(host.hold), *started),
        sends=(*said, *((Send(host.backend, order),) if stops else ()), *asked),
        reply=m.MaintenanceSet(int(Maintenance.DRAINING)),
        because="maintenance was started",
    )


def asked_to_end(host: Host) -> tuple[Send, ...]:
    """What slices are asked, until their runs are ending."""
    return _asked(host) if host.maintenance == Maintenance.DRAINING else ()


def _asked(host: Host) -> tuple[Send, ...]:
    asked: dict[Key, dict[int, Bits]] = {}
    for crowd, some in host.runs.sets():
        if waits_for_slice(some):
            runs = asked.setdefault(slice_of_crowd(crowd), {})
            runs[some.run] = runs.get(some.run, Bits()) | some.members
    return tuple(
        Send(slice_, AskToEnd(tuple(sorted(runs.items(), key=lambda each: each[0]))))
        for slice_, runs in asked.items()
    )


def waits_for_slice(some: RunSet | LedgerRun) -> bool:
    """Whether runs of a host that goes down go on until their slice ends them."""
    return some.asks and some.phase in (RunPhase.ACCEPTED, RunPhase.STARTED)


def _hold_ended(hold: HostHold) -> f.HoldEnded:
    return f.HoldEnded(hold.name, HOST_MAINTENANCE)


def complete(host: Host, message: m.CompleteMaintenance, at: At) -> Decision:
    """The host may be used again."""
    if host.removed:
        return no_host(message, at)
    if host.maintenance != Maintenance.DOWN:
        # It may be down when the request is repeated.
        return Decision(reply=Refused(m.NOT_DOWN, "Host is not DOWN", again=True))
    return Decision(
        facts=(f.MaintenanceCompleted(),),
        reply=m.MaintenanceSet(int(Maintenance.NONE)),
        because="maintenance was completed",
    )


def too_early(what: str, since: int, *, at: At) -> Decision:
    """Refuse: the cluster's feature level is below that of an order."""
    text = (
        f"{what} feature level {since}, the cluster's is {at.level}: "
        "upgrade every daemon, then `peloton features raise`"
    )
    return Decision(reply=Refused(m.LEVEL_TOO_LOW, text, again=True), because=text)


def no_host(message: Any, at: At) -> Decision:
    """Refuse: there is no such host."""
    text = "host is not a Peloton agent"
    return Decision(reply=Refused(m.NO_HOST, text, again=True), because="no such host")


def drain(host: Host) -> Decision | Rest:
    """Go down once no run holds anything and no task waits for word of one."""
    if host.maintenance == Maintenance.DRAINING and not held_runs(host):
        return Decision(facts=(f.HostDrained(),), because="all runs have ended")
    if host.maintenance == Maintenance.DRAINED and not host.runs:
        return Decision(facts=(f.HostTakenDown(),), because="down for maintenance")
    return SETTLED if host.maintenance == Maintenance.DOWN else WAITING
