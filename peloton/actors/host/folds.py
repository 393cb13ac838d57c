"""How facts change the state of a host.

A fold must not refuse a fact: what was journaled has happened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from peloton.actors.host import facts as f
from peloton.actors.host.ledger import RunSet
from peloton.actors.host.run_folds import RUN_EVOLVE, end_runs
from peloton.actors.host.stages import OCCUPYING, HostStates, Maintenance, RunPhase
from peloton.actors.host.state import Host, lost_outcome, ports_taken
from peloton.actors.host.volume_folds import fold_volumes
from peloton.actors.task.messages import SLACK_TAKEN
from peloton.placement.messages import DAEMON_LABEL, Label
from peloton.runtime.vocabulary import Fact

SIGNS_MAX = 64
"""Signs of trouble that a host remembers."""
replace = msgspec.structs.replace


def _configured(host: Host | None, fact: f.HostConfigured) -> Host:
    if host is None:
        return Host(
            state=HostStates.UNREACHABLE,
            capacity=fact.capacity,
            labels=fact.labels,
            backend=fact.backend,
            ports=fact.ports,
            unreachable_timeout_s=fact.unreachable_timeout_s,
        )
    same, capacity = host.backend == fact.backend, fact.capacity
    if host.declared is not None:
        capacity = capacity.with_slack(host.capacity.slack)
    host = replace(
        host,
        keeper=host.keeper if same else "",
        keeper_at=host.keeper_at if same else "",
        incarnation=host.incarnation if same else "",
        capacity=capacity,
        declared=None if host.declared is None else fact.capacity.slack,
        labels=fact.labels,
        backend=fact.backend,
        ports=fact.ports,
        unreachable_timeout_s=fact.unreachable_timeout_s,
        version=host.version + 1,
        removed=False,
    )
    return replace(host, ports_taken=ports_taken(host))  # of the new range


def _volumes(host: Host, fact: Any) -> Host:
    have, used = fold_volumes(host.volumes, fact, used=host.used)
    return replace(host, volumes=have, used=used, version=host.version + 1)


def _lost(host: Host, fact: f.HostLost) -> Host:
    outcome = lost_outcome(fact.reason)
    occupying = ((crowd, some) for crowd, some in host.runs.sets() if some.phase in OCCUPYING)
    ends = [(crowd, some.run, some.members, outcome, None, None) for crowd, some in occupying]
    host = end_runs(host, ends)
    host = replace(host, state=HostStates.LOST, because=fact.reason, hold=None, task_holds=())
    return replace(host, version=host.version + 1)


def _removed(host: Host, fact: f.HostRemoved) -> Host:
    # A person gave the runs up, so if it comes back any keeper may have its next ones.
    host = replace(_lost(host, f.HostLost(fact.reason)), removed=True)
    host = replace(host, keeper="", keeper_at="", maintenance=Maintenance.NONE, moving="")
    # Its volumes are on the machine, wherever that is, and here again if it comes back.
    return replace(host, trouble=(), quarantine=None)


def _maintenance_started(host: Host, fact: f.MaintenanceStarted) -> Host:
    host = _ending(host, fact.reason, but=DAEMON_LABEL if fact.daemons_last else None)
    return _maintenance(Maintenance.DRAINING)(replace(host, task_holds=()), fact)


def _ending(host: Host, reason: str, *, but: Label | None = None) -> Host:
    """Return the host with its runs ending, except those that have the label `but`."""

    def ending(of: RunSet) -> RunSet:
        if of.asks or of.phase not in (RunPhase.ACCEPTED, RunPhase.STARTED):
            return of
        return replace(of, phase=RunPhase.KILLING, reason=reason)

    runs = host.runs
    for crowd, some in host.runs.sets():
        if but is None or but not in some.labels:
            runs = runs.change(crowd, some.members, run=some.run, to=ending)
    return replace(host, runs=runs)


def _maintenance(phase: Maintenance) -> Callable[[Host, Any], Host]:
    return lambda host, fact: replace(host, maintenance=phase, version=host.version + 1)


def _pool_set(host: Host, fact: f.HostPoolSet) -> Host:
    version = host.version + 1
    return replace(host, pool=fact.pool, pool_version=fact.version, version=version)


def _completed(host: Host, fact: f.MaintenanceCompleted) -> Host:
    # Whatever the host was suspected of, its operator has looked after it.
    host = replace(host, trouble=(), quarantine=None, moving="")
    return _maintenance(Maintenance.NONE)(host, fact)


def _troubled(host: Host, fact: f.TroubleNoted) -> Host:
    recent = tuple(sign for sign in host.trouble if sign.at >= fact.since)
    return replace(host, trouble=(*recent, *fact.signs)[-SIGNS_MAX:])


def _quarantine(host: Host, quarantine: f.HostQuarantined | None) -> Host:
    return replace(host, trouble=(), quarantine=quarantine, version=host.version + 1)


def _hold_taken(host: Host, fact: f.HoldTaken) -> Host:
    return replace(host, hold=fact.hold, version=host.version + 1)


def _hold_ended(host: Host, fact: f.HoldEnded) -> Host:
    return replace(host, hold=None, version=host.version + 1)


def _task_held(host: Host, fact: f.TaskHeld) -> Host:
    others = tuple(one for one in host.task_holds if one.task != fact.hold.task)
    return replace(host, task_holds=(*others, fact.hold), version=host.version + 1)


def _task_holds_ended(host: Host, fact: f.TaskHoldsEnded) -> Host:
    left = tuple(one for one in host.task_holds if one.task not in fact.tasks)
    return replace(host, task_holds=left, version=host.version + 1)


def _slack_measured(host: Host, fact: f.SlackMeasured) -> Host:
    declared = host.capacity.slack if host.declared is None else host.declared
    slack = declared if fact.slack is None else fact.slack
    return replace(
        host,
        capacity=host.capacity.with_slack(slack),
        declared=None if fact.slack is None else declared,
        version=host.version + 1,
    )


def _slack_taken(host: Host, fact: f.SlackTaken) -> Host:
    def ending(of: RunSet) -> RunSet:
        return replace(of, phase=RunPhase.KILLING, reason=SLACK_TAKEN)

    return replace(host, runs=host.runs.change(fact.crowd, fact.members, run=fact.run, to=ending))


def _moving(host: Host, fact: f.HostMoving) -> Host:
    return replace(host, moving=fact.pool, version=host.version + 1)


def _unreachable(host: Host, fact: f.HostUnreachable) -> Host:
    return _in(HostStates.UNREACHABLE, host, because=fact.text)


def _reachable(host: Host, fact: f.HostReachable) -> Host:
    host = replace(host, proof_from=max(host.proof_from, fact.at))
    return _in(HostStates.RECONCILING, host, because=fact.text)


def _reconciled(host: Host, fact: f.HostReconciled) -> Host:
    if fact.keeper:
        host = replace(host, keeper=fact.keeper, keeper_at=fact.keeper_at)
    if fact.incarnation:
        host = replace(host, incarnation=fact.incarnation)
    # Lists that were requested before are older than the one that has settled what runs.
    host = replace(host, proof_from=max(host.proof_from, fact.at))
    return _in(HostStates.UP, host)


def _in(state: HostStates, host: Host, *, because: str = "") -> Host:
    return replace(host, state=state, because=because, version=host.version + 1)


def _use_wanted(host: Host, fact: f.UseWanted) -> Host:
    use = replace(host.use, wanted=fact.use, number=host.use.number + 1, text="")
    return replace(host, use=use, version=host.version + 1)


def _use_told(host: Host, fact: f.UseTold) -> Host:
    return replace(host, use=replace(host.use, told=fact.number, text=fact.text))


def _ports_noted(host: Host, fact: f.PortsNoted) -> Host:
    return replace(host, ports_in_use=fact.ports, version=host.version + 1)


EVOLVE: Mapping[type, Callable[[Any, Any], Host]] = {
    **RUN_EVOLVE,
    f.HostConfigured: _configured,
    f.HostUnreachable: _unreachable,
    f.HostReachable: _reachable,
    f.HostReconciled: _reconciled,
    f.HostLost: _lost,
    f.HostRemoved: _removed,
    f.MaintenanceStarted: _maintenance_started,
    f.DaemonsEnding: lambda host, fact: _ending(host, fact.reason),
    f.HostDrained: _maintenance(Maintenance.DRAINED),
    f.HostTakenDown: _maintenance(Maintenance.DOWN),
    f.MaintenanceCompleted: _completed,
    f.TroubleNoted: _troubled,
    f.TroubleOver: lambda host, fact: replace(host, trouble=()),
    f.HostQuarantined: _quarantine,
    f.QuarantineEnded: lambda host, fact: _quarantine(host, None),
    f.HostPoolSet: _pool_set,
    f.HoldTaken: _hold_taken,
    f.HoldEnded: _hold_ended,
    f.TaskHeld: _task_held,
    f.TaskHoldsEnded: _task_holds_ended,
    f.HostMoving: _moving,
    f.SlackMeasured: _slack_measured,
    f.SlackTaken: _slack_taken,
    f.UseWanted: _use_wanted,
    f.UseTold: _use_told,
    f.PortsNoted: _ports_noted,
    **dict.fromkeys((f.VolumesGiven, f.VolumeDeleting, f.VolumesGone), _volumes),
}


def folded(host: Host, facts: Iterable[Fact]) -> Host:
    """Return the host as it will be once these facts are journaled."""
    for fact in facts:
        host = EVOLVE[type(fact)](host, fact)
    return host
