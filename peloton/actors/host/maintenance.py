"""How a host is drained for maintenance, and comes back.

An operator sets the goal; from then on nothing is granted, and every run is ended. Such an end uses
up no attempt of its task, which gets a new run elsewhere. Instances of services are not ended here:
their slices are asked, which know whether the job can spare them now. Runs of daemon jobs end once
no other run is left, and wait for their host. The host is down once all its tasks have journaled
the ends of their runs and its backend has told the other users of the machine, and stays down,
whatever becomes of its machine, until the operator completes the maintenance.
"""

from __future__ import annotations

from typing import Any

from peloton.actors.host import facts as f
from peloton.actors.host import messages as m
from peloton.actors.host.drain_view import waits_for_slice
from peloton.actors.host.holds.hold_messages import HostHold
from peloton.actors.host.ledger import RunSet, run_names
from peloton.actors.host.machine_messages import HostUse
from peloton.actors.host.orders import stop_order
from peloton.actors.host.prepared_runs import refused_at_maintenance
from peloton.actors.host.stages import Maintenance, RunPhase
from peloton.actors.host.state import Host, occupying_runs
from peloton.actors.host.use import use_changed
from peloton.actors.job.slice.rollout_messages import AskToEnd
from peloton.actors.task.messages import HOST_MAINTENANCE, slice_of_crowd
from peloton.placement.messages import DAEMON_LABEL
from peloton.runtime.vocabulary import At, Bits, Decision, Key, Refused, Send

DAEMONS_LAST = "only runs of daemon jobs are left"


def start(host: Host, message: m.StartMaintenance, at: At) -> Decision:
    """Grant nothing any more, end every run, and tell the other users of the machine."""
    if host.removed:
        return no_host(message, at)
    if host.maintenance != Maintenance.NONE:
        phase = m.MaintenanceSet(int(host.maintenance))
        # The operator's order outlives the move for which the host was drained.
        ended = (f.HostMoving(""),) if host.moving else ()
        facts, sends = use_changed(host, host.maintenance, at)
        return Decision((*ended, *facts), sends, phase, because="in maintenance already")
    begun = begin(host, at)
    if not begun.facts:
        return begun
    facts, sends = use_changed(host, Maintenance.DRAINING, at)
    return Decision(
        (*begun.facts, *facts), (*begun.sends, *sends), begun.reply, because=begun.because
    )


def begin(host: Host, at: At) -> Decision:
    """Grant nothing any more and end every run."""
    runs = _not_ending(host)
    others = [each for each in runs if DAEMON_LABEL not in each[1].labels]
    last = len(others) < len(runs) and not _has_only_daemons(host)
    stops = stop_order(host, run_names(others if last else runs), at)
    refusals, said = refused_at_maintenance(host, HOST_MAINTENANCE)
    started = (*refusals, f.MaintenanceStarted(HOST_MAINTENANCE, last))
    asked = asked_to_end(host)
    return Decision(
        facts=started if host.hold is None else (_hold_ended(host.hold), *started),
        sends=(*said, *stops, *asked),
        reply=m.MaintenanceSet(int(Maintenance.DRAINING)),
        because="maintenance was started",
    )


def _not_ending(host: Host) -> list[tuple[Key, RunSet]]:
    """Return the runs that are not told to end yet, without those whose slices are asked."""
    ending = (RunPhase.KILLING, RunPhase.PREPARED)
    return [
        each for each in occupying_runs(host) if each[1].phase not in ending and not each[1].asks
    ]


def _has_only_daemons(host: Host) -> bool:
    return all(DAEMON_LABEL in some.labels for _, some in occupying_runs(host))


def end_daemons(host: Host, at: At) -> Decision | None:
    """End the runs of daemon jobs, once no other run is left; until then, and after it, None."""
    stops = run_names(_not_ending(host)) if _has_only_daemons(host) else ()
    if not stops:
        return None
    facts = (f.DaemonsEnding(HOST_MAINTENANCE),)
    return Decision(facts=facts, sends=stop_order(host, stops, at), because=DAEMONS_LAST)


def asked_to_end(host: Host) -> tuple[Send, ...]:
    """Return what slices are asked while the host drains, until their runs are ending."""
    asked: dict[Key, dict[int, Bits]] = {}
    for crowd, some in host.runs.sets():
        if waits_for_slice(some):
            runs = asked.setdefault(slice_of_crowd(crowd), {})
            runs[some.run] = runs.get(some.run, Bits()) | some.members
    return tuple(
        Send(slice_, AskToEnd(tuple(sorted(runs.items(), key=lambda each: each[0]))))
        for slice_, runs in asked.items()
    )


def _hold_ended(hold: HostHold) -> f.HoldEnded:
    return f.HoldEnded(hold.name, HOST_MAINTENANCE)


def complete(host: Host, message: m.CompleteMaintenance, at: At) -> Decision:
    """Use the host again."""
    if host.removed:
        return no_host(message, at)
    if host.maintenance != Maintenance.DOWN:
        # It may be down when the request is repeated.
        return Decision(reply=Refused(m.NOT_DOWN, "Host is not DOWN", again=True))
    facts, sends = use_changed(host, Maintenance.NONE, at)
    return Decision(
        facts=(f.MaintenanceCompleted(), *facts),
        sends=sends,
        reply=m.MaintenanceSet(int(Maintenance.NONE)),
        because="maintenance was completed",
    )


def no_host(message: Any, at: At) -> Decision:
    """Refuse: there is no such host."""
    text = "host is not a Peloton agent"
    return Decision(reply=Refused(m.NO_HOST, text, again=True), because="no such host")


def drain(host: Host, at: At) -> Decision | None:
    """Have drained once no run holds anything; a backend that was told that the host drains is to
    put the machine out of use."""
    if occupying_runs(host):
        return None
    told = host.use.wanted == HostUse.DRAINING
    facts, sends = use_changed(host, Maintenance.DRAINED, at) if told else ((), ())
    return Decision((f.HostDrained(), *facts), sends, because="all runs have ended")
