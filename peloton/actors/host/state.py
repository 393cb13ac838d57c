"""The state of a host, and how facts change it.

Turns (state, fact) into the next state. Must not refuse a fact: what was journaled has happened.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import immutables
import msgspec

from peloton.actors.host import facts as f
from peloton.actors.host.draining import waits_for_slice as waits_for_slice
from peloton.actors.host.draining import why_not_down as why_not_down
from peloton.actors.host.foreign_names import is_foreign
from peloton.actors.host.hold_messages import HostHold, TaskHold
from peloton.actors.host.ledger import HOLDING, Ledger, RunPhase, RunSet, by_crowd
from peloton.actors.host.messages import RUNNING_LABELS_MAX
from peloton.actors.host.use_messages import UseAtBackend
from peloton.actors.host.volume_folds import HostVolumes, fold_volumes
from peloton.actors.resources import Resources
from peloton.actors.task.messages import SLACK_TAKEN, End, RunOutcome
from peloton.placement.conditions import HOST_POOL
from peloton.placement.messages import DAEMON_LABEL, HostSummary, Label, ReservedRoom
from peloton.runtime.vocabulary import Bits, Fact, Key, Value

SIGNS_MAX = 64
"""Signs of trouble that a host remembers."""
replace = msgspec.structs.replace


class HostStates(enum.IntEnum):
    """How far the host and its backend agree."""

    RECONCILING = 1  # the backend answers, but the ledger has not been compared yet
    UP = 2
    UNREACHABLE = 3
    LOST = 4


class Maintenance(enum.IntEnum):
    """How far the maintenance of a host is. Beyond NONE the host should be down."""

    NONE = 0
    DRAINING = 1  # its runs are ending
    DRAINED = 2  # they have ended, and tasks have still to journal it
    DOWN = 3


class Host(Value, frozen=True, gc=False, array_like=True):
    """A machine and its ledger. `version` rises with every change of resources or labels.

    `keeper` is the identity of the keeper that the ledger was first compared with; the list of
    another keeper is not applied. Empty: none was met yet, and the next one is adopted.
    """

    state: HostStates
    capacity: Resources
    labels: tuple[Label, ...]
    backend: Key
    ports: tuple[int, int]
    unreachable_timeout_s: float
    runs: Ledger = Ledger()
    used: Resources = Resources()
    version: int = 0
    because: str = ""
    removed: bool = False  # not part of the cluster any more; messages about its runs are answered
    ports_taken: int | None = None  # of `ports`; None in states of versions that did not count them
    launches: int = 0  # members whose launch was decided here, accepted or refused; never falls
    keeper: str = ""
    keeper_at: str = ""  # its folder when it was compared last, for people
    running: immutables.Map[Label, int] = immutables.Map()  # of runs that hold resources, counted
    maintenance: Maintenance = Maintenance.NONE
    pool: str = ""  # of hosts, as told last; "" as long as it was never told: the default one
    pool_version: int = 0  # of the order that told it
    trouble: tuple[f.TroubleSign, ...] = ()  # since a run has succeeded, the last ones
    quarantine: f.HostQuarantined | None = None  # while placers leave it out
    hold: HostHold | None = None  # while there is one, all that is unused is the holder's
    foreign: int = 0  # runs that no task has
    proof_from: float = 0.0  # no list that was requested by then proves a started run lost
    task_holds: tuple[TaskHold, ...] = ()  # while there is one, others get nothing
    moving: str = ""  # the pool of hosts that it joins once it is down
    declared: int | None = None  # slack by its configuration, while measured slack is in `capacity`
    volumes: HostVolumes = immutables.Map()  # by name; `used` counts their room
    use: UseAtBackend = UseAtBackend()  # what its backend is to know of its maintenance

    @property
    def all_labels(self) -> tuple[Label, ...]:
        """The labels of its machine, and its pool."""
        if not self.pool:
            return self.labels
        return (
            *(one for one in self.labels if one.key != HOST_POOL),
            Label(HOST_POOL, self.pool),
        )

    @property
    def unused(self) -> Resources:
        """The resources that no run holds."""
        return room_left(self.capacity, self.used)

    @property
    def free(self) -> Resources:
        """The resources that may be granted to any task: neither runs nor holds have them."""
        return Resources() if self.held else self.unused

    @property
    def held(self) -> bool:
        """Whether all that runs leave free is somebody's."""
        return self.hold is not None or bool(self.task_holds)

    @property
    def grants(self) -> bool:
        """Whether new runs may start here."""
        return self.state == HostStates.UP and self.maintenance == Maintenance.NONE

    @property
    def free_ports(self) -> int:
        """How many ports of its range no run holds."""
        first, end = self.ports
        return max(0, end - first - ports_taken(self))

    def summary(self, key: Key, *, tasks: bool = False) -> HostSummary:
        """The host as placers see it, with the labels of its `tasks` if they are to be known."""
        return HostSummary(
            host=key,
            position=self.version,
            capacity=self.capacity,
            free=self.free,
            labels=self.all_labels,
            up=self.grants,
            ports=0 if self.held else self.free_ports,
            running=self._running_labels() if tasks else None,
            launches=self.launches,
            quarantined=self.quarantine is not None,
            reserved=self._reserved_room() if self.task_holds and self.hold is None else None,
        )

    def _reserved_room(self) -> ReservedRoom:
        tasks = ((one.crowd, one.member) for one in self.task_holds if not is_foreign(one.crowd))
        return ReservedRoom(self.unused, self.free_ports, tuple(tasks))

    def _running_labels(self) -> tuple[tuple[Label, int], ...] | None:
        if len(self.running) > RUNNING_LABELS_MAX:
            return None
        return tuple(sorted(self.running.items())) if self.running else ()


def room_left(capacity: Resources, used: Resources) -> Resources:
    """What runs that hold so much leave of it."""
    unused = capacity - used
    # Where slack was taken back, its runs may still be ending: that is no room for anybody.
    return unused.with_slack(0) if unused.slack < 0 else unused


def configuration(host: Host) -> f.HostConfigured:
    """The configuration of the host as a fact, to compare a new one with."""
    capacity = host.capacity
    if host.declared is not None:
        capacity = capacity.with_slack(host.declared)
    return f.HostConfigured(
        capacity, host.labels, host.backend, host.ports, host.unreachable_timeout_s
    )


def ports_taken(host: Host) -> int:
    """How many ports of the host's range its runs hold; counted if the state has no number."""
    if host.ports_taken is not None:
        return host.ports_taken
    return len(
        {port for _, some in host.runs.sets() for port in some.ports if in_range(host, port)}
    )


def in_range(host: Host, port: int) -> bool:
    """Whether a port is in the range that the host picks from; a run may name any other."""
    first, end = host.ports
    return first <= port < end


def _configured(host: Host | None, fact: f.HostConfigured) -> Host:
    if host is None:
        return Host(
            state=HostStates.UNREACHABLE,
            capacity=fact.capacity,
            labels=fact.labels,
            backend=fact.backend,
            ports=fact.ports,
            unreachable_timeout_s=fact.unreachable_timeout_s,
            ports_taken=0,
        )
    same, capacity = host.backend == fact.backend, fact.capacity
    if host.declared is not None:
        capacity = capacity.with_slack(host.capacity.slack)
    host = replace(
        host,
        keeper=host.keeper if same else "",
        keeper_at=host.keeper_at if same else "",
        capacity=capacity,
        declared=None if host.declared is None else fact.capacity.slack,
        labels=fact.labels,
        backend=fact.backend,
        ports=fact.ports,
        unreachable_timeout_s=fact.unreachable_timeout_s,
        version=host.version + 1,
        removed=False,
        ports_taken=None,  # of the new range
    )
    return replace(host, ports_taken=ports_taken(host))


def _accepted(host: Host, fact: f.RunsAccepted | f.RunsHeld) -> Host:
    need, runs = fact.spec.resources, host.runs
    phase = RunPhase.ACCEPTED if isinstance(fact, f.RunsAccepted) else RunPhase.HELD
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
        ports_taken=ports_taken(host) + picked,
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


def _volumes(host: Host, fact: Any) -> Host:
    have, used = fold_volumes(host.volumes, fact, used=host.used)
    return replace(host, volumes=have, used=used, version=host.version + 1)


def _counted(
    running: immutables.Map[Label, int], some: RunSet, *, by: int
) -> immutables.Map[Label, int]:
    """With so many runs more that have the labels of `some`; counts of zero are left out."""
    for label in some.labels:
        count = running.get(label, 0) + by
        running = running.set(label, count) if count else running.delete(label)
    return running


def _held_started(host: Host, fact: f.HeldStarted) -> Host:
    def accepted(of: RunSet) -> RunSet:
        return replace(of, phase=RunPhase.ACCEPTED, since=fact.at)

    return replace(host, runs=host.runs.change(fact.crowd, fact.members, run=fact.run, to=accepted))


def _held_over(host: Host, fact: f.HeldReleased | f.HeldRefused) -> Host:
    """What was held is free. A refusal is kept, because the task has to see it."""
    before: list[RunSet] = []

    def over(of: RunSet) -> RunSet | None:
        before.append(of)
        if isinstance(fact, f.HeldReleased):
            return None
        return RunSet(of.members, of.run, RunPhase.REFUSED, Resources(), reason=fact.reason)

    runs = host.runs.change(fact.crowd, fact.members, run=fact.run, to=over)
    return _without(replace(host, runs=runs), before)


def _without(host: Host, gone: list[RunSet]) -> Host:
    """The host without what these runs held."""
    used, taken, running = host.used, ports_taken(host), host.running
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
    """Crowd, run number and members of runs in a fact that names each of them."""
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
        # Killed runs were noted before; facts of earlier versions have no time.
        noted_at = 0.0 if isinstance(fact, f.KillOrdered) else fact.noted_at
        return replace(host, runs=runs, proof_from=max(host.proof_from, noted_at))

    return evolve


_End = tuple[Key, int, Bits, RunOutcome, float | None, float | None]
"""Crowd, run number, members, outcome, when if that is long ago, and when they started if so."""


def _end(host: Host, ends: Iterable[_End]) -> Host:
    runs, used, taken = host.runs, host.used, ports_taken(host)
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
    """A change to ENDED that notes what the runs held."""

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
    return _end(host, ends)


def _set_ended(host: Host, fact: f.SetEnded) -> Host:
    end = (fact.crowd, fact.run, fact.members, fact.outcome, fact.at, fact.started_at)
    return _end(host, [end])


def _forgotten(host: Host, fact: f.RunsForgotten | f.SetForgotten) -> Host:
    runs = host.runs
    for crowd, run, members in _sets(fact):
        runs = runs.change(crowd, members, run=run, to=lambda _: None)
    return replace(host, runs=runs)


def lost_outcome(reason: str) -> RunOutcome:
    """The outcome of a run whose host is lost."""
    return RunOutcome(End.LOST, reason="host lost", message=f"Task LOST: {reason}", system=True)


def _lost(host: Host, fact: f.HostLost) -> Host:
    outcome = lost_outcome(fact.reason)
    held = [(crowd, some) for crowd, some in host.runs.sets() if some.phase in HOLDING]
    host = _end(host, [(crowd, one.run, one.members, outcome, None, None) for crowd, one in held])
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
    """The host with its runs ending, without those that have this label."""

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


def _reconciled(host: Host, fact: f.HostReconciled) -> Host:
    if fact.keeper:
        host = replace(host, keeper=fact.keeper, keeper_at=fact.keeper_at)
    # Earlier versions noted no times of starts: what they started came before this.
    host = replace(host, proof_from=max(host.proof_from, fact.at))
    return _state(HostStates.UP)(host, fact)


def _state(state: HostStates) -> Callable[[Host, Any], Host]:
    return lambda host, fact: replace(
        host, state=state, because=getattr(fact, "text", ""), version=host.version + 1
    )


def _use_wanted(host: Host, fact: f.UseWanted) -> Host:
    use = replace(host.use, wanted=fact.use, number=host.use.number + 1, text="")
    return replace(host, use=use, version=host.version + 1)


def _use_told(host: Host, fact: f.UseTold) -> Host:
    return replace(host, use=replace(host.use, told=fact.number, text=fact.text))


EVOLVE: Mapping[type, Callable[[Any, Any], Host]] = {
    f.HostConfigured: _configured,
    f.RunsAccepted: _accepted,
    f.RunsHeld: _accepted,
    f.HeldStarted: _held_started,
    f.HeldReleased: _held_over,
    f.HeldRefused: _held_over,
    f.DevicesGiven: _devices_given,
    f.RunsRefused: _refused,
    f.ProcessesStarted: _phase(RunPhase.STARTED),
    f.KillOrdered: _phase(RunPhase.KILLING),
    f.ProcessesEnded: _ended,
    f.RunsForgotten: _forgotten,
    f.HostUnreachable: _state(HostStates.UNREACHABLE),
    f.HostReachable: _state(HostStates.RECONCILING),
    f.HostReconciled: _reconciled,
    f.HostLost: _lost,
    f.HostRemoved: _removed,
    f.SetStarted: _phase(RunPhase.STARTED),
    f.SetEnded: _set_ended,
    f.SetForgotten: _forgotten,
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
    **dict.fromkeys((f.VolumesGiven, f.VolumeDeleting, f.VolumesGone), _volumes),
}


def folded(host: Host, facts: Iterable[Fact]) -> Host:
    """The host as it will be once these facts are journaled."""
    for fact in facts:
        host = EVOLVE[type(fact)](host, fact)
    return host
